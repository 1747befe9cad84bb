// My code: which functions are folded, and that no time is lost by it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { leafFirst, mergeDown, mergeUp, TreeShape } from '../../js/derive.js';
import { plainLook, select } from '../../js/filter.js';
import { Mine } from '../../js/mine.js';
import { KIND, Profile } from '../../js/profile.js';
import { Columns } from '../../js/decode.js';
import { encode, REASONS, small } from './fixture.js';

/** A profile of some stacks, each `['a b c', ns]` from the root, its functions told by `functions`. */
function profileOf(functions, stacks, exe = '') {
  const names = Object.keys(functions);
  const modules = [...new Set(Object.values(functions).map((f) => f.module ?? '').filter((m) => m))];
  const files = ['', ...new Set(Object.values(functions).map((f) => f.file ?? '').filter((f) => f))];
  const root = { name: '', children: new Map(), rows: [] };
  for (const [stack, ns] of stacks) {
    let at = root;
    for (const name of stack.split(' ')) {
      if (!at.children.has(name)) at.children.set(name, { name, children: new Map(), rows: [] });
      at = at.children.get(name);
    }
    at.rows.push(ns);
  }
  const entry = [];
  const pops = [];
  const rows = [];
  let last = -1;
  const visit = (node, depth) => {
    const id = entry.length;
    entry.push(node.name ? names.indexOf(node.name) : 0);
    pops.push(id < 1 ? 0 : last + 1 - depth);
    last = depth;
    for (const child of node.children.values()) visit(child, depth + 1);
    for (const ns of node.rows) rows.push([id, ns]);
  };
  visit(root, 0);
  const zigzag = (v, i, all) => (v - (i > 0 ? all[i - 1] : 0) >= 0 ? 2 * (v - (i > 0 ? all[i - 1] : 0)) : -2 * (v - all[i - 1]) - 1);
  const none = new Array(rows.length).fill(0);
  const meta = {
    title: '', reasons: REASONS, window: { start: 0, end: 1e9 }, slices: { start: 0, width: 0, count: 0 }, processes: [{ pid: 1, name: 'x', exe }], threads: [{ pid: 1, tid: 1, name: 'x' }],
  };
  return new Profile(new Columns(encode(meta, {
    'entry.module': names.map((n) => modules.indexOf(functions[n].module ?? '') + 1),
    'entry.kind': names.map((n) => functions[n].kind ?? KIND.native),
    'entry.line': names.map(() => 0),
    'entry.file': names.map((n) => files.indexOf(functions[n].file ?? '')),
    'node.pops': pops, 'node.entry': entry,
    'row.node': rows.map((r) => r[0]).map(zigzag), 'row.context': none, 'row.tag': none, 'row.count': none.map(() => 1), 'row.ns': rows.map((r) => r[1]),
    'row.slices': none, 'slice.step': [], 'slice.ns': [], 'slice.count': [],
    'lines.alike': none, 'lines.more': none, 'lines.line': [],
    'ledger.context': [], 'ledger.slice': [], 'ledger.on_cpu': [], 'ledger.runnable': [], 'ledger.reasons': [], 'ledger.blocked': [],
    'module.kind': modules.map(() => 0),
  }, { 'entry.name': names, file: files, 'module.path': modules, 'module.build': modules.map(() => '') })));
}

/** A shape as nested text. */
function text(p, shape) {
  const below = (n) => {
    const out = [];
    for (let level = 0; level < shape.levels; level += 1) {
      for (let k = shape.levelStart[level]; k < shape.levelEnd[level]; k += 1) {
        const c = shape.order[k];
        if (c > 0 && shape.parent(c) === n) out.push(show(c));
      }
    }
    return out.length > 0 ? `(${out.join(' ')})` : '';
  };
  const show = (n) => `${shape.entry(n) === -1 ? 'all' : p.names[shape.entry(n)]}:${shape.right(n) - shape.left(n)}${below(n)}`;
  return show(0);
}

