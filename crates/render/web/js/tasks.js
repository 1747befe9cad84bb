// Tasks that a runtime schedules itself: goroutines, asyncio tasks, virtual threads. They have a clock of
// their own, which is never added to that of threads.

import { leafFirst, mergeDown, TreeShape } from './derive.js';
import { el, fill, name } from './dom.js';
import { labelMask, matchedRuns, viewOf } from './filter.js';
import { FlameGraph } from './flame.js';
import { showParts } from './hover.js';
import { mineOf } from './mine.js';
import { STATE_COLOURS, taskColour } from './palette.js';
import { KIND, STATES } from './profile.js';
import { Selection } from './selection.js';
import { count, duration, percent, shorten } from './text.js';

/** What tasks do in each state. */
const TITLES = ['running', 'ready to run', 'waiting', 'not seen'];
/** Rows that a table shows. */
const MOST_GROUPS = 100;
const MOST_PLACES = 12;

/** Whether the recording has tasks. @param {import('./profile.js').Profile} p */
export function hasTasks(p) {
  return p.tasks !== null;
}

/** A row's group, reason and the runtime's word for it. @param {import('./profile.js').Profile} p @param {number} row @returns {[number, string, string]} */
const causeOf = (p, row) => p.meta.tasks.times[p.rowContext[row]];

/** What a row of tasks' time is called. @param {import('./profile.js').Profile} p @param {number} row */
function titleOf(p, row) {
  const state = p.rowTag[row] & 3;
  const [, reason] = causeOf(p, row);
  return state === 2 && reason ? reason.replace(/_/g, ' ') : TITLES[state];
}

/**
 * Tasks' time under a look. Threads, their reasons and the part of the recording do not apply to tasks.
 * @param {import('./profile.js').Profile} whole
 * @param {import('./filter.js').Look} look
 * @param {Uint8Array | null} matches entries that match the search; used if `look.only`
 * @param {number} group place of the group that counts; −1: all
 */
export function selectTasks(whole, look, matches, group) {
  const p = /** @type {import('./profile.js').Profile} */ (whole.tasks);
  const { groups } = p.meta.tasks;
  const { states } = viewOf(look);
  const labels = labelMask(whole, look);
  const counts = (/** @type {number} */ r) => {
    const [of] = causeOf(p, r);
    const idle = p.rowTag[r] >> 7 === 1;
    return (
      states.includes(p.rowTag[r] & 3) &&
      (look.states.length === 0 || look.states.includes(STATES[p.rowTag[r] & 3])) &&
      (look.idle === 'show' || (look.idle === 'only') === idle) &&
      (group < 0 || of === group) &&
      (look.pids.length === 0 || look.pids.includes(groups[of].pid)) &&
      (!labels || (p.rowLabels !== null && labels[p.rowLabels[r]] === 1))
    );
  };
  let weight = p.rowNs.map((ns, r) => (counts(r) ? ns : 0));
  if (look.only && matches) {
    const kept = new Float64Array(p.rows);
    for (const [from, to] of matchedRuns(p, matches)) kept.set(weight.subarray(from, to), from);
    weight = kept;
  }
  return new Selection(p, weight, null);
}

/** @typedef {{group: number, states: number[], reasons: Map<string, number>, total: number}} GroupTime */

/** Time by group, most time first. @param {Selection} selection @returns {GroupTime[]} */
export function timeByGroup(selection) {
  const p = selection.profile;
  /** @type {Map<number, GroupTime>} */
  const sums = new Map();
  selection.weight.forEach((ns, r) => {
    if (ns === 0) return;
    const [group] = causeOf(p, r);
    let sum = sums.get(group);
    if (!sum) sums.set(group, (sum = { group, states: [0, 0, 0, 0], reasons: new Map(), total: 0 }));
    sum.total += ns;
    sum.states[p.rowTag[r] & 3] += ns;
    if ((p.rowTag[r] & 3) === 2) sum.reasons.set(titleOf(p, r), (sum.reasons.get(titleOf(p, r)) ?? 0) + ns);
  });
  return [...sums.values()].sort((a, b) => b.total - a.total);
}

/**
 * The places at which tasks wait, most time first: what for, and the program's own innermost function.
 * @param {Selection} selection
 * @param {import('./mine.js').Mine} mine
 * @returns {{title: string, entry: number, ns: number}[]}
 */
export function waitPlaces(selection, mine) {
  const p = selection.profile;
  /** @type {Map<string, {title: string, entry: number, ns: number}>} */
  const places = new Map();
  selection.weight.forEach((ns, r) => {
    if (ns === 0 || (p.rowTag[r] & 3) === 0) return;
    let node = p.rowNode[r];
    while (node > 0 && (mine.entry[p.entry[node]] === 0 || p.kind[p.entry[node]] === KIND.mark)) node = p.parent[node];
    const entry = node > 0 ? p.entry[node] : p.rowBlame[r];
    const [, , detail] = causeOf(p, r);
    const title = detail && detail !== titleOf(p, r) ? `${titleOf(p, r)} (${detail})` : titleOf(p, r);
    const key = `${entry} ${title}`;
    const place = places.get(key);
    if (place) place.ns += ns;
    else places.set(key, { title, entry, ns });
  });
  return [...places.values()].sort((a, b) => b.ns - a.ns);
}

