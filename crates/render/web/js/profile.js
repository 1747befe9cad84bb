// The recording in memory: entries (functions), the calling-context tree, rows of time.
//
// Rows lie in the order in which a depth-first walk leaves their nodes, so the rows of a subtree
// are one run, `first[node]..last[node]`. With prefix sums over the rows' weights, any node's time
// and any node's place in the picture are two look-ups: a filter costs one pass over the rows and
// none over the tree, which may have millions of nodes.

import { MAX_BLOCKS } from './stats.js';
import { REASONS } from './colours.js';

export const STATES = ['on_cpu', 'runnable', 'blocked', 'unknown'];
export const STATE_TITLES = ['on CPU', 'runnable', 'blocked', 'not seen'];
export const BLOCK_REASONS = REASONS.length;
/** Parts of a thread's ledger: on-CPU, runnable, blocked by reason, unknown. */
export const PARTS = 4 + 3 + BLOCK_REASONS + 3;

/** The part of the first block reason: those of on-CPU and runnable time come before. */
export const FIRST_REASON = 7;

/** Views by their state; `wall` is all. */
export const VIEWS = [
  { id: 'wall', title: 'Wall', states: [0, 1, 2, 3], what: 'all time, whatever the thread did' },
  { id: 'on-cpu', title: 'On CPU', states: [0], what: 'time on a CPU' },
  { id: 'off-cpu', title: 'Off CPU', states: [2], what: 'time blocked, waiting for something other than a CPU' },
  { id: 'runq', title: 'Run queue', states: [1], what: 'time wanting a CPU and having none' },
  { id: 'off-wake', title: 'Wakers', states: [2], what: 'time blocked, and on top of each stack the waker' },
];

/** What an entry is. */
export const KIND = { native: 0, kernel: 1, jit: 2, mark: 3, managed: 4 };

export class Profile {
  // Entries: what a frame stands for.
  /** @type {string[]} */
  names = [];
  /** @type {Uint32Array} index of the module plus one; 0: none */
  entryModule = new Uint32Array();
  /** @type {Uint8Array} */
  kind = new Uint8Array();
  /** @type {Uint8Array} */
  inlined = new Uint8Array();
  /** @type {Uint32Array} */
  entryLine = new Uint32Array();
  /** @type {Uint32Array} */
  entryFile = new Uint32Array();
  /** @type {string[]} */
  files = [];
  /** @type {string[]} */
  modules = [];
  /** @type {string[]} */
  builds = [];
  notSampled = -1;

  // The tree. Node 0 is the root; a subtree is the run of nodes up to `end`.
  nodes = 0;
  depth = 0;
  /** @type {Uint32Array} */
  entry = new Uint32Array();
  /** @type {Uint32Array} */
  parent = new Uint32Array();
  /** @type {Uint32Array} */
  end = new Uint32Array();
  /** @type {Uint32Array} by depth, how many nodes lie higher */
  levelStart = new Uint32Array();
  /** @type {Uint32Array} first row of a subtree */
  first = new Uint32Array();
  /** @type {Uint32Array} the row after its last */
  last = new Uint32Array();
  /** @type {Uint32Array} first of its rows that no child has */
  own = new Uint32Array();

  // Rows of time: one stack in one state of one thread.
  rows = 0;
  /** @type {Uint32Array} */
  rowNode = new Uint32Array();
  /** @type {Uint32Array} */
  rowContext = new Uint32Array();
  /** @type {Uint32Array | null} index of the row's set of labels plus one; 0: none */
  rowLabels = null;
  /** @type {{key: string, text: string}[]} every label; `text` is `key=value` */
  labels = [];
  /** @type {number[][]} labels by set */
  labelSets = [];
  /** @type {Uint8Array} state, reason and idleness */
  rowTag = new Uint8Array();
  /** @type {Uint32Array} samples */
  rowCount = new Uint32Array();
  /** @type {Float64Array} */
  rowNs = new Float64Array();
  /** @type {Uint32Array} by row, the entry that has its time as self time */
  rowBlame = new Uint32Array();
  /** @type {Uint32Array} by row, where its slices begin */
  sliceStart = new Uint32Array();
  /** @type {Uint32Array} */
  slice = new Uint32Array();
  /** @type {Float64Array} */
  sliceNs = new Float64Array();
  /** @type {Uint32Array} */
  sliceCount = new Uint32Array();
  /** @type {Uint32Array | null} line of each row's leaf, where lines of whole stacks are too many */
  rowLine = null;
  /** @type {{alike: Uint32Array, more: Uint32Array, line: Uint32Array} | null} */
  stackLines = null;

