// How long the single intervals were: histograms as they were recorded, merged by what is chosen. The
// same division as the recorder's (crates/model, shape.rs).

import { el } from './dom.js';
import { count, duration } from './text.js';

/** @typedef {{bits: number, max: number, n: number, counts: Map<number, number>}} Lengths */

/** Where a fine bucket begins, ns. @param {number} bucket */
function beginOf(bucket) {
  return 16 * (bucket < 32 ? bucket : (32 + (bucket % 32)) * 2 ** (Math.floor(bucket / 32) - 1));
}

/** What was recorded, read once. @param {import('./profile.js').Profile} p */
function recorded(p) {
  p.lengths ??= p.columns.has('shape.of')
    ? Object.fromEntries(['of', 'tag', 'bits', 'size', 'bucket', 'count', 'max'].map((c) => [c, p.columns.f64(`shape.${c}`)]))
    : null;
  return p.lengths;
}

/**
 * The histograms that `wanted` picks, as one; `null`: there is none. `of` is 0 for all threads,
 * 1 + 2 · thread for one of them, 2 + 2 · row for a stack of one.
 * @param {import('./profile.js').Profile} p
 * @param {(of: number, tag: number) => boolean} wanted
 * @returns {Lengths | null}
 */
export function lengthsOf(p, wanted) {
  const s = recorded(p);
  if (!s) return null;
  const out = { bits: 5, max: 0, n: 0, counts: new Map() };
  const found = [];
  let at = 0;
  for (let i = 0; i < s.of.length; i += 1) {
    if (wanted(s.of[i], s.tag[i])) {
      found.push([i, at]);
      out.bits = Math.min(out.bits, s.bits[i]);
      out.max = Math.max(out.max, s.max[i]);
    }
    at += s.size[i];
  }
  for (const [i, from] of found) {
    for (let k = from; k < from + s.size[i]; k += 1) {
      const bucket = s.bucket[k] >> (s.bits[i] - out.bits);
      out.counts.set(bucket, (out.counts.get(bucket) ?? 0) + s.count[k] / 1000);
      out.n += s.count[k] / 1000;
    }
  }
  out.counts = new Map([...out.counts].sort((a, b) => a[0] - b[0]));
  return out.n > 0 ? out : null;
}

/** From and to of a bucket, ns. @param {Lengths} l @param {number} bucket */
function bounds(l, bucket) {
  const step = 2 ** (5 - l.bits);
  return [beginOf(bucket * step), beginOf((bucket + 1) * step)];
}

/** The length that a share of the intervals does not exceed, ns. @param {Lengths} l @param {number} share */
export function quantile(l, share) {
  let sum = 0;
  let middle = l.max;
  for (const [bucket, n] of l.counts) {
    sum += n;
    const [from, to] = bounds(l, bucket);
    middle = l.max >= from ? Math.min(l.max, (from + to) / 2) : (from + to) / 2;
    if (sum >= share * l.n) break;
  }
  return middle;
}

/** In words: how many, half, 99 %, longest. @param {Lengths} l */
export function lengthWords(l) {
  return [count(Math.max(1, l.n)), duration(quantile(l, 0.5)), duration(quantile(l, 0.99)), duration(Math.max(l.max, quantile(l, 1)))];
}

/** The picture: a bar for each quarter of an octave, from the shortest to the longest. @param {Lengths} l */
export function histogram(l) {
  const bits = Math.min(2, l.bits);
  const bars = new Map();
  for (const [bucket, n] of l.counts) bars.set(bucket >> (l.bits - bits), (bars.get(bucket >> (l.bits - bits)) ?? 0) + n);
  const keys = [...bars.keys()];
  const most = Math.max(...bars.values());
  const out = [];
  for (let b = keys[0]; b <= keys[keys.length - 1]; b += 1) {
    const n = bars.get(b) ?? 0;
    const [from, to] = bounds({ ...l, bits }, b);
    out.push(el('i', { title: `${duration(from)} – ${duration(to)}: ${count(n)}`, style: { height: n > 0 ? `${Math.max(6, (n / most) * 100)}%` : '0' } }));
  }
  const words = lengthWords(l);
  return el('span', { class: 'histogram', role: 'img', 'aria-label': `lengths of ${words[0]} intervals: half up to ${words[1]}, 99 % up to ${words[2]}, the longest ${words[3]}` }, ...out);
}
