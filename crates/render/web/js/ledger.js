// The ledger: where the wall time of the chosen threads went, as one bar and a table of threads.

import { el, fill, name, popUp } from './dom.js';
import { hiddenIdle, idleRows, sliceMask, threadMask } from './filter.js';
import { PART_COLOURS, STATE_COLOURS, partOfTag, partTitle } from './palette.js';
import { BLOCK_REASONS, PARTS, STATES, STATE_TITLES, stateOfPart } from './profile.js';
import { count, duration, isTime, percent } from './text.js';

/** `idle`: time of each part that is idle and hidden below. @typedef {{wall: number, parts: Float64Array, idle?: Float64Array}} Sum */

/** Sums of thread ledgers. @param {Sum[]} ledgers @param {Uint8Array} [threads] @returns {Sum} */
export function sumLedgers(ledgers, threads) {
  /** @type {Sum} */
  const sum = { wall: 0, parts: new Float64Array(PARTS) };
  ledgers.forEach((l, i) => {
    if (threads && !threads[i]) return;
    sum.wall += l.wall;
    for (let k = 0; k < l.parts.length; k += 1) sum.parts[k] += l.parts[k];
    if (!l.idle) return;
    sum.idle ??= new Float64Array(PARTS);
    for (let k = 0; k < l.idle.length; k += 1) sum.idle[k] += l.idle[k];
  });
  return sum;
}

/**
 * Ledgers of all threads within the chosen time, with the idle time that is hidden below.
 * @param {import('./profile.js').Profile} profile
 * @param {import('./filter.js').Look} look
 * @returns {Sum[]}
 */
function ledgersOf(profile, look) {
  /** @type {Sum[]} */
  const ledgers = profile.threadLedgers(sliceMask(profile, look));
  const rows = idleRows(profile, look);
  for (let r = 0; rows && r < rows.length; r += 1) {
    const part = rows[r] > 0 ? partOfTag(profile.rowTag[r]) : -1;
    const ledger = ledgers[profile.rowContext[r]];
    if (part < 0 || !ledger) continue;
    ledger.idle ??= new Float64Array(PARTS);
    ledger.idle[part] += rows[r];
  }
  return ledgers;
}

/** Time by state. @param {Sum} sum */
export function byState(sum) {
  const out = [0, 0, 0, 0];
  for (let k = 0; k < sum.parts.length; k += 1) out[stateOfPart(k)] += sum.parts[k];
  return out;
}

/**
 * A badge beside a number; a click shows what it rests on.
 * @param {'exact' | 'sampled' | 'suspected'} kind
 * @param {string} text
 * @param {() => (Node | string)[]} why
 */
export function badge(kind, text, why) {
  return el(
    'button',
    {
      class: `badge ${kind}`,
      type: 'button',
      'aria-label': `${kind} ${text === kind ? '' : text}: what it rests on`,
      onclick: (/** @type {Event} */ e) => {
        e.stopPropagation();
        popUp(/** @type {Element} */ (e.currentTarget), ...why());
      },
    },
    text,
  );
}

/** What a state's total rests on. @param {import('./profile.js').Profile} profile @param {number} state */
export function stateBadge(profile, state) {
  const column = profile.meta.domain.columns.find((/** @type {any[]} */ c) => c[0] === STATES[state]);
  const exact = column ? column[1] : false;
  return badge(exact ? 'exact' : 'sampled', exact ? 'exact' : 'estimated', () => [
    el('p', {}, el('b', {}, STATE_TITLES[state]), exact ? ': counted at every change, not sampled.' : ': an estimate.'),
    el('p', {}, column ? name(column[2]) : 'The recording does not say how this was measured.'),
  ]);
}

/** Basis of the sentence on the chosen threads. @param {import('./profile.js').Profile} profile */
function sentenceBadge(profile) {
  const exact = profile.meta.domain.columns.every((/** @type {any[]} */ c) => c[1]);
  return badge(exact ? 'exact' : 'sampled', exact ? 'exact' : 'estimated', () => [
    el('p', {}, `The shares are sums of the chosen threads’ ledgers${exact ? ', counted and not sampled.' : '; how each state is known stands at its own badge.'}`),
  ]);
}

