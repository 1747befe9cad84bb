// Colours stay apart for people who do not see all of them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KIND_COLOURS, STATE_COLOURS } from '../../js/palette.js';

// Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
const SIGHT = {
  full: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protanopia: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deuteranopia: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritanopia: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};

function times(m, v) {
  return [0, 3, 6].map((i) => m[i] * v[0] + m[i + 1] * v[1] + m[i + 2] * v[2]);
}

/** CIE Lab of a colour `#rrggbb` as seen with some sight. */
function lab(colour, sight) {
  const linear = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  const seen = times(sight, linear).map((c) => Math.min(1, Math.max(0, c)));
  const [x, y, z] = times([0.4124, 0.3576, 0.1805, 0.2126, 0.7152, 0.0722, 0.0193, 0.1192, 0.9505], seen)
    .map((c, i) => c / [0.9505, 1, 1.089][i])
    .map((t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

for (const [name, colours] of Object.entries({ states: STATE_COLOURS, 'kinds of code': Object.values(KIND_COLOURS) })) {
  test(`the colours of ${name} are told apart with any sight, and carry dark letters`, () => {
    for (const [sight, matrix] of Object.entries(SIGHT)) {
      const all = colours.map((c) => lab(c, matrix));
      for (let a = 0; a < all.length; a += 1) {
        assert.ok(all[a][0] > 55, `${colours[a]} is too dark for letters`);
        for (let b = 0; b < a; b += 1) {
          const apart = Math.hypot(...all[a].map((v, i) => v - all[b][i]));
          // Ten is plain to see side by side.
          assert.ok(apart > 10, `${sight}: ${colours[a]} and ${colours[b]} are ${apart.toFixed(1)} apart`);
        }
      }
    }
  });
}
