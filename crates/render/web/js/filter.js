// The look (view, filters, zoom), which address.js keeps in the page's address, and the rows of a
// recording that it selects.

import { KIND, Profile, STATES, VIEWS } from './profile.js';
import { Selection } from './selection.js';

/**
 * @typedef {object} Look
 * @property {string} view
 * @property {string} tab `flame`, `table`, `heat`, `lanes`, `waits`, `tasks`, `why` or `domain`
 * @property {number[]} threads by index; empty: all
 * @property {string[]} names thread names; empty: all
 * @property {number[]} pids empty: all
 * @property {string[]} states empty: all of the view
 * @property {string[]} reasons empty: all
 * @property {string[]} labels `key=value`; values of one key are alternatives; empty: all
 * @property {'hide' | 'show' | 'only'} idle
 * @property {[number, number][]} time runs of slices, the end not included; empty: all
 * @property {string} query
 * @property {boolean} only whether stacks without a match are left out
 * @property {string} zoom `''`, a node, or `a~b` in millionths of the whole
 * @property {boolean} icicle root on top
 * @property {boolean} leaf leaf first
 * @property {boolean} fold whether direct recursion is one frame
 * @property {boolean} mine whether only the program's own code is shown
 * @property {string[]} flip base names of modules that are own against the rules, or foreign
 * @property {string} colour `''`: what suits the view
 * @property {number} focus entry shown with its callers and callees; −1: none
 * @property {number} pick selected entry; −1: none
 * @property {string} sort column of the table; `-` before it: the other way
 * @property {string} heat what the heat map shows
 * @property {number} task place of the tasks' group that is chosen; −1: none
 * @property {string} range what the timeline shows: `''` or `a~b`, ns since the window's begin
 */

/** What becomes of idle time where an address does not say. */
let usualIdle = 'hide';

/** Sets what becomes of idle time where an address does not say. @param {string | undefined} idle */
export function setUsualIdle(idle) {
  if (idle === 'show' || idle === 'only' || idle === 'hide') usualIdle = idle;
}

/** @returns {Look} */
export function plainLook() {
  return {
    view: 'wall',
    tab: 'flame',
    threads: [],
    names: [],
    pids: [],
    states: [],
    reasons: [],
    labels: [],
    idle: /** @type {any} */ (usualIdle),
    time: [],
    query: '',
    only: false,
    zoom: '',
    icicle: true,
    leaf: false,
    fold: false,
    mine: false,
    flip: [],
    colour: '',
    focus: -1,
    pick: -1,
    sort: '',
    heat: '',
    task: -1,
    range: '',
  };
}

/** The view of a look. @param {Look} look */
export function viewOf(look) {
  return VIEWS.find((v) => v.id === look.view) ?? VIEWS[0];
}

/** Which slices count; `null`: all. @param {Profile} profile @param {Look} look */
export function sliceMask(profile, look) {
  if (look.time.length === 0 || profile.slices === 0) return null;
  const mask = new Uint8Array(profile.slices);
  for (const [from, to] of look.time) mask.fill(1, from, Math.min(to, profile.slices));
  return mask;
}

/** Runs of set slices. @param {Uint8Array} mask @returns {[number, number][]} */
export function runsOf(mask) {
  /** @type {[number, number][]} */
  const runs = [];
  for (let i = 0; i < mask.length; i += 1) {
    if (!mask[i]) continue;
    let to = i;
    while (to < mask.length && mask[to]) to += 1;
    runs.push([i, to]);
    i = to;
  }
  return runs;
}

/** Which threads count, by index. @param {Profile} profile @param {Look} look */
export function threadMask(profile, look) {
  const { threads } = profile.meta;
  const mask = new Uint8Array(threads.length);
  const chosen = new Set(look.threads);
  for (let i = 0; i < threads.length; i += 1) {
    const t = threads[i];
    const ok =
      (chosen.size === 0 || chosen.has(i)) &&
      (look.names.length === 0 || look.names.includes(t.name)) &&
      (look.pids.length === 0 || look.pids.includes(t.pid));
    mask[i] = ok ? 1 : 0;
  }
  return mask;
}