const SERVER = {
  _start: { module: '/usr/lib/libc.so.6' },
  clone3: { module: '/usr/lib/libc.so.6' },
  main: { module: '/srv/app' },
  work: { module: '/srv/app' },
  'std::sort': { module: '/srv/app' },
  less: { module: '/srv/app' },
  read: { module: '/usr/lib/libc.so.6' },
  vfs_read: { module: '[kernel]', kind: KIND.kernel },
  uv_run: { module: '/usr/lib/libuv.so.1' },
  epoll: { module: '/usr/lib/libc.so.6' },
};
const STACKS = [
  ['_start main work', 10], ['_start main work std::sort less', 20], ['_start main work std::sort', 5],
  ['_start main work read vfs_read', 40], ['clone3 uv_run epoll', 7], ['clone3', 1], ['_start main uv_run work work read', 3], ['_start main uv_run epoll', 2],
];
const p = profileOf(SERVER, STACKS);
const selection = select(p, plainLook(), null);
const mine = new Mine(p, []);

test('frames of others are folded into the call that was made', () => {
  assert.equal(selection.total, 88);
  assert.equal(
    text(p, mergeDown(selection, [0], { fold: false, mine })),
    'all:88(main:80(work:78(read:40 less:20 std::sort:5 work:3(read:3)) uv_run:2) uv_run:7 clone3:1)',
  );
});

test('direct recursion folds together with it', () => {
  assert.equal(
    text(p, mergeDown(selection, [0], { fold: true, mine })),
    'all:88(main:80(work:78(read:43 less:20 std::sort:5) uv_run:2) uv_run:7 clone3:1)',
  );
});

test('leaf first, callers and callees leave the same frames out', () => {
  assert.equal(
    text(p, leafFirst(selection, { fold: false, mine })),
    'all:88(read:43(work:43(main:40 work:3(main:3))) less:20(work:20(main:20)) work:10(main:10) uv_run:9(main:2) std::sort:5(work:5(main:5)) clone3:1)',
  );
  const nodes = selection.nodesOf(p.names.indexOf('less'));
  assert.equal(text(p, mergeUp(selection, nodes, { fold: false, mine })), 'less:20(work:20(main:20))');
  // A foreign function shows the own code that it called; the rest is its self time.
  const sort = selection.nodesOf(p.names.indexOf('std::sort'));
  assert.equal(text(p, mergeDown(selection, sort, { fold: false, mine })), 'std::sort:25(less:20)');
});

/** Self times of all nodes; they sum to the total. */
function selfs(shape) {
  let sum = 0;
  for (const n of shape.order) sum += shape.self(n);
  return sum;
}

test('no time is lost: every shape has the total, and its self times sum to it', () => {
  for (const q of [p, small()]) {
    const s = select(q, plainLook(), null);
    const whole = new TreeShape(s).total;
    for (const fold of [false, true]) {
      for (const flip of [[], ['app'], ['small'], ['libc.so.6']]) {
        const own = new Mine(q, flip);
        for (const shape of [mergeDown(s, [0], { fold, mine: own }), leafFirst(s, { fold, mine: own })]) {
          assert.equal(shape.total, whole);
          assert.equal(selfs(shape), whole, `${fold} ${flip}`);
        }
        const table = s.byOwnEntry(own);
        assert.equal(table.self.reduce((a, b) => a + b, 0), whole);
        table.self.forEach((ns, e) => assert.ok(table.total[e] >= ns));
      }
    }
  }
});

