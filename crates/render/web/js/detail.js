// The side panel: everything about one function in what is chosen.

import { copy, el, fill, name, say } from './dom.js';
import { isFunction, select } from './filter.js';
import { histogram, lengthsOf, lengthWords } from './lengths.js';
import { KIND_COLOURS, partTitle, partOfTag, PART_COLOURS, STATE_COLOURS } from './palette.js';
import { stackText } from './picture.js';
import { KIND, STATE_TITLES } from './profile.js';
import { intervalBadge } from './table.js';
import { baseName, count, duration, percent, shorten } from './text.js';

/** Adding up lines walks whole stacks; above this many rows it is left out. */
const MOST_ROWS = 400_000;

/**
 * Time by source line within a function: in it (self) and in what it called there.
 * @param {import('./selection.js').Selection} selection
 * @param {number} entry
 */
export function linesOf(selection, entry) {
  const p = selection.profile;
  /** @type {Map<number, {self: number, total: number}>} */
  const lines = new Map();
  const add = (/** @type {number} */ line, /** @type {number} */ ns, /** @type {boolean} */ leaf) => {
    const at = lines.get(line) ?? { self: 0, total: 0 };
    at.total += ns;
    if (leaf) at.self += ns;
    lines.set(line, at);
  };
  if (p.rowLine) {
    for (let r = 0; r < p.rows; r += 1) {
      if (selection.weight[r] > 0 && p.entry[p.rowNode[r]] === entry) add(p.rowLine[r], selection.weight[r], true);
    }
    return lines;
  }
  if (!p.stackLines || p.rows > MOST_ROWS) return lines;
  const { alike, more, line } = p.stackLines;
  /** @type {number[]} */
  const current = [];
  let at = 0;
  for (let r = 0; r < p.rows; r += 1) {
    current.length = alike[r];
    for (let k = 0; k < more[r]; k += 1) {
      current.push(line[at]);
      at += 1;
    }
    const ns = selection.weight[r];
    if (ns === 0) continue;
    // A recursive function is counted at its innermost frame.
    let depth = current.length - 1;
    for (let n = p.rowNode[r]; n > 0 && depth >= 0; n = p.parent[n], depth -= 1) {
      if (p.entry[n] === entry) {
        add(current[depth], ns, n === p.rowNode[r]);
        break;
      }
    }
  }
  return lines;
}

/** Time by part (state or reason) of some runs of rows. @param {import('./selection.js').Selection} selection @param {ArrayLike<number>} ranges */
function partsOf(selection, ranges) {
  const p = selection.profile;
  const parts = new Map();
  for (let i = 0; i < ranges.length; i += 2) {
    for (let r = ranges[i]; r < ranges[i + 1]; r += 1) {
      const ns = selection.weight[r];
      if (ns === 0) continue;
      const tag = p.rowTag[r];
      const part = partOfTag(tag);
      const key = part < 0 ? -1 - (tag & 3) : part;
      parts.set(key, (parts.get(key) ?? 0) + ns);
    }
  }
  return [...parts].sort((a, b) => b[1] - a[1]);
}

/** Neighbours of a function: callers or callees with their time. @param {import('./selection.js').Selection} selection @param {number[]} nodes @param {boolean} callers */
function neighbours(selection, nodes, callers) {
  const p = selection.profile;
  const time = new Map();
  const add = (/** @type {number} */ e, /** @type {number} */ ns) => time.set(e, (time.get(e) ?? 0) + ns);
  for (const n of nodes) {
    if (callers) add(p.parent[n] === 0 ? -1 : p.entry[p.parent[n]], selection.time(n));
    else for (let c = n + 1; c < p.end[n]; c = p.end[c]) if (selection.time(c) > 0) add(p.entry[c], selection.time(c));
  }
  return [...time].sort((a, b) => b[1] - a[1]);
}

