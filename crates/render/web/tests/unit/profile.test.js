import assert from 'node:assert/strict';
import { test } from 'node:test';
import { leafFirst, mergeDown, mergeUp, TreeShape } from '../../js/derive.js';
import { linesOf } from '../../js/detail.js';
import { hiddenIdle, matchedTime, plainLook, runsOf, search, select } from '../../js/filter.js';
import { byState, sentence, sumLedgers } from '../../js/ledger.js';
import { small } from './fixture.js';

const p = small();
const look = (change) => ({ ...plainLook(), ...change });
const all = () => select(p, look({}), null);
const id = (name) => p.names.indexOf(name);

/** Sums of scaled times are not whole numbers. */
const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-6, `${a} is not ${b}`);

/** A shape as nested text, for comparison. */
function text(shape) {
  const children = new Map();
  for (let i = 1; i < shape.levels; i += 1) {
    for (let k = shape.levelStart[i]; k < shape.levelEnd[i]; k += 1) {
      const n = shape.order[k];
      const parent = shape.parent(n);
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(n);
    }
  }
  const show = (n) => {
    const entry = shape.entry(n);
    const name = entry === -1 ? 'all' : p.names[entry];
    const below = (children.get(n) ?? []).map(show).join(' ');
    return `${name}:${shape.right(n) - shape.left(n)}${below ? `(${below})` : ''}`;
  };
  return show(0);
}

test('the tree keeps every nanosecond, and self is what children leave', () => {
  const s = all();
  assert.equal(s.total, 950);
  assert.equal(s.time(0), 950);
  assert.equal(s.time(2), 900);
  assert.equal(s.self(6), 400);
  assert.equal(s.self(2), 0);
  assert.equal(text(new TreeShape(s)), 'all:950(main:950(work:900(lock:500(futex:500) work:400(leaf:400)) idle:50))');
});

test('views, threads and reasons filter together, and what has no time is gone', () => {
  const onCpu = select(p, look({ view: 'on-cpu' }), null);
  assert.equal(text(new TreeShape(onCpu)), 'all:400(main:400(work:400(work:400(leaf:400))))');
  assert.equal(select(p, look({ threads: [1] }), null).total, 150);
  assert.equal(select(p, look({ names: ['a'], reasons: ['lock'] }), null).total, 500);
  assert.equal(select(p, look({ states: ['blocked'] }), null).total, 550);
  assert.equal(select(p, look({ view: 'runq' }), null).total, 0);
});

test('a recursive function counts once, waiting counts outside of the kernel', () => {
  const { self, total } = all().byEntry();
  assert.equal(total[id('work')], 900);
  assert.equal(self[id('leaf')], 400);
  assert.equal(self[id('futex')], 0);
  assert.equal(self[id('lock')], 500);
  assert.equal(total[id('futex')], 500);
});

test('derived trees hold the same time', () => {
  const s = all();
  assert.equal(text(mergeDown(s, [0], { fold: true })), 'all:950(main:950(work:900(lock:500(futex:500) leaf:400) idle:50))');
  assert.equal(text(leafFirst(s, { fold: false })), 'all:950(futex:500(lock:500(work:500(main:500))) leaf:400(work:400(work:400(main:400))) idle:50(main:50))');
  const nodes = s.nodesOf(id('work'));
  assert.deepEqual(nodes, [2]);
  assert.equal(text(mergeUp(s, nodes, { fold: false })), 'work:900(main:900)');
  assert.equal(text(mergeDown(s, nodes, { fold: false })), 'work:900(lock:500(futex:500) work:400(leaf:400))');
});

test('within some slices, stacks sum to what the ledger counted there', () => {
  // Slice 0: the ledger says 440 on the lock, samples said 400.
  const first = select(p, look({ time: [[0, 1]] }), null);
  near(first.total, 490);
  near(first.time(3), 440);
  // Slice 3: 40 that no sample saw stand as such, and are not given to others.
  const last = select(p, look({ time: [[3, 4]], threads: [0] }), null);
  assert.equal(last.total, 40);
  assert.equal(last.time(8), 40);
  const two = select(p, look({ time: [[1, 3]] }), null);
  near(two.total, 320);
  assert.deepEqual(byState(sumLedgers(p.threadLedgers(Uint8Array.of(0, 1, 1, 0)))), [300, 0, 20, 0]);
});

test('a search takes patterns, and what is none as it stands', () => {
  const hits = (query) => [...search(p, query).entries].flatMap((v, i) => (v ? [p.names[i]] : []));
  assert.deepEqual(hits('^l'), ['leaf', 'lock']);
  assert.deepEqual(hits('LEAF'), []);
  assert.deepEqual(hits('[not'), ['[not sampled]']);
  assert.notEqual(search(p, '[not').problem, '');
  assert.equal(search(p, ''), null);
  assert.equal(matchedTime(all(), search(p, 'work|leaf').entries), 900);
  const only = select(p, look({ only: true }), search(p, 'leaf').entries);
  assert.equal(only.total, 400);
});

test('lines of a function count each stack once', () => {
  assert.deepEqual(linesOf(all(), id('main')), new Map([[10, { self: 0, total: 900 }], [11, { self: 0, total: 50 }]]));
});

test('intervals hold the estimate, and know how little they know', () => {
  const s = all();
  const whole = s.interval([0, p.rows]);
  assert.ok(whole.high >= 1 - 1e-9 && whole.low > 0.5);
  const idle = s.interval(s.ranges(s.nodesOf(id('idle'))));
  assert.ok(idle.low <= 50 / 950 && idle.high >= 50 / 950);
  assert.equal(idle.samples, 1);
  assert.ok(idle.high - idle.low > 0.1);
});

test('runs of slices', () => {
  assert.deepEqual(runsOf(Uint8Array.of(1, 1, 0, 1, 0, 0, 1)), [[0, 2], [3, 4], [6, 7]]);
});

test('the sentence says which part faster code could save', () => {
  const words = sentence(sumLedgers(p.threadLedgers(null)), 2, p);
  assert.match(words, /^2 threads lived 950 ns: 42\.1 % on a CPU, 0 % waiting for one, 57\.9 % blocked, most of that on lock \(52\.6 %\)/);
  assert.match(sentence(sumLedgers([]), 0, p), /No thread/);
});

test('idle waiting is hidden, told, and can be shown or looked at alone', () => {
  const q = small();
  // The row of `idle`: no request was in flight.
  q.rowTag[3] |= 128;
  assert.equal(select(q, look({}), null).total, 900);
  assert.equal(hiddenIdle(q, look({})), 50);
  assert.equal(select(q, look({ idle: 'show' }), null).total, 950);
  assert.equal(select(q, look({ idle: 'only' }), null).total, 50);
  assert.equal(hiddenIdle(q, look({ idle: 'show' })), 0);
});