test('random trees keep their time, and frames with own code keep their width', () => {
  let seed = 7;
  const random = (n) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 16) % n;
  };
  const names = Object.keys(SERVER);
  for (let round = 0; round < 60; round += 1) {
    const stacks = Array.from({ length: 1 + random(30) }, () => [Array.from({ length: 1 + random(9) }, () => names[random(names.length)]).join(' '), 1 + random(50)]);
    const q = profileOf(SERVER, stacks);
    const s = select(q, plainLook(), null);
    const own = new Mine(q, []);
    const down = mergeDown(s, [0], { fold: random(2) === 1, mine: own });
    assert.equal(selfs(down), s.total);
    assert.equal(selfs(leafFirst(s, { fold: false, mine: own })), s.total);
    const { total } = s.byEntry();
    const widths = new Float64Array(q.names.length);
    for (const n of down.order) {
      if (n === 0) continue;
      let nested = false;
      for (let up = down.parent(n); up > 0; up = down.parent(up)) nested ||= down.entry(up) === down.entry(n);
      if (!nested) widths[down.entry(n)] += down.right(n) - down.left(n);
    }
    widths.forEach((ns, e) => own.entry[e] && assert.equal(ns, total[e], q.names[e]));
  }
});

test('own code follows from place, source and name', () => {
  const functions = {
    'main.(*shop).Get': { module: '/srv/shop', file: '/src/shop/get.go' },
    'net/http.(*conn).serve': { module: '/srv/shop', file: '/usr/local/go/src/net/http/server.go' },
    'runtime.mcall': { module: '/srv/shop' },
    'github.com/lib/pq.(*conn).query': { module: '/srv/shop', file: '/root/go/pkg/mod/github.com/lib/pq/conn.go' },
    'shop::run': { module: '/srv/rust', file: 'src/main.rs' },
    '<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once': { module: '/srv/rust' },
    'serde_json::from_str': { module: '/srv/rust', file: '/srv/u/.cargo/registry/src/x/serde_json/src/de.rs' },
    handler: { module: '/srv/app/views.py', kind: KIND.managed },
    get: { module: '/usr/lib/python3.11/queue.py', kind: KIND.managed },
    wsgi: { module: '/opt/venv/lib/python3.11/site-packages/flask/app.py', kind: KIND.managed },
    bootstrap: { module: '<frozen importlib._bootstrap>', kind: KIND.managed },
    _PyEval_EvalFrameDefault: { module: '/usr/bin/python3.11' },
    'java.util.HashMap.get': { module: '[java]', kind: KIND.managed },
    'com.shop.Cart$$Lambda$19.run': { module: '[java]', kind: KIND.managed },
    'com.shop.Cart.total': { module: '[java]', kind: KIND.managed },
    onRequest: { module: '[javascript]', file: '/srv/app/server.js', kind: KIND.managed },
    emit: { module: '[javascript]', file: 'node:events', kind: KIND.managed },
    '[0x7fc468008]': { module: '[jit]', kind: KIND.jit },
    lodash: { module: '[javascript]', file: '/srv/app/node_modules/lodash/map.js', kind: KIND.managed },
    do_syscall_64: { module: '[kernel]', kind: KIND.kernel },
    exec_simple_query: { module: '/usr/lib/postgresql/17/bin/postgres' },
    PyInit_fast: { module: '/srv/app/fast.so' },
    '[not sampled]': { kind: KIND.mark },
  };
  const own = (exe, flip = []) => {
    const q = profileOf(functions, [['handler', 1]], exe);
    const m = new Mine(q, flip);
    return q.names.filter((_, e) => m.entry[e]);
  };
  const usual = ['main.(*shop).Get', 'shop::run', 'handler', 'com.shop.Cart.total', 'onRequest', 'PyInit_fast', '[not sampled]'];
  assert.deepEqual(own('').sort(), [...usual].sort());
  // A program is own wherever it lies; an interpreter is not.
  assert.ok(own('/usr/lib/postgresql/17/bin/postgres').includes('exec_simple_query'));
  assert.ok(!own('/usr/bin/python3.11').includes('_PyEval_EvalFrameDefault'));
  // The user may say otherwise, by module.
  assert.ok(own('', ['queue.py']).includes('get'));
  assert.ok(!own('', ['views.py']).includes('handler'));
});