/** The colours of tasks' time. @param {Selection} selection @returns {import('./palette.js').Paint} */
function paintTasks(selection) {
  const p = selection.profile;
  /** Time by title. @type {Map<string, {state: number, ns: number}>} */
  const classes = new Map();
  selection.weight.forEach((ns, r) => {
    if (ns === 0) return;
    const title = titleOf(p, r);
    const known = classes.get(title) ?? { state: p.rowTag[r] & 3, ns: 0 };
    classes.set(title, { ...known, ns: known.ns + ns });
  });
  const titles = [...classes].sort(([, a], [, b]) => a.state - b.state || b.ns - a.ns).map(([title]) => title);
  const sums = titles.map(() => new Float64Array(p.rows + 1));
  for (let r = 0; r < p.rows; r += 1) {
    const at = titles.indexOf(titleOf(p, r));
    sums.forEach((sum, i) => {
      sum[r + 1] = sum[r] + (i === at ? selection.weight[r] : 0);
    });
  }
  const colours = titles.map((title) => (classes.get(title)?.state === 2 ? taskColour(title) : STATE_COLOURS[classes.get(title)?.state ?? 3]));
  return { colours, titles, classOf: null, sums };
}

/** The tab of tasks: groups, the picture of their stacks, and where they wait. */
export class Tasks {
  /** @param {HTMLElement} host @param {import('./main.js').Page} page */
  constructor(host, page) {
    this.page = page;
    this.words = el('p', { class: 'small' });
    this.groups = el('div', {});
    this.title = el('h3', {});
    this.key = el('ul', { class: 'key', 'aria-label': 'Colours' });
    this.places = el('div', {});
    const room = el('div', {});
    this.graph = new FlameGraph(room, {
      pick: () => {},
      zoom: (from, to) => this.graph.scene && this.graph.show({ ...this.graph.scene, from, to }, true),
      hover: ({ node }, at) => showParts(this.graph.scene, node, at, 'all tasks'),
      menu: () => {},
    });
    fill(host, this.words, this.groups, this.title, room, this.key, this.places);
  }

  /** @param {Uint8Array | null} matches @param {boolean} smooth */
  show(matches, smooth) {
    const { profile, look } = this.page;
    const all = selectTasks(profile, look, matches, -1);
    const selection = look.task < 0 ? all : selectTasks(profile, look, matches, look.task);
    this.showWords(all);
    this.showGroups(timeByGroup(all));
    this.showTitle(selection);
    this.showPicture(selection, matches, smooth);
    this.showPlaces(selection);
  }

  /** @param {Selection} all */
  showWords(all) {
    const { profile, look } = this.page;
    const { groups } = profile.meta.tasks;
    const polls = Math.max(...groups.map((/** @type {any} */ g) => g.looks));
    const hidden = look.idle === 'hide' ? selectTasks(profile, { ...look, idle: 'only', only: false }, null, -1).total : 0;
    const apart = look.threads.length + look.names.length + look.time.length + look.reasons.length > 0;
    fill(
      this.words,
      el('b', {}, duration(all.total)), ` of tasks, sampled in ${count(polls)} snapshots. Tasks have a clock of their own, which is not added to the threads’.`,
      hidden > 0 ? el('span', { class: 'quiet' }, ` ${duration(hidden)} with nothing to do is left out (`, el('button', { type: 'button', class: 'link', onclick: () => this.page.change({ idle: 'show' }) }, 'show idle'), ').') : null,
      apart ? ' They are of the whole recording: threads, reasons and times that are chosen do not apply.' : null,
    );
  }

