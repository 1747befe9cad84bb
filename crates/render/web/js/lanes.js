// The timeline: a lane for each thread, its single intervals coloured by state or reason. It is drawn by
// columns of pixels. A column within one interval has the interval's colour. A column with many intervals
// is divided in proportion to their time. So a hundred intervals cost as much to draw as millions.

import { css, el, fill, name, sharp } from './dom.js';
import { threadMask } from './filter.js';
import { TimeOrder } from './order.js';
import { PART_COLOURS, partOfTag, partTitle, STATE_COLOURS } from './palette.js';
import { STATE_TITLES } from './profile.js';
import { pixel } from './scene.js';
import { roundStep } from './timeline.js';
import { bytes, count, duration, percent, printable } from './text.js';

/** @typedef {{context: number, edge: Float64Array, tag: Uint8Array, waker: Uint32Array, sums: Float64Array[] | null}} Lane */

const HIGH = 20;
/** Room for the moments above the lanes. */
const AXIS = 16;
const LABEL = 130;
/** Sums of states are kept for each run of so many intervals. */
const RUN = 64;
const NOT_KNOWN = 3;

/** Whether the recording has single intervals. @param {import('./profile.js').Profile} p */
export function hasLanes(p) {
  return p.columns.has('lane.size');
}

/** The lanes; a gap becomes an interval of unknown time. @param {import('./profile.js').Profile} p @returns {Lane[]} */
export function lanesOf(p) {
  const { columns } = p;
  const [contexts, sizes, tags, wakers] = ['context', 'size', 'tag', 'waker'].map((c) => columns.u32(`lane.${c}`));
  const gaps = columns.f64('lane.gap');
  const lengths = columns.f64('lane.length');
  let from = 0;
  let waker = 0;
  return Array.from(contexts, (context, lane) => {
    const to = from + sizes[lane];
    let n = sizes[lane];
    for (let i = from; i < to; i += 1) if (gaps[i] > 0) n += 1;
    const edge = new Float64Array(n + 1);
    const tag = new Uint8Array(n);
    const by = new Uint32Array(n);
    let at = 0;
    let k = 0;
    for (let i = from; i < to; i += 1) {
      if (gaps[i] > 0) {
        edge[k] = at;
        tag[k] = NOT_KNOWN;
        at += gaps[i];
        k += 1;
      }
      edge[k] = at;
      tag[k] = tags[i];
      if ((tags[i] & 3) === 2) {
        by[k] = wakers[waker];
        waker += 1;
      }
      at += lengths[i];
      k += 1;
    }
    edge[n] = at;
    from = to;
    return { context, edge, tag, waker: by, sums: null };
  });
}

/** The first interval that ends after `t`, looked for from `lo` on. @param {Float64Array} edge @param {number} lo @param {number} t */
function intervalAt(edge, lo, t) {
  let step = 1;
  let from = lo;
  const n = edge.length - 1;
  while (from + step < n && edge[from + step] <= t) {
    from += step;
    step *= 2;
  }
  let to = Math.min(n, from + step);
  while (from < to) {
    const mid = (from + to) >>> 1;
    if (edge[mid + 1] > t) to = mid;
    else from = mid + 1;
  }
  return from;
}

/** Time by state before each run of intervals. @param {Lane} lane */
function sumsOf(lane) {
  if (lane.sums) return lane.sums;
  const n = lane.tag.length;
  const sums = [0, 1, 2].map(() => new Float64Array(Math.floor(n / RUN) + 1));
  const all = [0, 0, 0, 0];
  for (let i = 0; i < n; i += 1) {
    if (i % RUN === 0) for (let s = 0; s < 3; s += 1) sums[s][i / RUN] = all[s];
    all[lane.tag[i] & 3] += lane.edge[i + 1] - lane.edge[i];
  }
  if (n % RUN === 0) for (let s = 0; s < 3; s += 1) sums[s][n / RUN] = all[s];
  lane.sums = sums;
  return sums;
}

