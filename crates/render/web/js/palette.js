// Ways to colour frames. Colours are the model's; all are light enough for dark letters, in the dark theme
// too. Wherever a colour means something, words beside it say it too.

import { CPU_COLOURS, KIND_COLOURS, REASONS, STATE_COLOURS, UNKNOWN_COLOURS } from './colours.js';
import { BLOCK_REASONS, KIND, STATE_TITLES } from './profile.js';
import { baseName } from './text.js';

export { KIND_COLOURS, STATE_COLOURS };

/** By part, in the order of a thread's ledger. */
export const PART_COLOURS = [...CPU_COLOURS, ...REASONS.map((r) => r.colour), ...UNKNOWN_COLOURS];

/** Reasons of tasks' waits that have the colour of a thread's kindred block reason. */
const KINDRED = /** @type {Record<string, string>} */ ({
  mutex: 'lock', pool: 'gil', channel: 'pipe', queue: 'pipe', select: 'poll', event: 'poll', task: 'child', thread: 'disk', syscall: 'disk',
});

/** Colour of a wait of tasks. @param {string} reason */
export function taskColour(reason) {
  const known = (/** @type {string} */ called) => REASONS.find((r) => r.name === called)?.colour;
  return known(KINDRED[reason] ?? reason) ?? known('other') ?? STATE_COLOURS[2];
}

const MODULE_COLOURS = ['#eecc66', '#77aadd', '#ee8866', '#44bb99', '#ffaabb', '#bbcc33', '#99ddff', '#c8b0e0', '#d8c0a0'];
const OTHER_MODULE = '#c8c8c8';

/** Ways to colour frames. */
export const COLOURINGS = [
  { id: 'reason', title: 'Reason' },
  { id: 'state', title: 'State' },
  { id: 'kind', title: 'Kind of code' },
  { id: 'module', title: 'Module' },
];

/** The colouring that suits a view. @param {string} view */
export function colouringFor(view) {
  return view === 'on-cpu' ? 'kind' : 'reason';
}

