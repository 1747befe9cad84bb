// Small helpers for elements. Text from a recording reaches the document only as text.

import { printable } from './text.js';

/**
 * An element: `el('p', {class: 'x', onclick: f}, 'text', child)`.
 * @param {string} tag
 * @param {Record<string, any>} [props] attributes; `on…`: listeners; `style`: an object
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'style') for (const [k, v] of Object.entries(value)) node.style.setProperty(k, String(v));
    else node.setAttribute(key, value === true ? '' : String(value));
  }
  for (const child of children) if (child || child === '') node.append(child);
  return node;
}

/** A name out of a recording, kept from disturbing the text around it. @param {string} text @param {Record<string, any>} [props] */
export function name(text, props = {}) {
  return el('bdi', props, printable(text.length > 20_000 ? `${text.slice(0, 20_000)}…` : text));
}

/** Replaces what is in `host`. @param {Element} host @param {...(Node | string | null | undefined | false)} children */
export function fill(host, ...children) {
  host.replaceChildren(...children.filter((c) => c !== null && c !== undefined && c !== false).map((c) => /** @type {any} */ (c)));
}

/** @param {string} id @returns {any} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page lacks #${id}`);
  return found;
}

/** Offers `content` as a file. @param {string} fileName @param {Blob} content */
export function download(fileName, content) {
  const url = URL.createObjectURL(content);
  const a = el('a', { href: url, download: fileName });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {string} text @returns {Promise<boolean>} */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without a secure context there is the old way.
    const area = el('textarea', { class: 'offscreen' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** Says something to screen readers and, for a moment, to everybody. @param {string} text */
export function say(text) {
  const live = byId('live');
  live.textContent = text;
  live.classList.add('shown');
  clearTimeout(say.timer);
  say.timer = setTimeout(() => live.classList.remove('shown'), 2500);
}
/** @type {ReturnType<typeof setTimeout> | undefined} */
say.timer = undefined;

/** Elements that the keyboard reaches. */
const REACHABLE = 'a[href], button, input, select, summary, [tabindex]';

/**
 * Does something that may make elements anew, and leaves the keyboard where it was: at the element
 * of the same place and words.
 * @param {() => void} act
 */
export function keepFocus(act) {
  const before = document.activeElement;
  if (!before || before === document.body) {
    act();
    return;
  }
  const host = before.parentElement?.closest('[id]');
  const words = (/** @type {Element} */ e) => `${e.tagName} ${e.getAttribute('aria-label') ?? e.textContent}`;
  const among = (/** @type {Element | null | undefined} */ of) => /** @type {HTMLElement[]} */ ([...(of?.querySelectorAll(REACHABLE) ?? [])]);
  const [id, said, at] = [before.id, words(before), among(host).indexOf(/** @type {HTMLElement} */ (before))];
  act();
  if (before.isConnected || !host) return;
  const now = among(document.getElementById(host.id));
  const again = id ? document.getElementById(id) : (now.find((e) => words(e) === said) ?? now[at]);
  again?.focus({ preventScroll: true });
}

/** A pop-up beside `anchor`; closes at a click elsewhere or Esc. @param {Element} anchor @param {...(Node | string)} children */
export function popUp(anchor, ...children) {
  closePopUp();
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const label = anchor.getAttribute?.('aria-label') ?? 'actions';
  const box = el('div', { class: 'popup', role: 'dialog', 'aria-label': label, tabindex: '-1' }, ...children);
  document.body.append(box);
  const at = anchor.getBoundingClientRect();
  const size = box.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - size.width - 8));
  const below = at.bottom + 6 + size.height < innerHeight;
  box.style.left = `${left + scrollX}px`;
  box.style.top = `${(below ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)) + scrollY}px`;
  box.focus();
  const away = (/** @type {Event} */ e) => {
    if (!box.contains(/** @type {Node} */ (e.target))) closePopUp();
  };
  setTimeout(() => document.addEventListener('pointerdown', away), 0);
  popUp.close = () => {
    document.removeEventListener('pointerdown', away);
    const inside = box.contains(document.activeElement);
    box.remove();
    // The keyboard goes back to where it came from.
    if (inside && before?.isConnected) before.focus({ preventScroll: true });
    popUp.close = null;
  };
}
/** @type {(() => void) | null} */
popUp.close = null;

/** Closes the pop-up; tells whether there was one. */
export function closePopUp() {
  const open = popUp.close !== null;
  popUp.close?.();
  return open;
}

/** A place of the window, CSS pixels. @typedef {{x: number, y: number}} Place */

/** Shows the tip beside a place of the window. @param {HTMLElement} tip @param {number} x @param {number} y */
export function placeTip(tip, x, y) {
  tip.hidden = false;
  const size = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - size.width - 6))}px`;
  tip.style.top = `${y + 20 + size.height < innerHeight ? y + 18 : Math.max(4, y - size.height - 12)}px`;
}

/** The canvas's context at the screen's resolution. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height CSS pixels */
export function sharp(canvas, width, height) {
  const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
  const w = Math.max(1, Math.round(width * ratio));
  const h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** A colour of the style sheet. @param {string} variable */
export function css(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}
