// Chains of waits: the root causes of the chosen time. Below each wait stands its waker, below the waker
// what it did meanwhile, and so on. Equal lines below one line are joined.

import { el, fill, name } from './dom.js';
import { FlameGraph } from './flame.js';
import { KIND_COLOURS, STATE_COLOURS } from './palette.js';
import { LaidOut } from './shape.js';
import { duration, percent, shorten } from './text.js';

/** What a line is: computing, queueing, blocked, a waker, a chain that was cut; and everything. */
const LINE_COLOURS = [...STATE_COLOURS.slice(0, 3), '#c9c4bb', KIND_COLOURS.mark, '#d8d8d4'];
const LINE_TITLES = ['computes', 'waits for a CPU', 'is blocked', 'woken by', 'not followed further', ''];
const WOKEN = 3;

/** Whether the recording has chains of waits. @param {import('./profile.js').Profile} p */
export function hasChains(p) {
  return p.columns.has('hop.above');
}

/** @param {import('./profile.js').Profile} p */
function chains(p) {
  p.chains ??= {
    lines: p.columns.strings('line'),
    kinds: p.columns.u32('line.kind'),
    ofRow: p.columns.u32('row.line_of'),
    above: p.columns.u32('hop.above'),
    ofHop: p.columns.u32('hop.line_of'),
    ns: p.columns.f64('hop.ns'),
  };
  return p.chains;
}

/**
 * The tree of lines, laid out, and its ends: the last line of each chain, with its time.
 * @param {import('./selection.js').Selection} selection of the recording's own tree
 * @param {ArrayLike<number>} ranges rows that are asked about
 */
export function chainTree(selection, ranges) {
  const p = selection.profile;
  const c = chains(p);
  const lines = [-1];
  const times = [0];
  const parents = [0];
  /** @type {number[][]} */
  const below = [[]];
  /** @type {Map<number, number>} */
  const known = new Map();
  const child = (/** @type {number} */ parent, /** @type {number} */ line, /** @type {number} */ ns) => {
    const key = parent * c.lines.length + line;
    let node = known.get(key);
    if (node === undefined) {
      node = lines.length;
      known.set(key, node);
      lines.push(line);
      times.push(0);
      parents.push(parent);
      below.push([]);
      below[parent].push(node);
    }
    times[node] += ns;
    return node;
  };
  const share = new Float64Array(p.rows);
  const top = new Uint32Array(p.rows);
  for (let i = 0; i < ranges.length; i += 2) {
    for (let r = ranges[i]; r < ranges[i + 1]; r += 1) {
      const ns = selection.weight[r];
      if (ns === 0) continue;
      times[0] += ns;
      top[r] = child(0, c.ofRow[r], ns);
      share[r] = ns / Math.max(1, p.rowNs[r]);
    }
  }
  const rows = new Uint32Array(c.above.length);
  const nodes = new Uint32Array(c.above.length);
  c.above.forEach((/** @type {number} */ above, /** @type {number} */ h) => {
    const hop = above % 2 === 1;
    const up = (above - (above % 2)) / 2;
    rows[h] = hop ? rows[up] : up;
    const parent = hop ? nodes[up] : top[up];
    if (parent > 0) nodes[h] = child(parent, c.ofHop[h], c.ns[h] * share[rows[h]]);
  });

  const shape = new LaidOut(false);
  shape.total = shape.rights[0] = shape.selfs[0] = times[0];
  /** @type {Map<string, number>} */
  const ends = new Map();
  /** @type {[number, number, number][]} node, its place in the shape, left end */
  const open = [[0, 0, 0]];
  while (open.length > 0) {
    const [node, placed, start] = /** @type {[number, number, number]} */ (open.pop());
    const sorted = below[node].filter((n) => times[n] > 0).sort((a, b) => times[b] - times[a]);
    let left = start;
    const next = sorted.map((n) => {
      const at = shape.add(lines[n], placed, left, times[n]);
      left += times[n];
      return /** @type {[number, number, number]} */ ([n, at, left - times[n]]);
    });
    open.push(...next.reverse());
    const own = times[node] - (left - start);
    shape.selfs[placed] = own;
    // A waker without lines of its own leaves the wait as the end of the chain.
    let end = node;
    while (end > 0 && c.kinds[lines[end]] === WOKEN) end = parents[end];
    if (end > 0 && own > 0) ends.set(c.lines[lines[end]], (ends.get(c.lines[lines[end]]) ?? 0) + own);
  }
  return { shape: shape.finish(), ends: [...ends].sort((a, b) => b[1] - a[1]) };
}

/** The picture of chains. */
export class Chains {
  /** @param {HTMLElement} host @param {(node: number, shape: LaidOut, names: string[], x: number, y: number) => void} tell */
  constructor(host, tell) {
    this.words = el('p', { class: 'small' });
    this.ends = el('div', {});
    const room = el('div', {});
    this.graph = new FlameGraph(room, {
      pick: () => {},
      zoom: (from, to) => this.graph.scene && this.graph.show({ ...this.graph.scene, from, to }, true),
      hover: ({ node }, { x, y }) => this.names && tell(node, /** @type {any} */ (this.graph.scene).shape, this.names, x, y),
      menu: () => {},
    });
    const key = el('div', { class: 'key' }, ...LINE_TITLES.slice(0, 5).map((t, i) => el('span', {}, el('i', { class: 'swatch', style: { background: LINE_COLOURS[i] } }), t)));
    fill(host, this.words, room, key, this.ends);
  }

  /** @param {import('./selection.js').Selection} selection @param {import('./filter.js').Look} look */
  show(selection, look) {
    const p = selection.profile;
    const { lines, kinds } = chains(p);
    const asked = look.pick >= 0 && look.pick < p.names.length;
    const ranges = asked ? selection.ranges(selection.nodesOf(look.pick)) : [0, p.rows];
    const { shape, ends } = chainTree(selection, ranges);
    this.names = lines;
    // Names are shortened by what stands in brackets; of a reason that says what for, that is too much.
    const short = lines.map((/** @type {string} */ l) => l.replace(/ \((\w+)(: .*)?\) in /, ': $1 in '));
    const flat = new Uint8Array(lines.length);
    const whole = Math.max(1, shape.total);
    fill(
      this.words,
      el('b', {}, duration(shape.total)), asked ? el('span', {}, ' of stacks with ', name(shorten(p.names[look.pick], 80))) : ' of all that is chosen',
      ', and what it was really spent on: below a wait stands its waker, below that the waker’s time meanwhile. Choose a thread or a function to ask about it; a click zooms.',
    );
    this.graph.show(
      {
        shape, profile: /** @type {any} */ ({ names: short, kind: flat, inlined: flat }), matches: null, icicle: true, from: 0, to: whole, picked: -1,
        paint: { colours: LINE_COLOURS, titles: LINE_TITLES, classOf: (e) => (e < 0 ? 5 : kinds[e]), sums: [] },
      },
      false,
    );
    fill(
      this.ends,
      el('h3', {}, 'In the end it was'),
      el('table', { class: 'plain' }, el('tbody', {}, ...ends.slice(0, 12).map(([what, ns]) => el('tr', {}, el('td', { class: 'number' }, percent(ns / whole)), el('td', { class: 'number' }, duration(ns)), el('td', {}, name(what)))))),
      ends.length > 12 ? el('p', { class: 'quiet small' }, `and ${ends.length - 12} more`) : null,
    );
  }
}
