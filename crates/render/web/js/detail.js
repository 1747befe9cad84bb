// The side panel: everything about one function in what is chosen.

import { copy, el, fill, name, say } from './dom.js';
import { isFunction, select } from './filter.js';
import { histogram, lengthsOf, lengthWords } from './lengths.js';
import { partTitle, partOfTag, PART_COLOURS, STATE_COLOURS } from './palette.js';
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
 * @param {HTMLElement} host
 * @param {import('./selection.js').Selection} selection
 * @param {import('./filter.js').Look} look
 * @param {number[]} stack entries outermost first that lead to the picked frame; may be empty
 * @param {{change: (c: Partial<import('./filter.js').Look>) => void, pick: (entry: number) => void,
 *   close: () => void}} act
 */
export function showDetail(host, selection, look, stack, act) {
  const p = selection.profile;
  const entry = look.pick;
  if (entry < 0 || entry >= p.names.length) {
    host.hidden = true;
    return;
  }
  host.hidden = false;
  const nodes = selection.nodesOf(entry);
  const ranges = selection.ranges(nodes);
  const { self, total } = selection.byEntry();
  const share = (/** @type {number} */ ns) => percent(ns / selection.total);
  const kind = ['native code', 'kernel', 'code made at run time', 'no function, but what stands for one', 'managed code'][p.kind[entry]];
  const module = p.module(entry);
  const file = p.files[p.entryFile[entry]];
  const build = p.entryModule[entry] > 0 ? p.builds[p.entryModule[entry] - 1] : '';

  const item = (/** @type {number} */ e, /** @type {number} */ ns) =>
    el(
      'li', {},
      e < 0
        ? el('span', {}, 'nothing: it is where stacks begin')
        : el('button', { type: 'button', class: 'link', title: p.names[e].slice(0, 2000), onclick: () => act.pick(e) }, name(shorten(p.names[e], 60))),
      el('span', { class: 'number' }, percent(ns / Math.max(1, total[entry]))),
    );
  const list = (/** @type {string} */ title, /** @type {[number, number][]} */ items) =>
    items.length === 0
      ? null
      : el('section', {}, el('h4', {}, title), el('ul', { class: 'neighbours' }, ...items.slice(0, 7).map(([e, ns]) => item(e, ns))), items.length > 7 ? el('p', { class: 'quiet small' }, `and ${items.length - 7} more`) : null);

  const lines = [...linesOf(selection, entry)].filter(([line]) => line > 0).sort((a, b) => b[1].total - a[1].total);
  const parts = partsOf(selection, ranges);
  const sum = parts.reduce((a, [, ns]) => a + ns, 0);
  const lengths = lengthsBelow(selection, ranges);
  const wakers = wakersOf(selection, look, entry);
  const woken = wakers.reduce((a, [, ns]) => a + ns, 0);
  const stackOf = stack.length > 0 ? stack : nodes.length > 0 ? heaviestStack(selection, nodes) : [];

  fill(
    host,
    el('div', { class: 'detail-head' }, el('h3', { class: 'function-name' }, name(p.names[entry])), el('button', { type: 'button', class: 'close', 'aria-label': 'close the panel', onclick: act.close }, '×')),
    p.names[entry].length > 20_000 ? el('p', { class: 'quiet small' }, `${count(p.names[entry].length)} characters; the first 20 000 are shown.`) : null,
    el(
      'dl', { class: 'facts' },
      el('dt', {}, 'Total'), el('dd', {}, el('b', {}, share(total[entry])), ` ${duration(total[entry])} `, isFunction(p, entry) && total[entry] > 0 ? intervalBadge(selection, ranges) : null),
      el('dt', {}, 'Self'), el('dd', {}, el('b', {}, share(self[entry])), ` ${duration(self[entry])}`),
      el('dt', {}, 'Kind'), el('dd', {}, kind + (p.inlined[entry] ? ', inlined into its caller' : '')),
      ...(module ? [el('dt', {}, 'Module'), el('dd', {}, name(module))] : []),
      ...(build ? [el('dt', {}, 'Build id'), el('dd', { class: 'mono' }, name(build))] : []),
      ...(file ? [el('dt', {}, 'Source'), el('dd', { class: 'mono' }, name(`${file}${p.entryLine[entry] > 0 ? `:${p.entryLine[entry]}` : ''}`))] : []),
    ),
    sum > 0
      ? el(
          'section', {},
          el('h4', {}, 'What its time was'),
          el(
            'div', { class: 'bar', role: 'img', 'aria-label': parts.map(([k, ns]) => `${k < 0 ? STATE_TITLES[-1 - k] : partTitle(p, k)} ${percent(ns / sum)}`).join(', ') },
            ...parts.map(([k, ns]) => el('span', { class: 'part', style: { width: `${(ns / sum) * 100}%`, background: k < 0 ? STATE_COLOURS[-1 - k] : PART_COLOURS[k] } })),
          ),
          el('p', { class: 'small' }, parts.slice(0, 5).map(([k, ns]) => `${k < 0 ? STATE_TITLES[-1 - k] : partTitle(p, k)} ${percent(ns / sum)}`).join(' · ')),
        )
      : null,
    el(
      'div', { class: 'choices' },
      isFunction(p, entry) ? el('button', { type: 'button', class: 'focus', onclick: () => act.change({ focus: look.focus === entry ? -1 : entry, tab: 'flame', zoom: '' }) }, look.focus === entry ? 'Back to all' : 'Callers and callees') : null,
      el('button', { type: 'button', onclick: () => act.change({ query: exactPattern(p.names[entry]), zoom: '' }) }, 'Search'),
      el('button', {
        type: 'button', class: 'copy',
        onclick: async () => say((await copy(stackText(p, stackOf, look.view, total[entry]))) ? 'The stack is copied.' : 'Copying is not allowed here.'),
      }, 'Copy stack'),
    ),
    lines.length > 0
      ? el(
          'section', {},
          el('h4', {}, p.rowLine ? 'Lines (self)' : 'Lines'),
          el(
            'table', { class: 'lines' },
            el('tbody', {}, ...lines.slice(0, 8).map(([line, t]) => el('tr', {}, el('td', { class: 'mono' }, `${file ? baseName(file) : 'line '}:${line}`), el('td', { class: 'number' }, percent(t.total / Math.max(1, total[entry]))), el('td', { class: 'number quiet' }, t.self > 0 ? `self ${percent(t.self / Math.max(1, total[entry]))}` : '')))),
          ),
        )
      : null,
    lengths.length > 0 ? el('section', {}, el('h4', {}, 'How long its single intervals were'), ...lengths) : null,
    woken > 0
      ? el(
          'section', {},
          el('h4', {}, 'Wakers of its waits'),
          el('ul', { class: 'neighbours' }, ...wakers.slice(0, 6).map(([e, ns]) => el('li', {}, name(p.names[e].slice(1, -1)), el('span', { class: 'number' }, percent(ns / woken))))),
          el('button', { type: 'button', class: 'link', onclick: () => act.change({ view: 'off-wake', focus: entry, tab: 'flame', zoom: '' }) }, 'With their stacks'),
        )
      : null,
    list('Called by', neighbours(selection, nodes, true)),
    list('Calls', neighbours(selection, nodes, false)),
    stackOf.length > 0
      ? el(
          'section', {},
          el('h4', {}, stack.length > 0 ? 'This stack' : 'Its heaviest stack'),
          el('ol', { class: 'stack' }, ...stackOf.slice(-200).reverse().map((e) => el('li', { class: `kind-${p.kind[e] === KIND.kernel ? 'kernel' : 'user'}` }, el('button', { type: 'button', class: 'link', onclick: () => act.pick(e), title: p.names[e].slice(0, 2000) }, name(shorten(p.names[e], 90)))))),
        )
      : null,
  );
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
