// The flame graph as a file: SVG for documents, PNG for everything else.

import { INK } from './colours.js';
import { css, download, sharp } from './dom.js';
import { canvasPainter, drawScene, ROW, UNDERLINE } from './scene.js';
import { duration, escapeXml, printable } from './text.js';

const WIDTH = 1400;
const LETTER = 7.23;
const MOST_LEVELS = 600;

/**
 * The picture of a scene, all of its levels.
 * @param {import('./scene.js').Scene} scene
 * @param {string} title
 * @returns {string}
 */
export function toSvg(scene, title) {
  const levels = Math.min(scene.shape.levels, MOST_LEVELS);
  const head = 34;
  const height = head + levels * ROW + 26;
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="8" y="21" font-size="14" fill="${INK}">${escapeXml(printable(title))}</text>`,
  ];
  const style = /** @type {Record<string, string>} */ ({
    inlined: ' font-style="italic"',
    dim: ' fill="#777"',
    small: ' fill="#555"',
  });
  let y = 0;
  const rect = (/** @type {number} */ x, /** @type {number} */ w, /** @type {string} */ colour) => {
    out.push(`<rect x="${fix(x)}" y="${y}" width="${fix(w)}" height="${ROW - 1}" fill="${colour}"/>`);
  };
  drawScene(
    scene,
    {
      letter: LETTER,
      row: (edge) => {
        y = edge;
      },
      rect,
      over: rect,
      underline: (x, w, colour) =>
        out.push(`<rect x="${fix(x)}" y="${y + ROW - 1 - UNDERLINE}" width="${fix(w)}" height="${UNDERLINE}" fill="${colour}"/>`),
      flush: () => {},
      finish: () => {},
      frame: (x, w, colour) =>
        out.push(`<rect x="${fix(x)}" y="${y}" width="${fix(w)}" height="${ROW - 1}" fill="none" stroke="${colour}"/>`),
      text: (x, text, _, kind) =>
        out.push(`<text x="${fix(x)}" y="${y + 13}"${style[kind] ?? ''}>${escapeXml(text)}</text>`),
    },
    excerpt(scene, head),
  );
  out.push(legend(scene, height - 8), '</svg>');
  return out.join('\n');
}

/** All levels of a scene, below a head. @param {import('./scene.js').Scene} scene @param {number} head CSS pixels @returns {import('./scene.js').Excerpt} */
function excerpt(scene, head) {
  const levels = Math.min(scene.shape.levels, MOST_LEVELS);
  const y = (/** @type {number} */ level) => head + (scene.icicle ? level : levels - 1 - level) * ROW;
  return { width: WIDTH, top: 0, bottom: levels, y };
}

/** @param {import('./scene.js').Scene} scene @param {number} y */
function legend(scene, y) {
  let x = 8;
  const { colours, titles } = scene.paint;
  return titles
    .map((title, i) => {
      if (!title) return '';
      const at = x;
      x += 26 + title.length * LETTER;
      return `<rect x="${at}" y="${y - 10}" width="12" height="12" fill="${colours[i]}"/><text x="${at + 16}" y="${y}" fill="${INK}">${escapeXml(printable(title))}</text>`;
    })
    .join('');
}

/** @param {number} v */
function fix(v) {
  return Number(v.toFixed(2));
}

/** @param {import('./scene.js').Scene} scene @param {string} title @param {string} fileName */
export function saveSvg(scene, title, fileName) {
  download(`${fileName}.svg`, new Blob([toSvg(scene, title)], { type: 'image/svg+xml' }));
}

/** @param {import('./scene.js').Scene} scene @param {string} title @param {string} fileName */
export function savePng(scene, title, fileName) {
  const levels = Math.min(scene.shape.levels, MOST_LEVELS);
  const canvas = document.createElement('canvas');
  const height = 34 + levels * ROW + 4;
  const context = sharp(canvas, WIDTH, height);
  drawScene(scene, canvasPainter(context, WIDTH, height), excerpt(scene, 34));
  // The ground goes below what is painted already.
  context.globalCompositeOperation = 'destination-over';
  context.fillStyle = css('--ground') || '#fff';
  context.fillRect(0, 0, WIDTH, height);
  context.globalCompositeOperation = 'source-over';
  context.fillStyle = css('--ink') || '#000';
  context.font = '14px system-ui, sans-serif';
  context.fillText(printable(title), 8, 21);
  canvas.toBlob((blob) => {
    if (blob) download(`${fileName}.png`, blob);
  });
}

/**
 * A stack as text, outermost first, as one reads it in an issue.
 * @param {import('./profile.js').Profile} profile
 * @param {number[]} entries outermost first
 * @param {string} view
 * @param {number} ns
 */
export function stackText(profile, entries, view, ns) {
  const lines = entries.map((e) => {
    const marks = `${profile.kind[e] === 1 ? ' [kernel]' : ''}${profile.inlined[e] ? ' (inlined)' : ''}`;
    const module = profile.module(e);
    return `  ${profile.names[e]}${marks}${module ? `  ${module}` : ''}`;
  });
  return `${view}: ${duration(ns)}\n${lines.reverse().join('\n')}\n`;
}
