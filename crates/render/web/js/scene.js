// Drawing a flame graph, on the screen or into a file. Draws only what is in sight: in each visible row the first node is found by
// bisection, and where nodes are narrower than a pixel the next one that is not is found the same
// way; what lies between is drawn as one strip that says how many it hides. So the cost of a
// picture depends on its size and not on the recording's.

import { INK } from './colours.js';
import { css } from './dom.js';
import { KIND } from './profile.js';
import { printable, shorten, count } from './text.js';

export const ROW = 19;
/** Height of the stripe below a strip that hides matches. */
export const UNDERLINE = 3;
const NARROWEST = 1.6;
/** Looking for a match among the hidden reads at most so many of a strip. */
const MOST_LOOKED_AT = 4096;
const FONT = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';

/**
 * What one picture shows, for the screen and for files.
 * @typedef {object} Scene
 * @property {import('./shape.js').Shape} shape
 * @property {import('./profile.js').Profile} profile
 * @property {import('./palette.js').Paint} paint
 * @property {Uint8Array | null} matches by entry
 * @property {boolean} [bright] whether frames that do not match keep their colours
 * @property {boolean} icicle root on top
 * @property {number} from left end of what is in sight, ns
 * @property {number} to right end
 * @property {number} picked entry, or −1
 */

/**
 * Where a scene is drawn, row by row: a canvas, or a file. Boxes are as high as their row.
 * @typedef {object} Painter
 * @property {(y: number) => void} row begins a row with this upper edge
 * @property {(x: number, w: number, colour: string) => void} rect
 * @property {(x: number, w: number, colour: string) => void} over like `rect`, on top of what that drew
 * @property {(x: number, w: number, colour: string) => void} underline a stripe at the row's lower edge, on top
 * @property {(x: number, w: number, colour: string) => void} frame
 * @property {(x: number, text: string, width: number, style: string) => void} text
 * @property {() => void} flush ends a row
 * @property {() => void} finish ends the picture
 * @property {number} letter width of one letter, CSS pixels
 */

/**
 * The part of a scene that is drawn, and its place.
 * @typedef {object} Excerpt
 * @property {number} width CSS pixels
 * @property {number} top first level
 * @property {number} bottom last level, not included
 * @property {(level: number) => number} y upper edge of a level
 */

/** A strip of nodes too narrow to be drawn. @typedef {{x0: number, x1: number, level: number, from: number, to: number}} Hidden */

