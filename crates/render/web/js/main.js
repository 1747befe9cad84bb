// The page: reads the data, keeps what is looked at in the address, and has each part show it.

import { fromAddress, toAddress } from './address.js';
import { Columns, inflate } from './decode.js';
import { leafFirst, mergeDown, mergeUp, TreeShape } from './derive.js';
import { showDetail } from './detail.js';
import { byId, el, fill, keepFocus, name, placeTip } from './dom.js';
import { showDomain } from './domain.js';
import {
  matchedTime,
  plainLook,
  setUsualIdle,
  search,
  select,
  viewOf,
} from './filter.js';
import { FlameGraph } from './flame.js';
import { showMenu, showTip } from './hover.js';
import { controls, keys } from './keys.js';
import { hasLanes, Timeline } from './lanes.js';
import { showChips, showFilters } from './menus.js';
import { byState, showLedger, showThreads, sumLedgers } from './ledger.js';
import { mineOf } from './mine.js';
import { COLOURINGS, colouringFor, paint } from './palette.js';
import { Profile, VIEWS } from './profile.js';
import { showTable } from './table.js';
import { showHeat, Strip } from './timeline.js';
import { duration, measureIn, percent, shorten, time } from './text.js';
import { hasTasks, Tasks } from './tasks.js';
import { wireVerdict } from './verdict.js';
import { showWaits } from './waits.js';
import { Chains, hasChains } from './why.js';

/** Tabs, and the recordings that have them. @type {[string, string, (p: Profile) => boolean][]} */
const TABS = [
  ['flame', 'Flame graph', () => true],
  ['table', 'Functions', () => true],
  ['heat', 'Over time', () => true],
  ['lanes', 'Timeline', hasLanes],
  ['waits', 'Waits', () => true],
  ['tasks', 'Tasks', hasTasks],
  ['why', 'Chains', hasChains],
  ['domain', 'What was measured', () => true],
];

export class Page {
  /** @param {Profile} profile */
  constructor(profile) {
    this.profile = profile;
    measureIn(profile.meta.domain.unit);
    setUsualIdle(profile.meta.idle);
    this.look = fromAddress(location.hash.slice(1), profile);
    /** What the last look of each kind was made from, so that only what changed is made anew. */
    this.made = { selection: '', shape: '', paint: '', search: '' };
    /** @type {{entries: Uint8Array, problem: string} | null} */
    this.found = null;
    /** @type {number[]} */
    this.stack = [];
    this.focusKey = '';
    this.lastZoom = this.look.zoom;
    /** @type {number | undefined} */
    this.tipTimer = undefined;
    /** @type {Timeline | undefined} made when it is first looked at, as the next one is */
    this.lanes = undefined;
    /** @type {Tasks | undefined} */
    this.tasks = undefined;
    /** @type {Chains | undefined} */
    this.chains = undefined;
    this.viewTotals = byState(sumLedgers(profile.threadLedgers(null)));
    const { meta } = profile;
    byId('title').textContent = shorten(meta.title || meta.domain.target || 'a recording', 200);
    const when = meta.window.unix_ms > 0 ? `${new Date(meta.window.unix_ms).toISOString().slice(0, 16).replace('T', ' ')} UTC` : '';
    byId('when').textContent = [meta.window.end > meta.window.start ? time(profile.duration) : '', when, meta.domain.kernel].filter((v) => v).join(' · ');
    const change = (/** @type {Partial<import('./filter.js').Look>} */ c) => this.change(c);
    this.strip = new Strip(byId('strip'), profile, change);
    this.flame = new FlameGraph(byId('flame'), this.flameActs(() => this.flame));
    this.callers = new FlameGraph(byId('callers'), this.flameActs(() => this.callers));
    this.callees = new FlameGraph(byId('callees'), this.flameActs(() => this.callees));
    controls(this);
    keys(this);
    wireVerdict(this);
    addEventListener('hashchange', () => {
      const address = location.hash.slice(1);
      if (address === toAddress(this.look)) return;
      this.look = fromAddress(address, profile);
      this.show(true);
    });
    let dark = false;
    addEventListener('beforeprint', () => {
      dark = this.paper(true, false);
    });
    addEventListener('afterprint', () => this.paper(false, dark));
    // What was drawn for a room is drawn anew in another: the window's, or what a scroll bar leaves of it.
    const heat = byId('pane-heat');
    let room = 0;
    new ResizeObserver(() => {
      if (this.look.tab !== 'heat' || heat.clientWidth === room) return;
      room = heat.clientWidth;
      this.show(false);
    }).observe(heat);
    this.show(false);
  }

