// What a frame is, beside the pointer, and what can be done with it.

import { byId, closePopUp, copy, el, fill, name, placeTip, popUp, say } from './dom.js';
import { isFunction } from './filter.js';
import { isOwnByRule } from './mine.js';
import { stackText } from './picture.js';
import { KIND, STATES, STATE_TITLES } from './profile.js';
import { baseName, count, duration, percent } from './text.js';

/**
 * Tells a frame of a picture that has colours for the parts of its time, and no rows of threads.
 * @param {import('./scene.js').Scene | null} scene
 * @param {number} node −1: nothing
 * @param {import('./dom.js').Place} at
 * @param {string} all what the root is called
 */
export function showParts(scene, node, at, all) {
  const tip = byId('tip');
  tip.hidden = true;
  if (node < 0 || !scene) return;
  const { shape, paint } = scene;
  const ns = shape.right(node) - shape.left(node);
  const ranges = shape.ranges(node);
  const sums = paint.sums.map((of) => {
    let sum = 0;
    for (let k = 0; k < ranges.length; k += 2) sum += of[ranges[k + 1]] - of[ranges[k]];
    return sum;
  });
  const known = Math.max(1, sums.reduce((a, b) => a + b, 0));
  const entry = shape.entry(node);
  const label = entry >= 0 ? scene.profile.names[entry] : entry === -1 ? all : 'smaller ones';
  fill(
    tip,
    el('div', { class: 'tip-name' }, name(label.slice(0, 600))),
    el('p', {}, el('b', {}, percent(ns / Math.max(1, shape.total))), ` ${duration(ns)}`),
    el('p', {}, paint.titles.map((title, i) => (sums[i] > 0 ? `${title} ${percent(sums[i] / known)}` : '')).filter((v) => v).join(' · ')),
  );
  placeTip(tip, at.x, at.y);
}

/**
 * Tells what lies at a place.
 * @param {import('./main.js').Page} page
 * @param {import('./flame.js').FlameGraph} graph
 * @param {import('./flame.js').Hit} hit
 * @param {import('./dom.js').Place} at
 */
export function showTip(page, graph, { node, strip }, at) {
  const tip = byId('tip');
  clearTimeout(page.tipTimer);
  if ((node < 0 && !strip) || !graph.scene) {
    tip.hidden = true;
    return;
  }
  const { shape } = graph.scene;
  const selection = /** @type {import('./selection.js').Selection} */ (page.selection);
  const p = page.profile;
  const whole = Math.max(1, shape.total);
  if (strip) {
    const n = strip.to - strip.from;
    const ns = shape.right(shape.order[strip.to - 1]) - shape.left(shape.order[strip.from]);
    fill(tip, el('div', { class: 'tip-name' }, `${count(n)} hidden`), el('p', {}, `frames too narrow to draw, ${duration(ns)} (${percent(ns / whole)}) together. Click to zoom in.`));
  } else {
    const entry = shape.entry(node);
    const ns = shape.right(node) - shape.left(node);
    const self = shape.self(node);
    const spot = el('span', {});
    const states = STATES.map((_, s) => {
      const ranges = shape.ranges(node);
      let v = 0;
      if (ranges.length < 2000) for (let i = 0; i < ranges.length; i += 2) v += selection.stateTime(ranges[i], ranges[i + 1], s);
      return v > 0 && v < ns * 0.9999 ? `${STATE_TITLES[s]} ${percent(v / ns)}` : '';
    }).filter((v) => v);
    const label = entry >= 0 ? p.names[entry] : entry === -1 ? 'all' : `${count(-2 - entry)} smaller functions`;
    const module = entry >= 0 ? p.module(entry) : '';
    fill(
      tip,
      el('div', { class: 'tip-name' }, name(label.length > 600 ? `${label.slice(0, 600)}…` : label)),
      el('p', {}, el('b', {}, percent(ns / whole)), ` ${duration(ns)} `, spot, self !== ns ? ` · self ${duration(self)} (${percent(self / whole)})` : ' · all self'),
      states.length > 0 ? el('p', {}, states.join(' · ')) : null,
      module || (entry >= 0 && p.inlined[entry]) ? el('p', { class: 'quiet' }, [baseName(module), entry >= 0 && p.inlined[entry] ? 'inlined' : '', entry >= 0 && p.kind[entry] === KIND.kernel ? 'kernel' : ''].filter((v) => v).join(' · ')) : null,
    );
    // The interval may take a pass over all that lies below.
    page.tipTimer = setTimeout(() => {
      if (!isFunction(p, entry)) return;
      const { low, high, samples } = selection.interval(shape.ranges(node));
      spot.textContent = `(${percent(low)} … ${percent(high)}, ${count(samples)} samples)`;
    }, 60);
  }
  placeTip(tip, at.x, at.y);
}

/**
 * What can be done with a frame.
 * @param {import('./main.js').Page} page
 * @param {import('./flame.js').FlameGraph} graph
 * @param {number} node
 * @param {import('./dom.js').Place} at
 */
export function showMenu(page, graph, node, at) {
  const { shape } = /** @type {import('./scene.js').Scene} */ (graph.scene);
  const entry = shape.entry(node);
  if (entry < 0) return;
  const anchor = { getBoundingClientRect: () => new DOMRect(at.x, at.y, 1, 1) };
  const item = (/** @type {string} */ title, /** @type {() => void} */ act) => el('button', { type: 'button', onclick: () => { closePopUp(); act(); } }, title);
  byId('tip').hidden = true;
  popUp(
    /** @type {any} */ (anchor),
    page.profile.wake && page.look.view !== 'off-wake' ? item('Wakers of its waits', () => page.change({ view: 'off-wake', focus: entry, pick: entry, tab: 'flame' })) : '',
    item('Callers and callees', () => page.change({ focus: entry, pick: entry })),
    moduleItem(page, entry, item),
    item('Show in the table', () => page.change({ tab: 'table', query: '', pick: entry, sort: 'total' })),
    item('Copy the stack', async () => say((await copy(stackText(page.profile, page.stackOf(shape, node), page.look.view, shape.right(node) - shape.left(node)))) ? 'The stack is copied.' : 'Copying is not allowed here.')),
    item('Copy the name', async () => say((await copy(page.profile.names[entry])) ? 'Copied.' : 'Copying is not allowed here.')),
  );
}

/**
 * Turns the rule for a function's module round.
 * @param {import('./main.js').Page} page
 * @param {number} entry
 * @param {(title: string, act: () => void) => Node} item
 */
function moduleItem(page, entry, item) {
  const module = baseName(page.profile.module(entry));
  if (module === '') return '';
  const { flip } = page.look;
  const turned = flip.includes(module);
  const own = isOwnByRule(page.profile, entry) !== turned;
  return item(own ? `Fold ${module}: it is not my code` : `Show ${module}: it is my code`, () => page.change({ mine: true, flip: turned ? flip.filter((m) => m !== module) : [...flip, module] }));
}
