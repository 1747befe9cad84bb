// Recordings small enough to be checked by hand, written as the recorder writes them.

import { Columns } from '../../js/decode.js';
import { Profile } from '../../js/profile.js';
import { REASONS as BLOCKED } from '../../js/colours.js';

/** The page's columns, from lists of numbers and strings. */
export function encode(meta, columns, strings) {
  const bytes = [];
  const index = {};
  const put = (name, values) => {
    const start = bytes.length;
    for (let value of values) {
      while (value >= 128) {
        bytes.push((value % 128) + 128);
        value = Math.floor(value / 128);
      }
      bytes.push(value);
    }
    index[name] = [start, values.length];
  };
  for (const [name, values] of Object.entries(columns)) put(name, values);
  const text = new TextEncoder();
  for (const [name, values] of Object.entries(strings)) {
    const encoded = values.map((v) => text.encode(v));
    put(`${name}.len`, encoded.map((e) => e.length));
    const start = bytes.length;
    for (const e of encoded) bytes.push(...e);
    index[name] = [start, bytes.length - start];
  }
  const head = text.encode(JSON.stringify({ version: 1, ...meta, columns: index }));
  const out = new Uint8Array(4 + head.length + bytes.length);
  new DataView(out.buffer).setUint32(0, head.length, true);
  out.set(head, 4);
  out.set(bytes, 4 + head.length);
  return out;
}

const zigzag = (values) => values.map((v, i) => {
  const d = v - (i > 0 ? values[i - 1] : 0);
  return d >= 0 ? d * 2 : -d * 2 - 1;
});

export const REASONS = [
  ...BLOCKED.map((r) => r.name),
  'user', 'kernel', 'irq', 'stolen', 'woken', 'preempted', 'throttled', 'no_record', 'lost_events', 'not_in_source',
];

const tag = (state, reason) => state | ((reason ? REASONS.indexOf(reason) + 1 : 0) << 2);

/**
 * Two threads, four slices of 1 s:
 *
 *     main ─ work ─ work ─ leaf      on CPU 300 (thread 0), 100 (thread 1)
 *        │      └ lock ─ futex[k]    blocked on a lock, 500 (thread 0)
 *        └ idle                      blocked on poll, 50 (thread 1)
 *     [not sampled]                  rows of no time, one a group
 */
