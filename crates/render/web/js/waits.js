// Waits: lengths of single intervals, locks with their holders, and peers with their requests.

import { el, fill, name } from './dom.js';
import { threadMask, viewOf } from './filter.js';
import { histogram, lengthsOf, lengthWords } from './lengths.js';
import { PART_COLOURS, partOfTag, partTitle, STATE_COLOURS } from './palette.js';
import { STATE_TITLES } from './profile.js';
import { count, duration, percent, shorten } from './text.js';

/** @param {string[]} heads those that begin with `#` are of numbers @param {(Node | null)[]} rows */
function grid(heads, rows) {
  const head = heads.map((h) => el('th', { class: h.startsWith('#') ? 'number' : '' }, h.replace('#', '')));
  return el('div', { class: 'wide' }, el('table', { class: 'functions' }, el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...rows)));
}

/** A cell of a number. @param {string} text */
function number(text) {
  return el('td', { class: 'number' }, text);
}

/** Shares of something, in words. @param {[number, [string, number][]]} of all of it, the largest parts @param {string} word */
function shares([sum, parts], word) {
  return parts.length === 0 ? null : el('ul', { class: 'small' }, ...parts.map(([what, ns]) => el('li', {}, `${percent(ns / Math.max(1, sum))} ${word} `, name(shorten(what, 300)))));
}

/** @param {import('./selection.js').Selection} selection @param {import('./filter.js').Look} look */
function lengthRows(selection, look) {
  const p = selection.profile;
  const { states } = viewOf(look);
  const mask = threadMask(p, look);
  const all = mask.every((v) => v === 1);
  /** @type {{title: string, colour: string, found: import('./lengths.js').Lengths}[]} */
  const rows = [];
  const add = (/** @type {string} */ title, /** @type {string} */ colour, /** @type {(of: number, tag: number) => boolean} */ wanted) => {
    const found = lengthsOf(p, wanted);
    if (found) rows.push({ title, colour, found });
  };
  for (const s of states) {
    if (!all) {
      add(STATE_TITLES[s], STATE_COLOURS[s], (of, tag) => of % 2 === 1 && mask[(of - 1) / 2] === 1 && (tag & 3) === s);
      continue;
    }
    for (let tag = s; tag < 128; tag += 4) {
      const part = partOfTag(tag);
      const title = part < 0 ? STATE_TITLES[s] : `${STATE_TITLES[s]}: ${partTitle(p, part)}`;
      add(title, part < 0 ? STATE_COLOURS[s] : PART_COLOURS[part], (of, t) => of === 0 && t === tag);
    }
  }
  return rows.map(({ title, colour, found }) => el('tr', {}, el('td', {}, el('i', { class: 'swatch', style: { background: colour } }), title), ...lengthWords(found).map(number), el('td', {}, histogram(found))));
}

/** Pauses of runtimes, those that collect garbage first. @param {import('./profile.js').Profile} p */
function pauseRows(p) {
  return p.meta.pauses.map((/** @type {any} */ g) =>
    el(
      'tr', {},
      number(duration(g.total)), number(count(g.count)), number(duration(g.total / Math.max(1, g.count))), number(duration(Math.max(0, ...g.longest.map((/** @type {number[]} */ l) => l[1])))),
      el('td', {}, g.kind ? `${g.kind} collection` : 'no collection'), el('td', {}, name(g.cause)), el('td', {}, name(`${g.operation} (process ${g.pid})`)),
    ),
  );
}

/**
 * @param {HTMLElement} host
 * @param {import('./selection.js').Selection} selection
 * @param {import('./filter.js').Look} look
 */
export function showWaits(host, selection, look) {
  const { locks, peers, more_locks: more } = selection.profile.meta.waits;
  const lengths = lengthRows(selection, look);
  const pauses = pauseRows(selection.profile);
  const waited = locks.reduce((/** @type {number} */ a, /** @type {any} */ l) => a + l.total - l.idle, 0);
  const lockRow = (/** @type {any} */ l) =>
    el(
      'tr', {},
      number(duration(l.total)), number(l.idle > l.total / 2 ? 'idle' : percent((l.total - l.idle) / waited)), number(l.count > 0 ? count(l.count) : 'sampled'), number(l.longest > 0 ? duration(l.longest) : ''), number(count(l.waiters)),
      el(
        'td', {},
        el(
          'details', {},
          el('summary', { class: 'mono' }, name(shorten(l.name, 200))),
          shares(l.waits, 'waited in'),
          ...l.holders.map((/** @type {any} */ [holder, place, ns, did, how]) => el('div', {}, el('p', { class: 'small' }, `${duration(ns)} ${how} `, el('b', {}, name(holder)), place ? ' in ' : '', name(shorten(place, 200)), did[0] > 0 ? ', meanwhile:' : ''), shares(did, ''))),
        ),
      ),
    );
  const peerRow = (/** @type {any} */ p) =>
    el(
      'tr', {},
      el('td', {}, name(`${p.process} ${p.pid}`)), el('td', {}, p.asks ? 'awaits' : 'owes'),
      el('td', {}, name(p.address), el('span', { class: 'quiet' }, p.peer_pid ? ` ${p.peer_name} ${p.peer_pid}` : '')),
      number((p.at_least ? '≥ ' : '') + count(p.requests)), number(duration(p.in_flight)), number(p.share === null ? '' : percent(p.share)),
      el('td', {}, p.sent.length > 0 ? el('details', {}, el('summary', {}, 'sent from'), ...p.sent.map((/** @type {any} */ [frames, ns]) => el('p', { class: 'mono' }, `${duration(ns)} `, name(frames.slice(0, 12).map((/** @type {string} */ f) => shorten(f, 60)).join(' ← '))))) : null),
    );
  fill(
    host,
    el('h3', {}, 'How long single intervals were'),
    lengths.length > 0
      ? grid(['What', '#How many', '#Half up to', '#99 % up to', '#Longest', 'Lengths, from short to long'], lengths)
      : el('p', {}, 'This recording does not say.'),
    el('p', { class: 'quiet small' }, 'Fifty waits of 2 ms are not one of 100 ms. Of the whole recording; choose threads, or a function (its panel has its own).'),
    pauses.length > 0 ? el('h3', {}, 'Pauses: all threads of a process stopped') : null,
    pauses.length > 0 ? grid(['#Total', '#Pauses', '#Mean', '#Longest', 'Kind', 'Cause', 'Operation'], pauses) : null,
    el('h3', {}, 'Locks'),
    locks.length > 0 ? grid(['#Waited', '#Share', '#Waits', '#Longest', '#Threads', 'Lock'], locks.map(lockRow)) : el('p', {}, 'No waits for locks were seen.'),
    more > 0 ? el('p', { class: 'quiet small' }, `and ${count(more)} more: wallscope locks FILE`) : null,
    el('h3', {}, 'Requests in flight between processes'),
    peers.length > 0 ? grid(['Process', '', 'Peer', '#Requests', '#In flight', '#Of its request time', ''], peers.map(peerRow)) : el('p', {}, 'No requests on connections were seen.'),
    locks.length + peers.length > 0 ? el('p', { class: 'quiet small' }, 'Locks and peers are of all threads and of the whole recording, whatever is filtered.') : null,
  );
}