/**
 * Wakers of the waits of stacks with a function: marks of the tree of wakers, with their time.
 * @param {import('./selection.js').Selection} selection
 * @param {import('./filter.js').Look} look
 * @param {number} entry
 */
function wakersOf(selection, look, entry) {
  const time = new Map();
  if (!selection.profile.wake) return [];
  const chosen = look.view === 'off-wake' ? selection : select(selection.profile, { ...look, view: 'off-wake', only: false }, null);
  const p = chosen.profile;
  const ranges = chosen.ranges(chosen.nodesOf(entry));
  for (let i = 0; i < ranges.length; i += 2) {
    for (let r = ranges[i]; r < ranges[i + 1]; r += 1) {
      if (chosen.weight[r] === 0) continue;
      // Below a waker's mark stands the waker's own stack.
      let node = p.rowNode[r];
      while (node > 0 && p.kind[p.entry[node]] !== KIND.mark && p.entry[node] !== entry) node = p.parent[node];
      const e = p.entry[node];
      if (e !== entry) time.set(e, (time.get(e) ?? 0) + chosen.weight[r]);
    }
  }
  return [...time].sort((a, b) => b[1] - a[1]);
}

/** How long the intervals were that are spent below some nodes. @param {import('./selection.js').Selection} selection @param {ArrayLike<number>} ranges */
function lengthsBelow(selection, ranges) {
  const p = selection.profile;
  // They are known by the recording's own stacks.
  if (p === p.wake) return [];
  const rows = new Uint8Array(p.rows);
  for (let i = 0; i < ranges.length; i += 2) {
    for (let r = ranges[i]; r < ranges[i + 1]; r += 1) if (selection.weight[r] > 0) rows[r] = 1;
  }
  return [2, 1].flatMap((s) => {
    const found = lengthsOf(p, (of, tag) => of > 1 && of % 2 === 0 && rows[of / 2 - 1] === 1 && (tag & 3) === s);
    if (!found) return [];
    const [n, half, most, longest] = lengthWords(found);
    return [el('p', { class: 'small' }, `${STATE_TITLES[s]}: about ${n}, half up to ${half}, 99 % up to ${most}, the longest ${longest}`, histogram(found))];
  });
}

/**
 * What the panel is of.
 * @typedef {object} Subject
 * @property {import('./selection.js').Selection} selection
 * @property {import('./filter.js').Look} look its picked entry is the function
 * @property {number[]} stack entries outermost first that lead to the picked frame; may be empty
 */

/**
 * What the panel's buttons do.
 * @typedef {object} Act
 * @property {(c: Partial<import('./filter.js').Look>) => void} change
 * @property {(entry: number) => void} pick
 * @property {() => void} close
 */

/**
 * @param {HTMLElement} host
 * @param {Subject} subject
 * @param {Act} act
 */
export function showDetail(host, subject, act) {
  const entry = subject.look.pick;
  host.hidden = entry < 0 || entry >= subject.selection.profile.names.length;
  if (host.hidden) return;
  fill(host, ...new Panel(subject, act).sections());
}

/** The panel of one function. */
class Panel {
  /** @param {Subject} subject @param {Act} act */
  constructor({ selection, look, stack }, act) {
    this.selection = selection;
    this.profile = selection.profile;
    this.look = look;
    this.stack = stack;
    this.act = act;
    this.entry = look.pick;
    this.nodes = selection.nodesOf(this.entry);
    this.ranges = selection.ranges(this.nodes);
    const { self, total } = selection.byEntry();
    this.self = self[this.entry];
    this.total = total[this.entry];
    this.file = this.profile.files[this.profile.entryFile[this.entry]];
  }

  sections() {
    const { selection, nodes } = this;
    const stack = this.stack.length > 0 ? this.stack : nodes.length > 0 ? heaviestStack(selection, nodes) : [];
    return [
      ...this.head(),
      this.facts(),
      this.parts(),
      this.choices(stack),
      this.lines(),
      this.lengths(),
      this.wakers(),
      this.neighbours('Called by', neighbours(selection, nodes, true)),
      this.neighbours('Calls', neighbours(selection, nodes, false)),
      this.frames(stack),
    ];
  }