  /**
   * Looks at something else.
   * @param {Partial<import('./filter.js').Look>} change
   * @param {boolean} [quiet] whether the back button shall not return here
   */
  change(change, quiet = false) {
    const before = this.look;
    this.look = { ...before, ...change };
    const picture = ['view', 'leaf', 'fold', 'mine', 'flip', 'threads', 'names', 'pids', 'states', 'reasons', 'labels', 'idle', 'time', 'only'];
    // A zoom belongs to one picture.
    if (change.zoom === undefined && picture.some((k) => k in change && k !== 'icicle')) {
      const wakers = (/** @type {import('./filter.js').Look} */ l) => l.view === 'off-wake';
      const shape = ['leaf', 'fold', 'mine', 'flip', 'only'].some((k) => k in change) || wakers(before) !== wakers(this.look) || before.leaf || before.fold || before.mine || before.zoom.includes('~');
      if (shape) this.look.zoom = '';
    }
    if ('view' in change) this.look.states = [];
    const address = `#${toAddress(this.look)}`;
    if (address !== (location.hash || '#')) {
      if (quiet) history.replaceState(null, '', address);
      else location.hash = address;
    }
    this.show(true);
  }

  /** Makes and shows everything that the look asks for. @param {boolean} smooth */
  show(smooth) {
    keepFocus(() => this.showAll(smooth));
    document.documentElement.dataset.ready = String((Number(document.documentElement.dataset.ready) || 0) + 1);
  }

  /** @param {boolean} smooth */
  showAll(smooth) {
    const { look, profile } = this;
    const searchKey = look.query;
    if (searchKey !== this.made.search) {
      this.found = search(profile, look.query);
      this.made.search = searchKey;
    }
    const matches = this.found ? this.found.entries : null;
    const chosen = JSON.stringify([look.view, look.threads, look.names, look.pids, look.states, look.reasons, look.labels, look.idle, look.time, look.only ? look.query : '']);
    const fresh = chosen !== this.made.selection;
    if (fresh) {
      this.made.selection = chosen;
      this.selection = select(profile, look, matches);
      const change = (/** @type {Partial<import('./filter.js').Look>} */ c) => this.change(c);
      showLedger(byId('ledger'), profile, look, change);
      showThreads(byId('threads'), profile, look, change);
      this.strip.show(look);
      showFilters(byId('filters'), profile, look, change);
      showChips(byId('chips'), profile, look, change);
    }
    this.showViews();
    this.showSearch(matches);
    this.showTabs();
    if (look.tab === 'flame') this.showFlame(smooth, matches);
    const selection = /** @type {import('./selection.js').Selection} */ (this.selection);
    const act = { change: (/** @type {any} */ c) => this.change(c), pick: (/** @type {number} */ e) => this.pickEntry(e) };
    if (look.tab === 'table') showTable(byId('pane-table'), { selection, look, matches }, act);
    if (look.tab === 'heat') {
      const whole = look.time.length > 0 ? select(profile, { ...look, time: [] }, matches) : selection;
      showHeat(byId('pane-heat'), whole, look, act.change);
    }
    if (look.tab === 'waits') showWaits(byId('pane-waits'), selection, look);
    if (look.tab === 'tasks') {
      this.tasks ??= new Tasks(byId('pane-tasks'), this);
      this.tasks.show(matches, smooth);
    }
    if (look.tab === 'why') this.showChains(matches);
    if (look.tab === 'lanes') {
      this.lanes ??= new Timeline(byId('pane-lanes'), profile, (c, quiet) => this.change(c, quiet));
      this.lanes.show(look, selection);
    }
    if (look.tab === 'domain') showDomain(byId('pane-domain'), selection);
    const stack = this.stack.length > 0 && this.stack[this.stack.length - 1] === look.pick ? this.stack : [];
    showDetail(byId('detail'), { selection, look, stack }, { ...act, close: () => this.change({ pick: -1 }, true) });
  }

