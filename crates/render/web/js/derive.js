// What a flame graph can draw: the tree as recorded, or one derived from it (leaf first, callers,
// callees, recursion folded).

import { put } from './groups.js';
import { ownBelow } from './mine.js';
import { LaidOut } from './shape.js';

/** @typedef {import('./shape.js').Shape} Shape */

/** The recorded tree under a selection. @implements {Shape} */
export class TreeShape {
  /** @param {import('./selection.js').Selection} selection */
  constructor(selection) {
    const p = selection.profile;
    this.selection = selection;
    this.profile = p;
    this.prefix = selection.prefix;
    this.total = selection.total;
    this.inverted = false;
    // Only nodes that have time. With nothing filtered that may be all of them.
    const order = new Uint32Array(p.nodes);
    const fill = p.levelStart.slice();
    const path = new Uint32Array(p.depth + 1);
    const { first, last, end } = p;
    const prefix = this.prefix;
    let depth = 0;
    let deepest = 0;
    for (let i = 0; i < p.nodes; ) {
      if (prefix[last[i]] > prefix[first[i]]) {
        while (depth > 0 && end[path[depth - 1]] <= i) depth -= 1;
        order[fill[depth]] = i;
        fill[depth] += 1;
        if (depth > deepest) deepest = depth;
        path[depth] = i;
        depth += 1;
        i += 1;
      } else {
        i = end[i];
      }
    }
    this.order = order;
    this.levelStart = p.levelStart;
    this.levelEnd = fill;
    this.levels = deepest + 1;
  }

  left(/** @type {number} */ node) {
    return this.prefix[this.profile.first[node]];
  }

  right(/** @type {number} */ node) {
    return this.prefix[this.profile.last[node]];
  }

  entry(/** @type {number} */ node) {
    return node === 0 ? -1 : this.profile.entry[node];
  }

  parent(/** @type {number} */ node) {
    return this.profile.parent[node];
  }

  level(/** @type {number} */ node) {
    let level = 0;
    for (let n = node; n > 0; n = this.profile.parent[n]) level += 1;
    return level;
  }

  self(/** @type {number} */ node) {
    return this.selection.self(node);
  }

  ranges(/** @type {number} */ node) {
    return [this.profile.first[node], this.profile.last[node]];
  }
}

// Groups smaller than this share of everything are not followed further in a derived tree; they
// show as one «smaller» frame that opens on a click.
const FINEST = 1 / 8000;
const MOST_NODES = 400_000;

/**
 * @typedef {object} Options
 * @property {boolean} fold whether direct recursion becomes one frame
 * @property {import('./mine.js').Mine | null} [mine] the program's own code, where only it is shown
 */

/** @typedef {import('./groups.js').Group} Group */

/**
 * The tree below some nodes, merged by function.
 * @param {import('./selection.js').Selection} selection
 * @param {number[]} nodes none within another; `[0]`: the whole tree
 * @param {Options} options
 */
export function mergeDown(selection, nodes, options) {
  const p = selection.profile;
  const { fold, mine } = options;
  return grow(selection, false, startGroup(selection, nodes), (group, entry) => {
    if (mine) return ownBelow(selection, mine, group.at, fold ? entry : -1);
    /** @type {Map<number, Group>} */
    const next = new Map();
    const open = group.at.slice();
    while (open.length > 0) {
      const node = /** @type {number} */ (open.pop());
      for (let c = node + 1; c < p.end[node]; c = p.end[c]) {
        const time = selection.time(c);
        if (time === 0) continue;
        if (fold && p.entry[c] === entry) open.push(c);
        else put(next, p.entry[c], { from: p.first[c], to: p.last[c], at: c }, time);
      }
    }
    return next;
  });
}

/**
 * The tree of callers above some nodes: a child is its parent's caller.
 * @param {import('./selection.js').Selection} selection
 * @param {number[]} nodes none within another
 * @param {Options} options
 */
export function mergeUp(selection, nodes, options) {
  return growUp(selection, startGroup(selection, nodes), options);
}

/**
 * The whole selection leaf first: the functions in which time was spent, with their callers below.
 * @param {import('./selection.js').Selection} selection
 * @param {Options} options
 */
