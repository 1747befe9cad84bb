// The flame graph. Draws only what is in sight: in each visible row the first node is found by
// bisection, and where nodes are narrower than a pixel the next one that is not is found the same
// way; what lies between is drawn as one strip that says how many it hides. So the cost of a
// picture depends on its size and not on the recording's.

import { css, el, sharp } from './dom.js';
import { KIND } from './profile.js';
import { printable, shorten, count } from './text.js';

const ROW = 19;
const NARROWEST = 1.6;
/** Looking for a match among the hidden reads at most so many of a strip. */
const MOST_LOOKED_AT = 4096;
const FONT = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const INK = '#1b1b1b';

/**
 * What one picture shows, for the screen and for files.
 * @typedef {object} Scene
 * @property {import('./derive.js').Shape} shape
 * @property {import('./profile.js').Profile} profile
 * @property {import('./palette.js').Paint} paint
 * @property {Uint8Array | null} matches by entry
 * @property {boolean} icicle root on top
 * @property {number} from left end of what is in sight, ns
 * @property {number} to right end
 * @property {number} picked entry, or −1
 */

/**
 * Where a scene is drawn: a canvas, or a file.
 * @typedef {object} Painter
 * @property {(x: number, y: number, w: number, h: number, colour: string) => void} rect
 * @property {(x: number, y: number, w: number, h: number, colour: string) => void} over like `rect`, on top of what that drew
 * @property {() => void} flush ends a level
 * @property {() => void} finish ends the picture
 * @property {(x: number, y: number, text: string, width: number, style: string) => void} text
 * @property {(x: number, y: number, w: number, h: number, colour: string) => void} frame
 * @property {number} letter width of one letter, CSS pixels
 */

/** A strip of nodes too narrow to be drawn. @typedef {{x0: number, x1: number, level: number, from: number, to: number}} Strip */

