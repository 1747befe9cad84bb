// Colours stay apart for people with a colour vision deficiency.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { KIND_COLOURS, PART_COLOURS, STATE_COLOURS } from '../../js/palette.js';
import { REASONS } from '../../js/reasons.js';
import { INK } from '../../js/scene.js';

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

/** Linear red, green and blue of a colour `#rrggbb`. */
const linear = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));

/** CIE Lab of a colour as seen with some sight. */
function lab(colour, sight) {
  const seen = times(sight, linear(colour)).map((c) => Math.min(1, Math.max(0, c)));
  const [x, y, z] = times([0.4124, 0.3576, 0.1805, 0.2126, 0.7152, 0.0722, 0.0193, 0.1192, 0.9505], seen)
    .map((c, i) => c / [0.9505, 1, 1.089][i])
    .map((t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** How far apart two colours are at least, with any sight. */
const apart = (a, b) => Math.min(...Object.values(SIGHT).map((sight) => {
  const other = lab(b, sight);
  return Math.hypot(...lab(a, sight).map((v, i) => v - other[i]));
}));

/** Contrast of two colours, as WCAG 2 has it. */
function contrast(a, b) {
  const light = (colour) => 0.05 + linear(colour).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  return Math.max(light(a), light(b)) / Math.min(light(a), light(b));
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

test('every colour of time carries its letters', () => {
  for (const colour of [...PART_COLOURS, ...STATE_COLOURS, ...Object.values(KIND_COLOURS)]) {
    assert.ok(contrast(INK, colour) >= 4.5, `${colour}: ${contrast(INK, colour).toFixed(2)}`);
  }
});

test('reasons are told apart with any sight, from each other and from other states', () => {
  // Reasons that are seldom seen may be nearer.
  const rare = new Set(['page_fault', 'memory', 'kernel_lock', 'stopped', 'other']);
  REASONS.forEach((r, i) => {
    for (const state of STATE_COLOURS.filter((_, s) => s !== 2)) {
      assert.ok(apart(r.colour, state) > 9, `${r.name} and ${state}: ${apart(r.colour, state).toFixed(1)}`);
    }
    for (const other of REASONS.slice(0, i)) {
      const least = rare.has(r.name) || rare.has(other.name) ? 8.5 : 12;
      const d = apart(r.colour, other.colour);
      assert.ok(d > least, `${r.name} and ${other.name} are ${d.toFixed(1)} apart`);
    }
  });
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
