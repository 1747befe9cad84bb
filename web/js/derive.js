// What a flame graph can draw: the tree as recorded, or one derived from it (leaf first, callers,
// callees, recursion folded). All have the same shape: nodes by level in order of place, each with
// a left and a right end in ns, an entry, a parent, and the runs of rows it stands for.

/**
 * @typedef {object} Shape
 * @property {number} total width of everything, ns
 * @property {number} levels how many, the root's included
 * @property {Uint32Array} levelStart by level, where its nodes begin in `order`
 * @property {Uint32Array} levelEnd by level, where they end
 * @property {Uint32Array} order nodes by level
 * @property {(node: number) => number} left
 * @property {(node: number) => number} right
 * @property {(node: number) => number} entry
 * @property {(node: number) => number} parent
 * @property {(node: number) => number} level
 * @property {(node: number) => number} self ns without children
 * @property {(node: number) => ArrayLike<number>} ranges runs of rows: from, to, from, to…
 * @property {boolean} inverted whether a child is its parent's caller
 */

/** The recorded tree under a selection. @implements {Shape} */
export class TreeShape {
  /** @param {import('./profile.js').Selection} selection */
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

/** A tree merged from parts of the recorded one. @implements {Shape} */
export class DerivedShape {
  /**
   * @param {import('./profile.js').Selection} selection
   * @param {boolean} inverted
   */
  constructor(selection, inverted) {
    this.selection = selection;
    this.inverted = inverted;
    this.total = 0;
    /** @type {number[]} */
    this.lefts = [0];
    /** @type {number[]} */
    this.rights = [0];
    /** @type {number[]} */
    this.entries = [-1];
    /** @type {number[]} */
    this.parents = [0];
    /** @type {number[]} */
    this.depths = [0];
    /** @type {number[]} */
    this.selfs = [0];
    /** @type {ArrayLike<number>[]} */
    this.rowRanges = [[0, 0]];
    this.levels = 1;
    this.levelStart = new Uint32Array(1);
    this.levelEnd = new Uint32Array([1]);
    this.order = new Uint32Array(1);
  }

  left(/** @type {number} */ node) {
    return this.lefts[node];
  }

  right(/** @type {number} */ node) {
    return this.rights[node];
  }

  entry(/** @type {number} */ node) {
    return this.entries[node];
  }

  parent(/** @type {number} */ node) {
    return this.parents[node];
  }

  level(/** @type {number} */ node) {
    return this.depths[node];
  }

  self(/** @type {number} */ node) {
    return this.selfs[node];
  }

  ranges(/** @type {number} */ node) {
    return this.rowRanges[node];
  }

