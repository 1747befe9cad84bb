// Buttons and keys.

import { byId, closePopUp, copy, el, popUp, say } from './dom.js';
import { viewOf } from './filter.js';
import { hasLanes } from './lanes.js';
import { savePng, saveSvg } from './picture.js';
import { VIEWS } from './profile.js';
import { hasTasks } from './tasks.js';
import { count, percent, shorten } from './text.js';
import { hasChains } from './why.js';

/** The buttons and boxes on top. @param {import('./main.js').Page} page */
export function controls(page) {
  const input = byId('query');
  let timer = 0;
  input.addEventListener('input', () => {
    clearTimeout(timer);
    // Letters typed in quick succession are one search.
    timer = setTimeout(() => page.change({ query: input.value }, true), 40);
  });
  input.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
    if (e.key !== 'Enter') return;
    e.preventDefault();
    clearTimeout(timer);
    if (input.value !== page.look.query) page.change({ query: input.value }, true);
    toMatch(page, e.shiftKey ? -1 : 1);
  });
  byId('only').addEventListener('change', () => page.change({ only: byId('only').checked }));
  byId('help').addEventListener('click', () => help());
  byId('theme').addEventListener('click', () => {
    const dark = document.documentElement.classList.toggle('dark');
    try {
      localStorage.setItem('wallscope-theme', dark ? 'dark' : 'light');
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    page.strip.draw();
    page.show(false);
  });
  byId('save').addEventListener('click', () => {
    const file = (page.profile.meta.title || 'recording').replace(/[^A-Za-z0-9._-]+/g, '-').slice(0, 60) + `-${page.look.view}`;
    const graph = byId('focus').hidden ? page.flame : page.callees;
    const scene = () => graph.scene ?? /** @type {any} */ (null);
    const item = (/** @type {string} */ title, /** @type {() => void} */ act) => el('button', { type: 'button', onclick: () => { closePopUp(); act(); } }, title);
    if (!scene()) {
      page.change({ tab: 'flame' });
      return;
    }
    const title = `${page.profile.meta.title} – ${viewOf(page.look).title}`;
    popUp(
      byId('save'),
      item('Picture as SVG', () => saveSvg(scene(), title, file)),
      item('Picture as PNG', () => savePng(scene(), title, file)),
      item('Copy a link to this look', async () => say((await copy(location.href)) ? 'The link is copied.' : 'Copying is not allowed here.')),
      item('Print', () => print()),
    );
  });
}

function help() {
  const key = (/** @type {string} */ k, /** @type {string} */ what) => [el('dt', {}, el('kbd', {}, k)), el('dd', {}, what)];
  popUp(
    byId('help'),
    el('p', {}, el('b', {}, 'Reading it. '), 'The bar on top is all wall time of the threads, by state. Below, width is time and not order; a frame’s colours say what its time was. Blocked time is not always a problem: a thread with nothing to do waits. A wide parent is rarely the culprit.'),
    el(
      'dl', {},
      ...key('/', 'search; Enter there: the next match, with Shift the one before'), ...key('Esc', 'close, clear the search, zoom out'), ...key('← → ↑ ↓', 'move among frames'), ...key('Enter', 'zoom to the frame'),
      ...key('i', 'root on top or below'), ...key('l', 'leaf first'), ...key('r', 'fold recursion'), ...key('m', 'my code: fold the insides of libraries, runtimes and the kernel'), ...key('s', 'callers and callees of the chosen function'), ...key('f t o d', 'flame graph, table, over time, what was measured'), ...key('x w k y', 'timeline, waits, tasks, chains of waits'), ...key('1 2 3 4 5', 'wall, on CPU, off CPU, run queue, wakers'), ...key('c', 'copy the chosen stack'), ...key('?', 'this'),
    ),
    el('p', { class: 'quiet' }, 'Badges: exact – counted; ± – sampled, with its 95 % interval in percentage points; suspected – too few samples to rely on, or more than sums can show. Click one to see what it rests on.'),
  );
}