/** The first index in `lo..hi` of `order` whose node ends right of `x`. */
function firstEndingAfter(/** @type {import('./derive.js').Shape} */ shape, /** @type {number} */ lo, /** @type {number} */ hi, /** @type {number} */ x) {
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (shape.right(shape.order[mid]) > x) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

/** The same, looked for near `lo` first: the next one is seldom far. */
function nextEndingAfter(/** @type {import('./derive.js').Shape} */ shape, /** @type {number} */ lo, /** @type {number} */ hi, /** @type {number} */ x) {
  let step = 1;
  while (lo + step < hi && shape.right(shape.order[lo + step]) <= x) {
    lo += step;
    step *= 2;
  }
  return firstEndingAfter(shape, lo, Math.min(hi, lo + step + 1), x);
}

/** A frame's name as the picture writes it. @param {import('./profile.js').Profile} p @param {number} entry @param {number} most */
export function frameLabel(p, entry, most) {
  if (entry === -1) return shorten('all', most);
  if (entry < -1) return shorten(`${count(-2 - entry)} smaller`, most);
  return printable(shorten(p.names[entry], most));
}

/**
 * Draws levels `top..bottom` of a scene; gives the strips of hidden nodes.
 * @param {Scene} scene
 * @param {Painter} painter
 * @param {number} width CSS pixels
 * @param {number} top first level
 * @param {number} bottom last level, not included
 * @param {(level: number) => number} y upper edge of a level
 * @returns {Strip[]}
 */
export function drawScene(scene, painter, width, top, bottom, y) {
  const { shape, profile, paint, matches, from, to } = scene;
  /** @type {Strip[]} */
  const strips = [];
  const scale = width / (to - from);
  const faded = css('--faded') || '#ddd';
  const hiddenInk = css('--hidden') || '#bbb';
  const accent = css('--match') || '#b0106a';
  for (let level = Math.max(0, top); level < Math.min(bottom, shape.levels); level += 1) {
    const end = shape.levelEnd[level];
    let i = firstEndingAfter(shape, shape.levelStart[level], end, from);
    const yy = y(level);
    /** @type {Strip | null} */
    let strip = null;
    while (i < end) {
      const node = shape.order[i];
      const left = shape.left(node);
      if (left >= to) break;
      const right = shape.right(node);
      const x0 = Math.max(0, (left - from) * scale);
      const x1 = Math.min(width, (right - from) * scale);
      if (x1 - x0 < NARROWEST) {
        // All that ends this near.
        const next = Math.max(i + 1, nextEndingAfter(shape, i, end, from + (x0 + NARROWEST) / scale));
        const upto = Math.min(width, (shape.right(shape.order[next - 1]) - from) * scale);
        if (strip && x0 - strip.x1 < NARROWEST) {
          strip.x1 = Math.max(upto, strip.x1);
          strip.to = next;
        } else {
          if (strip) drawStrip(strip);
          strip = { x0, x1: Math.max(upto, Math.min(width, x0 + 1)), level, from: i, to: next };
        }
        i = next;
        continue;
      }
      if (strip) {
        drawStrip(strip);
        strip = null;
      }
      drawFrame(node, x0, x1, yy);
      i += 1;
    }
    if (strip) drawStrip(strip);
    painter.flush();
  }
  painter.finish();
  return strips;

  /** @param {Strip} strip */
  function drawStrip(strip) {
    strips.push(strip);
    const yy = y(strip.level);
    const w = strip.x1 - strip.x0;
    let lit = false;
    if (matches) {
      const step = Math.max(1, Math.floor((strip.to - strip.from) / MOST_LOOKED_AT));
      for (let k = strip.from; k < strip.to && !lit; k += step) {
        const e = shape.entry(shape.order[k]);
        lit = e >= 0 && matches[e] === 1;
      }
    }
    painter.rect(strip.x0, yy, w, ROW - 1, hiddenInk);
    if (lit) painter.over(strip.x0, yy + ROW - 4, w, 3, accent);
    if (w > 70) {
      const text = `${count(strip.to - strip.from)} hidden`;
      if (text.length * painter.letter < w - 6) painter.text(strip.x0 + 4, yy, text, w - 6, 'small');
    }
  }

  /** @param {number} node @param {number} x0 @param {number} x1 @param {number} yy */
  function drawFrame(node, x0, x1, yy) {
    const entry = shape.entry(node);
    const gap = x1 - x0 > 3 ? 1 : 0;
    const w = x1 - x0 - gap;
    const dim = matches !== null && !(entry >= 0 && matches[entry]);
    if (entry < -1) {
      painter.rect(x0, yy, w, ROW - 1, hiddenInk);
    } else if (dim) {
      painter.rect(x0, yy, w, ROW - 1, faded);
    } else if (paint.classOf) {
      painter.rect(x0, yy, w, ROW - 1, paint.colours[paint.classOf(entry)]);
    } else {
      drawParts(node, x0, w, yy);
    }
    if (entry >= 0 && profile.kind[entry] === KIND.kernel && w > 6) {
      painter.over(x0, yy, 3, ROW - 1, '#5a4a42');
    }
    if (entry >= 0 && entry === scene.picked) painter.frame(x0, yy, w, ROW - 1, css('--pick') || '#000');
    else if (matches && !dim) painter.frame(x0, yy, w, ROW - 1, accent);
    const room = Math.floor((w - 8) / painter.letter);
    if (room >= 2) {
      let style = entry >= 0 && profile.inlined[entry] ? 'inlined' : 'plain';
      if (dim) style = 'dim';
      painter.text(x0 + 5, yy, frameLabel(profile, entry, room), w - 7, style);
    }
  }

  /** The parts of a frame's time side by side: each frame is a ledger of its own. @param {number} node @param {number} x0 @param {number} w @param {number} yy */
  function drawParts(node, x0, w, yy) {
    const { sums, colours } = paint;
    if (sums.length === 1) {
      painter.rect(x0, yy, w, ROW - 1, colours[0]);
      return;
    }
    const ranges = shape.ranges(node);
    // Long lists of runs belong to merged frames; a sample of them gives the proportions.
    const step = ranges.length > 4000 ? 2 * Math.ceil(ranges.length / 4000) : 2;
    const parts = drawScene.parts;
    let all = 0;
    let most = 0;
    for (let c = 0; c < sums.length; c += 1) {
      let v = 0;
      for (let k = 0; k < ranges.length; k += step) v += sums[c][ranges[k + 1]] - sums[c][ranges[k]];
      parts[c] = v;
      all += v;
      if (v > parts[most]) most = c;
    }
    if (w < 5 || parts[most] > all * 0.995 || all === 0) {
      painter.rect(x0, yy, w, ROW - 1, colours[most]);
      return;
    }
    let x = x0;
    for (let c = 0; c < sums.length; c += 1) {
      if (parts[c] <= 0) continue;
      const part = (parts[c] / all) * w;
      painter.rect(x, yy, part, ROW - 1, colours[c]);
      x += part;
    }
  }
}
/** Scratch for the parts of one frame. */
drawScene.parts = new Float64Array(64);

/** Colours as pixels. @type {Map<string, number>} */
const pixels = new Map();

/** A colour of the form `#rrggbb` or `#rgb` as a pixel in memory. @param {string} colour */
function pixel(colour) {
  let value = pixels.get(colour);
  if (value === undefined) {
    const short = colour.length === 4;
    const part = (/** @type {number} */ i) => (short ? parseInt(colour[1 + i], 16) * 17 : parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16));
    value = ((255 << 24) | (part(2) << 16) | (part(1) << 8) | part(0)) >>> 0;
    pixels.set(colour, value);
  }
  return value;
}

/**
 * A painter on a canvas. All boxes of a level have one height, so a level is painted as one line
 * of pixels and copied downwards: tens of thousands of boxes take as long as a few. Letters and
 * outlines come on top at the end.
 * @param {CanvasRenderingContext2D} context
 * @param {number} width CSS pixels
 * @param {number} height CSS pixels
 * @returns {Painter}
 */