  // Exact time by thread and slice.
  /** @type {{context: Uint32Array, slice: Uint32Array, onCpu: Float64Array, runnable: Float64Array, blocked: Float64Array, rows: number}} */
  ledger = {
    context: new Uint32Array(),
    slice: new Uint32Array(),
    onCpu: new Float64Array(),
    runnable: new Float64Array(),
    blocked: new Float64Array(),
    rows: 0,
  };
  /** @type {any} chains of waits, once somebody asked (why.js) */
  chains = undefined;
  /** @type {any} how long intervals were, once somebody asked (lengths.js) */
  lengths = undefined;
  /** @type {Profile | null} the same time by blocked stacks with their wakers' on top of them */
  wake = null;
  /** @type {Profile | null} stacks of a runtime's tasks, with a time of their own (tasks.js) */
  tasks = null;
  slices = 0;
  blocks = 1;
  duration = 1;

  /** @param {import('./decode.js').Columns} columns */
  constructor(columns) {
    this.columns = columns;
    /** @type {any} */
    this.meta = columns.meta;
    /** @type {string[]} */
    this.reasons = columns.meta.reasons;
    this.readEntries(columns);
    this.readTree('');
    this.readLedger(columns);
    if (columns.has('row.labels')) this.readLabels(columns);
    if (columns.has('wake.row.node')) this.wake = this.otherTree('wake.');
    if (columns.has('task.row.node')) this.tasks = this.otherTree('task.');
  }

  /** Another tree with rows of its own; all else is this one's. @param {string} prefix of its columns @returns {Profile} */
  otherTree(prefix) {
    /** @type {Profile} */
    const other = Object.create(this);
    other.rowLine = other.stackLines = null;
    other.readTree(prefix);
    return other;
  }

  /** The tree that a view is of. @param {string} view @returns {Profile} */
  treeOf(view) {
    return view === 'off-wake' && this.wake ? this.wake : this;
  }

  /** @param {import('./decode.js').Columns} columns */
  readEntries(columns) {
    this.names = columns.strings('entry.name');
    this.entryModule = columns.u32('entry.module');
    const kind = columns.u32('entry.kind');
    this.kind = Uint8Array.from(kind, (k) => k & 7);
    this.inlined = Uint8Array.from(kind, (k) => k >> 3);
    this.entryLine = columns.u32('entry.line');
    this.entryFile = columns.u32('entry.file');
    this.files = columns.strings('file');
    this.modules = columns.strings('module.path');
    this.builds = columns.strings('module.build');
    this.notSampled = this.names.indexOf('[not sampled]');
  }

  /** @param {string} prefix of its columns */
  readTree(prefix) {
    const { columns } = this;
    const pops = columns.u32(`${prefix}node.pops`);
    const n = pops.length;
    this.nodes = n;
    this.entry = columns.u32(`${prefix}node.entry`);
    const parent = new Uint32Array(n);
    const end = new Uint32Array(n);
    // `pops` becomes the depth in place.
    const depthOf = pops;
    let path = new Uint32Array(1024);
    let deepest = 0;
    let depth = 0;
    depthOf[0] = 0;
    for (let i = 1; i < n; i += 1) {
      depth = depth + 1 - pops[i];
      if (depth >= path.length) {
        const longer = new Uint32Array(path.length * 2);
        longer.set(path);
        path = longer;
      }
      parent[i] = path[depth - 1];
      path[depth] = i;
      depthOf[i] = depth;
      if (depth > deepest) deepest = depth;
    }
    for (let i = n - 1; i >= 0; i -= 1) {
      if (end[i] < i + 1) end[i] = i + 1;
      if (i > 0 && end[parent[i]] < end[i]) end[parent[i]] = end[i];
    }
    this.parent = parent;
    this.end = end;
    this.depth = deepest;
    const levelStart = new Uint32Array(deepest + 2);
    for (let i = 0; i < n; i += 1) levelStart[depthOf[i] + 1] += 1;
    for (let d = 0; d <= deepest; d += 1) levelStart[d + 1] += levelStart[d];
    this.levelStart = levelStart;
    this.readRows(prefix);
  }

