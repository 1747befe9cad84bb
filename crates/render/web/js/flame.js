// The flame graph on the screen: what is in sight, zooming, moving about, hovering.

import { css, el, sharp } from './dom.js';
import { canvasPainter, drawScene, firstEndingAfter, ROW } from './scene.js';

/** @typedef {import('./scene.js').Scene} Scene */
/** @typedef {import('./scene.js').Hidden} Hidden */
/** @typedef {import('./dom.js').Place} Place */

/** What lies at a place: a node, a strip of hidden ones, or neither (node −1). @typedef {{node: number, strip: Hidden | null}} Hit */
/** @type {Hit} */
const NOTHING = { node: -1, strip: null };

/**
 * The flame graph on the screen.
 * `act`: `pick(node)`, `zoom(from, to, node)`, `hover(hit, at)`, `menu(node, at)`.
 */
export class FlameGraph {
  /**
   * @param {HTMLElement} host
   * @param {{pick: (node: number) => void, zoom: (from: number, to: number, node: number) => void,
   *   hover: (hit: Hit, at: Place) => void, menu: (node: number, at: Place) => void}} act
   */
  constructor(host, act) {
    this.act = act;
    this.canvas = el('canvas', { role: 'application', 'aria-roledescription': 'flame graph', tabindex: '0', 'aria-label': 'flame graph' });
    this.room = el('div', { class: 'flame-room' });
    this.scroller = el('div', { class: 'flame-scroll' }, this.room);
    this.room.append(this.canvas);
    host.append(this.scroller);
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {Hidden[]} */
    this.strips = [];
    this.cursor = -1;
    /** Nodes that match the search, and what they are of. @type {{shape: any, matches: any, nodes: number[]}} */
    this.found = { shape: null, matches: null, nodes: [] };
    this.frames = 0;
    /** @type {number | undefined} */
    this.pending = undefined;
    /** Time the last drawing took, ms. */
    this.cost = 0;
    /** @type {{from: number, to: number, fromStart: number, toStart: number, begun: number} | null} */
    this.target = null;
    /** @type {{x: number, y: number, from: number, to: number, top: number, far: boolean} | null} */
    this.drag = null;
    this.scroller.addEventListener('scroll', () => this.request());
    this.canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ e) => this.move(e));
    this.canvas.addEventListener('pointerleave', () => act.hover(NOTHING, { x: 0, y: 0 }));
    this.canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => this.down(e));
    this.canvas.addEventListener('pointerup', (/** @type {PointerEvent} */ e) => this.up(e));
    this.canvas.addEventListener('wheel', (/** @type {WheelEvent} */ e) => this.wheel(e), { passive: false });
    this.canvas.addEventListener('contextmenu', (/** @type {MouseEvent} */ e) => {
      const { node } = this.at(e.offsetX, e.offsetY);
      if (node >= 0) {
        e.preventDefault();
        act.menu(node, { x: e.clientX, y: e.clientY });
      }
    });
    new ResizeObserver(() => this.request()).observe(this.scroller);
  }

  /**
   * Shows a scene; moves there smoothly if only its ends changed.
   * @param {Scene} scene
   * @param {boolean} smooth
   */
  show(scene, smooth) {
    const old = this.scene;
    const same = old !== null && old.shape === scene.shape;
    const turned = old === null || old.icicle !== scene.icicle || old.shape.levels !== scene.shape.levels;
    const moved = same && old && (old.from !== scene.from || old.to !== scene.to);
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.target = null;
    if (smooth && moved && !still && old) {
      this.target = { from: scene.from, to: scene.to, fromStart: old.from, toStart: old.to, begun: performance.now() };
      this.scene = { ...scene, from: old.from, to: old.to };
    } else {
      this.scene = scene;
    }
    if (!same) this.cursor = -1;
    const height = scene.shape.levels * ROW + 4;
    this.room.style.height = `${height}px`;
    this.scroller.style.setProperty('--height', `${height}px`);
    if (turned) this.scroller.scrollTop = scene.icicle ? 0 : height;
    this.request();
  }

  /** Draws with the next picture of the screen. */
  request() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = undefined;
      this.draw();
    });
  }

  draw() {
    const scene = this.scene;
    if (!scene) return;
    const began = performance.now();
    if (this.target) {
      const t = Math.min(1, (began - this.target.begun) / 160);
      const ease = 1 - (1 - t) ** 3;
      scene.from = this.target.fromStart + (this.target.from - this.target.fromStart) * ease;
      scene.to = this.target.toStart + (this.target.to - this.target.toStart) * ease;
      if (t >= 1) {
        scene.from = this.target.from;
        scene.to = this.target.to;
        this.target = null;
      } else {
        this.request();
      }
    }
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    if (width === 0 || height === 0) return;
    const context = sharp(this.canvas, width, height);
    const { shape, icicle } = scene;
    const offset = this.scroller.scrollTop;
    const full = Math.max(shape.levels * ROW + 4, height);
    this.y = (/** @type {number} */ level) => (icicle ? level * ROW : full - 2 - (level + 1) * ROW) - offset;
    const nearest = icicle ? Math.floor(offset / ROW) : Math.floor((full - offset - height) / ROW);
    const rows = Math.ceil(height / ROW) + 2;
    this.strips = drawScene(scene, canvasPainter(context, width, height), { width, top: nearest - 1, bottom: nearest + rows, y: this.y });
    if (this.cursor >= 0) this.outline(context, this.cursor, width);
    this.frames += 1;
    this.cost = performance.now() - began;
  }

  /** @param {CanvasRenderingContext2D} context @param {number} node @param {number} width */
  outline(context, node, width) {
    const { shape, from, to } = /** @type {Scene} */ (this.scene);
    const scale = width / (to - from);
    const x0 = Math.max(0, (shape.left(node) - from) * scale);
    const x1 = Math.min(width, (shape.right(node) - from) * scale);
    context.strokeStyle = css('--ink') || '#000';
    context.lineWidth = 2;
    const y = /** @type {(level: number) => number} */ (this.y)(shape.level(node));
    context.strokeRect(x0 + 1, y + 1, Math.max(1, x1 - x0 - 3), ROW - 3);
  }

  /** What lies at a place. @param {number} x @param {number} y @returns {Hit} */
  at(x, y) {
    const scene = this.scene;
    if (!scene || !this.y) return NOTHING;
    const { shape, from, to, icicle } = scene;
    const zero = this.y(0);
    const level = icicle ? Math.floor((y - zero) / ROW) : Math.floor((zero + ROW - 1 - y) / ROW);
    if (level < 0 || level >= shape.levels) return NOTHING;
    for (const s of this.strips) {
      if (s.level === level && x >= s.x0 && x < Math.max(s.x1, s.x0 + 1)) return { node: -1, strip: s };
    }
    const ns = from + (x / this.scroller.clientWidth) * (to - from);
    const end = shape.levelEnd[level];
    const i = firstEndingAfter(shape, shape.levelStart[level], end, ns);
    if (i >= end || shape.left(shape.order[i]) > ns) return NOTHING;
    return { node: shape.order[i], strip: null };
  }

  /** @param {PointerEvent} e */
  move(e) {
    if (this.drag && this.scene) {
      const moved = e.clientX - this.drag.x;
      if (Math.abs(moved) > 4) this.drag.far = true;
      if (this.drag.far) {
        const span = this.drag.to - this.drag.from;
        const shift = (-moved / this.scroller.clientWidth) * span;
        const from = Math.max(0, Math.min(this.scene.shape.total - span, this.drag.from + shift));
        this.scene.from = from;
        this.scene.to = from + span;
        this.scroller.scrollTop = this.drag.top - (e.clientY - this.drag.y);
        this.request();
        return;
      }
    }
    const hit = this.at(e.offsetX, e.offsetY);
    this.canvas.style.cursor = hit.node >= 0 || hit.strip ? 'pointer' : 'default';
    this.act.hover(hit, { x: e.clientX, y: e.clientY });
  }

  /** @param {PointerEvent} e */
  down(e) {
    if (!this.scene || e.button !== 0) return;
    const { from, to } = this.scene;
    this.drag = { x: e.clientX, y: e.clientY, from, to, top: this.scroller.scrollTop, far: false };
    if (e.pointerType === 'mouse') this.canvas.setPointerCapture(e.pointerId);
  }

  /** @param {PointerEvent} e */
  up(e) {
    const drag = this.drag;
    this.drag = null;
    if (!drag || !this.scene) return;
    if (drag.far) {
      this.act.zoom(this.scene.from, this.scene.to, -1);
      return;
    }
    const { node, strip } = this.at(e.offsetX, e.offsetY);
    if (strip) this.openStrip(strip);
    else if (node >= 0) this.open(node);
  }

  /** Zooms to the nodes of a strip. @param {Hidden} strip */
  openStrip(strip) {
    const { shape } = /** @type {Scene} */ (this.scene);
    this.act.zoom(shape.left(shape.order[strip.from]), shape.right(shape.order[strip.to - 1]), -1);
  }

  /** Zooms to a node and picks it. @param {number} node */
  open(node) {
    const { shape } = /** @type {Scene} */ (this.scene);
    this.cursor = node;
    this.act.pick(node);
    this.act.zoom(shape.left(node), shape.right(node), node);
  }

  /** @param {WheelEvent} e */
  wheel(e) {
    const scene = this.scene;
    if (!scene || !(e.ctrlKey || e.metaKey || e.shiftKey)) return;
    e.preventDefault();
    const { total } = scene.shape;
    const span = scene.to - scene.from;
    let from;
    let next = span;
    if (e.shiftKey && !e.ctrlKey) {
      from = scene.from + ((e.deltaY || e.deltaX) / 1000) * span;
    } else {
      next = Math.min(total, Math.max(total * 1e-7, span * 1.0018 ** e.deltaY));
      const at = e.offsetX / this.scroller.clientWidth;
      from = scene.from + at * (span - next);
    }
    scene.from = Math.max(0, Math.min(total - next, from));
    scene.to = scene.from + next;
    this.target = null;
    this.request();
    clearTimeout(this.settled);
    this.settled = setTimeout(() => this.act.zoom(scene.from, scene.to, -1), 250);
  }

  /** Nodes that match the search, widest first. */
  matched() {
    const { shape, matches } = /** @type {Scene} */ (this.scene);
    if (this.found.shape !== shape || this.found.matches !== matches) {
      const width = (/** @type {number} */ n) => shape.right(n) - shape.left(n);
      const nodes = [];
      for (let level = 0; matches && level < shape.levels; level += 1) {
        for (let i = shape.levelStart[level]; i < shape.levelEnd[level]; i += 1) {
          const entry = shape.entry(shape.order[i]);
          if (entry >= 0 && matches[entry] === 1) nodes.push(shape.order[i]);
        }
      }
      this.found = { shape, matches, nodes: nodes.sort((a, b) => width(b) - width(a)) };
    }
    return this.found.nodes;
  }

  /**
   * Moves the keyboard's cursor to the next frame that matches the search.
   * @param {1 | -1} way to the next narrower one, or the next wider one
   * @returns {{node: number, place: number, of: number}} node −1: none matches
   */
  nextMatch(way) {
    const nodes = this.scene ? this.matched() : [];
    if (nodes.length === 0) return { node: -1, place: 0, of: 0 };
    const here = nodes.indexOf(this.cursor);
    const next = here < 0 ? 0 : (here + way + nodes.length) % nodes.length;
    this.cursor = nodes[next];
    this.reveal(this.cursor);
    return { node: this.cursor, place: next + 1, of: nodes.length };
  }

  /**
   * Moves the keyboard's cursor; gives the node it came to, or −1.
   * @param {'up' | 'down' | 'left' | 'right'} way on the screen
   */
  step(way) {
    const scene = this.scene;
    if (!scene) return -1;
    const { shape, icicle } = scene;
    const deeper = icicle ? 'down' : 'up';
    let node = this.cursor;
    if (node < 0) {
      node = 0;
    } else if (way === 'left' || way === 'right') {
      const level = shape.level(node);
      const from = shape.levelStart[level];
      const end = shape.levelEnd[level];
      const here = firstEndingAfter(shape, from, end, shape.left(node));
      const next = here + (way === 'left' ? -1 : 1);
      if (next >= from && next < end) node = shape.order[next];
    } else if (way === deeper) {
      const level = shape.level(node) + 1;
      if (level < shape.levels) {
        const end = shape.levelEnd[level];
        const i = firstEndingAfter(shape, shape.levelStart[level], end, shape.left(node));
        let best = -1;
        // The widest of its first children; a node may have very many.
        for (let k = i; k < Math.min(end, i + 4096) && shape.left(shape.order[k]) < shape.right(node); k += 1) {
          const c = shape.order[k];
          if (best < 0 || shape.right(c) - shape.left(c) > shape.right(best) - shape.left(best)) best = c;
        }
        if (best >= 0) node = best;
      }
    } else {
      node = shape.parent(node);
    }
    this.cursor = node;
    this.reveal(node);
    return node;
  }

  /** Scrolls a node of the far half of the picture to where it leaves room for what lies deeper. @param {number} node */
  lift(node) {
    const scene = /** @type {Scene} */ (this.scene);
    const height = this.scroller.clientHeight;
    const full = Math.max(scene.shape.levels * ROW + 4, height);
    const level = scene.shape.level(node);
    const top = scene.icicle ? level * ROW : full - 2 - (level + 1) * ROW;
    const at = (top - this.scroller.scrollTop) / Math.max(1, height);
    if (scene.icicle && at > 0.5) this.scroller.scrollTop = top - 4 * ROW;
    if (!scene.icicle && at < 0.5) this.scroller.scrollTop = top - height + 5 * ROW;
  }

  /** Scrolls and, where needed, zooms so that a node is in sight. @param {number} node */
  reveal(node) {
    const scene = /** @type {Scene} */ (this.scene);
    const { shape, icicle } = scene;
    const height = this.scroller.clientHeight;
    const full = Math.max(shape.levels * ROW + 4, height);
    const level = shape.level(node);
    const top = icicle ? level * ROW : full - 2 - (level + 1) * ROW;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top - ROW;
    if (top + ROW > this.scroller.scrollTop + height) this.scroller.scrollTop = top + 2 * ROW - height;
    const outside = shape.right(node) <= scene.from || shape.left(node) >= scene.to;
    const tiny = ((shape.right(node) - shape.left(node)) / (scene.to - scene.from)) * this.scroller.clientWidth < 3;
    if (outside || tiny) {
      const up = shape.parent(node);
      this.act.zoom(shape.left(up), shape.right(up), up);
    }
    this.request();
  }
}