export function canvasPainter(context, width, height) {
  context.font = FONT;
  context.textBaseline = 'middle';
  context.direction = 'ltr';
  const letter = context.measureText('m'.repeat(50)).width / 50;
  const dim = css('--dim') || '#666';
  const ratio = context.getTransform().a;
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(height * ratio));
  const image = context.createImageData(wide, high);
  const all = new Uint32Array(image.data.buffer);
  const line = new Uint32Array(wide);
  let top = 0;
  let size = 0;
  let style = '';
  /** @type {(() => void)[]} */
  const above = [];
  return {
    letter,
    rect(x, y, w, h, colour) {
      top = y;
      size = h;
      const from = Math.round(x * ratio);
      line.fill(pixel(colour), from, Math.max(from + 1, Math.round((x + w) * ratio)));
    },
    flush() {
      const end = Math.min(high, Math.round((top + size) * ratio));
      for (let row = Math.max(0, Math.round(top * ratio)); row < end; row += 1) all.set(line, row * wide);
      line.fill(0);
    },
    finish() {
      context.putImageData(image, 0, 0);
      for (const draw of above) draw();
    },
    over(x, y, w, h, colour) {
      above.push(() => {
        context.fillStyle = colour;
        context.fillRect(x, y, w, h);
      });
    },
    frame(x, y, w, h, colour) {
      above.push(() => {
        context.strokeStyle = colour;
        context.lineWidth = 1.5;
        context.strokeRect(x + 0.75, y + 0.75, Math.max(0, w - 1.5), h - 1.5);
      });
    },
    text(x, y, text, room, kind) {
      above.push(() => write(x, y, text, room, kind));
    },
  };

  /** @param {number} x @param {number} y @param {string} text @param {number} room @param {string} kind */
  function write(x, y, text, room, kind) {
    if (kind !== style) {
      context.font = kind === 'inlined' ? `italic ${FONT}` : FONT;
      style = kind;
    }
    context.fillStyle = kind === 'dim' ? dim : kind === 'small' ? '#444' : INK;
    // Letters outside ASCII may be wider than the font's own.
    if (/^[\x20-\x7e…]*$/.test(text)) context.fillText(text, x, y + ROW / 2);
    else context.fillText(text, x, y + ROW / 2, room);
  }
}

/**
 * The flame graph on the screen.
 * `act`: `pick(node, shape)`, `zoom(from, to, node)`, `hover(hit, x, y)`.
 */
export class FlameGraph {
  /**
   * @param {HTMLElement} host
   * @param {{pick: (node: number) => void, zoom: (from: number, to: number, node: number) => void,
   *   hover: (node: number, strip: Strip | null, x: number, y: number) => void,
   *   menu: (node: number, x: number, y: number) => void}} act
   */
  constructor(host, act) {
    this.act = act;
    this.canvas = el('canvas', { role: 'img', tabindex: '0', 'aria-label': 'flame graph' });
    this.room = el('div', { class: 'flame-room' });
    this.scroller = el('div', { class: 'flame-scroll' }, this.room);
    this.room.append(this.canvas);
    host.append(this.scroller);
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {Strip[]} */
    this.strips = [];
    this.cursor = -1;
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
    this.canvas.addEventListener('pointerleave', () => act.hover(-1, null, 0, 0));
    this.canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => this.down(e));
    this.canvas.addEventListener('pointerup', (/** @type {PointerEvent} */ e) => this.up(e));
    this.canvas.addEventListener('wheel', (/** @type {WheelEvent} */ e) => this.wheel(e), { passive: false });
    this.canvas.addEventListener('contextmenu', (/** @type {MouseEvent} */ e) => {
      const { node } = this.at(e.offsetX, e.offsetY);
      if (node >= 0) {
        e.preventDefault();
        act.menu(node, e.clientX, e.clientY);
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
    this.strips = drawScene(scene, canvasPainter(context, width, height), width, nearest - 1, nearest - 1 + rows + 1, this.y);
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

  /** What lies at a place. @param {number} x @param {number} y @returns {{node: number, strip: Strip | null}} */
  at(x, y) {
    const scene = this.scene;
    if (!scene || !this.y) return { node: -1, strip: null };
    const { shape, from, to, icicle } = scene;
    const zero = this.y(0);
    const level = icicle ? Math.floor((y - zero) / ROW) : Math.floor((zero + ROW - 1 - y) / ROW);
    if (level < 0 || level >= shape.levels) return { node: -1, strip: null };
    for (const s of this.strips) {
      if (s.level === level && x >= s.x0 && x < Math.max(s.x1, s.x0 + 1)) return { node: -1, strip: s };
    }
    const ns = from + (x / this.scroller.clientWidth) * (to - from);
    const end = shape.levelEnd[level];
    const i = firstEndingAfter(shape, shape.levelStart[level], end, ns);
    if (i >= end || shape.left(shape.order[i]) > ns) return { node: -1, strip: null };
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
    const { node, strip } = this.at(e.offsetX, e.offsetY);
    this.canvas.style.cursor = node >= 0 || strip ? 'pointer' : 'default';
    this.act.hover(node, strip, e.clientX, e.clientY);
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

  /** Zooms to the nodes of a strip. @param {Strip} strip */
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