/** Kind of code of an entry: own, library, kernel, … @param {import('./profile.js').Profile} p @param {number} entry */
export function codeKind(p, entry) {
  if (entry < 0) return 'mark';
  const kind = p.kind[entry];
  if (kind === KIND.kernel) return 'kernel';
  if (kind === KIND.jit) return 'jit';
  if (kind === KIND.mark) return 'mark';
  const path = p.module(entry);
  if (kind === KIND.managed && path === '[java]') return /^(javax?|jdk|sun|com\.sun)\.|^[^.(]+( \(|$)/.test(p.names[entry]) ? 'library' : 'managed';
  if (kind === KIND.managed) return /\/(python3(\.\d+)?|site-packages|dist-packages)\/|^</.test(path) ? 'library' : 'managed';
  const library = /^\[vdso\]$|^\/(usr\/)?(local\/)?lib(32|64|x32|exec)?\//.test(path) || /\.so(\.|$)/.test(path);
  return library ? 'library' : 'own';
}

const KIND_TITLES = { own: 'own code', library: 'library, runtime', kernel: 'kernel', jit: 'made at run time', managed: 'managed (Python, Java, PHP, Ruby)', mark: 'not known' };

/**
 * How frames are painted: one colour by entry, or the parts of each frame's time.
 * @typedef {object} Paint
 * @property {string[]} colours by class
 * @property {string[]} titles by class
 * @property {((entry: number) => number) | null} classOf the class of an entry; `null`: by time
 * @property {Float64Array[]} sums by class, prefix sums over rows, where by time
 */

/**
 * @param {string} colouring
 * @param {import('./selection.js').Selection} selection
 * @returns {Paint}
 */
export function paint(colouring, selection) {
  const p = selection.profile;
  if (colouring === 'kind') {
    const kinds = Object.keys(KIND_COLOURS);
    const classes = Uint8Array.from(p.names, (_, e) => kinds.indexOf(codeKind(p, e)));
    return {
      colours: Object.values(KIND_COLOURS),
      titles: kinds.map((k) => /** @type {any} */ (KIND_TITLES)[k]),
      classOf: (e) => (e < 0 ? kinds.indexOf('mark') : classes[e]),
      sums: [],
    };
  }
  if (colouring === 'module') {
    const time = new Float64Array(p.modules.length + 1);
    const { self } = selection.byEntry();
    for (let e = 0; e < self.length; e += 1) time[p.entryModule[e]] += self[e];
    const ranked = [...time.keys()].filter((m) => m > 0).sort((a, b) => time[b] - time[a]);
    const place = new Uint8Array(time.length).fill(MODULE_COLOURS.length);
    ranked.slice(0, MODULE_COLOURS.length).forEach((m, i) => {
      place[m] = i;
    });
    const titles = MODULE_COLOURS.map((_, i) => (ranked[i] ? baseName(p.modules[ranked[i] - 1]) : ''));
    return {
      colours: [...MODULE_COLOURS, OTHER_MODULE],
      titles: [...titles, 'others'],
      classOf: (e) => (e < 0 ? MODULE_COLOURS.length : place[p.entryModule[e]]),
      sums: [],
    };
  }
  return byTime(colouring, selection);
}

/** @param {string} colouring @param {import('./selection.js').Selection} selection @returns {Paint} */
function byTime(colouring, selection) {
  const p = selection.profile;
  // Sums by reason take eight bytes a row for each reason; beyond this, states must do.
  const fine = colouring === 'reason' && p.rows <= 300_000;
  const classOfTag = new Int16Array(256).fill(-1);
  const present = new Map();
  for (let r = 0; r < p.rows; r += 1) {
    if (selection.weight[r] === 0) continue;
    const tag = p.rowTag[r];
    const state = tag & 3;
    const part = fine ? partOfTag(tag) : -1;
    const key = part >= 0 ? part : 100 + state;
    if (!present.has(key)) present.set(key, 0);
    present.set(key, present.get(key) + selection.weight[r]);
  }
  const keys = [...present.keys()].sort((a, b) => placeOf(a) - placeOf(b));
  for (let tag = 0; tag < 256; tag += 1) {
    const part = fine ? partOfTag(tag) : -1;
    classOfTag[tag] = keys.indexOf(part >= 0 ? part : 100 + (tag & 3));
  }
  const sums = keys.map(() => new Float64Array(p.rows + 1));
  if (keys.length === 1) sums[0] = /** @type {Float64Array<ArrayBuffer>} */ (selection.prefix);
  else {
    for (let r = 0; r < p.rows; r += 1) {
      const c = classOfTag[p.rowTag[r]];
      for (let i = 0; i < keys.length; i += 1) {
        sums[i][r + 1] = sums[i][r] + (i === c ? selection.weight[r] : 0);
      }
    }
  }
  return {
    colours: keys.map((k) => (k >= 100 ? STATE_COLOURS[k - 100] : PART_COLOURS[k])),
    titles: keys.map((k) => (k >= 100 ? STATE_TITLES[k - 100] : partTitle(p, k))),
    classOf: null,
    sums,
  };
}

/** @param {number} key */
function placeOf(key) {
  return key >= 100 ? [0, 4, 7, 7 + BLOCK_REASONS][key - 100] - 0.5 : key;
}

/** A tag's part in the order of a thread's ledger; −1: the tag names none. @param {number} tag */
export function partOfTag(tag) {
  const reason = ((tag >> 2) & 31) - 1;
  if (reason < 0) return -1;
  if (reason < BLOCK_REASONS) return 7 + reason;
  if (reason < BLOCK_REASONS + 7) return reason - BLOCK_REASONS;
  return reason;
}

/** What people call a part. @param {import('./profile.js').Profile} p @param {number} part */
export function partTitle(p, part) {
  let name;
  if (part < 7) name = p.reasons[BLOCK_REASONS + part];
  else if (part < 7 + BLOCK_REASONS) name = p.reasons[part - 7];
  else name = p.reasons[part];
  return (name ?? '').replace(/_/g, ' ');
}