/** Which tags count. @param {Profile} profile @param {Look} look */
function tagMask(profile, look) {
  const mask = new Uint8Array(256);
  const view = viewOf(look);
  for (let tag = 0; tag < 256; tag += 1) {
    const state = Profile.state(tag);
    const idle = tag >> 7 === 1;
    const ok =
      view.states.includes(state) &&
      (look.states.length === 0 || look.states.includes(STATES[state])) &&
      (look.reasons.length === 0 || look.reasons.includes(profile.reason(tag))) &&
      (look.idle === 'show' || (look.idle === 'only') === idle);
    mask[tag] = ok ? 1 : 0;
  }
  return mask;
}

/** Which sets of labels count, by index plus one; `null`: all. @param {Profile} profile @param {Look} look */
export function labelMask(profile, look) {
  if (look.labels.length === 0) return null;
  const mask = new Uint8Array(profile.labelSets.length + 1);
  const keys = new Set(look.labels.map((text) => profile.labels.find((l) => l.text === text)?.key));
  const chosen = profile.labels.map((l) => look.labels.includes(l.text));
  profile.labelSets.forEach((set, i) => {
    const has = new Set(set.filter((l) => chosen[l]).map((l) => profile.labels[l].key));
    mask[i + 1] = has.size === keys.size ? 1 : 0;
  });
  return mask;
}

/**
 * The rows' time within some slices, scaled once more so that each thread's states sum to what
 * its ledger counted in those slices.
 * @param {Profile} profile
 * @param {Uint8Array} mask
 */
function timeWithin(profile, mask) {
  const { rows, rowTag, rowContext, sliceStart, slice, sliceNs } = profile;
  const weight = new Float64Array(rows);
  const scale = new Float64Array(rows).fill(1);
  const exact = new Map();
  const l = profile.ledger;
  // Blocked time is exact by reason, except for threads with samples that name no reason.
  const coarse = new Uint8Array(profile.meta.threads.length);
  for (let r = 0; r < rows; r += 1) if ((rowTag[r] & 127) === 2) coarse[rowContext[r]] = 1;
  const reasons = l.blocked.length / Math.max(1, l.rows);
  const add = (/** @type {number} */ key, /** @type {number} */ ns) => {
    if (ns > 0) exact.set(key, (exact.get(key) ?? 0) + ns);
  };
  for (let i = 0; i < l.rows; i += 1) {
    if (!mask[l.slice[i]]) continue;
    const key = l.context[i] * 64;
    add(key, l.onCpu[i]);
    add(key + 1, l.runnable[i]);
    for (let r = 0; r < reasons; r += 1) {
      add(coarse[l.context[i]] ? key + 2 : key + 2 + ((r + 1) << 2), l.blocked[i * reasons + r]);
    }
  }
  const keyOf = (/** @type {number} */ r) => {
    const tag = rowTag[r] & 127;
    const state = tag & 3;
    return rowContext[r] * 64 + (state === 2 && !coarse[rowContext[r]] ? tag & 63 : state);
  };
  const sampled = new Map();
  const spare = new Map();
  for (let r = 0; r < rows; r += 1) {
    let ns = 0;
    for (let k = sliceStart[r]; k < sliceStart[r + 1]; k += 1) if (mask[slice[k]]) ns += sliceNs[k];
    weight[r] = ns;
    const key = keyOf(r);
    if (profile.entry[profile.rowNode[r]] === profile.notSampled) spare.set(key, r);
    if (ns > 0) sampled.set(key, (sampled.get(key) ?? 0) + ns);
  }
  if (l.rows === 0) return { weight, scale };
  for (const [key, ns] of exact) {
    if (!sampled.has(key) && spare.has(key)) weight[spare.get(key)] = ns;
  }
  for (let r = 0; r < rows; r += 1) {
    const sum = sampled.get(keyOf(r));
    if (!sum || weight[r] === 0) continue;
    scale[r] = (exact.get(keyOf(r)) ?? 0) / sum;
    weight[r] *= scale[r];
  }
  return { weight, scale };
}

/** Keeps the last selection by slices: it does not change with the other filters. */
const lastTime = { key: '', profile: /** @type {Profile | null} */ (null), value: /** @type {any} */ (null) };

/**
 * The rows' weights under a look.
 * @param {Profile} whole
 * @param {Look} look
 * @param {Uint8Array | null} matches entries that match the search; used if `look.only`
 */