  head() {
    const title = this.profile.names[this.entry];
    return [
      el('div', { class: 'detail-head' }, el('h3', { class: 'function-name' }, name(title)), el('button', { type: 'button', class: 'close', 'aria-label': 'close the panel', onclick: this.act.close }, '×')),
      title.length > 20_000 ? el('p', { class: 'quiet small' }, `${count(title.length)} characters; the first 20 000 are shown.`) : null,
    ];
  }

  facts() {
    const { profile: p, entry, selection, file } = this;
    const share = (/** @type {number} */ ns) => percent(ns / selection.total);
    const kind = ['native code', 'kernel', 'code made at run time', 'no function, but what stands for one', 'managed code'][p.kind[entry]];
    const module = p.module(entry);
    const build = p.entryModule[entry] > 0 ? p.builds[p.entryModule[entry] - 1] : '';
    return el(
      'dl', { class: 'facts' },
      el('dt', {}, 'Total'), el('dd', {}, el('b', {}, share(this.total)), ` ${duration(this.total)} `, isFunction(p, entry) && this.total > 0 ? intervalBadge(selection, this.ranges) : null),
      el('dt', {}, 'Self'), el('dd', {}, el('b', {}, share(this.self)), ` ${duration(this.self)}`),
      el('dt', {}, 'Kind'), el('dd', {}, kind + (p.inlined[entry] ? ', inlined into its caller' : '')),
      ...(module ? [el('dt', {}, 'Module'), el('dd', {}, name(module))] : []),
      ...(build ? [el('dt', {}, 'Build id'), el('dd', { class: 'mono' }, name(build))] : []),
      ...(file ? [el('dt', {}, 'Source'), el('dd', { class: 'mono' }, name(`${file}${p.entryLine[entry] > 0 ? `:${p.entryLine[entry]}` : ''}`))] : []),
    );
  }

  parts() {
    const parts = partsOf(this.selection, this.ranges);
    const sum = parts.reduce((a, [, ns]) => a + ns, 0);
    if (sum === 0) return null;
    const words = parts.map(([k, ns]) => `${k < 0 ? STATE_TITLES[-1 - k] : partTitle(this.profile, k)} ${percent(ns / sum)}`);
    return el(
      'section', {},
      el('h4', {}, 'What its time was'),
      el(
        'div', { class: 'bar', role: 'img', 'aria-label': words.join(', ') },
        ...parts.map(([k, ns]) => el('span', { class: 'part', style: { width: `${(ns / sum) * 100}%`, background: k < 0 ? STATE_COLOURS[-1 - k] : PART_COLOURS[k] } })),
      ),
      el('p', { class: 'small' }, words.slice(0, 5).join(' · ')),
    );
  }

  /** @param {number[]} stack */
  choices(stack) {
    const { profile: p, entry, look, act } = this;
    return el(
      'div', { class: 'choices' },
      isFunction(p, entry) ? el('button', { type: 'button', class: 'focus', onclick: () => act.change({ focus: look.focus === entry ? -1 : entry, tab: 'flame', zoom: '' }) }, look.focus === entry ? 'Back to all' : 'Callers and callees') : null,
      el('button', { type: 'button', onclick: () => act.change({ query: exactPattern(p.names[entry]), zoom: '' }) }, 'Search'),
      el('button', {
        type: 'button', class: 'copy',
        onclick: async () => say((await copy(stackText(p, stack, look.view, this.total))) ? 'The stack is copied.' : 'Copying is not allowed here.'),
      }, 'Copy stack'),
    );
  }