export function leafFirst(selection, options) {
  const p = selection.profile;
  /** @type {Map<number, Group>} */
  const leaves = new Map();
  for (let r = 0; r < p.rows; ) {
    const node = p.rowNode[r];
    const from = r;
    while (r < p.rows && p.rowNode[r] === node) r += 1;
    const time = selection.prefix[r] - selection.prefix[from];
    if (time === 0 || node === 0) continue;
    const at = options.mine ? options.mine.holder(p, node) : node;
    put(leaves, p.entry[at], { from, to: r, at }, time);
  }
  return growUp(selection, [...leaves.values()], options);
}

/**
 * @param {import('./selection.js').Selection} selection
 * @param {Group | Group[]} top as in `grow`
 * @param {Options} options
 */
function growUp(selection, top, options) {
  const p = selection.profile;
  const { mine } = options;
  return grow(selection, true, top, (group, entry) => {
    /** @type {Map<number, Group>} */
    const next = new Map();
    for (let i = 0; i < group.at.length; i += 1) {
      let up = p.parent[group.at[i]];
      const skipped = (/** @type {number} */ e) => (options.fold && e === entry) || (mine && !mine.entry[e]);
      while (up > 0 && skipped(p.entry[up])) up = p.parent[up];
      if (up === 0) continue;
      const from = group.ranges[2 * i];
      const to = group.ranges[2 * i + 1];
      put(next, p.entry[up], { from, to, at: up }, selection.prefix[to] - selection.prefix[from]);
    }
    return next;
  });
}

/** @param {import('./selection.js').Selection} selection @param {number[]} nodes @returns {Group} */
function startGroup(selection, nodes) {
  const group = { ranges: /** @type {number[]} */ ([]), at: nodes, weight: 0 };
  for (const n of nodes) {
    group.ranges.push(selection.profile.first[n], selection.profile.last[n]);
    group.weight += selection.time(n);
  }
  return group;
}

/**
 * @param {import('./selection.js').Selection} selection
 * @param {boolean} inverted
 * @param {Group | Group[]} top the root, be it everything or one function; or groups beside each other below a root
 * @param {(group: Group, entry: number) => Map<number, Group>} step
 */
function grow(selection, inverted, top, step) {
  const p = selection.profile;
  const shape = new LaidOut(inverted);
  for (const g of Array.isArray(top) ? top : [top]) shape.total += g.weight;
  shape.rights[0] = shape.selfs[0] = shape.total;
  const finest = shape.total * FINEST;
  /** @type {{group: Group, node: number}[]} */
  const open = [];
  const add = (/** @type {Group} */ g, /** @type {number} */ entry, /** @type {number} */ parent, /** @type {number} */ left) => {
    const node = shape.add(entry, parent, left, g.weight);
    shape.rowRanges[node] = g.ranges;
    return node;
  };
  const place = (/** @type {Iterable<[number, Group]>} */ groups, /** @type {number} */ parent, /** @type {number} */ start) => {
    const sorted = [...groups].sort((a, b) => b[1].weight - a[1].weight || a[0] - b[0]);
    let left = start;
    const added = [];
    /** @type {Group} */
    const small = { ranges: [], at: [], weight: 0 };
    for (const [entry, g] of sorted) {
      if (g.weight < finest || shape.entries.length > MOST_NODES) {
        small.weight += g.weight;
        for (const v of g.ranges) small.ranges.push(v);
        small.at.push(entry);
        continue;
      }
      added.push({ group: g, node: add(g, entry, parent, left) });
      left += g.weight;
    }
    if (small.weight > 0) {
      // Entry −2 − n: «n smaller».
      add(small, -2 - small.at.length, parent, left);
      left += small.weight;
    }
    // The leftmost is opened next: so the nodes of each level come into being from left to right.
    for (const a of added.reverse()) open.push(a);
    return left - start;
  };
  if (!Array.isArray(top)) {
    open.push({ group: top, node: 0 });
    shape.rowRanges[0] = top.ranges;
    shape.entries[0] = top.at[0] > 0 ? p.entry[top.at[0]] : -1;
  } else {
    shape.selfs[0] -= place(top.map((g) => [p.entry[g.at[0]], g]), 0, 0);
    shape.rowRanges[0] = [0, p.rows];
  }
  while (open.length > 0) {
    const { group, node } = /** @type {{group: Group, node: number}} */ (open.pop());
    const below = place(step(group, shape.entries[node]), node, shape.lefts[node]);
    shape.selfs[node] = shape.rights[node] - shape.lefts[node] - below;
  }
  return shape.finish();
}