export function select(whole, look, matches) {
  const profile = whole.treeOf(look.view);
  const mask = sliceMask(profile, look);
  const tags = tagMask(profile, look);
  const threads = threadMask(profile, look);
  const labels = labelMask(profile, look);
  /** @type {Float64Array} */
  let source = profile.rowNs;
  let scale;
  if (mask) {
    const key = look.time.join(';');
    if (lastTime.key !== key || lastTime.profile !== profile) {
      Object.assign(lastTime, { key, profile, value: timeWithin(profile, mask) });
    }
    source = lastTime.value.weight;
    scale = lastTime.value.scale;
  }
  const { rows, rowTag, rowContext, rowLabels } = profile;
  let weight = new Float64Array(rows);
  for (let r = 0; r < rows; r += 1) {
    if (tags[rowTag[r]] && threads[rowContext[r]] && (!labels || (rowLabels && labels[rowLabels[r]]))) weight[r] = source[r];
  }
  if (look.only && matches) {
    const kept = new Float64Array(rows);
    for (const [from, to] of matchedRuns(profile, matches)) {
      kept.set(weight.subarray(from, to), from);
    }
    weight = kept;
  }
  const selection = new Selection(profile, weight, mask);
  selection.scale = scale;
  return selection;
}

/** Idle time that the look leaves out, ns. @param {Profile} profile @param {Look} look */
export function hiddenIdle(profile, look) {
  if (look.idle !== 'hide' || !profile.rowTag.some((tag) => tag >> 7 === 1)) return 0;
  return select(profile, { ...look, idle: 'only', only: false }, null).total;
}

/**
 * Idle time that the look leaves out, by row of the whole recording; `null`: none.
 * @param {Profile} profile
 * @param {Look} look
 * @returns {Float64Array | null}
 */
export function idleRows(profile, look) {
  if (look.idle !== 'hide' || !profile.rowTag.some((tag) => tag >> 7 === 1)) return null;
  return select(profile, { ...plainLook(), view: 'wall', time: look.time, idle: 'only' }, null).weight;
}

/**
 * Entries with a name that matches the query. A query that is no regular expression is taken
 * literally. Case matters only if the query has capitals.
 * @param {Profile} profile
 * @param {string} query
 * @returns {{entries: Uint8Array, problem: string} | null}
 */
export function search(profile, query) {
  if (query === '') return null;
  const flags = /[A-Z]/.test(query) ? '' : 'i';
  let pattern;
  let problem = '';
  try {
    pattern = new RegExp(query, flags);
  } catch (e) {
    problem = 'not a regular expression; searched as it stands';
    pattern = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), flags);
  }
  const entries = new Uint8Array(profile.names.length);
  for (let i = 0; i < entries.length; i += 1) {
    // Names have no limit in a recording; the search reads the first 4096 characters.
    const name = profile.names[i];
    entries[i] = pattern.test(name.length > 4096 ? name.slice(0, 4096) : name) ? 1 : 0;
  }
  return { entries, problem };
}

/**
 * Time of stacks that have a matching function, ns.
 * @param {Selection} selection
 * @param {Uint8Array} entries
 */
export function matchedTime(selection, entries) {
  const { entry, end, nodes } = selection.profile;
  let ns = 0;
  for (let i = 1; i < nodes; ) {
    if (entries[entry[i]]) {
      ns += selection.time(i);
      i = end[i];
    } else {
      i += 1;
    }
  }
  return ns;
}

/**
 * Runs of rows with a matching function on their stacks.
 * @param {Profile} profile
 * @param {Uint8Array} entries
 * @returns {[number, number][]}
 */
export function matchedRuns(profile, entries) {
  /** @type {[number, number][]} */
  const runs = [];
  const { entry, end, first, last, nodes } = profile;
  for (let i = 1; i < nodes; ) {
    if (entries[entry[i]]) {
      if (last[i] > first[i]) runs.push([first[i], last[i]]);
      i = end[i];
    } else {
      i += 1;
    }
  }
  return runs;
}

/** Whether an entry is a function, and not a mark such as `[not sampled]`. */
export function isFunction(/** @type {Profile} */ profile, /** @type {number} */ entry) {
  return entry >= 0 && profile.kind[entry] !== KIND.mark;
}
