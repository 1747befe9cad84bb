// The table of functions: self and total time of what is chosen, with intervals.

import { el, fill, name } from './dom.js';
import { isFunction } from './filter.js';
import { badge } from './ledger.js';
import { mineOf } from './mine.js';
import { codeKind, KIND_COLOURS } from './palette.js';
import { baseName, count, duration, percent, shorten } from './text.js';

const TABLE_COLUMNS = /** @type {const} */ ([
  ['self', 'Self'],
  ['self-share', 'Self share'],
  ['total', 'Total'],
  ['interval', '95 % interval of total'],
  ['name', 'Function'],
  ['module', 'Module'],
]);

/** How many rows are shown; kept while the page is open. */
const state = { shown: 200, key: '' };

/** Fewer samples than this, and a number is only suspected. */
const FEW = 10;

/**
 * A share's interval as a badge: `±0.4` (percentage points), or that it is only suspected.
 * @param {import('./selection.js').Selection} selection
 * @param {ArrayLike<number>} ranges
 */
export function intervalBadge(selection, ranges) {
  const { low, high, samples } = selection.interval(ranges);
  const suspected = samples < FEW;
  const half = ((high - low) / 2) * 100;
  const text = suspected ? 'suspected' : `± ${half < 0.1 ? half.toFixed(2) : half.toFixed(1)} pp`;
  return badge(suspected ? 'suspected' : 'sampled', text, () => [
    el('p', {}, `The true share lies between ${percent(low)} and ${percent(high)} in 95 of 100 recordings like this.`),
    el(
      'p', {},
      `It rests on ${count(samples)} samples. ` +
        (suspected
          ? 'That is too few to rely on: record longer, or at a higher rate.'
          : 'The view’s total itself is counted and not sampled.'),
    ),
  ]);
}

/** The columns' titles; a click sorts. @param {string} sort as in a look @param {(sort: string) => void} change */
function headRow(sort, change) {
  const down = !sort.startsWith('-');
  const by = sort.replace('-', '') || 'self';
  return el(
    'tr', {},
    ...TABLE_COLUMNS.map(([id, title]) => {
      const sortable = id !== 'self-share' && id !== 'interval';
      return el(
        'th',
        { class: id === 'name' || id === 'module' ? '' : 'number', 'aria-sort': id === by ? (down ? 'descending' : 'ascending') : null },
        sortable
          ? el('button', { type: 'button', onclick: () => change(by === id && down ? `-${id}` : id) }, title, id === by ? (down ? ' ▾' : ' ▴') : '')
          : title,
      );
    }),
  );
}

/**
 * What the table shows.
 * @typedef {object} Chosen
 * @property {import('./selection.js').Selection} selection
 * @property {import('./filter.js').Look} look
 * @property {Uint8Array | null} matches of the search, by entry
 */

/**
 * @param {HTMLElement} host
 * @param {Chosen} chosen
 * @param {{change: (c: Partial<import('./filter.js').Look>) => void, pick: (entry: number) => void}} act
 */
export function showTable(host, chosen, act) {
  const { selection, look, matches } = chosen;
  const p = selection.profile;
  const mine = mineOf(p, look);
  const { self, total } = mine ? selection.byOwnEntry(mine) : selection.byEntry();
  const down = !look.sort.startsWith('-');
  const by = look.sort.replace('-', '') || 'self';
  const key = `${look.sort}|${look.query}|${selection.total}`;
  if (key !== state.key) {
    state.key = key;
    state.shown = 200;
  }
  const all = [];
  for (let e = 0; e < total.length; e += 1) {
    if (total[e] > 0 && (!matches || matches[e])) all.push(e);
  }
  const text = (/** @type {number} */ e) => (by === 'module' ? p.module(e) : p.names[e]);
  if (by === 'name' || by === 'module') all.sort((a, b) => (text(a) < text(b) ? -1 : text(a) > text(b) ? 1 : self[b] - self[a]));
  else {
    const v = by === 'self' ? self : total;
    all.sort((a, b) => v[b] - v[a] || total[b] - total[a] || a - b);
  }
  if (!down) all.reverse();
  const widest = Math.max(1, ...all.slice(0, 2000).map((e) => self[e]));
  const head = headRow(look.sort, (sort) => act.change({ sort }));
  /** @type {{cell: HTMLElement, entry: number}[]} */
  const pending = [];
  const body = all.slice(0, state.shown).map((e) => {
    const cell = el('td', { class: 'number' });
    if (isFunction(p, e) && (!mine || mine.entry[e])) pending.push({ cell, entry: e });
    const select = () => act.pick(e);
    return el(
      'tr',
      {
        tabindex: '0',
        class: e === look.pick ? 'chosen' : '',
        'data-entry': e,
        onclick: select,
        onkeydown: (/** @type {KeyboardEvent} */ k) => {
          if (k.key === 'Enter') select();
        },
      },
      el('td', { class: 'number' }, duration(self[e])),
      el('td', { class: 'share' }, el('i', { class: 'meter', style: { width: `${(self[e] / widest) * 100}%` } }), el('span', {}, percent(self[e] / selection.total))),
      el('td', { class: 'number' }, duration(total[e]), el('span', { class: 'quiet' }, ` ${percent(total[e] / selection.total)}`)),
      cell,
      el(
        'td', { class: 'function' },
        el('i', { class: 'kind', title: codeKind(p, e), style: { background: KIND_COLOURS[codeKind(p, e)] } }),
        name(shorten(p.names[e], 160), { title: p.names[e].slice(0, 2000) }),
        p.inlined[e] ? el('span', { class: 'quiet' }, ' inlined') : null,
      ),
      el('td', { class: 'module' }, name(baseName(p.module(e)), { title: p.module(e) })),
    );
  });
  const more = all.length - state.shown;
  fill(
    host,
    el(
      'p', { class: 'quiet small' },
      `${count(all.length)} functions${matches ? ' match' : ''}. Self: time in the function itself; waiting counts for the innermost function outside of the kernel. Total: with what it called, a recursive function once. A large total is rarely the culprit: look at self first.`,
    ),
    el(
      'div', { class: 'wide' },
      el('table', { class: 'functions' }, el('caption', { class: 'offscreen' }, 'Functions by time'), el('thead', {}, head), el('tbody', {}, ...body)),
    ),
    more > 0
      ? el('button', { type: 'button', class: 'more', onclick: () => { state.shown += 400; showTable(host, chosen, act); } }, `${count(more)} more functions`)
      : null,
  );
  intervals(selection, pending);
}

/** Fills intervals in between other work: each may need a pass over the tree. @param {import('./selection.js').Selection} selection @param {{cell: HTMLElement, entry: number}[]} pending */
function intervals(selection, pending) {
  let i = 0;
  const some = () => {
    const begun = performance.now();
    while (i < pending.length && performance.now() - begun < 10) {
      const { cell, entry } = pending[i];
      i += 1;
      if (!cell.isConnected) return;
      const ranges = selection.ranges(selection.nodesOf(entry));
      fill(cell, intervalBadge(selection, ranges));
    }
    if (i < pending.length) setTimeout(some, 16);
  };
  setTimeout(some, 30);
}