  /** What the chosen time was really spent on. @param {Uint8Array | null} matches */
  showChains(matches) {
    const { look, profile } = this;
    // Chains hang below the recording's own stacks.
    const selection = look.view === 'off-wake' ? select(profile, { ...look, view: 'off-cpu' }, matches) : /** @type {import('./selection.js').Selection} */ (this.selection);
    this.chains ??= new Chains(byId('pane-why'), (node, shape, lines, x, y) => {
      const tip = byId('tip');
      tip.hidden = true;
      if (node < 0) return;
      const ns = shape.right(node) - shape.left(node);
      fill(tip, el('div', { class: 'tip-name' }, name(node === 0 ? 'all' : lines[shape.entry(node)])), el('p', {}, `${percent(ns / Math.max(1, shape.total))} ${duration(ns)}${shape.self(node) > 0 ? `, ${duration(shape.self(node))} of it not followed further` : ''}`));
      placeTip(tip, x, y);
    });
    this.chains.show(selection, look);
  }

  /** Shows a function's panel. @param {number} entry */
  pickEntry(entry) {
    this.stack = [];
    this.change({ pick: entry }, true);
  }

  /** Folding of frames in derived pictures. @returns {import('./derive.js').Options} */
  options() {
    const { look } = this;
    return { fold: look.fold, mine: mineOf(this.profile, look) };
  }

  /** Key of these options. */
  optionsKey() {
    const { fold, mine, flip } = this.look;
    return JSON.stringify([fold, mine, mine ? flip : []]);
  }

  /** The shape that the look asks for. */
  shape() {
    const { look } = this;
    const selection = /** @type {import('./selection.js').Selection} */ (this.selection);
    const key = `${this.made.selection}|${look.leaf}|${this.optionsKey()}`;
    if (key !== this.made.shape || !this.lastShape) {
      this.made.shape = key;
      const options = this.options();
      if (look.leaf) this.lastShape = leafFirst(selection, options);
      else if (look.fold || look.mine) this.lastShape = mergeDown(selection, [0], options);
      else this.lastShape = new TreeShape(selection);
    }
    return this.lastShape;
  }

  paint() {
    const { look } = this;
    const colouring = look.colour || colouringFor(look.view);
    const key = `${this.made.selection}|${colouring}`;
    if (key !== this.made.paint || !this.lastPaint) {
      this.made.paint = key;
      this.lastPaint = paint(colouring, /** @type {import('./selection.js').Selection} */ (this.selection));
    }
    return this.lastPaint;
  }

  /** @param {import('./shape.js').Shape} shape @returns {[number, number]} */
  ends(shape) {
    const { zoom } = this.look;
    const total = Math.max(1, shape.total);
    if (zoom.includes('~')) {
      const [a, b] = zoom.split('~').map((v) => (Number(v) / 1e9) * total);
      if (b > a && a >= 0) return [a, Math.min(total, b)];
    } else if (zoom !== '') {
      const node = Number(zoom);
      const nodes = shape instanceof TreeShape ? shape.profile.nodes : shape.order.length;
      if (Number.isInteger(node) && node >= 0 && node < nodes && shape.right(node) > shape.left(node)) {
        return [shape.left(node), shape.right(node)];
      }
    }
    return [0, total];
  }

