// "My code": which functions are the program's own, and a tree without the insides of all others.
//
// A function of a library, a runtime, the kernel, or of the glue that starts threads and calls
// between languages is foreign. Foreign frames between own ones are left out. Below the innermost
// own frame the first foreign one stays, as the call that was made, and holds all time below it.
// So no time is lost: every row of time has a frame, and a parent is as wide as before.

import { put } from './groups.js';
import { KIND } from './profile.js';
import { baseName } from './text.js';

/** Folders of the system, of package managers and of language distributions. */
const SYSTEM_PATHS = /^\[vdso\]$|^\/(usr\/)?(local\/)?lib(32|64|x32|exec)?\/|^\/(nix\/store|gnu\/store|snap)\/|\/(site-packages|dist-packages|node_modules|gems|vendor|jvm|jdk[^/]*|jre[^/]*)\/|\/lib(32|64)?\/[^/]+\.so(\.|$)|\/lib\/(python|ruby|php|perl|node)[\d.]*\//;
/** Libraries of runtimes, wherever they lie. */
const RUNTIME_LIBRARIES = /^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|c\+\+|python|jvm|java|nio|net|zip|ruby|php|node|v8|uv|perl|mono|coreclr|go|luajit)([-.\d_]|$)|ld-(linux|musl))/;
/** Programs that run another language: their native functions are foreign where that language has frames. */
const INTERPRETERS = /^(python|pypy|node|nodejs|deno|bun|ruby|php(-fpm|-cgi)?|perl|java|dotnet|luajit|beam\.smp)[\d.]*$/;
/** Where compilers and package managers keep source that is not the program's. */
const FOREIGN_SOURCE = /^\/rustc\/|\/\.cargo\/(registry|git)\/|\/rustlib\/src\/|^\/usr\/(include|src)\/|\/pkg\/mod\/|\/(go|golang|go-?[\d.]+)\/src\/|\/node_modules\/|\/(site|dist)-packages\/|\/gems\/|\/vendor\//;
/** Start of programs and threads. */
const START = /^(_start|__libc_start|(__)?clone3?$|start_thread$|_dl_|__libc_csu|thread_start$)/;
/** Frames by which interpreters get from one function to the next. */
const DISPATCH = /^(_?Py(Object|Eval|Function|Vectorcall|Call|Method|CFunction|_RunMain|Run)_?|_PyEval|cfunction_|method_|vectorcall|slot_tp_|object_vacall|pymain_|builtin_exec|run_mod|run_eval|Builtins?_|v8::|node::|call_stub|JavaCalls::|Interpreter|rb_(vm_|ec_|funcall)|vm_(exec|call|sendish|cfp)|execute_ex$|ZEND_|zend_)/;
/** Functions by name: standard libraries that are linked into the program, and glue. */
const FOREIGN_NAMES = [
  START,
  // Rust and C++.
  /^<?(&?(mut )?)?(std|core|alloc|hashbrown|tokio|futures(_\w+)?|mio|rayon(_core)?|crossbeam(_\w+)?|parking_lot(_core)?)::|^<.* as (core|std|alloc)::|^(__rust_|rust_begin_|__gnu_cxx::|__cxxabiv1::|boost::|absl::|folly::|__cxa_|_Unwind_)/,
  // Go's standard library.
  /^(archive|bufio|builtin|bytes|cmp|compress|container|context|crypto|database|debug|embed|encoding|errors|expvar|flag|fmt|go|hash|html|image|index|internal|io|iter|log|maps|math|mime|net|os|path|plugin|reflect|regexp|runtime|slices|sort|strconv|strings|structs|sync|syscall|testing|text|time|unicode|unique|unsafe|weak|vendor)(\/[\w.\-/]+)?\.[\w(*]/,
  /^(golang\.org\/x|google\.golang\.org)\//,
  // Stubs of V8 and of the JVM, and code made at run time that nobody named.
  /^\[0x/,
  /^(Builtin|Builtins_|BytecodeHandler|Stub|Handler|RegExp|Interpreter|call_stub|StubRoutines|~?v[it]able )/,
];
/** Packages of the JDK, and of languages on top of it. */
const JVM_PACKAGES = /^(java|javax|jdk|sun|com\.sun|scala|kotlin|kotlinx|groovy|clojure\.(core|lang)|org\.(codehaus\.groovy|graalvm))[./]|^[^.(]+( \(|$)|\$\$Lambda/;

/**
 * Facts of a recording that the rules use beside the function.
 * @typedef {object} Facts
 * @property {boolean} managed whether functions of an interpreted language are in it
 * @property {Set<string>} programs paths of the programs that ran; they may lie among libraries
 */

/** @param {import('./profile.js').Profile} profile @returns {Facts} */
function factsOf(profile) {
  const programs = new Set(profile.meta.processes.map((/** @type {any} */ q) => q.exe));
  return { managed: profile.kind.includes(KIND.managed), programs };
}

/**
 * Whether the code of a module may be the program's own, by its place.
 * @param {string} path
 * @param {Facts} facts
 */
function isOwnModule(path, { programs }) {
  if (path === '[kernel]') return false;
  const program = programs.has(path) && !INTERPRETERS.test(baseName(path));
  return program || !(SYSTEM_PATHS.test(path) || RUNTIME_LIBRARIES.test(baseName(path)));
}

/**
 * Whether a function is the program's own.
 * @param {import('./profile.js').Profile} p
 * @param {number} entry
 * @param {Facts} facts
 */
function isOwn(p, entry, facts) {
  const kind = p.kind[entry];
  if (kind === KIND.kernel) return false;
  const path = p.module(entry);
  const name = p.names[entry].slice(0, 400);
  if (!isOwnModule(path, facts)) return false;
  const file = p.files[p.entryFile[entry]] ?? '';
  if (FOREIGN_SOURCE.test(file)) return false;
  if (kind === KIND.managed) {
    if (path === '[java]') return !JVM_PACKAGES.test(name);
    const source = file || path;
    return !SYSTEM_PATHS.test(source) && !/^(node:|internal\/|<|native )|^$/.test(source);
  }
  if (facts.managed && kind === KIND.native && INTERPRETERS.test(baseName(path))) return false;
  return !FOREIGN_NAMES.some((pattern) => pattern.test(name));
}

/** The program's own code, by entry and by node. */
export class Mine {
  /**
   * @param {import('./profile.js').Profile} profile
   * @param {string[]} flipped base names of modules that are foreign against the rules, or own
   */
  constructor(profile, flipped) {
    const facts = factsOf(profile);
    const turned = new Set(flipped);
    /** By entry. @type {Uint8Array} */
    this.entry = Uint8Array.from(profile.names, (_, e) => {
      // A mark stands for time that has no function, and is kept.
      if (profile.kind[e] === KIND.mark) return 1;
      const path = profile.module(e);
      const own = turned.has(baseName(path)) ? !isOwnModule(path, facts) : isOwn(profile, e, facts);
      return own ? 1 : 0;
    });
    /** The tree that `inside` is of. @type {import('./profile.js').Profile | null} */
    this.tree = null;
    /** By node, whether own code is in it or below it. */
    this.inside = new Uint8Array();
    /** Frames that only dispatch to others. @type {Uint8Array} */
    this.glue = Uint8Array.from(profile.names, (name) => (START.test(name) || (facts.managed && DISPATCH.test(name)) ? 1 : 0));
  }

  /** By node of a tree, whether own code is in it or below it. @param {import('./profile.js').Profile} p */
  below(p) {
    if (this.tree !== p) {
      const inside = new Uint8Array(p.nodes);
      for (let i = p.nodes - 1; i > 0; i -= 1) {
        if (this.entry[p.entry[i]]) inside[i] = 1;
        if (inside[i]) inside[p.parent[i]] = 1;
      }
      this.tree = p;
      this.inside = inside;
    }
    return this.inside;
  }

  /**
   * The frame that holds a node's own time: the first foreign one below the innermost own one, or
   * the own one itself.
   * @param {import('./profile.js').Profile} p
   * @param {number} node
   */
  holder(p, node) {
    let holder = node;
    for (let n = node; n > 0; n = p.parent[n]) {
      if (this.entry[p.entry[n]]) return n === node ? node : holder;
      if (!this.glue[p.entry[n]] || n === node) holder = n;
    }
    return holder;
  }

  /** The entry that each row is self time of. @param {import('./profile.js').Profile} p */
  rowHolders(p) {
    const out = new Uint32Array(p.rows);
    for (let r = 0; r < p.rows; r += 1) {
      const same = r > 0 && p.rowNode[r] === p.rowNode[r - 1];
      out[r] = same ? out[r - 1] : p.entry[this.holder(p, p.rowNode[r])];
    }
    return out;
  }
}

/** The last one: it changes with the user's modules only. */
const last = { key: '', profile: /** @type {import('./profile.js').Profile | null} */ (null), mine: /** @type {Mine | null} */ (null) };

/** @param {import('./profile.js').Profile} profile @param {import('./filter.js').Look} look @returns {Mine | null} `null`: all frames are shown */
export function mineOf(profile, look) {
  if (!look.mine) return null;
  const key = look.flip.join('\n');
  if (last.profile !== profile || last.key !== key || !last.mine) {
    Object.assign(last, { profile, key, mine: new Mine(profile, look.flip) });
  }
  return last.mine;
}

/**
 * Whether a function's module may be own by the rules, whatever the user said.
 * @param {import('./profile.js').Profile} profile
 * @param {number} entry
 */
export function isOwnByRule(profile, entry) {
  return isOwnModule(profile.module(entry), factsOf(profile));
}

/**
 * The frames below some nodes, without the insides of foreign code. Time that it puts nowhere is the
 * nodes' own.
 * @param {import('./selection.js').Selection} selection
 * @param {Mine} mine
 * @param {number[]} nodes
 * @param {number} same entry of nodes that are one with these (direct recursion); −1: none
 * @returns {Map<number, import('./groups.js').Group>}
 */
export function ownBelow(selection, mine, nodes, same) {
  const p = selection.profile;
  const inside = mine.below(p);
  const { prefix } = selection;
  /** @type {Map<number, import('./groups.js').Group>} */
  const next = new Map();
  const hold = (/** @type {number} */ entry, /** @type {number} */ from, /** @type {number} */ to) => {
    // No frames are below it: it holds rows and no node.
    if (prefix[to] > prefix[from]) put(next, entry, { from, to, at: -1 }, prefix[to] - prefix[from]);
  };
  // Nodes with children to be placed, each with the foreign entry that holds time outside own code;
  // −1: none yet, −2: the nodes themselves do.
  /** @type {[number, number][]} */
  const open = nodes.map((n) => [n, n > 0 && !mine.entry[p.entry[n]] ? -2 : -1]);
  while (open.length > 0) {
    const [node, holder] = /** @type {[number, number]} */ (open.pop());
    for (let c = node + 1; c < p.end[node]; c = p.end[c]) {
      const time = selection.time(c);
      if (time === 0) continue;
      const entry = p.entry[c];
      if (mine.entry[entry]) {
        if (entry === same) open.push([c, -1]);
        else put(next, entry, { from: p.first[c], to: p.last[c], at: c }, time);
        continue;
      }
      const glue = holder === -1 && mine.glue[entry] === 1;
      const inner = glue || holder !== -1 ? holder : entry;
      if (inside[c] || glue) {
        if (holder !== -2) hold(glue ? entry : inner, p.own[c], p.last[c]);
        open.push([c, inner]);
      } else if (holder !== -2) {
        hold(inner, p.first[c], p.last[c]);
      }
    }
  }
  return next;
}