  lines() {
    const { file, total } = this;
    const lines = [...linesOf(this.selection, this.entry)].filter(([line]) => line > 0).sort((a, b) => b[1].total - a[1].total);
    if (lines.length === 0) return null;
    const share = (/** @type {number} */ ns) => percent(ns / Math.max(1, total));
    const rows = lines.slice(0, 8).map(([line, t]) =>
      el('tr', {}, el('td', { class: 'mono' }, `${file ? baseName(file) : 'line '}:${line}`), el('td', { class: 'number' }, share(t.total)), el('td', { class: 'number quiet' }, t.self > 0 ? `self ${share(t.self)}` : '')),
    );
    return el('section', {}, el('h4', {}, this.profile.rowLine ? 'Lines (self)' : 'Lines'), el('table', { class: 'lines' }, el('tbody', {}, ...rows)));
  }

  lengths() {
    const lengths = lengthsBelow(this.selection, this.ranges);
    return lengths.length > 0 ? el('section', {}, el('h4', {}, 'How long its single intervals were'), ...lengths) : null;
  }

  wakers() {
    const { profile: p, entry, act } = this;
    const wakers = wakersOf(this.selection, this.look, entry);
    const woken = wakers.reduce((a, [, ns]) => a + ns, 0);
    if (woken === 0) return null;
    return el(
      'section', {},
      el('h4', {}, 'Wakers of its waits'),
      el('ul', { class: 'neighbours' }, ...wakers.slice(0, 6).map(([e, ns]) => el('li', {}, name(p.names[e].slice(1, -1)), el('span', { class: 'number' }, percent(ns / woken))))),
      el('button', { type: 'button', class: 'link', onclick: () => act.change({ view: 'off-wake', focus: entry, tab: 'flame', zoom: '' }) }, 'With their stacks'),
    );
  }

  /** @param {string} title @param {[number, number][]} items entries and their time */
  neighbours(title, items) {
    if (items.length === 0) return null;
    return el(
      'section', {},
      el('h4', {}, title),
      el('ul', { class: 'neighbours' }, ...items.slice(0, 7).map(([e, ns]) => this.neighbour(e, ns))),
      items.length > 7 ? el('p', { class: 'quiet small' }, `and ${items.length - 7} more`) : null,
    );
  }

  /** @param {number} entry or −1 @param {number} ns */
  neighbour(entry, ns) {
    return el(
      'li', {},
      entry < 0 ? el('span', {}, 'nothing: it is where stacks begin') : this.link(entry, 60),
      el('span', { class: 'number' }, percent(ns / Math.max(1, this.total))),
    );
  }

  /** @param {number[]} stack */
  frames(stack) {
    const { kind } = this.profile;
    if (stack.length === 0) return null;
    return el(
      'section', {},
      el('h4', {}, this.stack.length > 0 ? 'This stack' : 'Its heaviest stack'),
      el('ol', { class: 'stack' }, ...stack.slice(-200).reverse().map((e) => el('li', kind[e] === KIND.kernel ? { class: 'kernel', style: { 'border-color': KIND_COLOURS.kernel } } : {}, this.link(e, 90)))),
    );
  }

  /** A function that a click picks. @param {number} entry @param {number} most letters */
  link(entry, most) {
    const title = this.profile.names[entry];
    return el('button', { type: 'button', class: 'link', title: title.slice(0, 2000), onclick: () => this.act.pick(entry) }, name(shorten(title, most)));
  }
}

/** The path to the heaviest of some nodes. @param {import('./selection.js').Selection} selection @param {number[]} nodes */
function heaviestStack(selection, nodes) {
  let best = nodes[0];
  for (const n of nodes) if (selection.time(n) > selection.time(best)) best = n;
  return selection.profile.path(best).map((n) => selection.profile.entry[n]);
}

/** A pattern for exactly this name. @param {string} text */
export function exactPattern(text) {
  return `^${text.slice(0, 300).replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}${text.length > 300 ? '' : '$'}`;
}