export function small() {
  const names = ['main', 'work', 'leaf', 'lock', 'futex', 'idle', '[not sampled]'];
  const meta = {
    title: 'small',
    finding: null,
    reasons: REASONS,
    window: { start: 1_000, end: 1_000 + 4e9, clock: 'CLOCK_MONOTONIC', unix_ms: 0 },
    slices: { start: 1_000, width: 1e9, count: 4 },
    domain: { tool: '', backend: '', why: '', privilege: '', kernel: '', cpus: 1, target: '', events: [], columns: [['on_cpu', true, 'counted']], limits: [], notes: [] },
    losses: [],
    cost: {},
    scaling: {},
    processes: [],
    host: [],
    pauses: [],
    threads: [thread('a', 1, 300, { lock: 500 }), thread('b', 2, 100, { poll: 50 })],
  };
  // Nodes in depth-first order: 0 root, 1 main, 2 work, 3 lock, 4 futex, 5 work, 6 leaf, 7 idle,
  // 8 [not sampled].
  const entry = [0, 0, 1, 3, 4, 1, 2, 5, 6];
  const pops = [0, 0, 0, 0, 0, 2, 0, 3, 2];
  // Rows in the order in which nodes are left: 4, 3, 6, 5, 2, 7, 1, 8, 0.
  const rows = [
    { node: 4, context: 0, tag: tag(2, 'lock'), count: 5, ns: 500, slices: [[0, 400, 4], [2, 100, 1]] },
    { node: 6, context: 0, tag: tag(0, 'user'), count: 30, ns: 300, slices: [[1, 200, 20], [2, 100, 10]] },
    { node: 6, context: 1, tag: tag(0, 'user'), count: 10, ns: 100, slices: [[3, 100, 10]] },
    { node: 7, context: 1, tag: tag(2, 'poll'), count: 1, ns: 50, slices: [[0, 50, 1]] },
    { node: 8, context: 0, tag: tag(0), count: 0, ns: 0, slices: [] },
    { node: 8, context: 0, tag: tag(2, 'lock'), count: 0, ns: 0, slices: [] },
    { node: 8, context: 1, tag: tag(0), count: 0, ns: 0, slices: [] },
    { node: 8, context: 1, tag: tag(2, 'poll'), count: 0, ns: 0, slices: [] },
  ];
  // Exact time by slice. Slice 3: thread 0 was blocked for 40 that no sample saw.
  const ledger = [
    [0, 0, 0, 0, { lock: 440 }], [0, 1, 200, 0, {}], [0, 2, 100, 0, { lock: 20 }], [0, 3, 0, 0, { lock: 40 }],
    [1, 0, 0, 0, { poll: 50 }], [1, 3, 100, 0, {}],
  ];
  const mask = (blocked) => REASONS.slice(0, BLOCKED.length).reduce((m, r, i) => m + (blocked[r] ? 2 ** i : 0), 0);
  const steps = rows.flatMap((r) => r.slices.map(([s], i) => s - (i > 0 ? r.slices[i - 1][0] : 0)));
  const data = encode(
    meta,
    {
      'entry.module': [1, 1, 1, 1, 2, 1, 0],
      'entry.kind': [0, 0, 0 | 8, 0, 1, 0, 3],
      'entry.line': [1, 2, 3, 4, 0, 6, 0],
      'entry.file': [1, 1, 1, 1, 0, 1, 0],
      'node.pops': pops,
      'node.entry': entry,
      'row.node': zigzag(rows.map((r) => r.node)),
      'row.context': rows.map((r) => r.context),
      'row.tag': rows.map((r) => r.tag),
      'row.count': rows.map((r) => r.count),
      'row.ns': rows.map((r) => r.ns),
      'row.slices': rows.map((r) => r.slices.length),
      'slice.step': steps,
      'slice.ns': rows.flatMap((r) => r.slices.map((s) => s[1])),
      'slice.count': rows.flatMap((r) => r.slices.map((s) => s[2])),
      'lines.alike': [0, 2, 4, 0, 0, 1, 1, 1],
      'lines.more': [4, 2, 0, 2, 1, 0, 0, 0],
      'lines.line': [10, 20, 30, 0, 21, 31, 11, 60, 0],
      'ledger.context': zigzag(ledger.map((l) => l[0])),
      'ledger.slice': zigzag(ledger.map((l) => l[1])),
      'ledger.on_cpu': ledger.map((l) => l[2]),
      'ledger.runnable': ledger.map((l) => l[3]),
      'ledger.reasons': ledger.map((l) => mask(l[4])),
      'ledger.blocked': ledger.flatMap((l) => REASONS.map((r) => l[4][r]).filter((v) => v)),
      'module.kind': [0, 1],
    },
    { 'entry.name': names, file: ['', 'small.c'], 'module.path': ['/bin/small', '[kernel]'], 'module.build': ['ab', ''] },
  );
  return new Profile(new Columns(data));
}

function thread(name, tid, user, blocked) {
  const waits = REASONS.slice(0, BLOCKED.length).map((r) => blocked[r] ?? 0);
  return {
    pid: 1, tid, name, start: 0, end: 0,
    wall: user + waits.reduce((a, b) => a + b, 0),
    on_cpu: [user, 0, 0, 0], runnable: [0, 0, 0], blocked: waits, unknown: [0, 0, 0],
    residue: 0, repaired: 0, idle: 0, switches: [0, 0], audit: null,
  };
}
