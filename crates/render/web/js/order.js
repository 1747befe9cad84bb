// Stacks of one thread in time order, slice by slice. A recording keeps the stacks of each slice, and not
// their order within it: there they stand in the order of the tree, back and forth, so that what lasts
// over several slices is one frame.

import { el, fill, name } from './dom.js';
import { FlameGraph } from './flame.js';
import { showParts } from './hover.js';
import { paint } from './palette.js';
import { LaidOut } from './shape.js';
import { duration, time } from './text.js';

/** Share of a slice from which sampled time fills it. */
const NEARLY_ALL = 0.9;

/**
 * One stack in one slice.
 * @typedef {{row: number, from: number, to: number}} Piece
 */

/**
 * The pieces of a selection in time order. Time that is left out (idle time, other threads) is a gap.
 * @param {import('./selection.js').Selection} selection
 * @returns {Piece[]}
 */
export function piecesOf(selection) {
  const p = selection.profile;
  const { weight, mask, scale } = selection;
  /** By slice, rows with their time. @type {[number, number][][]} */
  const slices = Array.from({ length: p.slices }, () => []);
  for (let r = 0; r < p.rows; r += 1) {
    if (weight[r] === 0) continue;
    for (let k = p.sliceStart[r]; k < p.sliceStart[r + 1]; k += 1) {
      const s = p.slice[k];
      if (s < p.slices && (!mask || mask[s])) slices[s].push([r, p.sliceNs[k] * (scale ? scale[r] : 1)]);
    }
  }
  /** @type {Piece[]} */
  const pieces = [];
  slices.forEach((rows, s) => {
    const [begin, end] = [p.sliceBegin(s), p.sliceBegin(s + 1)];
    const sum = rows.reduce((all, [, ns]) => all + ns, 0);
    // Samples give a slice its time to within a sample's length: nearly all of it, or more, is all of it.
    const stretch = sum > NEARLY_ALL * (end - begin) ? (end - begin) / sum : 1;
    let from = begin;
    for (const [row, ns] of s % 2 === 0 ? rows : rows.reverse()) {
      const to = from + ns * stretch;
      if (to > from) pieces.push({ row, from, to });
      from = to;
    }
  });
  return pieces;
}

/**
 * The picture of pieces: neighbours with one caller share its frame. Its ranges are of pieces, not rows.
 * @param {import('./profile.js').Profile} p
 * @param {Piece[]} pieces
 */
export function inOrder(p, pieces) {
  const shape = new LaidOut(false);
  shape.total = shape.rights[0] = p.duration;
  /** Frames that are open at the right end: node of the shape, and entry. @type {{node: number, entry: number}[]} */
  let open = [];
  let right = -1;
  /** @type {[number, number][]} */
  const ranges = [[0, pieces.length]];
  pieces.forEach(({ row, from, to }, i) => {
    const path = p.path(p.rowNode[row]).map((n) => p.entry[n]);
    // Rounding leaves less than a nanosecond between neighbours.
    let same = 0;
    if (from - right < 1) while (same < path.length && open[same]?.entry === path[same]) same += 1;
    open = open.slice(0, same);
    for (const { node } of open) {
      shape.rights[node] = to;
      ranges[node][1] = i + 1;
    }
    for (const entry of path.slice(same)) {
      const node = shape.add(entry, open.at(-1)?.node ?? 0, from, to - from);
      ranges[node] = [i, i + 1];
      open.push({ node, entry });
    }
    right = to;
  });
  shape.rowRanges = ranges;
  return shape.finish();
}

/**
 * The colours of pieces: those of their rows.
 * @param {import('./selection.js').Selection} selection
 * @param {Piece[]} pieces
 * @returns {import('./palette.js').Paint}
 */
export function paintPieces(selection, pieces) {
  const whole = paint('reason', selection);
  const sums = whole.sums.map((of) => {
    const out = new Float64Array(pieces.length + 1);
    pieces.forEach(({ row, from, to }, i) => {
      out[i + 1] = out[i] + (of[row + 1] > of[row] ? to - from : 0);
    });
    return out;
  });
  return { ...whole, sums };
}

/** The picture of one thread's stacks in time order. */
export class TimeOrder {
  /** @param {HTMLElement} host @param {(from: number, to: number) => void} go shows a part of the time, ns since the window's begin */
  constructor(host, go) {
    this.title = el('h3', {});
    this.words = el('p', { class: 'quiet small' });
    this.room = el('div', { class: 'ordered' });
    this.graph = new FlameGraph(this.room, {
      pick: () => {},
      zoom: go,
      hover: ({ node }, at) => showParts(this.graph.scene, node, at, 'all'),
      menu: () => {},
    });
    /** What the picture was last made from. @type {import('./selection.js').Selection | null} */
    this.made = null;
    fill(host, this.title, this.words, this.room);
  }

  /**
   * @param {import('./selection.js').Selection} selection
   * @param {number[]} threads those in sight, by index
   * @param {[number, number]} range ns since the window's begin
   */
  show(selection, threads, [from, to]) {
    const p = selection.profile;
    const one = threads.length === 1 && p.slices > 0;
    this.title.hidden = this.room.hidden = !one;
    if (!one) {
      fill(this.words, p.slices > 0 ? 'Choose one thread, by a click on its name, to see its stacks in time order.' : 'This recording has no stacks by time.');
      return;
    }
    if (this.made !== selection) {
      const pieces = piecesOf(selection);
      this.shape = inOrder(p, pieces);
      this.paint = paintPieces(selection, pieces);
      this.made = selection;
    }
    const { name: thread, tid } = p.meta.threads[threads[0]];
    fill(this.title, 'Stacks of ', name(`${thread} ${tid}`), ' in time order');
    fill(this.words, `In steps of ${time(p.meta.slices.width)}: the order within a step is not recorded. A gap is time that is left out.`);
    this.graph.show({ profile: p, paint: /** @type {any} */ (this.paint), shape: /** @type {any} */ (this.shape), matches: null, icicle: true, picked: -1, from, to: Math.max(from + 1, to) }, false);
    this.graph.canvas.setAttribute('aria-label', `stacks in time order, ${duration(to - from)}`);
  }
}