/** Time by state up to `t`, which lies in interval `i`. @param {Lane} lane @param {number} i @param {number} t @param {Float64Array} out */
function stateTimes(lane, i, t, out) {
  const sums = sumsOf(lane);
  const run = Math.floor(i / RUN);
  for (let s = 0; s < 3; s += 1) out[s] = sums[s][run];
  for (let k = run * RUN; k < i; k += 1) {
    const s = lane.tag[k] & 3;
    if (s < 3) out[s] += lane.edge[k + 1] - lane.edge[k];
  }
  const s = lane.tag[i] & 3;
  if (i < lane.tag.length && s < 3) out[s] += Math.max(0, t - lane.edge[i]);
}

export class Timeline {
  /**
   * @param {HTMLElement} host
   * @param {import('./profile.js').Profile} profile
   * @param {(change: Partial<import('./filter.js').Look>, quiet?: boolean) => void} change
   */
  constructor(host, profile, change) {
    this.profile = profile;
    this.change = change;
    this.lanes = lanesOf(profile);
    /** @type {Lane[]} */
    this.shown = [];
    this.byContext = new Map(this.lanes.map((l) => [l.context, l]));
    this.from = 0;
    this.to = profile.duration;
    /** @type {{lane: Lane, i: number} | null} */
    this.hot = null;
    /** @type {{x: number, y: number, from: number, top: number, far: boolean} | null} */
    this.drag = null;
    /** @type {number | undefined} */
    this.pending = undefined;
    this.frames = 0;
    this.cost = 0;
    this.canvas = el('canvas', { role: 'img', tabindex: '0' });
    this.room = el('div', { class: 'flame-room' }, this.canvas);
    this.scroller = el('div', { class: 'flame-scroll tracks' }, this.room);
    this.told = el('p', { class: 'quiet small strip-caption' });
    const ordered = el('div', {});
    this.order = new TimeOrder(ordered, (from, to) => this.go(from, to));
    const kept = profile.meta.timeline;
    const all = this.lanes.reduce((a, l) => a + l.tag.length, 0);
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) => el('button', { type: 'button', title, onclick: act }, text);
    fill(
      host,
      el(
        'div', { class: 'choices' },
        button('+', 'closer (+)', () => this.scale(0.5)), button('−', 'further (−)', () => this.scale(2)), button('All', 'the whole recording (0)', () => this.go(0, profile.duration)),
      ),
      ' ', el('span', { class: 'quiet small' }, `${count(all)} intervals of ${count(this.lanes.length)} threads${kept.dropped > 0 ? `; the oldest ${count(kept.dropped)} were dropped to stay within ${bytes(kept.limit)} of memory` : ''}${kept.lost > 0 ? `; ${count(kept.lost)} turns on a CPU were lost` : ''}. Ctrl and wheel zoom, a drag moves; an arrow shows the waker.`),
      this.scroller, this.told,
      el('div', { class: 'key' }, ...STATE_TITLES.map((t, s) => el('span', {}, el('i', { class: 'swatch', style: { background: s === NOT_KNOWN ? 'none' : STATE_COLOURS[s], border: `1px solid ${STATE_COLOURS[NOT_KNOWN]}` } }), t)), el('span', {}, 'Where it is wide enough, a wait has the colour of its reason, as above.')),
      ordered,
    );
    this.canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ e) => this.move(e));
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => {
      this.drag = { x: e.clientX, y: e.clientY, from: this.from, top: this.scroller.scrollTop, far: false };
      if (e.pointerType === 'mouse') this.canvas.setPointerCapture(e.pointerId);
    });
    this.canvas.addEventListener('pointerup', (/** @type {PointerEvent} */ e) => {
      const far = this.drag?.far;
      this.drag = null;
      const lane = this.laneAt(e);
      if (far) this.settle();
      else if (lane && e.offsetX < LABEL) change({ threads: this.shown.length === 1 ? [] : [lane.context] });
    });
    this.canvas.addEventListener('wheel', (/** @type {WheelEvent} */ e) => {
      if (!(e.ctrlKey || e.metaKey || e.shiftKey)) return;
      e.preventDefault();
      const span = this.to - this.from;
      if (e.shiftKey && !e.ctrlKey) this.go(this.from + ((e.deltaY || e.deltaX) / 1000) * span, this.to + ((e.deltaY || e.deltaX) / 1000) * span);
      else this.scale(1.0018 ** e.deltaY, (e.offsetX - LABEL) / this.width());
    }, { passive: false });
    this.canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => {
      const step = { ArrowLeft: -0.2, ArrowRight: 0.2 }[e.key];
      const span = this.to - this.from;
      if (step) this.go(this.from + step * span, this.to + step * span);
      else if (e.key === '+' || e.key === '=') this.scale(0.5);
      else if (e.key === '-') this.scale(2);
      else if (e.key === '0') this.go(0, profile.duration);
      else return;
      e.preventDefault();
      e.stopPropagation();
    });
    this.scroller.addEventListener('scroll', () => this.request());
    new ResizeObserver(() => this.request()).observe(this.scroller);
  }

  /** The lane at a place, if there is one. @param {PointerEvent} e @returns {Lane | undefined} */
  laneAt(e) {
    return e.offsetY < AXIS ? undefined : this.shown[Math.floor((e.offsetY - AXIS + this.scroller.scrollTop) / HIGH)];
  }

  /** Room for time, CSS pixels. */
  width() {
    return Math.max(1, this.scroller.clientWidth - LABEL);
  }

  /** @param {import('./filter.js').Look} look @param {import('./selection.js').Selection} selection */
  show(look, selection) {
    const p = this.profile;
    const mask = threadMask(p, look);
    const busy = (/** @type {Lane} */ l) => p.meta.threads[l.context].on_cpu.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    this.shown = this.lanes.filter((l) => mask[l.context]).sort((a, b) => busy(b) - busy(a));
    const [a, b] = look.range.split('~').map(Number);
    const [time] = look.time;
    [this.from, this.to] = b > a && a >= 0 ? [a, Math.min(b, p.duration)] : time ? [p.sliceBegin(time[0]), p.sliceBegin(time[1])] : [0, p.duration];
    const height = this.shown.length * HIGH + AXIS;
    this.room.style.height = `${height}px`;
    this.scroller.style.setProperty('--height', `${height + 2}px`);
    this.canvas.setAttribute('aria-label', `timeline of ${count(this.shown.length)} threads from ${duration(this.from)} to ${duration(this.to)}. Arrow keys move, + and − zoom.`);
    this.order.show(selection, this.shown.map((l) => l.context), [this.from, this.to]);
    this.request();
  }

  /** Shows from `from` to `to`. @param {number} from @param {number} to */
  go(from, to) {
    const span = Math.min(this.profile.duration, Math.max(100, to - from));
    this.from = Math.max(0, Math.min(this.profile.duration - span, from));
    this.to = this.from + span;
    this.request();
    this.settle();
  }

  /** Zooms about a place, a share of the width. @param {number} factor @param {number} [at] */
  scale(factor, at = 0.5) {
    const span = this.to - this.from;
    const next = Math.min(this.profile.duration, Math.max(100, span * factor));
    const from = this.from + at * (span - next);
    this.go(from, from + next);
  }

  /** Puts what is shown into the address once it stands still. */
  settle() {
    clearTimeout(this.settled);
    const whole = this.from === 0 && this.to === this.profile.duration;
    this.settled = setTimeout(() => this.change({ range: whole ? '' : `${Math.floor(this.from)}~${Math.ceil(this.to)}` }, true), 250);
  }

  /** Draws with the next picture of the screen. */
  request() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = undefined;
      this.draw();
    });
  }

  draw() {
    const began = performance.now();
    const wide = this.scroller.clientWidth;
    const high = this.scroller.clientHeight;
    if (wide === 0 || high === 0) return;
    const c = sharp(this.canvas, wide, high);
    const ratio = c.getTransform().a;
    const columns = Math.max(1, Math.round(this.width() * ratio));
    const top = this.scroller.scrollTop - AXIS;
    const first = Math.max(0, Math.floor((top + AXIS) / HIGH));
    const last = Math.min(this.shown.length, Math.ceil((top + high) / HIGH));
    const rows = Math.round((HIGH - 2) * ratio);
    c.clearRect(0, 0, wide, high);
    const image = c.createImageData(columns, rows);
    const out = new Uint32Array(image.data.buffer);
    for (let k = first; k < last; k += 1) {
      out.fill(0);
      this.drawLane(this.shown[k], out, columns, rows);
      c.putImageData(image, Math.round(LABEL * ratio), Math.round((k * HIGH - top + 1) * ratio));
    }
    c.font = '11.5px system-ui, sans-serif';
    c.fillStyle = css('--ink');
    c.textBaseline = 'middle';
    for (let k = first; k < last; k += 1) {
      const t = this.profile.meta.threads[this.shown[k].context];
      const text = `${printable(t.name)} ${t.tid}`;
      c.fillText(text.length > 22 ? `${text.slice(0, 21)}…` : text, 3, k * HIGH - top + HIGH / 2, LABEL - 8);
    }
    c.fillStyle = css('--ground');
    c.fillRect(0, 0, wide, AXIS);
    c.fillStyle = css('--dim');
    const step = roundStep(this.to - this.from, Math.max(2, this.width() / 110));
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = this.x(t);
      c.fillRect(x, AXIS - 5, 1, 4);
      c.fillText(duration(t), Math.min(x + 3, wide - 44), 7);
    }
    this.arrow(c, top);
    this.frames += 1;
    this.cost = performance.now() - began;
  }

  /** Where a moment lies, CSS pixels. @param {number} t */
  x(t) {
    return LABEL + ((t - this.from) / (this.to - this.from)) * this.width();
  }

  /** @param {Lane} lane @param {Uint32Array} out @param {number} columns @param {number} rows */
  drawLane(lane, out, columns, rows) {
    const { edge, tag } = lane;
    const end = edge[tag.length];
    const step = (this.to - this.from) / columns;
    const colours = STATE_COLOURS.map(pixel);
    const before = new Float64Array(3);
    const after = new Float64Array(3);
    // Whether `before` holds the sums at the left edge of the column.
    let known = false;
    let i = intervalAt(edge, 0, this.from);
    for (let x = 0; x < columns; x += 1) {
      const t0 = this.from + x * step;
      const t1 = t0 + step;
      if (t0 >= end) return;
      if (edge[i + 1] <= t0) i = intervalAt(edge, i, t0);
      if (edge[i + 1] >= t1) {
        known = false;
        if ((tag[i] & 3) === NOT_KNOWN) continue;
        const part = partOfTag(tag[i]);
        const colour = part < 0 ? colours[tag[i] & 3] : pixel(PART_COLOURS[part]);
        for (let y = 0; y < rows; y += 1) out[y * columns + x] = colour;
        continue;
      }
      if (!known) stateTimes(lane, i, t0, before);
      const right = Math.min(end, t1);
      const j = right >= end ? tag.length - 1 : intervalAt(edge, i, right);
      stateTimes(lane, j, right, after);
      let y = rows;
      let sum = 0;
      for (let s = 0; s < 3; s += 1) {
        sum += after[s] - before[s];
        const to = Math.max(0, rows - Math.round((sum / step) * rows));
        while (y > to) {
          y -= 1;
          out[y * columns + x] = colours[s];
        }
      }
      before.set(after);
      known = true;
      i = j;
    }
  }

  /** Draws an arrow from the waker to the wait under the pointer. @param {CanvasRenderingContext2D} c @param {number} top */
  arrow(c, top) {
    if (!this.hot) return;
    const { lane, i } = this.hot;
    const at = this.shown.indexOf(lane);
    const y1 = at * HIGH - top;
    const [x0, x1] = [Math.max(LABEL, this.x(lane.edge[i])), this.x(lane.edge[i + 1])];
    c.strokeStyle = css('--ink');
    c.lineWidth = 1.5;
    c.strokeRect(x0, y1 + 0.5, Math.max(2, x1 - x0), HIGH - 1);
    const by = lane.waker[i] > 0 ? this.shown.indexOf(/** @type {Lane} */ (this.byContext.get(lane.waker[i] - 1))) : -1;
    if (by < 0) return;
    const down = by < at;
    const [from, to] = [by * HIGH - top + HIGH / 2, down ? y1 : y1 + HIGH];
    c.beginPath();
    c.moveTo(x1, from);
    c.lineTo(x1, to);
    c.moveTo(x1 - 4, to + (down ? -6 : 6));
    c.lineTo(x1, to);
    c.lineTo(x1 + 4, to + (down ? -6 : 6));
    c.moveTo(x1 + 3, from);
    c.arc(x1, from, 3, 0, 7);
    c.stroke();
  }

  /** @param {PointerEvent} e */
  move(e) {
    if (this.drag) {
      const moved = e.clientX - this.drag.x;
      this.drag.far ||= Math.abs(moved) + Math.abs(e.clientY - this.drag.y) > 4;
      if (this.drag.far) {
        const span = this.to - this.from;
        this.from = Math.max(0, Math.min(this.profile.duration - span, this.drag.from - (moved / this.width()) * span));
        this.to = this.from + span;
        this.scroller.scrollTop = this.drag.top - (e.clientY - this.drag.y);
        this.request();
      }
      return;
    }
    const lane = this.laneAt(e);
    const t = this.from + ((e.offsetX - LABEL) / this.width()) * (this.to - this.from);
    if (!lane || e.offsetX < LABEL || t >= lane.edge[lane.tag.length]) this.point(null);
    else this.point({ lane, i: intervalAt(lane.edge, 0, t) }, t);
  }

  /** Describes the interval under the pointer, and points at its waker. @param {{lane: Lane, i: number} | null} hot @param {number} [t] */
  point(hot, t = 0) {
    if (hot || this.hot) this.request();
    this.hot = hot;
    if (!hot) {
      this.told.textContent = '';
      return;
    }
    const { lane, i } = hot;
    const { threads } = this.profile.meta;
    const called = (/** @type {number} */ context) => `${threads[context].name} ${threads[context].tid}`;
    const pixel = (this.to - this.from) / this.width();
    const length = lane.edge[i + 1] - lane.edge[i];
    if (length < pixel) {
      const j = Math.min(lane.tag.length - 1, intervalAt(lane.edge, i, t + pixel));
      const [a, b] = [new Float64Array(3), new Float64Array(3)];
      stateTimes(lane, i, t, a);
      stateTimes(lane, j, Math.min(t + pixel, lane.edge[j + 1]), b);
      fill(this.told, name(called(lane.context)), ` at ${duration(t)}: ${count(j - i + 1)} intervals in this pixel of ${duration(pixel)}: ${[0, 1, 2].map((s) => `${STATE_TITLES[s]} ${percent((b[s] - a[s]) / pixel)}`).join(', ')}`);
      return;
    }
    const part = partOfTag(lane.tag[i]);
    const what = STATE_TITLES[lane.tag[i] & 3] + (part < 0 ? '' : ` (${partTitle(this.profile, part)})`);
    const by = lane.waker[i];
    fill(this.told, name(called(lane.context)), `: ${what} for ${duration(length)} from ${duration(lane.edge[i])} on`, by > 0 ? ', ended by ' : '', by > 0 ? name(called(by - 1)) : '');
  }
}