/** The first index in `lo..hi` of `order` with a node that ends right of `x`. */
export function firstEndingAfter(/** @type {import('./shape.js').Shape} */ shape, /** @type {number} */ lo, /** @type {number} */ hi, /** @type {number} */ x) {
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (shape.right(shape.order[mid]) > x) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

/** [`firstEndingAfter`] by galloping search from `lo`: the next such node is seldom far. */
function nextEndingAfter(/** @type {import('./shape.js').Shape} */ shape, /** @type {number} */ lo, /** @type {number} */ hi, /** @type {number} */ x) {
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
 * Draws an excerpt of a scene; gives the strips of hidden nodes.
 * @param {Scene} scene
 * @param {Painter} painter
 * @param {Excerpt} excerpt
 * @returns {Hidden[]}
 */
export function drawScene(scene, painter, excerpt) {
  const drawing = new Drawing(scene, painter, excerpt.width);
  for (let level = Math.max(0, excerpt.top); level < Math.min(excerpt.bottom, scene.shape.levels); level += 1) {
    painter.row(excerpt.y(level));
    drawing.level(level);
    painter.flush();
  }
  painter.finish();
  return drawing.strips;
}

/** Scratch for the parts of one frame. */
const PARTS = new Float64Array(64);

/** A scene while it is drawn. */
class Drawing {
  /** @param {Scene} scene @param {Painter} painter @param {number} width CSS pixels */
  constructor(scene, painter, width) {
    this.scene = scene;
    this.painter = painter;
    this.width = width;
    /** @type {Hidden[]} */
    this.strips = [];
    this.faded = css('--faded') || '#ddd';
    this.hiddenInk = css('--hidden') || '#bbb';
    this.accent = css('--match') || '#b0106a';
  }

  /** Draws what is in sight of a level. @param {number} level */
  level(level) {
    const { shape, from, to } = this.scene;
    const scale = this.width / (to - from);
    const end = shape.levelEnd[level];
    let i = firstEndingAfter(shape, shape.levelStart[level], end, from);
    /** @type {Hidden | null} */
    let strip = null;
    while (i < end) {
      const node = shape.order[i];
      const left = shape.left(node);
      if (left >= to) break;
      const x0 = Math.max(0, (left - from) * scale);
      const x1 = Math.min(this.width, (shape.right(node) - from) * scale);
      if (x1 - x0 >= NARROWEST) {
        if (strip) this.strip(strip);
        strip = null;
        this.frame(node, x0, x1);
        i += 1;
        continue;
      }
      // All that ends this near.
      const next = Math.max(i + 1, nextEndingAfter(shape, i, end, from + (x0 + NARROWEST) / scale));
      const upto = Math.min(this.width, (shape.right(shape.order[next - 1]) - from) * scale);
      if (strip && x0 - strip.x1 < NARROWEST) {
        strip.x1 = Math.max(upto, strip.x1);
        strip.to = next;
      } else {
        if (strip) this.strip(strip);
        strip = { x0, x1: Math.max(upto, Math.min(this.width, x0 + 1)), level, from: i, to: next };
      }
      i = next;
    }
    if (strip) this.strip(strip);
  }

  /** @param {Hidden} strip */
  strip(strip) {
    const { painter } = this;
    this.strips.push(strip);
    const w = strip.x1 - strip.x0;
    painter.rect(strip.x0, w, this.hiddenInk);
    if (this.hidesMatch(strip)) painter.underline(strip.x0, w, this.accent);
    if (w > 70) {
      const text = `${count(strip.to - strip.from)} hidden`;
      if (text.length * painter.letter < w - 6) painter.text(strip.x0 + 4, text, w - 6, 'small');
    }
  }

  /** @param {Hidden} strip */
  hidesMatch(strip) {
    const { shape, matches } = this.scene;
    if (!matches) return false;
    const step = Math.max(1, Math.floor((strip.to - strip.from) / MOST_LOOKED_AT));
    for (let k = strip.from; k < strip.to; k += step) {
      const e = shape.entry(shape.order[k]);
      if (e >= 0 && matches[e] === 1) return true;
    }
    return false;
  }

  /** @param {number} node @param {number} x0 @param {number} x1 */
  frame(node, x0, x1) {
    const { painter } = this;
    const { shape, profile, matches, bright, picked } = this.scene;
    const entry = shape.entry(node);
    const gap = x1 - x0 > 3 ? 1 : 0;
    const w = x1 - x0 - gap;
    const lit = matches !== null && entry >= 0 && matches[entry] === 1;
    const dim = matches !== null && !lit && !bright;
    this.box(node, x0, w, dim);
    if (entry >= 0 && profile.kind[entry] === KIND.kernel && w > 6) painter.over(x0, 3, '#5a4a42');
    if (entry >= 0 && entry === picked) painter.frame(x0, w, css('--pick') || '#000');
    else if (lit) painter.frame(x0, w, this.accent);
    const room = Math.floor((w - 8) / painter.letter);
    if (room >= 2) {
      let style = entry >= 0 && profile.inlined[entry] ? 'inlined' : 'plain';
      if (dim) style = 'dim';
      painter.text(x0 + 5, frameLabel(profile, entry, room), w - 7, style);
    }
  }

  /** @param {number} node @param {number} x @param {number} w @param {boolean} dim */
  box(node, x, w, dim) {
    const { shape, paint } = this.scene;
    const entry = shape.entry(node);
    if (entry < -1) this.painter.rect(x, w, this.hiddenInk);
    else if (dim) this.painter.rect(x, w, this.faded);
    else if (paint.classOf) this.painter.rect(x, w, paint.colours[paint.classOf(entry)]);
    else this.parts(node, x, w);
  }

  /** The parts of a frame's time side by side: each frame is a ledger of its own. @param {number} node @param {number} x0 @param {number} w */
  parts(node, x0, w) {
    const { painter } = this;
    const { sums, colours } = this.scene.paint;
    if (sums.length === 1) {
      painter.rect(x0, w, colours[0]);
      return;
    }
    const ranges = this.scene.shape.ranges(node);
    // Long lists of runs belong to merged frames; a sample of them gives the proportions.
    const step = ranges.length > 4000 ? 2 * Math.ceil(ranges.length / 4000) : 2;
    let all = 0;
    let most = 0;
    for (let c = 0; c < sums.length; c += 1) {
      let v = 0;
      for (let k = 0; k < ranges.length; k += step) v += sums[c][ranges[k + 1]] - sums[c][ranges[k]];
      PARTS[c] = v;
      all += v;
      if (v > PARTS[most]) most = c;
    }
    if (w < 5 || PARTS[most] > all * 0.995 || all === 0) {
      painter.rect(x0, w, colours[most]);
      return;
    }
    let x = x0;
    for (let c = 0; c < sums.length; c += 1) {
      if (PARTS[c] <= 0) continue;
      const part = (PARTS[c] / all) * w;
      painter.rect(x, part, colours[c]);
      x += part;
    }
  }
}

/** Colours as pixels. @type {Map<string, number>} */
const pixels = new Map();

/** A colour of the form `#rrggbb` or `#rgb` as a pixel in memory. @param {string} colour */
export function pixel(colour) {
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
  let style = '';
  /** @type {(() => void)[]} */
  const above = [];
  const paintAbove = (/** @type {(y: number) => void} */ paint) => {
    const y = top;
    above.push(() => paint(y));
  };
  const fillAbove = (/** @type {string} */ colour, /** @type {(y: number) => void} */ paint) =>
    paintAbove((y) => {
      context.fillStyle = colour;
      paint(y);
    });
  return {
    letter,
    row(y) {
      top = y;
    },
    rect(x, w, colour) {
      const from = Math.round(x * ratio);
      line.fill(pixel(colour), from, Math.max(from + 1, Math.round((x + w) * ratio)));
    },
    flush() {
      const end = Math.min(high, Math.round((top + ROW - 1) * ratio));
      for (let row = Math.max(0, Math.round(top * ratio)); row < end; row += 1) all.set(line, row * wide);
      line.fill(0);
    },
    finish() {
      context.putImageData(image, 0, 0);
      for (const draw of above) draw();
    },
    over(x, w, colour) {
      fillAbove(colour, (y) => context.fillRect(x, y, w, ROW - 1));
    },
    underline(x, w, colour) {
      fillAbove(colour, (y) => context.fillRect(x, y + ROW - 1 - UNDERLINE, w, UNDERLINE));
    },
    frame(x, w, colour) {
      paintAbove((y) => {
        context.strokeStyle = colour;
        context.lineWidth = 1.5;
        context.strokeRect(x + 0.75, y + 0.75, Math.max(0, w - 1.5), ROW - 2.5);
      });
    },
    text(x, text, room, kind) {
      paintAbove((y) => {
        font(kind);
        // Letters outside ASCII may be wider than the font's own.
        if (/^[\x20-\x7e…]*$/.test(text)) context.fillText(text, x, y + ROW / 2);
        else context.fillText(text, x, y + ROW / 2, room);
      });
    },
  };

  /** @param {string} kind */
  function font(kind) {
    if (kind !== style) {
      context.font = kind === 'inlined' ? `italic ${FONT}` : FONT;
      style = kind;
    }
    context.fillStyle = kind === 'dim' ? dim : kind === 'small' ? '#444' : INK;
  }
}
