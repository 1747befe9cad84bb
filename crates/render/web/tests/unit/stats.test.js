import assert from 'node:assert/strict';
import { test } from 'node:test';
import { join, shareInterval, smallestShare } from '../../js/stats.js';

// crates/render/src/page/mod.rs has these cases with these numbers too, and holds them against the
// recorder's own arithmetic.
const CASES = [
  { part: [1, 2, 3, 4, 5, 6], whole: [10, 10, 10, 10, 10, 10], samples: 60, low: 0.2140358849200057, high: 0.5156671274516007 },
  { part: [0, 0, 0, 0, 0, 0, 0, 0], whole: [9, 10, 11, 10, 9, 10, 11, 10], samples: 80, low: 0, high: 0.0654313396076468 },
  { part: [5, 5, 0, 5, 5, 1, 5, 2], whole: [9, 10, 11, 10, 9, 10, 11, 10], samples: 80, low: 0.1747866154277782, high: 0.5778607518908626 },
  { part: [3, 0], whole: [10, 0], samples: 10, low: 0.018138916523693028, high: 0.8339449324210138 },
];

test('intervals are the recorder’s own', () => {
  for (const { part, whole, samples, low, high } of CASES) {
    const i = shareInterval(part, whole, samples);
    assert.ok(Math.abs(i.low - low) < 1e-9 && Math.abs(i.high - high) < 1e-9, JSON.stringify(i));
  }
});

test('nothing known is everything possible', () => {
  assert.deepEqual(shareInterval([], [], 0), { low: 0, high: 1 });
  assert.deepEqual(shareInterval([0], [0], 5), { low: 0, high: 1 });
  assert.equal(smallestShare(0), 1);
  assert.ok(Math.abs(smallestShare(3000) - 0.000998) < 1e-5);
});

test('errors of states add in squares', () => {
  const i = join([
    { weight: 0.5, share: 0.4, interval: { low: 0.1, high: 0.8 } },
    { weight: 0.5, share: 0.2, interval: { low: 0.2, high: 0.2 } },
  ]);
  assert.ok(Math.abs(i.low - 0.15) < 1e-12 && Math.abs(i.high - 0.5) < 1e-12);
});
