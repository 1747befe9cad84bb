// The page of a comparison: one tree of both sides, as wide as either or both, coloured by change.
// It draws with the same flame graph as a recording's page. There a colour belongs to a function;
// here it belongs to a place in the tree, so each node is an entry of its own.

import { inflate } from './decode.js';
import { byId, closePopUp, el, fill, name, placeTip, popUp } from './dom.js';
import { FlameGraph } from './flame.js';
import { KIND } from './profile.js';
import { LaidOut } from './shape.js';
import { count, duration, measureIn, shorten } from './text.js';

const SHOWN_STATES = [
  { id: 'all', title: 'All', parts: [0, 1, 2, 3] },
  { id: 'on-cpu', title: 'On CPU', parts: [0] },
  { id: 'runq', title: 'Run queue', parts: [1] },
  { id: 'off-cpu', title: 'Off CPU', parts: [2] },
];

const WIDTHS = [
  { id: 'both', title: 'Wide as the larger' },
  { id: 'new', title: 'Wide as new' },
  { id: 'base', title: 'Wide as base' },
];

/** From much less to much more; then gone, new. The second set stays apart for the colour-blind. */
const PALETTES = [
  { id: 'red', title: 'Red, blue', colours: ['#5f8fe0', '#9bbcf0', '#cfdff8', '#ececea', '#f9d5cf', '#f2a598', '#e26a5a', '#3f6fc8', '#d0402f'] },
  { id: 'safe', title: 'Colour-blind', colours: ['#4c9cc4', '#92c5de', '#d1e5f0', '#ededed', '#fbe3c4', '#f0b060', '#dc8410', '#2f7fb0', '#c26a00'] },
];
const STEPS = ['much less', 'less', 'a little less', 'the same', 'a little more', 'more', 'much more', 'gone', 'new'];

/** The class of a change; `whole` is all time, for what is too small to matter. @param {number} base @param {number} fresh @param {number} whole */
export function changeClass(base, fresh, whole) {
  if (base === 0 && fresh === 0) return 3;
  if (fresh === 0) return 7;
  if (base === 0) return 8;
  const share = (fresh - base) / Math.max(base, fresh);
  if (Math.abs(fresh - base) < whole * 0.0005) return 3;
  const size = Math.abs(share);
  if (size < 0.02) return 3;
  const step = size < 0.1 ? 1 : size < 0.35 ? 2 : 3;
  return share < 0 ? 3 - step : 3 + step;
}

/** Both sides of a tree under a choice of states, laid out. */
export class DeltaShape extends LaidOut {
  /** @param {any} data @param {number[]} parts @param {string} width `both`, `new` or `base` */
  constructor(data, parts, width) {
    super(false);
    const n = data.pops.length;
    const parents = new Int32Array(n);
    const depths = new Uint16Array(n);
    /** @type {number[]} */
    const path = [0];
    for (let i = 1; i < n; i += 1) {
      path.length -= data.pops[i];
      parents[i] = path[path.length - 1];
      depths[i] = path.length;
      path.push(i);
    }
    const base = new Float64Array(n);
    const fresh = new Float64Array(n);
    const wide = new Float64Array(n);
    for (const [node, b, f] of data.own) {
      for (const s of parts) {
        base[node] += b[s];
        fresh[node] += f[s];
      }
      wide[node] = width === 'new' ? fresh[node] : width === 'base' ? base[node] : Math.max(base[node], fresh[node]);
    }
    this.selfs = wide.slice();
    for (let i = n - 1; i > 0; i -= 1) {
      base[parents[i]] += base[i];
      fresh[parents[i]] += fresh[i];
      wide[parents[i]] += wide[i];
    }
    // Children stand side by side in the order of the tree, from their parent's left end.
    const lefts = new Float64Array(n);
    const used = new Float64Array(n);
    for (let i = 1; i < n; i += 1) {
      const p = parents[i];
      lefts[i] = lefts[p] + used[p];
      used[p] += wide[i];
    }
    this.base = base;
    this.fresh = fresh;
    this.lefts = lefts;
    this.rights = lefts.map((v, i) => v + wide[i]);
    this.parents = parents;
    this.depths = depths;
    // Each node is an entry of its own.
    this.entries = Int32Array.from(wide, (_, i) => i || -1);
    this.total = wide[0];
    this.finish();
  }
}