/** Keys that work everywhere. @param {import('./main.js').Page} page */
export function keys(page) {
  addEventListener('keydown', (e) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(/** @type {Element} */ (e.target).tagName);
    if (e.key === 'Escape') {
      escape(page, typing);
      return;
    }
    if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
    const { look } = page;
    const on = /** @type {Record<string, () => void>} */ ({
      '/': () => {
        byId('query').focus();
        byId('query').select();
      },
      '?': () => help(),
      i: () => page.change({ icicle: !look.icicle }),
      l: () => page.change({ leaf: !look.leaf }),
      r: () => page.change({ fold: !look.fold }),
      f: () => page.change({ tab: 'flame' }),
      t: () => page.change({ tab: look.tab === 'table' ? 'flame' : 'table' }),
      o: () => page.change({ tab: 'heat' }),
      m: () => page.change({ mine: !look.mine }),
      d: () => page.change({ tab: 'domain' }),
      w: () => page.change({ tab: 'waits' }),
      k: () => hasTasks(page.profile) && page.change({ tab: 'tasks' }),
      y: () => hasChains(page.profile) && page.change({ tab: 'why' }),
      x: () => hasLanes(page.profile) && page.change({ tab: 'lanes' }),
      s: () => look.pick >= 0 && page.change({ tab: 'flame', focus: look.focus >= 0 ? -1 : look.pick, zoom: '' }),
      c: () => byId('detail').querySelector('.copy')?.click(),
    });
    VIEWS.filter((v) => page.profile.wake || v.id !== 'off-wake').forEach((v, i) => {
      on[String(i + 1)] = () => page.change({ view: v.id, reasons: [] });
    });
    if (e.key in on) {
      e.preventDefault();
      on[e.key]();
      return;
    }
    if (look.tab === 'flame' && look.focus < 0) arrows(page, e);
  });
}

/** Goes to a frame that matches the search, and says which of how many it is. @param {import('./main.js').Page} page @param {1 | -1} way */
function toMatch(page, way) {
  if (page.look.query === '' || page.look.tab !== 'flame' || page.look.focus >= 0) return;
  const { node, place, of } = page.flame.nextMatch(way);
  if (node < 0) {
    say('No frame here matches.');
    return;
  }
  tell(page, node, `, match ${count(place)} of ${count(of)}`);
}

/** Picks a frame of the picture and says its share. @param {import('./main.js').Page} page @param {number} node @param {string} more */
function tell(page, node, more) {
  const { shape } = /** @type {import('./scene.js').Scene} */ (page.flame.scene);
  const entry = shape.entry(node);
  say(`${entry >= 0 ? shorten(page.profile.names[entry], 80) : 'all'}: ${percent((shape.right(node) - shape.left(node)) / Math.max(1, shape.total))}${more}`);
  // On a phone the panel would cover the frame.
  if (innerWidth <= 900) return;
  page.pickNode(page.flame, node);
  page.change({ pick: page.look.pick }, true);
}

/** Walking through the picture. @param {import('./main.js').Page} page @param {KeyboardEvent} e */
function arrows(page, e) {
  const elsewhere = document.activeElement && document.activeElement !== document.body && document.activeElement !== page.flame.canvas;
  if (elsewhere) return;
  const way = /** @type {Record<string, 'up' | 'down' | 'left' | 'right'>} */ ({ ArrowUp: 'up', ArrowDown: 'down', ArrowLeft: 'left', ArrowRight: 'right' })[e.key];
  if (way) {
    e.preventDefault();
    const node = page.flame.step(way);
    if (node < 0 || !page.flame.scene) return;
    tell(page, node, '');
  } else if (e.key === 'Enter' && page.flame.cursor >= 0) {
    page.flame.open(page.flame.cursor);
  }
}

/** One step out. @param {import('./main.js').Page} page @param {boolean} typing */
function escape(page, typing) {
  byId('tip').hidden = true;
  for (const d of document.querySelectorAll('details[open]')) d.removeAttribute('open');
  if (closePopUp()) return;
  const { look } = page;
  if (typing) byId('query').blur();
  if (look.query !== '') {
    byId('query').value = '';
    page.change({ query: '', only: false });
  } else if (look.pick >= 0) page.change({ pick: -1 }, true);
  else if (look.zoom !== '') page.change({ zoom: '' });
  else if (look.focus >= 0) page.change({ focus: -1 });
  else if (look.time.length > 0) page.change({ time: [] });
}