/**
 * Where the time of the chosen threads went, in one sentence.
 * @param {Sum} sum
 * @param {number} threads
 * @param {import('./profile.js').Profile} profile
 */
export function sentence(sum, threads, profile) {
  if (!(sum.wall > 0)) return 'No thread has any time in what is chosen.';
  const [onCpu, runnable, blocked, unknown] = byState(sum);
  let top = -1;
  for (let k = 7; k < 7 + BLOCK_REASONS; k += 1) if (top < 0 || sum.parts[k] > sum.parts[top]) top = k;
  const share = (/** @type {number} */ ns) => percent(ns / sum.wall);
  const most = blocked > 0 ? `, most of that on ${partTitle(profile, top)} (${share(sum.parts[top])})` : '';
  const subject = threads === 1 ? 'One thread' : `${count(threads)} threads`;
  if (!isTime()) return `${subject}: ${duration(sum.wall)} in all.`;
  const unseen = unknown > sum.wall / 1000 ? `, ${share(unknown)} not seen` : '';
  const saving =
    onCpu < sum.wall / 2
      ? ` No work on the code's speed alone could save more than the ${share(onCpu)} spent computing.`
      : '';
  return `${subject} lived ${duration(sum.wall)}: ${share(onCpu)} on a CPU, ${share(runnable)} waiting for one, ${share(blocked)} blocked${most}${unseen}.${saving}`;
}

/**
 * A bar of parts. A big one has words in it.
 * @param {import('./profile.js').Profile} profile
 * @param {Sum} sum
 * @param {'big' | 'thin'} size
 */
export function bar(profile, sum, size) {
  const parts = [];
  const words = [];
  for (let k = 0; k < sum.parts.length; k += 1) {
    const share = sum.parts[k] / sum.wall;
    if (!(share > 0)) continue;
    const title = `${STATE_TITLES[stateOfPart(k)]}${partTitle(profile, k) ? ` · ${partTitle(profile, k)}` : ''}`;
    const idle = Math.min(1, (sum.idle?.[k] ?? 0) / sum.parts[k]);
    const more = idle > 0 ? `, ${percent(idle)} of it idle` : '';
    words.push(`${title} ${percent(share)}${more}`);
    parts.push(
      el(
        'span',
        {
          class: `part state-${STATES[stateOfPart(k)]}${idle > 0 ? ' idle' : ''}`,
          title: `${title}: ${duration(sum.parts[k])}, ${percent(share)}${more}`,
          'data-part': k,
          style: { width: `${share * 100}%`, 'background-color': PART_COLOURS[k], '--idle': `${idle * 100}%` },
        },
        size === 'big' && share > 0.05 ? el('span', {}, `${k < 7 ? title : partTitle(profile, k)} ${percent(share)}`) : null,
      ),
    );
  }
  return el('div', { class: size === 'big' ? 'bar big' : 'bar', role: 'img', 'aria-label': words.join(', ') }, ...parts);
}

/**
 * A state's title and time.
 * @param {import('./profile.js').Profile} profile
 * @param {number} state
 * @param {number} ns
 * @param {{wall: number, show: () => void}} more
 */
function legendHead(profile, state, ns, { wall, show }) {
  return el(
    'div', { class: 'legend-head' },
    el(
      'button',
      { class: 'legend-title', type: 'button', title: `show ${STATE_TITLES[state]} only`, onclick: show },
      el('i', { class: 'swatch', style: { background: STATE_COLOURS[state] } }),
      STATE_TITLES[state],
    ),
    el('b', {}, percent(ns / wall)),
    el('span', { class: 'quiet' }, duration(ns)),
    stateBadge(profile, state),
  );
}

/**
 * The largest parts of a state.
 * @param {import('./profile.js').Profile} profile
 * @param {{k: number, ns: number}[]} parts largest first
 * @param {number} wall ns
 * @param {(k: number) => void} pick
 */