  /** @param {boolean} smooth @param {Uint8Array | null} matches */
  showFlame(smooth, matches) {
    const { look, profile } = this;
    const selection = /** @type {import('./selection.js').Selection} */ (this.selection);
    const focused = look.focus >= 0 && look.focus < profile.names.length;
    byId('flame').hidden = focused;
    byId('focus').hidden = !focused;
    const paintNow = this.paint();
    const base = { profile, paint: paintNow, matches, bright: look.only, icicle: look.icicle, picked: look.pick };
    this.showFlameTools(focused);
    fill(
      byId('key'),
      ...paintNow.titles.map((t, i) => (t ? el('li', {}, el('i', { class: 'swatch', style: { background: paintNow.colours[i] } }), name(t)) : null)),
      paintNow.classOf ? null : el('li', {}, 'Each frame is a bar of what its own time was.'),
      el('li', {}, 'A dark edge marks kernel frames, italics inlined ones. Width is time, not order.'),
    );
    if (focused) {
      const key = `${this.made.selection}|${look.focus}|${this.optionsKey()}`;
      if (this.focusKey !== key) {
        this.focusKey = key;
        const nodes = selection.nodesOf(look.focus);
        this.up = mergeUp(selection, nodes, this.options());
        this.down = mergeDown(selection, nodes, this.options());
      }
      const up = /** @type {import('./shape.js').LaidOut} */ (this.up);
      const down = /** @type {import('./shape.js').LaidOut} */ (this.down);
      fill(byId('focus-title'), 'Callers (above) and callees (below) of ', name(shorten(profile.names[look.focus], 120)), el('span', { class: 'quiet' }, ` ${duration(up.total)}, ${percent(up.total / Math.max(1, selection.total))} of the view`));
      const from = Math.max(1, up.total);
      this.callers.show({ ...base, icicle: false, shape: up, from: 0, to: from }, smooth);
      this.callees.show({ ...base, icicle: true, shape: down, from: 0, to: from }, smooth);
      fill(byId('trail'));
      return;
    }
    const shape = this.shape();
    const [from, to] = this.ends(shape);
    this.flame.show({ ...base, shape, from, to }, smooth);
    // What one zooms to comes up, with a few of its callers in sight.
    if (look.zoom !== this.lastZoom && smooth && look.zoom !== '' && !look.zoom.includes('~')) this.flame.lift(Number(look.zoom));
    this.lastZoom = look.zoom;
    this.showTrail(shape);
    const words = `flame graph of ${viewOf(look).what}: ${duration(selection.total)}, ${shape.levels - 1} levels. Arrow keys move, Enter zooms.`;
    this.flame.canvas.setAttribute('aria-label', words);
  }

  /** The way from the root to what is zoomed to. @param {import('./shape.js').Shape} shape */
  showTrail(shape) {
    const { look, profile } = this;
    if (shape.total === 0) {
      fill(byId('trail'), el('b', {}, this.viewTotals.some((ns) => ns > 0) ? 'Nothing is left by these filters.' : 'This recording holds no time.'), ' ', el('button', { type: 'button', class: 'link', onclick: () => this.change({ ...plainLook(), view: look.view, tab: look.tab }) }, 'Clear them'));
      return;
    }
    if (look.zoom === '') {
      fill(byId('trail'), el('span', { class: 'quiet' }, `all: ${duration(shape.total)}. Click a frame to zoom, Ctrl and wheel for any place, back to return.`));
      return;
    }
    /** @type {(Node | string)[]} */
    const parts = [el('button', { type: 'button', class: 'link', onclick: () => this.change({ zoom: '' }) }, 'all')];
    if (!look.zoom.includes('~')) {
      const way = [];
      for (let n = Number(look.zoom); n > 0; n = shape.parent(n)) way.push(n);
      const shown = way.slice(0, 6).reverse();
      if (way.length > shown.length) parts.push(` › … ${way.length - shown.length} more`);
      for (const n of shown) {
        const entry = shape.entry(n);
        parts.push(' › ', el('button', { type: 'button', class: 'link', onclick: () => this.change({ zoom: String(n) }) }, name(entry >= 0 ? shorten(profile.names[entry], 34) : 'smaller ones')));
      }
    }
    const [a, b] = this.ends(shape);
    parts.push(el('span', { class: 'quiet' }, `  ${duration(b - a)}, ${percent((b - a) / shape.total)}`));
    fill(byId('trail'), ...parts);
  }

