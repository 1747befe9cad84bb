// Time: the strip of states, the heat map of sub-seconds, and one lane per thread. All at the
// resolution that the recording has, which they name.

import { css, el, fill, sharp } from './dom.js';
import { idleRows, runsOf, sliceMask, threadMask } from './filter.js';
import { partOfTag, STATE_COLOURS } from './palette.js';
import { BLOCK_REASONS, FIRST_REASON, STATE_TITLES } from './profile.js';
import { REASONS } from './colours.js';
import { duration, percent, printable, time } from './text.js';

/** States' time by slice of the chosen threads, and of each thread if asked. @param {import('./profile.js').Profile} profile @param {Uint8Array} threads */
export function statesBySlice(profile, threads) {
  const out = [0, 1, 2].map(() => new Float64Array(profile.slices));
  const l = profile.ledger;
  for (let i = 0; i < l.rows; i += 1) {
    if (!threads[l.context[i]] || l.slice[i] >= profile.slices) continue;
    out[0][l.slice[i]] += l.onCpu[i];
    out[1][l.slice[i]] += l.runnable[i];
    for (let r = 0; r < BLOCK_REASONS; r += 1) out[2][l.slice[i]] += l.blocked[i * BLOCK_REASONS + r];
  }
  return out;
}

/**
 * Layers of a strip, from the bottom up: time on a CPU, time wanting one, and blocked time by reason
 * without the idle time that the look hides, each if there is any.
 * @param {import('./profile.js').Profile} profile
 * @param {Uint8Array} threads
 * @param {Float64Array | null} idle hidden time by row
 * @returns {{colour: string, title: string, ns: Float64Array}[]}
 */
function layersBySlice(profile, threads, idle) {
  const [onCpu, runnable] = statesBySlice(profile, threads);
  const l = profile.ledger;
  const reasons = REASONS.map((r, k) => {
    const ns = new Float64Array(profile.slices);
    for (let i = 0; i < l.rows; i += 1) {
      if (threads[l.context[i]] && l.slice[i] < profile.slices) ns[l.slice[i]] += l.blocked[i * BLOCK_REASONS + k];
    }
    return { colour: r.colour, title: r.name.replace(/_/g, ' '), ns };
  });
  for (let r = 0; idle && r < idle.length; r += 1) {
    const reason = reasons[partOfTag(profile.rowTag[r]) - FIRST_REASON];
    if (idle[r] === 0 || !reason || !threads[profile.rowContext[r]]) continue;
    for (let i = profile.sliceStart[r]; i < profile.sliceStart[r + 1]; i += 1) {
      const s = profile.slice[i];
      // Stacks are spread over slices by their samples, the ledger is not.
      if (s < profile.slices) reason.ns[s] = Math.max(0, reason.ns[s] - profile.sliceNs[i]);
    }
  }
  return [
    { colour: STATE_COLOURS[0], title: STATE_TITLES[0], ns: onCpu },
    { colour: STATE_COLOURS[1], title: STATE_TITLES[1], ns: runnable },
    ...reasons.filter((r) => r.ns.some((ns) => ns > 0)),
  ];
}

/**
 * The longest pauses of runtimes, from the window's begin.
 * @param {import('./profile.js').Profile} profile
 * @returns {{at: number, ns: number, colour: string, title: string}[]}
 */
export function pausesOf(profile) {
  const gc = REASONS.find((r) => r.name === 'gc');
  return profile.meta.pauses.flatMap((/** @type {any} */ g) =>
    g.longest.map((/** @type {number[]} */ [start, ns]) => ({
      at: start - profile.meta.window.start,
      ns,
      colour: g.kind && gc ? gc.colour : STATE_COLOURS[3],
      title: printable(g.kind ? `${g.kind} collection${g.cause ? ` (${g.cause})` : ''}` : g.operation),
    })),
  );
}

/** Where a strip of `width` pixels shows a slice. */
function edges(/** @type {import('./profile.js').Profile} */ p, /** @type {number} */ slice, /** @type {number} */ width) {
  return [(p.sliceBegin(slice) / p.duration) * width, (p.sliceBegin(slice + 1) / p.duration) * width];
}

/** A round step that divides `span` into about `parts`. @param {number} span @param {number} parts */
export function roundStep(span, parts) {
  const raw = span / parts;
  const size = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((k) => k * size).find((s) => s >= raw) ?? raw;
}

