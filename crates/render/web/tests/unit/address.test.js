// The address: a look survives it, and nothing that an address says can do harm.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromAddress, toAddress } from '../../js/address.js';
import { mergeDown, leafFirst } from '../../js/derive.js';
import { plainLook, search, select, setUsualIdle } from '../../js/filter.js';
import { mineOf } from '../../js/mine.js';
import { paint } from '../../js/palette.js';
import { small } from './fixture.js';

const p = small();
const look = (change) => ({ ...plainLook(), ...change });

/** Numbers that come out the same in every run. */
function dice(seed) {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

test('a look survives its address', () => {
  const l = look({ view: 'off-cpu', threads: [0, 1], names: ['a,b', 'c&d=é'], time: [[0, 2], [3, 4]], query: 'x|y (z)#%', only: true, zoom: '12', icicle: false, focus: 3, reasons: ['kernel_lock'], mine: true, flip: ['libc.so.6', 'a b'], range: '0~99' });
  assert.deepEqual(fromAddress(toAddress(l), p), l);
  assert.equal(toAddress(plainLook()), '');
});

test('nonsense in an address is left out', () => {
  const odd = fromAddress('view=x&time=9-1,2-99,a-b,1.5-2,1-2-3&threads=-1,1,7,1e0,0x1&idle=never&focus=1e9x&nothing=1&names=&query=%E0%A4%A&__proto__=1&constructor=2&colour=x&sort=;&zoom=-1&range=1~&pick=99', p);
  assert.deepEqual(odd, look({ time: [[2, 4]], threads: [1], query: '%E0%A4%A' }));
  assert.equal(Object.getPrototypeOf(odd), Object.prototype);
  assert.deepEqual(fromAddress('threads=&pids=', p), look({}));
});

test('random looks survive', () => {
  const random = dice(3);
  const pick = (...of) => of[random(of.length)];
  for (let i = 0; i < 500; i += 1) {
    const l = look({
      view: pick('wall', 'on-cpu', 'off-cpu', 'runq', 'off-wake'), tab: pick('flame', 'table', 'why'), threads: pick([], [0], [1], [0, 1]), names: pick([], ['a'], ['=&#,%', 'ü\u202e']), pids: pick([], [1]),
      states: pick([], ['blocked']), reasons: pick([], ['lock', 'poll']), labels: pick([], ['k=v', 'k=a,b']), idle: pick('hide', 'show', 'only'), time: pick([], [[0, 1]], [[0, 1], [2, 4]]), query: pick('', '^a\\.b$', '%', '&only=1'),
      only: pick(true, false), zoom: pick('', '3', '0~500'), icicle: pick(true, false), leaf: pick(true, false), fold: pick(true, false), mine: pick(true, false), flip: pick([], ['small']), colour: pick('', 'kind', 'module'),
      focus: random(8) - 1, pick: random(8) - 1, sort: pick('', '-total', 'name'), range: pick('', '0~4000'),
    });
    assert.deepEqual(fromAddress(toAddress(l), p), l);
  }
});

test('whatever an address says, there is a picture of it', () => {
  const random = dice(11);
  const keys = [...Object.keys(plainLook()), '__proto__', 'toString', '', 'hasOwnProperty'];
  const letters = ['0', '1', '9', '-', ',', '~', '=', '&', '%', '%2', '%00', 'e', '.', '+', '(', '[', '\\', '*', '\ud800', 'NaN', 'Infinity', 'wall', 'on-cpu', 'leaf', 'lock', 'small', ' '];
  for (let i = 0; i < 3000; i += 1) {
    const parts = Array.from({ length: random(7) }, () => `${keys[random(keys.length)]}${random(9) > 0 ? '=' : ''}${Array.from({ length: random(6) }, () => letters[random(letters.length)]).join('')}`);
    const address = parts.join('&');
    const l = fromAddress(address, p);
    assert.deepEqual(Object.keys(l), Object.keys(plainLook()), address);
    const found = search(p, l.query);
    const selection = select(p, l, found ? found.entries : null);
    assert.ok(selection.total >= 0 && selection.total <= 950 + 1e-6, address);
    const options = { fold: l.fold, mine: mineOf(p, l) };
    const shape = l.leaf ? leafFirst(selection, options) : mergeDown(selection, [0], options);
    assert.ok(Math.abs(shape.total - selection.total) < 1e-6, address);
    paint(l.colour, selection);
    // A look that was read stays as it is.
    assert.deepEqual(fromAddress(toAddress(l), p), l, address);
  }
});

test('a page may begin with idle time shown; a choice stays in its address', () => {
  setUsualIdle('show');
  assert.equal(fromAddress('', p).idle, 'show');
  assert.equal(toAddress(look({ idle: 'hide' })), 'idle=hide');
  assert.equal(fromAddress('idle=hide', p).idle, 'hide');
  assert.equal(fromAddress('idle=never', p).idle, 'show');
  setUsualIdle('hide');
  setUsualIdle('never');
  assert.equal(fromAddress('', p).idle, 'hide');
});