  /** @param {boolean} focused */
  showFlameTools(focused) {
    const { look } = this;
    const toggle = (/** @type {'icicle' | 'leaf' | 'fold' | 'mine'} */ key, /** @type {string} */ title, /** @type {string} */ hint) =>
      el('button', { type: 'button', 'aria-pressed': String(look[key]), title: hint, onclick: () => this.change({ [key]: !look[key] }) }, title);
    const colouring = look.colour || colouringFor(look.view);
    fill(
      byId('flame-tools'),
      focused ? el('span', { class: 'choices' }, el('button', { type: 'button', onclick: () => this.change({ focus: -1 }) }, '← All stacks')) : null,
      el(
        'span', { class: 'choices' },
        focused ? null : toggle('icicle', 'Root on top', 'icicle or flame (i)'),
        focused ? null : toggle('leaf', 'Leaf first', 'what the time was spent in, then its callers (l)'),
        toggle('fold', 'Fold recursion', 'direct recursion as one frame (r)'),
        toggle('mine', 'My code', 'own code, and the calls it makes; the insides of libraries, runtimes and the kernel are folded (m)'),
      ),
      el('span', {}, 'Colour: ', el('span', { class: 'choices' }, ...COLOURINGS.map((c) => el('button', { type: 'button', 'aria-pressed': String(c.id === colouring), onclick: () => this.change({ colour: c.id }) }, c.title)))),
    );
  }

  showViews() {
    const { look } = this;
    const totals = this.viewTotals;
    fill(
      byId('views'),
      ...VIEWS.map((v) => {
        if (v.id === 'off-wake' && !this.profile.wake) return null;
        const ns = v.states.reduce((a, s) => a + totals[s], 0);
        return el('button', { type: 'button', 'aria-pressed': String(v.id === look.view), 'data-view': v.id, title: `${v.what}: ${duration(ns)}`, onclick: () => this.change({ view: v.id, reasons: [] }) }, v.title);
      }),
    );
  }