export class Strip {
  /**
   * @param {HTMLElement} host
   * @param {import('./profile.js').Profile} profile
   * @param {(change: Partial<import('./filter.js').Look>) => void} change
   */
  constructor(host, profile, change) {
    this.profile = profile;
    this.change = change;
    this.pauses = pausesOf(profile);
    this.width = 1;
    this.canvas = el('canvas', { role: 'img', tabindex: '0' });
    this.tip = el('span', { class: 'quiet' });
    this.caption = el('p', { class: 'quiet small strip-caption' });
    fill(host, this.canvas, this.caption);
    this.host = host;
    /** @type {{from: number, to: number} | null} */
    this.brush = null;
    /** @type {ReturnType<typeof layersBySlice>} */
    this.layers = [];
    /** Whether the look hides idle time. */
    this.idleHidden = false;
    this.canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => {
      const s = this.sliceAt(e.offsetX);
      this.brush = { from: s, to: s };
      this.canvas.setPointerCapture(e.pointerId);
      this.draw();
    });
    this.canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ e) => {
      const s = this.sliceAt(e.offsetX);
      if (this.brush) {
        this.brush.to = s;
        this.draw();
      }
      this.tell(s);
    });
    this.canvas.addEventListener('pointerleave', () => this.tell(-1));
    this.canvas.addEventListener('pointerup', () => {
      const b = this.brush;
      this.brush = null;
      if (!b) return;
      const from = Math.min(b.from, b.to);
      const to = Math.max(b.from, b.to) + 1;
      // A click on what alone is chosen, or across everything, ends the choice.
      const [only] = this.look ? this.look.time : [];
      const again = from + 1 === to && only !== undefined && this.look?.time.length === 1 && only[0] <= from && to <= only[1];
      this.change({ time: again || to - from >= this.profile.slices ? [] : [[from, to]] });
    });
    this.canvas.addEventListener('keydown', (/** @type {KeyboardEvent} */ e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /** @param {KeyboardEvent} e */
  key(e) {
    const way = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
    if (way === 0) return;
    e.preventDefault();
    e.stopPropagation();
    const n = this.profile.slices;
    const [from, to] = this.look?.time[0] ?? [0, Math.max(1, Math.ceil(n / 10))];
    const next = e.shiftKey
      ? [from, Math.min(n, Math.max(from + 1, to + way))]
      : [Math.min(n - (to - from), Math.max(0, from + way)), 0];
    if (!e.shiftKey) next[1] = next[0] + (to - from);
    this.change({ time: [/** @type {[number, number]} */ (next)] });
  }

  /** @param {number} x */
  sliceAt(x) {
    const p = this.profile;
    const ns = (Math.max(0, Math.min(this.width - 1, x)) / this.width) * p.duration;
    let s = Math.floor((ns + p.meta.window.start - p.meta.slices.start) / p.meta.slices.width);
    s = Math.max(0, Math.min(p.slices - 1, s));
    return s;
  }

  /** Time of all layers in a slice, ns. @param {number} slice */
  shown(slice) {
    return this.layers.reduce((a, layer) => a + layer.ns[slice], 0);
  }

  /** @param {number} slice */
  tell(slice) {
    const p = this.profile;
    if (!this.states || p.slices === 0) return;
    const width = time(p.meta.slices.width);
    if (slice < 0) {
      const mask = this.look && sliceMask(p, this.look);
      const runs = mask ? runsOf(mask) : [];
      const chosen = runs.length > 0 ? runs.slice(0, 3).map(([a, b]) => `${time(p.sliceBegin(a))} – ${time(p.sliceBegin(b))}`).join(', ') + (runs.length > 3 ? ` and ${runs.length - 3} more` : '') : '';
      this.caption.textContent = `Time in steps of ${width}; the line is the share on a CPU. ${this.idleHidden ? 'Idle time is left out. ' : ''}${chosen ? `Chosen: ${chosen}.` : 'Drag to look at a part; arrow keys move it.'}`;
      return;
    }
    const sum = this.shown(slice);
    const words = this.layers.filter((l, i) => i < 2 || l.ns[slice] > 0).map((l) => `${l.title} ${percent(sum > 0 ? l.ns[slice] / sum : 0)}`);
    const [longest] = this.pauses.filter((q) => q.at < p.sliceBegin(slice + 1) && q.at + q.ns > p.sliceBegin(slice)).sort((a, b) => b.ns - a.ns);
    if (longest) words.push(`pause of ${duration(longest.ns)}: ${longest.title}`);
    this.caption.textContent = `${time(p.sliceBegin(slice))} – ${time(p.sliceBegin(slice + 1))}: ${words.join(' · ')}`;
  }

  /** @param {import('./filter.js').Look} look */
  show(look) {
    this.look = look;
    const threads = threadMask(this.profile, look);
    this.states = statesBySlice(this.profile, threads);
    const idle = idleRows(this.profile, { ...look, time: [] });
    this.idleHidden = idle !== null;
    this.layers = layersBySlice(this.profile, threads, idle);
    this.tell(-1);
    this.draw();
  }

  draw() {
    const p = this.profile;
    const width = this.host.clientWidth;
    const height = this.profile.slices === 0 ? 22 : 76;
    if (!this.states || !this.look || width === 0) return;
    this.width = width;
    const c = sharp(this.canvas, width, height);
    c.clearRect(0, 0, width, height);
    const axis = 16;
    const room = height - axis;
    if (p.slices === 0) {
      c.fillStyle = css('--dim');
      c.font = '12px system-ui, sans-serif';
      c.fillText('This recording has no time slices.', 2, 15);
      this.canvas.setAttribute('aria-label', 'no time slices');
      return;
    }
    let highest = 1;
    for (let s = 0; s < p.slices; s += 1) {
      const span = Math.max(1, p.sliceBegin(s + 1) - p.sliceBegin(s));
      highest = Math.max(highest, this.shown(s) / span);
    }
    const chosen = sliceMask(p, this.look);
    const brush = this.brush;
    for (let s = 0; s < p.slices; s += 1) {
      const [x0, x1] = edges(p, s, width);
      const span = Math.max(1, p.sliceBegin(s + 1) - p.sliceBegin(s));
      let y = room;
      for (const layer of this.layers) {
        const h = (layer.ns[s] / span / highest) * (room - 4);
        c.fillStyle = layer.colour;
        c.fillRect(x0, y - h, Math.max(0.6, x1 - x0 - (x1 - x0 > 4 ? 0.5 : 0)), h);
        y -= h;
      }
      const inBrush = brush && s >= Math.min(brush.from, brush.to) && s <= Math.max(brush.from, brush.to);
      if (brush ? !inBrush : chosen && !chosen[s]) {
        c.fillStyle = css('--veil');
        c.fillRect(x0, 0, x1 - x0 + 0.5, room);
      }
    }
    for (const pause of this.pauses) {
      c.fillStyle = pause.colour;
      c.fillRect((pause.at / p.duration) * width, 0, Math.max(1.5, (pause.ns / p.duration) * width), 4);
    }
    // The share on a CPU, from the bottom (none) to the top (all).
    c.strokeStyle = css('--ink');
    c.lineWidth = 1.5;
    c.beginPath();
    let pen = false;
    for (let s = 0; s < p.slices; s += 1) {
      const sum = this.shown(s);
      if (sum === 0) {
        pen = false;
        continue;
      }
      const [x0, x1] = edges(p, s, width);
      const y = room - 2 - (this.states[0][s] / sum) * (room - 6);
      if (pen) c.lineTo((x0 + x1) / 2, y);
      else c.moveTo((x0 + x1) / 2, y);
      pen = true;
    }
    c.stroke();
    c.fillStyle = css('--dim');
    c.font = '11px system-ui, sans-serif';
    const step = roundStep(p.duration, Math.max(2, width / 110));
    for (let t = 0; t <= p.duration; t += step) {
      const x = (t / p.duration) * width;
      c.fillRect(x, room, 1, 4);
      c.fillText(time(t), Math.min(x + 3, width - 40), height - 4);
    }
    this.canvas.setAttribute('aria-label', `states over ${time(p.duration)}: ${this.states.map((s, i) => `${STATE_TITLES[i]} ${duration(s.reduce((a, b) => a + b, 0))}`).join(', ')}`);
  }
}

export const HEAT = [
  { id: '', title: 'what is chosen' },
  { id: 'on_cpu', title: 'on CPU' },
  { id: 'runnable', title: 'runnable' },
  { id: 'blocked', title: 'blocked' },
];

/** Time by slice of what the heat map shows. @param {import('./selection.js').Selection} whole @param {import('./filter.js').Look} look */
function heatValues(whole, look) {
  const p = whole.profile;
  const k = HEAT.findIndex((h) => h.id === look.heat) - 1;
  if (k >= 0) return statesBySlice(p, threadMask(p, look))[k];
  const out = new Float64Array(p.slices);
  for (let r = 0; r < p.rows; r += 1) {
    if (whole.weight[r] === 0) continue;
    for (let i = p.sliceStart[r]; i < p.sliceStart[r + 1]; i += 1) {
      if (p.slice[i] < p.slices) out[p.slice[i]] += p.sliceNs[i];
    }
  }
  return out;
}

/** Colours of the heat map from little to much, the same in both themes. @param {number} v 0..=1 */
function heatColour(v) {
  const stops = [
    [0, 247, 244, 236],
    [0.25, 250, 208, 130],
    [0.5, 238, 140, 84],
    [0.75, 190, 70, 90],
    [1, 90, 30, 100],
  ];
  const i = Math.min(3, Math.floor(v * 4));
  const f = Math.min(1, Math.max(0, v * 4 - i));
  const mix = (/** @type {number} */ c) => Math.round(stops[i][c] + (stops[i + 1][c] - stops[i][c]) * f);
  return `rgb(${mix(1)},${mix(2)},${mix(3)})`;
}

/**
 * The heat map: a column per second, a row per slice within it. A drag across columns chooses the
 * same part of each second; a drag within one, a stretch of time.
 * @param {HTMLElement} host
 * @param {import('./selection.js').Selection} whole the selection with no time chosen
 * @param {import('./filter.js').Look} look
 * @param {(change: Partial<import('./filter.js').Look>) => void} change
 */
export function showHeat(host, whole, look, change) {
  const p = whole.profile;
  const lanes = el('div', { class: 'lanes' });
  if (p.slices === 0) {
    fill(host, el('p', {}, 'This recording has no time slices, so there is nothing to show over time.'));
    return;
  }
  const sliceNs = p.meta.slices.width;
  const perColumn = Math.max(1, Math.round(1e9 / sliceNs));
  const columns = Math.ceil(p.slices / perColumn);
  const values = heatValues(whole, look);
  const top = values.reduce((a, b) => Math.max(a, b), 1);
  const choice = el(
    'div', { class: 'choices', role: 'group', 'aria-label': 'what the heat map shows' },
    ...HEAT.map((h) => el('button', { type: 'button', 'aria-pressed': String(h.id === look.heat), onclick: () => change({ heat: h.id }) }, h.title)),
  );
  const canvas = el('canvas', { role: 'img', class: 'heat', 'aria-label': `heat map, ${columns} seconds by ${perColumn} parts of a second` });
  const told = el('p', { class: 'quiet small' });
  const explain =
    perColumn > 1
      ? `A column is a second, a cell ${time(sliceNs)}. Drag over a stripe to see its flame graph: within a column a stretch of time, across columns the same part of each second.`
      : `This recording keeps steps of ${time(sliceNs)}, so a second has one cell; shorter recordings keep finer ones. Drag to choose.`;
  told.textContent = explain;
  fill(host, el('h3', {}, 'Seconds by part of a second'), choice, canvas, told, el('h3', {}, 'Threads over time'), lanes);

  const mask = sliceMask(p, look);
  const width = Math.max(200, host.clientWidth - 4);
  const cellW = Math.max(1, Math.min(56, (width - 46) / columns));
  const cellH = perColumn > 1 ? Math.max(3, Math.min(18, 260 / perColumn)) : 40;
  const height = cellH * perColumn + 20;
  /** @type {{c0: number, r0: number, c1: number, r1: number} | null} */
  let drag = null;
  const draw = () => {
    const c = sharp(canvas, Math.min(width, 46 + columns * cellW), height);
    c.clearRect(0, 0, width, height);
    c.font = '11px system-ui, sans-serif';
    for (let s = 0; s < p.slices; s += 1) {
      const col = Math.floor(s / perColumn);
      // Time runs upwards within a second.
      const row = perColumn - 1 - (s % perColumn);
      const inDrag = drag && col >= Math.min(drag.c0, drag.c1) && col <= Math.max(drag.c0, drag.c1) && row >= Math.min(drag.r0, drag.r1) && row <= Math.max(drag.r0, drag.r1);
      c.fillStyle = heatColour(values[s] / top);
      c.fillRect(46 + col * cellW, row * cellH, Math.max(0.8, cellW - (cellW > 4 ? 1 : 0)), cellH - (cellH > 4 ? 1 : 0));
      if (inDrag || (!drag && mask && mask[s])) {
        c.strokeStyle = '#0a5fb4';
        c.lineWidth = 2;
        c.strokeRect(46 + col * cellW + 1, row * cellH + 1, Math.max(1, cellW - 3), Math.max(1, cellH - 3));
      }
    }
    c.fillStyle = css('--dim');
    const step = roundStep(columns, Math.max(2, (columns * cellW) / 70));
    for (let s = 0; s < columns; s += Math.max(1, step)) c.fillText(`${Math.round(s)} s`, 46 + s * cellW, height - 5);
    if (perColumn > 1) {
      c.fillText('999 ms', 2, 10);
      c.fillText('0 ms', 2, cellH * perColumn - 2);
    }
  };
  const cell = (/** @type {PointerEvent} */ e) => ({
    c: Math.max(0, Math.min(columns - 1, Math.floor((e.offsetX - 46) / cellW))),
    r: Math.max(0, Math.min(perColumn - 1, Math.floor(e.offsetY / cellH))),
  });
  canvas.addEventListener('pointerdown', (/** @type {PointerEvent} */ e) => {
    const { c, r } = cell(e);
    drag = { c0: c, r0: r, c1: c, r1: r };
    canvas.setPointerCapture(e.pointerId);
    draw();
  });
  canvas.addEventListener('pointermove', (/** @type {PointerEvent} */ e) => {
    const { c, r } = cell(e);
    if (drag) {
      drag.c1 = c;
      drag.r1 = r;
      draw();
    }
    const s = c * perColumn + (perColumn - 1 - r);
    if (s < p.slices) told.textContent = `${time(p.sliceBegin(s))} – ${time(p.sliceBegin(s + 1))}: ${duration(values[s])} (${percent(values[s] / Math.max(1, p.sliceBegin(s + 1) - p.sliceBegin(s)))} of one thread's time)`;
  });
  canvas.addEventListener('pointerleave', () => {
    told.textContent = explain;
  });
  canvas.addEventListener('pointerup', () => {
    if (!drag) return;
    const chosen = new Uint8Array(p.slices);
    for (let s = 0; s < p.slices; s += 1) {
      const col = Math.floor(s / perColumn);
      const row = perColumn - 1 - (s % perColumn);
      if (col >= Math.min(drag.c0, drag.c1) && col <= Math.max(drag.c0, drag.c1) && row >= Math.min(drag.r0, drag.r1) && row <= Math.max(drag.r0, drag.r1)) chosen[s] = 1;
    }
    drag = null;
    const runs = runsOf(chosen);
    const same = JSON.stringify(runs) === JSON.stringify(look.time);
    change({ time: same ? [] : runs });
  });
  draw();
  showLanes(lanes, p, look, change);
}

const MOST_LANES = 60;

/** One lane per thread. @param {HTMLElement} host @param {import('./profile.js').Profile} p @param {import('./filter.js').Look} look @param {(change: Partial<import('./filter.js').Look>) => void} change */
function showLanes(host, p, look, change) {
  const on = threadMask(p, look);
  const busy = p.meta.threads
    .map((/** @type {any} */ t, /** @type {number} */ i) => ({ t, i, busy: t.on_cpu.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0) }))
    .filter((/** @type {any} */ r) => on[r.i])
    .sort((/** @type {any} */ a, /** @type {any} */ b) => b.busy - a.busy);
  const shown = busy.slice(0, MOST_LANES);
  const label = 130;
  const width = Math.max(260, host.clientWidth);
  const h = 18;
  const canvas = el('canvas', { role: 'img', 'aria-label': `states over time of ${shown.length} threads` });
  const c = sharp(canvas, width, Math.max(1, shown.length) * h);
  const place = new Map(shown.map((/** @type {any} */ r, /** @type {number} */ k) => [r.i, k]));
  c.font = '11.5px system-ui, sans-serif';
  const l = p.ledger;
  for (let i = 0; i < l.rows; i += 1) {
    const k = place.get(l.context[i]);
    if (k === undefined) continue;
    const [x0, x1] = edges(p, l.slice[i], width - label);
    const span = Math.max(1, p.sliceBegin(l.slice[i] + 1) - p.sliceBegin(l.slice[i]));
    let blocked = 0;
    for (let r = 0; r < BLOCK_REASONS; r += 1) blocked += l.blocked[i * BLOCK_REASONS + r];
    let y = k * h + h - 2;
    [l.onCpu[i], l.runnable[i], blocked].forEach((ns, s) => {
      const part = (ns / span) * (h - 3);
      c.fillStyle = STATE_COLOURS[s];
      c.fillRect(label + x0, y - part, Math.max(0.6, x1 - x0), part);
      y -= part;
    });
  }
  c.fillStyle = css('--ink');
  shown.forEach((/** @type {any} */ r, /** @type {number} */ k) => {
    const text = printable(r.t.name);
    c.fillText(text.length > 20 ? `${text.slice(0, 19)}…` : text, 2, k * h + 13, label - 8);
  });
  canvas.addEventListener('click', (/** @type {PointerEvent} */ e) => {
    const r = shown[Math.floor(e.offsetY / h)];
    if (r) change({ threads: look.threads.length === 1 && look.threads[0] === r.i ? [] : [r.i], zoom: '' });
  });
  const rest = busy.length - shown.length;
  fill(host, canvas, rest > 0 ? el('p', { class: 'quiet small' }, `and ${rest} threads with less time on a CPU`) : null);
}
