// Numbers and names as people read them.

const UNITS = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
  [1, 'ns'],
];

/** What the recording's values are in: `nanoseconds`, `bytes`, or things counted, by their name. */
let unit = 'nanoseconds';

/** Says what values are in. @param {string} name */
export function measureIn(name) {
  unit = name || 'nanoseconds';
}

/** Whether values are time; else wall time, states and lengths mean nothing. */
export function isTime() {
  return unit === 'nanoseconds';
}

/** A value of the recording, in its unit. @param {number} value */
export function duration(value) {
  if (isTime()) return time(value);
  return unit === 'bytes' ? bytes(value) : `${count(value)} ${unit}`;
}

/**
 * A length of time with three significant digits: `1.23 s`, `45.6 ms`, `7 ns`.
 * @param {number} ns
 * @returns {string}
 */
export function time(ns) {
  if (ns < 0) return `−${time(-ns)}`;
  if (ns === 0) return '0 s';
  if (ns >= 600e9) {
    const minutes = Math.floor(ns / 60e9);
    const hours = Math.floor(minutes / 60);
    const seconds = Math.floor((ns % 60e9) / 1e9);
    return hours > 0 ? `${count(hours)} h ${minutes % 60} min` : `${minutes} min ${seconds} s`;
  }
  for (const [size, unit] of UNITS) {
    if (ns >= /** @type {number} */ (size) * 0.9995 || size === 1) {
      return `${significant(ns / /** @type {number} */ (size))} ${unit}`;
    }
  }
  return `${ns} ns`;
}

/** Three significant digits, without an exponent. @param {number} value */
function significant(value) {
  if (value >= 100) return value.toFixed(0);
  if (value >= 10) return value.toFixed(1);
  return value.toFixed(2);
}

/**
 * A share of 1 as per cent; never rounds something to nothing.
 * @param {number} share
 */
export function percent(share) {
  if (!Number.isFinite(share)) return '–';
  const p = share * 100;
  if (p === 0) return '0 %';
  if (p < 0.01) return '< 0.01 %';
  if (p < 1) return `${p.toFixed(2)} %`;
  if (p > 99.9 && p < 100) return '> 99.9 %';
  return `${p.toFixed(1)} %`;
}

/** A count with separators. @param {number} n */
export function count(n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ' ');
}

/** Bytes in binary units. @param {number} n */
export function bytes(n) {
  let unit = 0;
  while (n >= 1024 && unit < 4) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? n : significant(n)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

// Control characters, those that turn the direction of writing, and those that take no room.
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff0-\ufffb]/g;

/**
 * A name with what cannot be seen made visible, so that two different names look different and
 * none rearranges the text around it.
 * @param {string} name
 */
export function printable(name) {
  UNSEEN.lastIndex = 0;
  if (!UNSEEN.test(name)) return name;
  return name.replace(UNSEEN, (c) => `‹${c.charCodeAt(0).toString(16).padStart(2, '0')}›`);
}

/**
 * A function's name in at most `most` characters: first without what stands in `<…>` and `(…)`,
 * then without its beginning, because the end of a name tells most.
 * @param {string} name
 * @param {number} most
 */
export function shorten(name, most) {
  if (name.length <= most) return name;
  // Nobody reads more, and names may be as long as the recording likes.
  const head = name.length > 4000 ? name.slice(0, 4000) : name;
  let short = fold(head);
  if (short.length > most && !short.startsWith('[')) {
    const bare = short.replace(/\(…\)( const)?$/, '');
    if (bare.length > 0) short = bare;
  }
  if (short.length <= most) return short;
  if (most <= 1) return '…'.slice(0, most);
  // As many of the last parts as there is room for.
  const ends = lastParts(short);
  for (const end of ends) if (end.length <= most - 1) return `…${end}`;
  return `${(ends.at(-1) ?? short).slice(0, most - 1)}…`;
}

/** Between packages, types and functions of Go, Java, Python, JavaScript; not before what a compiler appends (`.isra.0`). */
const DOT = /[./](?=[A-Za-z_$(])(?!(?:isra|part|constprop|cold|lto_priv|llvm|clone)\b)/g;

/** Ends of a name that begin at one of its parts, longest first. @param {string} name */
function lastParts(name) {
  const out = [];
  for (let at = name.indexOf('::'); at >= 0; at = name.indexOf('::', at + 2)) out.push(name.slice(at + 2));
  // In names without a symbol, as `libc.so.6+0x1f3a`, the dot belongs to the file.
  if (out.length > 0 || name.startsWith('[') || name.includes('+0x')) return out;
  // Type arguments of Go have dots of their own.
  const plain = name.split('[', 1)[0];
  for (const { index } of plain.matchAll(DOT)) out.push(name.slice(index + 1));
  return out;
}

/**
 * Replaces the insides of outermost brackets by `…`. Rust's `<T as Trait>::f` becomes `T::f`.
 * @param {string} name
 */
function fold(name) {
  if (name.startsWith('[') || name.startsWith('(')) return name;
  let from = 0;
  let out = '';
  if (name.startsWith('<')) {
    const end = closing(name, 0);
    if (end > 0 && name.startsWith('::', end + 1)) {
      out = fold(asType(name.slice(1, end)));
      from = end + 1;
    }
  }
  for (let i = from; i < name.length; i += 1) {
    const c = name[i];
    const operator = (c === '<' ? /operator<?$/ : /operator$/).test(out.slice(-12));
    // A receiver of Go, as in `main.(*Cache).Record`, is part of the name.
    const receiver = name.startsWith('(*', i) && name[i - 1] === '.';
    const end = (c === '<' || c === '(') && !operator && !receiver ? closing(name, i) : -1;
    if (end < 0) {
      out += c;
      continue;
    }
    out += end === i + 1 ? name.slice(i, end + 1) : `${c}…${name[end]}`;
    i = end;
  }
  return out;
}

/** Where the bracket at `at` is closed; −1: nowhere. @param {string} name @param {number} at */
function closing(name, at) {
  let depth = 0;
  for (let i = at; i < name.length; i += 1) {
    const c = name[i];
    if (c === '<' || c === '(') depth += 1;
    else if ((c === '>' && name[i - 1] !== '-') || c === ')') {
      depth -= 1;
      if (depth === 0) return i;
    }
  }
  return -1;
}

/** `T` of `T as Trait`. @param {string} inside */
function asType(inside) {
  const at = inside.indexOf(' as ');
  const plain = at >= 0 && closing(`<${inside.slice(0, at)}>`, 0) === at + 1;
  return plain ? inside.slice(0, at) : inside;
}

/** The last component of a path. @param {string} path */
export function baseName(path) {
  return path.slice(path.lastIndexOf('/') + 1) || path;
}

/** @param {string} text */
export function escapeXml(text) {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