  showTabs() {
    const { look, profile } = this;
    const tabs = TABS.filter(([, , has]) => has(profile));
    if (!tabs.some(([id]) => id === look.tab)) look.tab = 'flame';
    const at = tabs.findIndex(([id]) => id === look.tab);
    const move = (/** @type {KeyboardEvent} */ e) => {
      const step = /** @type {Record<string, number>} */ ({ ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 })[e.key];
      if (step === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      const [to] = tabs[(step + tabs.length) % tabs.length];
      this.change({ tab: to });
      byId(`tab-${to}`).focus();
    };
    fill(
      byId('tabs'),
      ...tabs.map(([id, title]) => {
        const on = id === look.tab;
        return el('button', { type: 'button', role: 'tab', id: `tab-${id}`, tabindex: on ? '0' : '-1', 'aria-selected': String(on), 'aria-controls': `pane-${id}`, onclick: () => this.change({ tab: id }), onkeydown: move }, title);
      }),
    );
    for (const [id] of TABS) byId(`pane-${id}`).hidden = id !== look.tab;
    // On a phone the row of tabs is longer than the screen.
    const [row, chosen] = [byId('tabs'), byId(`tab-${look.tab}`)];
    const beyond = chosen.offsetLeft + chosen.offsetWidth - row.offsetLeft - row.clientWidth;
    if (beyond > row.scrollLeft) row.scrollLeft = beyond;
  }

  /** Draws for paper, or for the screen again; tells whether it was dark. @param {boolean} on @param {boolean} dark */
  paper(on, dark) {
    const { classList } = document.documentElement;
    const before = classList.contains('dark');
    classList.toggle('paper', on);
    classList.toggle('dark', dark);
    this.strip.draw();
    // Intervals of the table come late: it stays as it is.
    if (this.look.tab !== 'table') this.show(false);
    // The sheet is taken before the next picture of the screen would be.
    for (const graph of [this.flame, this.callers, this.callees]) graph.draw();
    return before;
  }

  /** @param {Uint8Array | null} matches */
  showSearch(matches) {
    const { look } = this;
    const input = byId('query');
    if (input.value !== look.query && document.activeElement !== input) input.value = look.query;
    byId('only').checked = look.only;
    input.classList.toggle('wrong', Boolean(this.found && this.found.problem));
    input.title = this.found ? this.found.problem : '';
    const selection = /** @type {import('./selection.js').Selection} */ (this.selection);
    if (!matches) {
      byId('found').textContent = '';
      return;
    }
    const ns = matchedTime(selection, matches);
    byId('found').textContent = `${percent(ns / selection.total)} · ${duration(ns)}`;
  }

  /** @param {() => FlameGraph} graph */
  flameActs(graph) {
    return {
      pick: (/** @type {number} */ node) => this.pickNode(graph(), node),
      zoom: (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ node) => this.zoom(graph(), from, to, node),
      hover: (/** @type {import('./flame.js').Hit} */ hit, /** @type {import('./dom.js').Place} */ at) => showTip(this, graph(), hit, at),
      menu: (/** @type {number} */ node, /** @type {import('./dom.js').Place} */ at) => showMenu(this, graph(), node, at),
    };
  }

  /** Entries from the root of a picture to a node, outermost first. @param {import('./shape.js').Shape} shape @param {number} node */
  stackOf(shape, node) {
    const out = [];
    for (let n = node; n > 0; n = shape.parent(n)) if (shape.entry(n) >= 0) out.push(shape.entry(n));
    if (shape.entry(0) >= 0) out.push(shape.entry(0));
    return shape.inverted ? out : out.reverse();
  }

  /** @param {FlameGraph} graph @param {number} node */
  pickNode(graph, node) {
    const { shape } = /** @type {import('./scene.js').Scene} */ (graph.scene);
    const entry = shape.entry(node);
    if (entry < 0) return;
    this.stack = shape.inverted ? [] : this.stackOf(shape, node);
    this.look.pick = entry;
  }

  /** @param {FlameGraph} graph @param {number} from @param {number} to @param {number} node */
  zoom(graph, from, to, node) {
    if (graph !== this.flame) {
      // The two of callers and callees zoom by themselves.
      if (graph.scene) graph.show({ ...graph.scene, from, to, picked: this.look.pick }, true);
      const selection = /** @type {import('./selection.js').Selection} */ (this.selection);
      showDetail(byId('detail'), { selection, look: this.look, stack: [] }, { change: (c) => this.change(c), pick: (e) => this.pickEntry(e), close: () => this.change({ pick: -1 }, true) });
      return;
    }
    const total = Math.max(1, this.shape().total);
    let zoom = '';
    if (node > 0) zoom = String(node);
    else if (to - from < total * 0.999999) zoom = `${Math.floor((from / total) * 1e9)}~${Math.ceil((to / total) * 1e9)}`;
    // A second click on what fills the picture already only picks it.
    this.change({ zoom, pick: this.look.pick });
  }

}

function theme() {
  let chosen = '';
  try {
    chosen = localStorage.getItem('wallscope-theme') ?? '';
  } catch {
    // Storage may be closed to files.
  }
  const dark = chosen === 'dark' || (chosen === '' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.classList.toggle('dark', dark);
}

async function start() {
  theme();
  try {
    const block = byId('data');
    const data = await inflate(block.textContent);
    // The text is large and not needed any more.
    block.remove();
    const page = new Page(new Profile(new Columns(data)));
    /** @type {any} */ (globalThis).wallscope = page;
  } catch (e) {
    document.body.replaceChildren(
      el('p', { class: 'failed' }, `This page could not read its data: ${e instanceof Error ? e.message : e}. It needs a browser of 2023 or later; if yours is, the file was cut short: make it again with \`wallscope view FILE\`.`),
    );
  }
}

start();