function legendParts(profile, parts, wall, pick) {
  return el(
    'div',
    { class: 'legend-parts' },
    ...parts.slice(0, 5).map(({ k, ns }) =>
      el(
        'button',
        { type: 'button', class: 'legend-part', title: `${duration(ns)} of ${STATE_TITLES[stateOfPart(k)]}`, onclick: () => pick(k) },
        el('i', { class: 'swatch', style: { background: PART_COLOURS[k] } }),
        `${partTitle(profile, k)} ${percent(ns / wall)}`,
      ),
    ),
    parts.length > 5 ? el('span', { class: 'quiet' }, `and ${parts.length - 5} more`) : null,
  );
}

/**
 * @param {Element} host
 * @param {import('./profile.js').Profile} profile
 * @param {import('./filter.js').Look} look
 * @param {(change: Partial<import('./filter.js').Look>) => void} change
 */
export function showLedger(host, profile, look, change) {
  const mask = sliceMask(profile, look);
  const ledgers = ledgersOf(profile, look);
  const threads = threadMask(profile, look);
  const chosen = threads.reduce((n, v) => n + v, 0);
  const sum = sumLedgers(ledgers, threads);
  const states = byState(sum);
  const all = chosen === threads.length && !mask;
  const idle = hiddenIdle(profile, look);

  const big = bar(profile, sum, 'big');
  big.addEventListener('click', (/** @type {Event} */ e) => {
    const part = /** @type {Element} */ (e.target).closest('.part');
    if (!part) return;
    pickPart(Number(part.getAttribute('data-part')));
  });
  const pickPart = (/** @type {number} */ k) => {
    const state = stateOfPart(k);
    const reason = (k < 7 ? profile.reasons[BLOCK_REASONS + k] : profile.reasons[k < 7 + BLOCK_REASONS ? k - 7 : k]) ?? '';
    const same = look.reasons.length === 1 && look.reasons[0] === reason;
    // Samples do not always tell the parts of on-CPU time.
    change({
      view: state === 3 ? 'wall' : ['on-cpu', 'runq', 'off-cpu'][state],
      reasons: same || state === 0 ? [] : [reason],
      zoom: '',
    });
  };

  const legend = el('div', { class: 'legend' });
  for (let s = 0; s < 4; s += 1) {
    if (s === 3 && states[s] === 0) continue;
    const parts = [];
    for (let k = 0; k < sum.parts.length; k += 1) {
      if (stateOfPart(k) !== s || !(sum.parts[k] > 0) || (mask !== null && s < 2)) continue;
      parts.push({ k, ns: sum.parts[k] });
    }
    parts.sort((a, b) => b.ns - a.ns);
    const show = () => change({ view: ['on-cpu', 'runq', 'off-cpu', 'wall'][s], reasons: [], zoom: '' });
    legend.append(el('div', { class: 'legend-state' }, legendHead(profile, s, states[s], { wall: sum.wall, show }), legendParts(profile, parts, sum.wall, pickPart)));
  }

  const residue = profile.meta.threads.reduce(
    (/** @type {number} */ worst, /** @type {any} */ t, /** @type {number} */ i) =>
      threads[i] && t.wall > 0 ? Math.max(worst, Math.abs(t.residue) / t.wall) : worst,
    0,
  );
  // The verdict on top speaks of everything.
  const said = all && profile.meta.choices;
  fill(
    host,
    said ? null : el('p', { class: 'finding' }, name(sentence(sum, chosen, profile)), ' ', sum.wall > 0 ? sentenceBadge(profile) : null),
    big,
    legend,
    el(
      'p', { class: 'quiet small' },
      `${duration(sum.wall)}${isTime() ? ' of wall time' : ''} of ${chosen === 1 ? 'one thread' : `${count(chosen)} threads`}`,
      mask ? ' within the chosen time' : ` · the states add up to it within ${Math.ceil(residue * 1e6)} ppm`,
      look.labels.length > 0 ? ' · labels belong to stacks: they choose among those below' : null,
      idle > 0 ? ` · ${duration(idle)} of idle waiting (hatched) is hidden below` : null,
    ),
  );
}

const COLUMNS = /** @type {const} */ ([
  ['name', 'Thread'],
  ['bar', 'Its time'],
  ['wall', 'Lived'],
  ['on_cpu', 'On CPU'],
  ['runnable', 'Runnable'],
  ['blocked', 'Blocked'],
]);