  /** Orders nodes by level, once all are there (children after parents, left before right). */
  finish() {
    const n = this.entries.length;
    let deepest = 0;
    for (let i = 0; i < n; i += 1) deepest = Math.max(deepest, this.depths[i]);
    const start = new Uint32Array(deepest + 2);
    for (let i = 0; i < n; i += 1) start[this.depths[i] + 1] += 1;
    for (let d = 0; d <= deepest; d += 1) start[d + 1] += start[d];
    const fill = start.slice();
    this.order = new Uint32Array(n);
    for (let i = 0; i < n; i += 1) {
      this.order[fill[this.depths[i]]] = i;
      fill[this.depths[i]] += 1;
    }
    this.levelStart = start;
    this.levelEnd = start.subarray(1);
    this.levels = deepest + 1;
    return this;
  }
}

/**
 * Cursors of one group: runs of rows, each with the recorded node it has come to.
 * @typedef {{ranges: number[], at: number[], weight: number}} Group
 */

/**
 * The tree below some nodes, merged by function.
 * @param {import('./profile.js').Selection} selection
 * @param {number[]} nodes none within another; `[0]`: the whole tree
 * @param {{fold: boolean}} options `fold`: direct recursion becomes one frame
 */
export function mergeDown(selection, nodes, options) {
  const p = selection.profile;
  return grow(selection, false, [startGroup(selection, nodes)], false, (group, entry) => {
    /** @type {Map<number, Group>} */
    const next = new Map();
    const open = group.at.slice();
    while (open.length > 0) {
      const node = /** @type {number} */ (open.pop());
      for (let c = node + 1; c < p.end[node]; c = p.end[c]) {
        const time = selection.time(c);
        if (time === 0) continue;
        if (options.fold && p.entry[c] === entry) open.push(c);
        else put(next, p.entry[c], p.first[c], p.last[c], c, time);
      }
    }
    return next;
  });
}

/**
 * The tree of callers above some nodes: a child is its parent's caller.
 * @param {import('./profile.js').Selection} selection
 * @param {number[]} nodes none within another
 * @param {{fold: boolean}} options
 */
export function mergeUp(selection, nodes, options) {
  return growUp(selection, [startGroup(selection, nodes)], false, options);
}

/**
 * The whole selection leaf first: what time was spent in, and who called it.
 * @param {import('./profile.js').Selection} selection
 * @param {{fold: boolean}} options
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
    if (time > 0 && node > 0) put(leaves, p.entry[node], from, r, node, time);
  }
  return growUp(selection, [...leaves.values()], true, options);
}

/**
 * @param {import('./profile.js').Selection} selection
 * @param {Group[]} tops
 * @param {boolean} leaves
 * @param {{fold: boolean}} options
 */
function growUp(selection, tops, leaves, options) {
  const p = selection.profile;
  return grow(selection, true, tops, leaves, (group, entry) => {
    /** @type {Map<number, Group>} */
    const next = new Map();
    for (let i = 0; i < group.at.length; i += 1) {
      let up = p.parent[group.at[i]];
      while (options.fold && up > 0 && p.entry[up] === entry) up = p.parent[up];
      if (up === 0) continue;
      const from = group.ranges[2 * i];
      const to = group.ranges[2 * i + 1];
      put(next, p.entry[up], from, to, up, selection.prefix[to] - selection.prefix[from]);
    }
    return next;
  });
}

/** @param {import('./profile.js').Selection} selection @param {number[]} nodes @returns {Group} */
function startGroup(selection, nodes) {
  const group = { ranges: /** @type {number[]} */ ([]), at: nodes, weight: 0 };
  for (const n of nodes) {
    group.ranges.push(selection.profile.first[n], selection.profile.last[n]);
    group.weight += selection.time(n);
  }
  return group;
}

/**
 * @param {Map<number, Group>} groups
 * @param {number} entry
 * @param {number} from
 * @param {number} to
 * @param {number} at
 * @param {number} time
 */
function put(groups, entry, from, to, at, time) {
  let g = groups.get(entry);
  if (!g) {
    g = { ranges: [], at: [], weight: 0 };
    groups.set(entry, g);
  }
  g.ranges.push(from, to);
  g.at.push(at);
  g.weight += time;
}

/**
 * @param {import('./profile.js').Selection} selection
 * @param {boolean} inverted
 * @param {Group[]} tops
 * @param {boolean} leaves whether `tops` stand beside each other below a root
 * @param {(group: Group, entry: number) => Map<number, Group>} step
 */
function grow(selection, inverted, tops, leaves, step) {
  const p = selection.profile;
  const shape = new DerivedShape(selection, inverted);
  for (const g of tops) shape.total += g.weight;
  shape.rights[0] = shape.total;
  const finest = shape.total * FINEST;
  /** @type {{group: Group, node: number}[]} */
  const open = [];
  const add = (/** @type {Group} */ g, /** @type {number} */ entry, /** @type {number} */ parent, /** @type {number} */ left) => {
    const node = shape.entries.length;
    shape.entries.push(entry);
    shape.parents.push(parent);
    shape.depths.push(shape.depths[parent] + 1);
    shape.lefts.push(left);
    shape.rights.push(left + g.weight);
    shape.selfs.push(0);
    shape.rowRanges.push(g.ranges);
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
  if (!leaves) {
    // One group: it is the root, be it everything or one function.
    const [top] = tops;
    open.push({ group: top, node: 0 });
    shape.rowRanges[0] = top.ranges;
    shape.entries[0] = top.at[0] > 0 ? p.entry[top.at[0]] : -1;
  } else {
    place(tops.map((g) => [p.entry[g.at[0]], g]), 0, 0);
    shape.rowRanges[0] = [0, p.rows];
  }
  while (open.length > 0) {
    const { group, node } = /** @type {{group: Group, node: number}} */ (open.pop());
    const below = place(step(group, shape.entries[node]), node, shape.lefts[node]);
    shape.selfs[node] = shape.rights[node] - shape.lefts[node] - below;
  }
  return shape.finish();
}