class DeltaPage {
  /** @param {any} data */
  constructor(data) {
    this.data = data;
    measureIn(data.unit);
    this.look = { state: 'all', width: 'both', colours: 'red', query: '', zoom: 0, icicle: false, pick: -1 };
    /** @type {{key: string, shape: DeltaShape} | null} */
    this.made = null;
    // Each node is an entry of its own.
    const of = (/** @type {any[]} */ list, /** @type {any} */ none) => data.entry.map((/** @type {number} */ e) => (e === 0 ? none : list[e - 1]));
    this.profile = /** @type {any} */ ({
      names: of(data.names, 'all'),
      kind: of(data.kinds, KIND.mark),
      inlined: of(data.inlined, 0),
    });
    byId('title').textContent = shorten(data.title, 200);
    byId('when').textContent = `${data.about} · mean of ${data.runs[0]} base and ${data.runs[1]} new runs · ${data.view}`;
    byId('sentence').textContent = data.sentence;
    fill(byId('notes'), ...data.notes.map((/** @type {string} */ n) => el('li', {}, n)));
    this.flame = new FlameGraph(byId('flame'), {
      pick: (node) => this.change({ pick: node }),
      zoom: (from, to, node) => this.zoom(from, to, node),
      hover: (hit, at) => this.hover(hit, at),
      menu: () => undefined,
    });
    byId('theme').addEventListener('click', () => {
      document.documentElement.classList.toggle('dark');
      this.show(false);
    });
    byId('help').addEventListener('click', () => this.help());
    byId('query').addEventListener('input', () => this.change({ query: byId('query').value }));
    if (matchMedia('(prefers-color-scheme: dark)').matches) document.documentElement.classList.add('dark');
    this.read();
    addEventListener('hashchange', () => {
      this.read();
      this.show(true);
    });
    this.keys();
    byId('query').value = this.look.query;
    this.show(false);
  }

