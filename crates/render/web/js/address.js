// The page's address holds the look: view, filters, zoom. A link shows the same picture, and the
// browser's back button returns to it. An address comes from anywhere, so every value that does not
// fit the recording is left out.

import { plainLook } from './filter.js';
import { COLOURINGS } from './palette.js';
import { VIEWS } from './profile.js';

/** @typedef {import('./filter.js').Look} Look */

/** Text without halves of letters, which no address can hold. @param {string} text */
const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, '\ufffd');

/** @param {any} value */
const encode = (value) => encodeURIComponent(wellFormed(String(value)));

/** @param {Look} look @returns {string} without `#` */
export function toAddress(look) {
  const plain = /** @type {any} */ (plainLook());
  const out = [];
  for (const [key, value] of Object.entries(look)) {
    let text;
    if (key === 'time') text = look.time.map(([a, b]) => `${a}-${b}`).join(',');
    else if (Array.isArray(value)) text = value.map(encode).join(',');
    else if (value === plain[key]) continue;
    else if (typeof value === 'boolean') text = value ? '1' : '0';
    else text = encode(value);
    if (text !== '') out.push(`${key}=${text}`);
  }
  return out.join('&');
}

/** A number without sign, fraction or exponent. @param {string} text */
const whole = (text) => (/^\d{1,15}$/.test(text) ? Number(text) : -1);

/** @param {string} text */
function decode(text) {
  try {
    return wellFormed(decodeURIComponent(text));
  } catch {
    return wellFormed(text);
  }
}

/**
 * The look that an address asks for.
 * @param {string} address without `#`; whatever is not understood is left out
 * @param {import('./profile.js').Profile} profile
 * @returns {Look}
 */
export function fromAddress(address, profile) {
  const look = plainLook();
  for (const part of address.split('&')) {
    const at = part.indexOf('=');
    const key = part.slice(0, Math.max(0, at));
    if (!Object.hasOwn(look, key)) continue;
    const raw = part.slice(at + 1);
    /** @type {any} */ (look)[key] = read(key, raw, /** @type {any} */ (look)[key]);
  }
  return sound(look, profile);
}

/** @param {string} key @param {string} raw @param {any} usual */
function read(key, raw, usual) {
  if (key === 'time') {
    return raw
      .split(',')
      .map((run) => run.split('-'))
      .filter((run) => run.length === 2)
      .map((run) => run.map(whole));
  }
  if (Array.isArray(usual)) {
    const items = raw === '' ? [] : raw.split(',').map(decode);
    return key === 'threads' || key === 'pids' ? items.map(whole).filter((n) => n >= 0) : items;
  }
  if (typeof usual === 'boolean') return raw === '1';
  if (typeof usual === 'number') return whole(raw);
  return decode(raw);
}

/** A look with nothing that the recording does not have. @param {Look} look @param {import('./profile.js').Profile} profile @returns {Look} */
function sound(look, profile) {
  const plain = plainLook();
  const entries = profile.names.length;
  const threads = profile.meta.threads.length;
  const one = (/** @type {'view' | 'tab' | 'idle' | 'colour' | 'heat'} */ key, /** @type {string[]} */ known) => {
    if (!known.includes(look[key])) /** @type {any} */ (look)[key] = plain[key];
  };
  one('view', VIEWS.map((v) => v.id));
  one('tab', ['flame', 'table', 'heat', 'lanes', 'waits', 'tasks', 'why', 'domain']);
  one('heat', ['', 'on_cpu', 'runnable', 'blocked']);
  one('idle', ['hide', 'show', 'only']);
  one('colour', ['', ...COLOURINGS.map((c) => c.id)]);
  look.threads = [...new Set(look.threads)].filter((i) => i < threads);
  look.time = look.time
    .map(([a, b]) => /** @type {[number, number]} */ ([a, Math.min(b, profile.slices)]))
    .filter(([a, b]) => a >= 0 && b > a);
  if (look.focus >= entries) look.focus = -1;
  if (look.task >= (profile.meta.tasks?.groups.length ?? 0)) look.task = -1;
  if (look.pick >= entries) look.pick = -1;
  if (!/^-?(self|total|name|module)$/.test(look.sort)) look.sort = plain.sort;
  if (!/^\d{1,15}(~\d{1,15})?$/.test(look.zoom)) look.zoom = plain.zoom;
  if (!/^\d{1,18}~\d{1,18}$/.test(look.range)) look.range = plain.range;
  return look;
}
