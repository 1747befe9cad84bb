// What a flame graph can draw has this shape: nodes by level in order of place, each with a left and a
// right end in ns, an entry, a parent, and the runs of rows it stands for.

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

/** Nodes in lists, parents before their children and left before right. @implements {Shape} */
export class LaidOut {
  /** @param {boolean} inverted */
  constructor(inverted) {
    this.inverted = inverted;
    this.total = 0;
    // Node 0 is the root.
    /** @type {number[] | Float64Array} */
    this.lefts = [0];
    /** @type {number[] | Float64Array} */
    this.rights = [0];
    /** @type {number[] | Int32Array} */
    this.entries = [-1];
    /** @type {number[] | Int32Array} */
    this.parents = [0];
    /** @type {number[] | Uint16Array} */
    this.depths = [0];
    /** @type {number[] | Float64Array} */
    this.selfs = [0];
    /** @type {ArrayLike<number>[]} */
    this.rowRanges = [];
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

  /** @param {number} node @returns {ArrayLike<number>} */
  ranges(node) {
    return this.rowRanges[node] ?? [];
  }

  /**
   * Adds a node to the lists; gives its number.
   * @param {number} entry
   * @param {number} parent
   * @param {number} left
   * @param {number} ns
   */
  add(entry, parent, left, ns) {
    const grow = (/** @type {any} */ list, /** @type {number} */ v) => list.push(v);
    grow(this.entries, entry);
    grow(this.parents, parent);
    grow(this.depths, this.depths[parent] + 1);
    grow(this.lefts, left);
    grow(this.rights, left + ns);
    grow(this.selfs, ns);
    return this.entries.length - 1;
  }

  /** Orders nodes by level, once all are there; those without any width are left out. */
  finish() {
    const n = this.parents.length;
    const shown = (/** @type {number} */ i) => i === 0 || this.rights[i] > this.lefts[i];
    let deepest = 0;
    for (let i = 0; i < n; i += 1) if (shown(i)) deepest = Math.max(deepest, this.depths[i]);
    const start = new Uint32Array(deepest + 2);
    for (let i = 0; i < n; i += 1) if (shown(i)) start[this.depths[i] + 1] += 1;
    for (let d = 0; d <= deepest; d += 1) start[d + 1] += start[d];
    const next = start.slice();
    this.order = new Uint32Array(start[deepest + 1]);
    for (let i = 0; i < n; i += 1) {
      if (!shown(i)) continue;
      this.order[next[this.depths[i]]] = i;
      next[this.depths[i]] += 1;
    }
    this.levelStart = start;
    this.levelEnd = start.subarray(1);
    this.levels = deepest + 1;
    return this;
  }
}