  /** @param {string} prefix */
  readRows(prefix) {
    const { columns } = this;
    const u32 = (/** @type {string} */ of) => columns.u32(prefix + of);
    this.rowNode = columns.sums(`${prefix}row.node`);
    this.rowContext = u32('row.context');
    const tag = Uint8Array.from(u32('row.tag'));
    this.rowTag = tag;
    this.rowCount = u32('row.count');
    this.rowNs = columns.f64(`${prefix}row.ns`);
    if (columns.has(`${prefix}row.labels`)) this.rowLabels = u32('row.labels');
    const rows = tag.length;
    this.rows = rows;

    const counts = u32('row.slices');
    const sliceStart = new Uint32Array(rows + 1);
    for (let r = 0; r < rows; r += 1) sliceStart[r + 1] = sliceStart[r] + counts[r];
    const slice = u32('slice.step');
    for (let r = 0; r < rows; r += 1) {
      for (let k = sliceStart[r] + 1; k < sliceStart[r + 1]; k += 1) slice[k] += slice[k - 1];
    }
    this.sliceStart = sliceStart;
    this.slice = slice;
    this.sliceNs = columns.f64(`${prefix}slice.ns`);
    this.sliceCount = u32('slice.count');

    const n = this.nodes;
    const first = new Uint32Array(n);
    const last = new Uint32Array(n);
    for (let r = 0; r < rows; r += 1) last[this.rowNode[r]] += 1;
    for (let i = n - 1; i > 0; i -= 1) last[this.parent[i]] += last[i];
    // While walking, `cursor[node]` is where the node's next child begins.
    const cursor = new Uint32Array(n);
    for (let i = 0; i < n; i += 1) {
      const size = last[i];
      if (i > 0) {
        first[i] = cursor[this.parent[i]];
        cursor[this.parent[i]] += size;
      }
      cursor[i] = first[i];
      last[i] = first[i] + size;
    }
    this.first = first;
    this.last = last;
    // What the children left is the node's own: its rows from here to `last`.
    this.own = cursor;

    this.rowBlame = this.blame(prefix === 'wake.');
    if (prefix) return;
    if (columns.has('row.line')) {
      this.rowLine = u32('row.line');
    } else {
      this.stackLines = {
        alike: columns.u32('lines.alike'),
        more: columns.u32('lines.more'),
        line: columns.u32('lines.line'),
      };
    }
  }

  /**
   * The entry that has each row's time as self time: the innermost function. For a wait it is the
   * innermost function outside of the kernel, because all waiting ends in the same few kernel
   * functions. A waker's stack stands upside down on its mark, so its innermost function is the one
   * nearest to the mark.
   * @param {boolean} wakers whether stacks of wakers stand on top
   */
  blame(wakers) {
    const out = new Uint32Array(this.rows);
    for (let r = 0; r < this.rows; r += 1) {
      let node = this.rowNode[r];
      if ((this.rowTag[r] & 3) !== 0) {
        if (wakers) {
          let found = 0;
          for (; node > 0 && this.kind[this.entry[node]] !== KIND.mark; node = this.parent[node]) {
            if (this.kind[this.entry[node]] !== KIND.kernel) found = node;
          }
          node = found || node;
        }
        while (node > 0 && this.kind[this.entry[node]] === KIND.kernel) node = this.parent[node];
        // A kernel thread: the innermost function that does more than give up the CPU.
        if (node === 0) {
          node = this.rowNode[r];
          while (this.parent[node] > 0 && /^(__)?schedule(_|$)/.test(this.names[this.entry[node]])) node = this.parent[node];
        }
      }
      out[r] = this.entry[node];
    }
    return out;
  }