  /** Takes the look from the address. */
  read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const { look } = this;
    const one = (/** @type {string} */ key, /** @type {{id: string}[]} */ of) => {
      const value = given.get(key) ?? '';
      return of.some((o) => o.id === value) ? value : of[0].id;
    };
    look.state = one('state', SHOWN_STATES);
    look.width = one('width', WIDTHS);
    look.colours = one('colours', PALETTES);
    look.query = given.get('q') ?? '';
    look.icicle = given.get('icicle') === '1';
    const zoom = Number(given.get('zoom') ?? 0);
    look.zoom = Number.isInteger(zoom) && zoom > 0 && zoom < this.data.entry.length ? zoom : 0;
  }

  /** @param {Partial<DeltaPage['look']>} change */
  change(change) {
    Object.assign(this.look, change);
    const { look } = this;
    const words = new URLSearchParams();
    if (look.state !== 'all') words.set('state', look.state);
    if (look.width !== 'both') words.set('width', look.width);
    if (look.colours !== 'red') words.set('colours', look.colours);
    if (look.query) words.set('q', look.query);
    if (look.icicle) words.set('icicle', '1');
    if (look.zoom) words.set('zoom', String(look.zoom));
    history.replaceState(null, '', `#${words}`);
    this.show(true);
  }

  shape() {
    const key = `${this.look.state}|${this.look.width}`;
    if (this.made?.key !== key) {
      const state = SHOWN_STATES.find((s) => s.id === this.look.state) ?? SHOWN_STATES[0];
      this.made = { key, shape: new DeltaShape(this.data, state.parts, this.look.width) };
    }
    return this.made.shape;
  }

  /** Which nodes the search finds. @returns {Uint8Array | null} */
  matches() {
    const { query } = this.look;
    byId('found').textContent = '';
    if (!query) return null;
    /** @type {(text: string) => boolean} */
    let is = (text) => text.toLowerCase().includes(query.toLowerCase());
    try {
      const pattern = new RegExp(query, 'i');
      is = (text) => pattern.test(text);
    } catch {
      // Not a regular expression: taken as it is.
    }
    const known = this.data.names.map(is);
    const found = Uint8Array.from(this.data.entry, (/** @type {number} */ e) => (e > 0 && known[e - 1] ? 1 : 0));
    byId('found').textContent = `${count(known.filter(Boolean).length)} functions`;
    return found;
  }

  /** @param {boolean} smooth */
  show(smooth) {
    const { look } = this;
    const shape = this.shape();
    const palette = PALETTES.find((p) => p.id === look.colours) ?? PALETTES[0];
    const whole = Math.max(shape.base[0], shape.fresh[0]);
    const zoomed = look.zoom > 0 && shape.right(look.zoom) > shape.left(look.zoom) ? look.zoom : 0;
    const choice = (/** @type {string} */ id, /** @type {{id: string, title: string}[]} */ of, /** @type {string} */ now, /** @type {(id: string) => void} */ set) => {
      fill(byId(id), ...of.map((o) => el('button', { type: 'button', 'aria-pressed': String(o.id === now), onclick: () => set(o.id) }, o.title)));
    };
    choice('states', SHOWN_STATES, look.state, (state) => this.change({ state }));
    choice('widths', WIDTHS, look.width, (width) => this.change({ width }));
    choice('colours', PALETTES, look.colours, (colours) => this.change({ colours }));
    fill(byId('key'), ...palette.colours.map((c, i) => el('span', {}, el('i', { class: 'swatch', style: { background: c } }), STEPS[i])), el('span', {}, 'Colour is this place against itself; the table says what is noise.'));
    const matches = this.matches();
    this.flame.show(
      {
        shape,
        profile: this.profile,
        paint: { colours: palette.colours, titles: STEPS, classOf: (n) => (n < 0 ? 3 : changeClass(shape.base[n], shape.fresh[n], whole)), sums: [] },
        matches,
        icicle: look.icicle,
        from: shape.left(zoomed),
        to: Math.max(shape.right(zoomed), shape.left(zoomed) + 1e-9),
        picked: look.pick,
      },
      smooth,
    );
    this.trail(shape, zoomed);
    this.table();
    document.documentElement.dataset.ready = String((Number(document.documentElement.dataset.ready) || 0) + 1);
  }

  /** The way from the root to what is zoomed. @param {DeltaShape} shape @param {number} node */
  trail(shape, node) {
    const parts = [];
    for (let n = node; n > 0 && parts.length < 12; n = shape.parents[n]) {
      const to = n;
      parts.unshift(el('button', { type: 'button', class: 'more', onclick: () => this.change({ zoom: to }) }, name(shorten(this.profile.names[n], 60))));
    }
    if (node > 0) parts.unshift(el('button', { type: 'button', class: 'more', onclick: () => this.change({ zoom: 0 }) }, 'all'));
    fill(byId('trail'), ...parts);
  }

  /** @param {number} from @param {number} to @param {number} node */
  zoom(from, to, node) {
    if (node >= 0) {
      this.change({ zoom: node });
      return;
    }
    // A free stretch is the innermost frame that has all of it.
    const shape = this.shape();
    let at = 0;
    for (let i = 1; i < shape.depths.length; i += 1) {
      if (shape.parents[i] === at && shape.left(i) <= from && shape.right(i) >= to) at = i;
    }
    this.change({ zoom: at });
  }

  /** A value in words. @param {number} v */
  value(v) {
    return this.data.share ? `${(v / 1e7).toFixed(2)} %` : `${duration(Math.round(v))}${this.data.per}`;
  }

  /** Tells what lies at a place. @param {import('./flame.js').Hit} hit @param {import('./dom.js').Place} at */
  hover({ node, strip }, { x, y }) {
    const tip = byId('tip');
    tip.hidden = node < 0 && !strip;
    if (tip.hidden) return;
    const shape = this.shape();
    if (strip) fill(tip, `${count(strip.to - strip.from)} frames too narrow to draw`);
    else {
      const [b, f] = [shape.base[node], shape.fresh[node]];
      const more = f >= b ? '+' : '−';
      const relative = b > 0 ? ` (${more}${(Math.abs(f / b - 1) * 100).toFixed(1)} %)` : f > 0 ? ' (new)' : '';
      fill(
        tip,
        el('div', {}, name(node === 0 ? 'all' : this.profile.names[node])),
        el('div', { class: 'quiet' }, node > 0 ? this.data.modules[this.data.entry[node] - 1] : ''),
        el('div', {}, `base ${this.value(b)} → new ${this.value(f)}`),
        el('div', {}, f === 0 ? 'gone' : `${more}${this.value(Math.abs(f - b))}${relative}`),
      );
    }
    placeTip(tip, x, y);
  }

  /** What changed; noise is grey and says so. */
  table() {
    const { functions } = this.data;
    const changed = functions.filter((/** @type {any} */ f) => f.changed);
    const rest = functions.filter((/** @type {any} */ f) => !f.changed).slice(0, 30);
    const row = (/** @type {any} */ f) =>
      el(
        'tr',
        { tabindex: '0', class: f.changed ? 'changed' : 'quiet', onclick: () => this.find(f.name) },
        el('td', { class: 'number' }, f.base),
        el('td', { class: 'number' }, f.new),
        el('td', { class: 'number' }, f.delta),
        el('td', { class: 'number' }, f.relative),
        el('td', {}, f.what),
        el('td', { class: 'mono' }, name(shorten(f.name, 120)), ' ', el('span', { class: 'quiet' }, f.module)),
      );
    const head = el('thead', {}, el('tr', {}, ...['base', 'new', 'difference ± 95 %', '', 'what', 'function'].map((t, i) => el('th', { class: i < 4 ? 'number' : '' }, t))));
    fill(
      byId('table'),
      el('h3', {}, `Functions that changed: ${count(changed.length)}`),
      el('p', { class: 'quiet small' }, `At most ${this.data.fdr * 100} % of these are chance. The others, in grey, are noise.`),
      el('table', {}, head, el('tbody', {}, ...changed.map(row), ...rest.map(row))),
    );
  }

  /** Searches for a function by its whole name. @param {string} text */
  find(text) {
    const query = `^${text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
    byId('query').value = query;
    this.change({ query });
  }

  help() {
    const keys = [
      ['/', 'search'],
      ['arrows, Enter', 'walk through the picture, zoom'],
      ['Esc', 'out: search, then zoom'],
      ['1 2 3 4', 'all, on CPU, run queue, off CPU'],
      ['w', 'width: larger, new, base'],
      ['p', 'colours'],
      ['i', 'root on top'],
    ];
    popUp(byId('help'), el('table', {}, ...keys.map(([k, what]) => el('tr', {}, el('td', {}, el('kbd', {}, k)), el('td', {}, what)))));
  }

  keys() {
    addEventListener('keydown', (e) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(/** @type {Element} */ (e.target).tagName);
      if (e.key === 'Escape') {
        if (closePopUp()) return;
        if (this.look.query) {
          byId('query').value = '';
          this.change({ query: '' });
        } else if (typing) byId('query').blur();
        else this.change({ zoom: 0, pick: -1 });
        return;
      }
      if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
      const after = (/** @type {{id: string}[]} */ of, /** @type {string} */ now) => of[(of.findIndex((o) => o.id === now) + 1) % of.length].id;
      /** @type {Record<string, () => void>} */
      const on = {
        '/': () => byId('query').focus(),
        '?': () => this.help(),
        i: () => this.change({ icicle: !this.look.icicle }),
        w: () => this.change({ width: after(WIDTHS, this.look.width) }),
        p: () => this.change({ colours: after(PALETTES, this.look.colours) }),
        Enter: () => this.flame.cursor >= 0 && this.flame.open(this.flame.cursor),
      };
      SHOWN_STATES.forEach((s, i) => {
        on[String(i + 1)] = () => this.change({ state: s.id });
      });
      for (const way of /** @type {const} */ (['up', 'down', 'left', 'right'])) {
        on[`Arrow${way[0].toUpperCase()}${way.slice(1)}`] = () => {
          const node = this.flame.step(way);
          const at = this.flame.canvas.getBoundingClientRect();
          if (node >= 0) this.hover({ node, strip: null }, { x: at.left + 20, y: at.top + 10 });
        };
      }
      if (e.key in on) {
        e.preventDefault();
        on[e.key]();
      }
    });
  }
}

async function start() {
  try {
    const block = byId('data');
    const bytes = await inflate(block.textContent);
    block.remove();
    const data = JSON.parse(new TextDecoder().decode(bytes));
    if (data.version !== 1) throw new Error(`this page reads version 1 of its data, not ${data.version}`);
    /** @type {any} */ (globalThis).wallscope = new DeltaPage(data);
  } catch (e) {
    document.body.replaceChildren(
      el('p', { class: 'failed' }, `This page could not read its data: ${e instanceof Error ? e.message : e}. It needs a browser of 2023 or later; if yours is, the file was cut short: make it again with \`wallscope diff\`.`),
    );
  }
}

if (typeof document !== 'undefined') start();
