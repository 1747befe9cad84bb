// Intervals for shares, from time blocks, so that a share that is filtered in the page has one too. The
// arithmetic is that of the recorder (crates/model, stats.rs). A unit test compares the two.

const Z = 1.959963985;
const MIN_BLOCKS = 4;
const ASSUMED_DESIGN_EFFECT = 2;

/** The most blocks that time is cut into. */
export const MAX_BLOCKS = 20;

/** @typedef {{low: number, high: number}} Interval 95 %, both ends within 0..=1 */

/**
 * The interval of `Σpart / Σwhole` from values by block, resting on `samples` samples.
 * @param {ArrayLike<number>} part
 * @param {ArrayLike<number>} whole
 * @param {number} samples
 * @returns {Interval}
 */
export function shareInterval(part, whole, samples) {
  let x = 0;
  let y = 0;
  let yy = 0;
  for (let i = 0; i < whole.length; i += 1) {
    x += part[i];
    y += whole[i];
    yy += whole[i] * whole[i];
  }
  if (!(y > 0) || !(samples > 0)) return { low: 0, high: 1 };
  const p = Math.min(1, Math.max(0, x / y));
  const n = Math.max(1, samples);
  const blocks = (y * y) / yy;
  if (blocks < MIN_BLOCKS) return wilson(p, n / ASSUMED_DESIGN_EFFECT, Z);
  let squares = 0;
  for (let i = 1; i < whole.length; i += 1) {
    const step = part[i] - p * whole[i] - (part[i - 1] - p * whole[i - 1]);
    squares += (step * step) / 2;
  }
  const variance = ((blocks / (blocks - 1)) * squares) / (y * y);
  const independent = variance > 0 ? Math.min(n, Math.max(1, (p * (1 - p)) / variance)) : n;
  return wilson(p, independent, student(blocks - 1));
}

/**
 * The interval of a share over several states with exact totals.
 * @param {{weight: number, share: number, interval: Interval}[]} states weights sum to at most 1
 * @returns {Interval}
 */
export function join(states) {
  let p = 0;
  let down = 0;
  let up = 0;
  for (const { weight, share, interval } of states) {
    p += weight * share;
    down += (weight * (share - interval.low)) ** 2;
    up += (weight * (interval.high - share)) ** 2;
  }
  return { low: clamp(p - Math.sqrt(down), 0, 1), high: clamp(p + Math.sqrt(up), 0, 1) };
}

/** The smallest share that so many samples can resolve (about 3/n). @param {number} samples */
export function smallestShare(samples) {
  return samples < 1 ? 1 : 1 - 0.05 ** (1 / samples);
}

/** @param {number} p @param {number} n @param {number} quantile */
function wilson(p, n, quantile) {
  const q2 = quantile * quantile;
  const centre = (p + q2 / (2 * n)) / (1 + q2 / n);
  const half = (quantile / (1 + q2 / n)) * Math.sqrt((p * (1 - p)) / n + q2 / (4 * n * n));
  return {
    low: clamp(Math.min(centre - half, poissonLow(p * n, quantile) / n), 0, p),
    high: clamp(Math.max(centre + half, 1 - poissonLow((1 - p) * n, quantile) / n), p, 1),
  };
}

/** @param {number} x @param {number} quantile */
function poissonLow(x, quantile) {
  if (x > 5) return Infinity;
  if (x <= 0) return 0;
  return x * Math.max(0, 1 - 1 / (9 * x) - quantile / (3 * Math.sqrt(x))) ** 3;
}

/** @param {number} df */
function student(df) {
  const z3 = Z ** 3;
  const z5 = Z ** 5;
  const z7 = Z ** 7;
  return (
    Z +
    (z3 + Z) / (4 * df) +
    (5 * z5 + 16 * z3 + 3 * Z) / (96 * df ** 2) +
    (3 * z7 + 19 * z5 + 17 * z3 - 15 * Z) / (384 * df ** 3)
  );
}

/** @param {number} v @param {number} low @param {number} high */
function clamp(v, low, high) {
  return Math.min(high, Math.max(low, v));
}