  /** @param {import('./decode.js').Columns} columns */
  readLedger(columns) {
    const masks = columns.u32('ledger.reasons');
    const times = columns.f64('ledger.blocked');
    this.ledger = {
      context: columns.sums('ledger.context'),
      slice: columns.sums('ledger.slice'),
      onCpu: columns.f64('ledger.on_cpu'),
      runnable: columns.f64('ledger.runnable'),
      blocked: new Float64Array(masks.length * BLOCK_REASONS),
      rows: masks.length,
    };
    let at = 0;
    masks.forEach((mask, row) => {
      for (let r = 0; r < BLOCK_REASONS; r += 1) {
        if ((mask >> r) & 1) {
          this.ledger.blocked[row * BLOCK_REASONS + r] = times[at];
          at += 1;
        }
      }
    });
    const { slices, window } = this.meta;
    this.slices = slices.width > 0 ? slices.count : 0;
    this.blocks = Math.max(1, Math.min(MAX_BLOCKS, this.slices));
    this.duration = Math.max(1, window.end - window.start);
  }

  /** @param {import('./decode.js').Columns} columns */
  readLabels(columns) {
    const values = columns.strings('label.value');
    this.labels = columns.strings('label.key').map((key, i) => ({ key, text: `${key}=${values[i]}` }));
    const members = columns.u32('set.label');
    let at = 0;
    this.labelSets = Array.from(columns.u32('set.size'), (n) => {
      at += n;
      return Array.from(members.subarray(at - n, at));
    });
  }

  /** Time of all rows by label, ns. */
  labelTimes() {
    const sets = new Float64Array(this.labelSets.length + 1);
    const out = new Float64Array(this.labels.length);
    this.rowLabels?.forEach((set, r) => {
      sets[set] += this.rowNs[r];
    });
    // A set may name one label twice.
    this.labelSets.forEach((set, i) => new Set(set).forEach((l) => {
      out[l] += sets[i + 1];
    }));
    return out;
  }

  /** State of a row: 0..=3. @param {number} tag */
  static state(tag) {
    return tag & 3;
  }

  /** The reason's or part's name of a tag. @param {number} tag */
  reason(tag) {
    const r = (tag >> 2) & 31;
    return r > 0 ? this.reasons[r - 1] : '';
  }

  /** @param {number} entry */
  module(entry) {
    const m = this.entryModule[entry];
    return m > 0 ? this.modules[m - 1] : '';
  }

  /** Outermost first, without the root. @param {number} node @returns {number[]} */
  path(node) {
    const out = [];
    for (let n = node; n > 0; n = this.parent[n]) out.push(n);
    return out.reverse();
  }

  /** The time a slice begins, in ns after the start of the window. @param {number} slice */
  sliceBegin(slice) {
    const { slices, window } = this.meta;
    return Math.min(this.duration, Math.max(0, slices.start + slice * slices.width - window.start));
  }

  /** Which of the statistic's blocks a slice lies in. @param {number} slice */
  block(slice) {
    return Math.min(this.blocks - 1, Math.floor((slice * this.blocks) / Math.max(1, this.slices)));
  }

  /**
   * Ledgers of all threads within some slices (`null`: the whole recording), as
   * `{wall, parts}` with parts in the order: 4 on-CPU, 3 runnable, blocked by reason, 3 unknown. Slices
   * do not tell the parts of on-CPU and runnable time apart; all of it stands in the first.
   * @param {Uint8Array | null} mask
   */
  threadLedgers(mask) {
    const out = this.meta.threads.map((/** @type {any} */ t) => ({
      wall: mask ? 0 : t.wall,
      parts: mask
        ? new Float64Array(PARTS)
        : Float64Array.from([...t.on_cpu, ...t.runnable, ...t.blocked, ...t.unknown]),
    }));
    if (!mask) return out;
    const l = this.ledger;
    for (let i = 0; i < l.rows; i += 1) {
      const thread = out[l.context[i]];
      if (!mask[l.slice[i]] || !thread) continue;
      thread.parts[0] += l.onCpu[i];
      thread.parts[4] += l.runnable[i];
      thread.wall += l.onCpu[i] + l.runnable[i];
      for (let r = 0; r < BLOCK_REASONS; r += 1) {
        const ns = l.blocked[i * BLOCK_REASONS + r];
        thread.parts[7 + r] += ns;
        thread.wall += ns;
      }
    }
    return out;
  }
}

/** The state of each part of a thread's ledger as [`Profile.threadLedgers`] orders them. */
export function stateOfPart(/** @type {number} */ part) {
  if (part < 4) return 0;
  if (part < 7) return 1;
  return part < 7 + BLOCK_REASONS ? 2 : 3;
}
