// What is filtered: menus of what there is to choose, and a chip for everything chosen.

import { el, fill, name } from './dom.js';
import { hiddenIdle, plainLook } from './filter.js';
import { byState, sumLedgers } from './ledger.js';
import { BLOCK_REASONS, STATES, STATE_TITLES } from './profile.js';
import { count, duration, percent, time } from './text.js';

/**
 * Menus of what there is to choose.
 * @param {HTMLElement} host
 * @param {import('./profile.js').Profile} profile
 * @param {import('./filter.js').Look} look
 * @param {(change: Partial<import('./filter.js').Look>) => void} change
 */
export function showFilters(host, profile, look, change) {
  const { threads, processes } = profile.meta;
  const names = tally(threads, (t) => t.name);
  const pids = tally(threads, (t) => t.pid);
  const sum = sumLedgers(profile.threadLedgers(null));
  const reasons = profile.reasons
    .map((r, i) => ({ r, ns: sum.parts[i < BLOCK_REASONS ? 7 + i : i < BLOCK_REASONS + 7 ? i - BLOCK_REASONS : i] }))
    .filter((v) => v.ns > 0 && !['user', 'kernel', 'irq', 'stolen'].includes(v.r))
    .sort((a, b) => b.ns - a.ns);
  const lived = (/** @type {number} */ ns) => percent(ns / Math.max(1, sum.wall));
  const labelTimes = profile.labelTimes();
  const labels = profile.labels
    .map((l, i) => ({ ns: labelTimes[i], value: l.text, label: l.text, note: lived(labelTimes[i]) }))
    .sort((a, b) => b.ns - a.ns);
  const menu = (/** @type {'names' | 'pids' | 'states' | 'reasons' | 'labels'} */ key, /** @type {string} */ title, /** @type {{value: any, label: string, note: string}[]} */ items) => {
    const chosen = /** @type {any[]} */ (look[key]);
    const toggle = (/** @type {any} */ v) => change({ [key]: chosen.includes(v) ? chosen.filter((c) => c !== v) : [...chosen, v] });
    return el(
      'details', { class: chosen.length > 0 ? 'used' : '', 'data-filter': key, name: 'filter' },
      el('summary', {}, chosen.length > 0 ? `${title}: ${chosen.length}` : title),
      el(
        'div', { class: 'menu' },
        ...items.slice(0, 300).map((i) => {
          const box = el('input', { type: 'checkbox', onchange: () => toggle(i.value) });
          box.checked = chosen.includes(i.value);
          return el('label', {}, box, name(i.label), el('span', { class: 'quiet number' }, i.note));
        }),
        items.length > 300 ? el('p', { class: 'quiet small' }, `and ${count(items.length - 300)} with less`) : null,
      ),
    );
  };
  const idle = threads.some((/** @type {any} */ t) => t.idle > 0);
  const opened = host.querySelector('details[open]')?.getAttribute('data-filter');
  fill(
    host,
    menu('names', 'Thread name', names.map((n) => ({ value: n.key, label: String(n.key), note: `${n.n}` }))),
    pids.length > 1 ? menu('pids', 'Process', pids.map((n) => ({ value: n.key, label: `${processName(processes, Number(n.key))} ${n.key}`, note: `${n.n}` }))) : null,
    look.view === 'wall' ? menu('states', 'State', STATES.map((s, i) => ({ value: s, label: STATE_TITLES[i], note: lived(byState(sum)[i]) }))) : null,
    labels.length > 0 ? menu('labels', 'Label', labels) : null,
    menu('reasons', 'Reason', reasons.map((v) => ({ value: v.r, label: v.r.replace(/_/g, ' '), note: lived(v.ns) }))),
    idle
      ? el('span', { class: 'choices', role: 'group', 'aria-label': 'idle' }, ...['hide', 'show', 'only'].map((v) => el('button', { type: 'button', 'aria-pressed': String(look.idle === v), onclick: () => change({ idle: /** @type {any} */ (v) }) }, v === 'hide' ? 'hide idle' : v === 'show' ? 'show idle' : 'idle only')))
      : null,
  );
  if (opened) host.querySelector(`details[data-filter=${opened}]`)?.setAttribute('open', '');
}

/** @param {any[]} processes @param {number} pid */
function processName(processes, pid) {
  return processes.find((q) => q.pid === pid)?.name ?? '';
}

/**
 * A chip for everything chosen.
 * @param {HTMLElement} host
 * @param {import('./profile.js').Profile} profile
 * @param {import('./filter.js').Look} look
 * @param {(change: Partial<import('./filter.js').Look>) => void} change
 */
export function showChips(host, profile, look, change) {
  const { threads, processes } = profile.meta;
  const chip = (/** @type {string} */ text, /** @type {Partial<import('./filter.js').Look>} */ without) =>
    el('button', { type: 'button', class: 'chip', title: 'remove this filter', onclick: () => change(without) }, name(text), ' ×');
  const chips = [
    ...look.threads.map((i) => chip(`thread ${threads[i]?.name ?? i} ${threads[i]?.tid ?? ''}`, { threads: look.threads.filter((v) => v !== i) })),
    ...look.names.map((v) => chip(`name ${v}`, { names: look.names.filter((w) => w !== v) })),
    ...look.pids.map((v) => chip(`process ${processName(processes, v)} ${v}`, { pids: look.pids.filter((w) => w !== v) })),
    ...look.states.map((v) => chip(`state ${v}`, { states: look.states.filter((w) => w !== v) })),
    ...look.labels.map((v) => chip(`label ${v}`, { labels: look.labels.filter((w) => w !== v) })),
    ...look.reasons.map((v) => chip(`reason ${v.replace(/_/g, ' ')}`, { reasons: look.reasons.filter((w) => w !== v) })),
  ];
  if (look.time.length > 0) {
    const [[a], [, b]] = [look.time[0], look.time[look.time.length - 1]];
    const inner = look.time.length > 1 ? ` in ${look.time.length} pieces` : '';
    chips.push(chip(`time ${time(profile.sliceBegin(a))} – ${time(profile.sliceBegin(b))}${inner}`, { time: [] }));
  }
  if (look.only && look.query) chips.push(chip(`only stacks with ${look.query}`, { only: false }));
  const hidden = hiddenIdle(profile, look);
  if (hidden > 0) chips.push(el('button', { type: 'button', class: 'chip plain', title: 'show it', onclick: () => change({ idle: 'show' }) }, `idle hidden: ${duration(hidden)}`));
  if (chips.length > 1) chips.push(el('button', { type: 'button', class: 'chip plain', onclick: () => change({ ...plainLook(), view: look.view, tab: look.tab, icicle: look.icicle, colour: look.colour }) }, 'clear all'));
  fill(host, ...chips);
}

/** Distinct values with how often they occur, the commonest first. @template T @param {any[]} items @param {(item: any) => T} of @returns {{key: T, n: number}[]} */
function tally(items, of) {
  /** @type {Map<T, number>} */
  const counts = new Map();
  for (const item of items) counts.set(of(item), (counts.get(of(item)) ?? 0) + 1);
  return [...counts].map(([key, n]) => ({ key, n })).sort((a, b) => b.n - a.n);
}
