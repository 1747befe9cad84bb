// Colours are told apart by everybody, also with a colour vision deficiency, and carry their letters.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { CPU_COLOURS, INK, KIND_COLOURS, REASONS, STATE_COLOURS } from '../../js/colours.js';
import { PART_COLOURS, taskColour } from '../../js/palette.js';
import { apart, ciede2000, contrast, hue, lab, SIGHT } from './sight.js';

const [ON_CPU, RUNNABLE, BLOCKED, UNKNOWN] = STATE_COLOURS;

/** Reasons that are seldom seen may be nearer to each other. */
const RARE = new Set(['page_fault', 'memory', 'kernel_lock', 'stopped', 'other']);
/** Least CIEDE2000 of two colours by sight: 2 is just seen side by side, 10 from memory. */
const LEAST = { full: 12, protanopia: 9.5, deuteranopia: 9.5, tritanopia: 7 };
const LEAST_OF_RARE = { full: 10, protanopia: 7.5, deuteranopia: 7.5, tritanopia: 7 };

test('the difference of colours is CIEDE2000', () => {
  // From the table of Sharma, Wu and Dalal 2005.
  const pairs = [
    [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
    [[50, -1.3802, -84.2814], [50, 0, -82.7485], 1],
    [[50, 2.5, 0], [73, 25, -18], 27.1492],
    [[60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387], 1.2644],
    [[2.0776, 0.0795, -1.135], [0.9033, -0.0636, -0.5514], 0.9082],
  ];
  for (const [a, b, known] of pairs) assert.ok(Math.abs(ciede2000(a, b) - known) < 1e-4, `${a} and ${b}: ${ciede2000(a, b)}`);
});

test('reasons are told apart from each other and from other states', () => {
  for (const [i, r] of REASONS.entries()) {
    const others = REASONS.slice(0, i).map((o) => [o.name, o.colour]);
    const states = [['on CPU', ON_CPU], ['runnable', RUNNABLE], ['not seen', UNKNOWN]];
    for (const [name, colour] of [...others, ...states]) {
      const least = RARE.has(r.name) || RARE.has(name) ? LEAST_OF_RARE : LEAST;
      for (const [sight, d] of Object.entries(least)) {
        const found = apart(r.colour, colour, sight);
        assert.ok(found > d, `${sight}: ${r.name} and ${name} are ${found.toFixed(1)} apart`);
      }
    }
  }
});

for (const [name, colours] of Object.entries({ states: STATE_COLOURS, 'kinds of code': Object.values(KIND_COLOURS) })) {
  test(`the colours of ${name} are told apart with any sight`, () => {
    for (const sight of Object.keys(SIGHT)) {
      for (const [a, colour] of colours.entries()) {
        for (const other of colours.slice(0, a)) {
          const found = apart(colour, other, sight);
          assert.ok(found > 8, `${sight}: ${colour} and ${other} are ${found.toFixed(1)} apart`);
        }
      }
    }
  });
}

test('each state is a family: on CPU is warm, runnable is pink, blocked is cool', () => {
  const of = (colour) => hue(lab(colour, 'full'));
  for (const colour of CPU_COLOURS.slice(0, 4)) assert.ok(of(colour) > 55 && of(colour) < 95, `${colour}: ${of(colour)}`);
  for (const colour of CPU_COLOURS.slice(4)) assert.ok(of(colour) > 330 || of(colour) < 10, `${colour}: ${of(colour)}`);
  for (const { name, colour } of [...REASONS, { name: 'blocked', colour: BLOCKED }]) {
    assert.ok(of(colour) > 100 && of(colour) < 330, `${name}: ${of(colour)}`);
  }
});

test('every colour of time carries its letters, and is seen on the ground of both themes', () => {
  const css = readFileSync(new URL('../../page.css', import.meta.url), 'utf8');
  const grounds = [...css.matchAll(/--ground: (#[0-9a-f]{6})/g)].map((m) => m[1]);
  assert.equal(grounds.length, 2);
  for (const colour of [...PART_COLOURS, ...STATE_COLOURS, ...Object.values(KIND_COLOURS)]) {
    assert.ok(contrast(INK, colour) >= 4.5, `${colour}: ${contrast(INK, colour).toFixed(2)}`);
    for (const ground of grounds) assert.ok(apart(colour, ground, 'full') > 7, `${colour} on ${ground}`);
  }
});

test('colours of time and code are declared in the model alone', () => {
  const own = new Set([...PART_COLOURS, ...STATE_COLOURS, ...Object.values(KIND_COLOURS)]);
  const js = new URL('../../js/', import.meta.url);
  const sources = readdirSync(js).filter((f) => f !== 'colours.js').map((f) => new URL(f, js));
  for (const file of [...sources, new URL('../../page.css', import.meta.url)]) {
    const twice = [...readFileSync(file, 'utf8').matchAll(/#[0-9a-f]{6}\b/g)].map((m) => m[0]).filter((c) => own.has(c));
    assert.deepEqual(twice, [], file.pathname);
  }
});

test('waits of tasks have the colour of the kindred block reason', () => {
  const of = (name) => REASONS.find((r) => r.name === name).colour;
  assert.equal(taskColour('mutex'), of('lock'));
  assert.equal(taskColour('channel'), of('pipe'));
  assert.equal(taskColour('network'), of('network'));
  assert.equal(taskColour('never heard of'), of('other'));
});

test('the page’s own letters stand out from their ground, in light and in dark', () => {
  const css = readFileSync(new URL('../../page.css', import.meta.url), 'utf8');
  for (const theme of [/:root \{([^}]*)\}/, /:root\.dark \{([^}]*)\}/]) {
    const colours = Object.fromEntries([...theme.exec(css)[1].matchAll(/--([\w-]+): (#[0-9a-f]{6})/g)].map((m) => [m[1], m[2]]));
    for (const ground of ['ground', 'raised', 'accent-soft']) {
      for (const ink of ['ink', 'dim', 'accent', 'bad'].filter((i) => ground !== 'accent-soft' || i === 'ink')) {
        if (!colours[ink]) continue;
        const c = contrast(colours[ink], colours[ground]);
        assert.ok(c >= 4.5, `${ink} on ${ground}: ${c.toFixed(2)}`);
      }
    }
  }
});