  /** @param {GroupTime[]} sums */
  showGroups(sums) {
    const heads = ['Began with', '#Tasks', '#Time', '#Each', 'States', '#Running', '#Ready', '#Waiting', 'Waits for'];
    const head = heads.map((h) => el('th', { class: h.startsWith('#') ? 'number' : '' }, h.replace('#', '')));
    const rows = sums.slice(0, MOST_GROUPS).map((sum) => this.groupRow(sum));
    fill(
      this.groups,
      el('div', { class: 'wide' }, el('table', { class: 'functions tasks' }, el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...rows))),
      sums.length === 0 ? el('p', {}, 'Nothing is left by these filters.') : null,
      sums.length > MOST_GROUPS ? el('p', { class: 'quiet small' }, `and ${count(sums.length - MOST_GROUPS)} more: wallscope report FILE --json`) : null,
    );
  }

  /** @param {GroupTime} sum */
  groupRow({ group, states, reasons, total }) {
    const { look, profile } = this.page;
    const { kind, name: began, seen, pid } = profile.meta.tasks.groups[group];
    const number = (/** @type {string} */ text) => el('td', { class: 'number' }, text);
    const chosen = look.task === group;
    const choose = () => this.page.change({ task: chosen ? -1 : group });
    const longest = [...reasons].sort((a, b) => b[1] - a[1]);
    const parts = [...[0, 1].map((s) => /** @type {[string, number, string]} */ ([TITLES[s], states[s], STATE_COLOURS[s]])), ...longest.map(([title, ns]) => /** @type {[string, number, string]} */ ([title, ns, taskColour(title)]))];
    const bar = parts.map(([title, ns, colour]) => el('span', { class: 'part', title: `${title} ${percent(ns / total)}`, style: { width: `${(ns / total) * 100}%`, 'background-color': colour } }));
    return el(
      'tr',
      {
        tabindex: '0', class: chosen ? 'chosen' : '', 'aria-current': chosen ? 'true' : null, 'data-task': group, onclick: choose,
        onkeydown: (/** @type {KeyboardEvent} */ k) => {
          if (k.key === 'Enter') choose();
        },
      },
      el('td', { class: 'function' }, name(shorten(began, 120), { title: began.slice(0, 2000) }), el('span', { class: 'quiet' }, ` ${kind}${profile.meta.processes.length > 1 ? `, process ${pid}` : ''}`)),
      number(count(seen)), number(duration(total)), number(duration(total / Math.max(1, seen))),
      el('td', { class: 'bars' }, el('span', { class: 'bar' }, ...bar)),
      ...[0, 1, 2].map((s) => number(percent(states[s] / total))),
      el('td', {}, longest.slice(0, 3).map(([title, ns]) => `${title} ${percent(ns / total)}`).join(', ')),
    );
  }

  /** @param {Selection} selection */
  showTitle(selection) {
    const { look, profile } = this.page;
    const group = profile.meta.tasks.groups[look.task];
    const entry = group ? profile.names.indexOf(group.name) : -1;
    const onThreads = entry >= 0 && /** @type {Selection} */ (this.page.selection).nodesOf(entry).length > 0;
    const threads = () => this.page.change({ tab: 'flame', pick: entry, focus: entry, zoom: '' });
    fill(
      this.title,
      ...(group ? ['Stacks of tasks that began with ', name(shorten(group.name, 120))] : ['Stacks of all tasks']),
      el('span', { class: 'quiet' }, ` ${duration(selection.total)} `),
      group ? el('button', { type: 'button', class: 'link', onclick: () => this.page.change({ task: -1 }) }, 'all tasks') : null,
      onThreads ? ' ' : null,
      onThreads ? el('button', { type: 'button', class: 'link', onclick: threads }, 'on threads') : null,
    );
  }

  /** @param {Selection} selection @param {Uint8Array | null} matches @param {boolean} smooth */
  showPicture(selection, matches, smooth) {
    const { look, profile } = this.page;
    const options = { fold: look.fold, mine: mineOf(profile, look) };
    let shape;
    if (look.leaf) shape = leafFirst(selection, options);
    else if (look.fold || look.mine) shape = mergeDown(selection, [0], options);
    else shape = new TreeShape(selection);
    const paint = paintTasks(selection);
    this.selection = selection;
    this.graph.show({ profile: selection.profile, paint, matches, bright: look.only, icicle: look.icicle, picked: -1, shape, from: 0, to: Math.max(1, shape.total) }, smooth);
    this.graph.canvas.setAttribute('aria-label', `flame graph of tasks: ${duration(selection.total)}, ${shape.levels - 1} levels. Arrow keys move, Enter zooms.`);
    fill(this.key, ...paint.titles.map((t, i) => el('li', {}, el('i', { class: 'swatch', style: { background: paint.colours[i] } }), name(t))), el('li', {}, 'A running task has no stack here: its thread has it.'));
  }

  /** @param {Selection} selection */
  showPlaces(selection) {
    const { look, profile } = this.page;
    const mine = /** @type {import('./mine.js').Mine} */ (mineOf(profile, { ...look, mine: true }));
    const places = waitPlaces(selection, mine);
    const row = (/** @type {{title: string, entry: number, ns: number}} */ { title, entry, ns }) =>
      el('tr', {}, el('td', { class: 'number' }, percent(ns / Math.max(1, selection.total))), el('td', { class: 'number' }, duration(ns)), el('td', {}, name(title)), el('td', { class: 'function' }, name(shorten(profile.names[entry] ?? '', 160))));
    fill(
      this.places,
      places.length > 0 ? el('h3', {}, 'Where they wait') : null,
      places.length > 0 ? el('div', { class: 'wide' }, el('table', { class: 'plain' }, el('tbody', {}, ...places.slice(0, MOST_PLACES).map(row)))) : null,
      places.length > MOST_PLACES ? el('p', { class: 'quiet small' }, `and ${count(places.length - MOST_PLACES)} more`) : null,
    );
  }
}