/** How the table of threads is sorted; kept while the page is open. */
const order = { by: 'on_cpu', down: true, shown: 100 };

/**
 * @param {Element} host
 * @param {import('./profile.js').Profile} profile
 * @param {import('./filter.js').Look} look
 * @param {(change: Partial<import('./filter.js').Look>) => void} change
 */
export function showThreads(host, profile, look, change) {
  const ledgers = ledgersOf(profile, look);
  const { threads } = profile.meta;
  const many = new Set(threads.map((/** @type {any} */ t) => t.pid)).size > 1;
  const rows = ledgers.map((/** @type {Sum} */ l, /** @type {number} */ i) => {
    const [onCpu, runnable, blocked] = byState(l);
    return { i, l, t: threads[i], wall: l.wall, on_cpu: onCpu, runnable, blocked };
  });
  const key = (/** @type {any} */ r) => {
    if (order.by === 'name') return r.t.name;
    if (order.by === 'bar') return r.on_cpu / Math.max(1, r.wall);
    return r[order.by];
  };
  rows.sort((/** @type {any} */ a, /** @type {any} */ b) => {
    const x = key(a);
    const y = key(b);
    const c = x < y ? -1 : x > y ? 1 : a.i - b.i;
    return order.down ? -c : c;
  });
  const longest = Math.max(1, ...rows.slice(0, 10_000).map((/** @type {any} */ r) => r.wall));
  const again = () => showThreads(host, profile, look, change);
  const head = el(
    'tr', {},
    ...COLUMNS.map(([id, title]) =>
      el(
        'th',
        { class: id === 'name' || id === 'bar' ? '' : 'number', 'aria-sort': order.by === id ? (order.down ? 'descending' : 'ascending') : null },
        el('button', {
          type: 'button',
          onclick: () => {
            order.down = order.by === id ? !order.down : id !== 'name';
            order.by = id;
            again();
          },
        }, title, order.by === id ? (order.down ? ' ▾' : ' ▴') : ''),
      ),
    ),
  );
  const chosen = new Set(look.threads);
  const on = threadMask(profile, look);
  const toggle = (/** @type {number} */ i, /** @type {boolean} */ add) => {
    let next;
    if (add) next = chosen.has(i) ? look.threads.filter((v) => v !== i) : [...look.threads, i];
    else next = chosen.size === 1 && chosen.has(i) ? [] : [i];
    change({ threads: next, zoom: '' });
  };
  const body = rows.slice(0, order.shown).map((/** @type {any} */ r) => {
    const thin = bar(profile, r.l, 'thin');
    thin.style.width = `${Math.max(2, (r.wall / longest) * 100)}%`;
    return el(
      'tr',
      {
        class: `${on[r.i] ? '' : 'off'} ${chosen.has(r.i) ? 'chosen' : ''}`,
        tabindex: '0',
        'aria-selected': chosen.has(r.i) ? 'true' : 'false',
        title: 'click: only this thread; with Ctrl: add or remove it',
        onclick: (/** @type {MouseEvent} */ e) => toggle(r.i, e.ctrlKey || e.metaKey || e.shiftKey),
        onkeydown: (/** @type {KeyboardEvent} */ e) => {
          if (e.key === 'Enter') toggle(r.i, e.ctrlKey || e.shiftKey);
        },
      },
      el('td', {}, name(r.t.name, { class: 'thread-name' }), el('span', { class: 'quiet', title: many ? `process ${r.t.pid}` : null }, ` ${r.t.tid}`)),
      el('td', { class: 'bars' }, thin),
      el('td', { class: 'number' }, duration(r.wall)),
      ...['on_cpu', 'runnable', 'blocked'].map((k) => el('td', { class: 'number', title: duration(r[k]) }, r.wall > 0 ? percent(r[k] / r.wall) : '–')),
    );
  });
  const more = rows.length - order.shown;
  fill(
    host,
    el('table', { class: 'threads' }, el('caption', { class: 'offscreen' }, 'Threads and where their time went'), el('thead', {}, head), el('tbody', {}, ...body)),
    more > 0
      ? el('button', { type: 'button', class: 'more', onclick: () => { order.shown += 500; again(); } }, `${count(more)} more threads`)
      : null,
  );
}
