// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
// A JavaScript program that knows its shares: jsHeavy calls the same work three times, jsLight once, jsNative
// lets V8's own code work, jsAdd and jsLoad spend their time in small functions of V8's that they call directly and
// that mostly make no frame (additions of all kinds of things, properties of objects of many shapes), and jsCall
// in calls of a tiny function. How long each took is measured by itself, as V8 may compile the same work well into
// one of them and less well into the other. Between turns it goes back to the event loop.
//
// With --units N it makes a fixed amount of work instead, in one go, and tells its time; with --piece N
// pieces of N units until a further line comes, and tells when each ended.
//
// Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
function option(name, otherwise) {
    const index = process.argv.indexOf('--' + name);
    return index < 0 ? otherwise : Number(process.argv[index + 1]);
}
const seconds = option('seconds', 3);
const units = option('units', 0);
const piece = option('piece', 0);
const pieceEnds = [];
let over = false;

function work(turns) {
    let x = 0;
    for (let i = 0; i < turns; i++) x = (x * 31 + i) | 0;
    return x;
}

function jsHeavy() {
    return work(300000) + work(300000) + work(300000);
}

function jsLight() {
    return work(300000);
}

function jsNative(list) {
    return list.slice().sort((a, b) => a - b).length;
}

const mixed = [1, 2.5, 3, 1e10, 'a', 7, 0.1, 4, undefined, 5];

function jsAdd(turns) {
    let sum = 0;
    for (let i = 0; i < turns; i++) sum = mixed[i % mixed.length] + i;
    return sum === 0 ? 1 : 0;
}

const shapes = Array.from({ length: 64 }, (_, i) => ({ ['only' + i]: 1, value: i }));

function jsLoad(turns) {
    let sum = 0;
    for (let i = 0; i < turns; i++) sum += shapes[i & 63].value;
    return sum;
}

function tiny(x) {
    return (x * 31 + 7) | 0;
}

function jsCall(turns) {
    let x = 0;
    for (let i = 0; i < turns; i++) x = tiny(x);
    return x;
}

const list = Array.from({ length: 5000 }, (_, i) => (i * 7919) % 5003);
let sink = 0;
let released = 0n;

// CPU time that the functions took, ns.
const took = { heavy_ns: 0, light_ns: 0, native_ns: 0, add_ns: 0, load_ns: 0, call_ns: 0 };

function cpu_ns() {
    const used = process.cpuUsage();
    return (used.user + used.system) * 1000;
}

function turn() {
    const at = [cpu_ns()];
    sink += jsHeavy();
    at.push(cpu_ns());
    sink += jsLight();
    at.push(cpu_ns());
    sink += jsNative(list);
    at.push(cpu_ns());
    sink += jsAdd(120000);
    at.push(cpu_ns());
    sink += jsLoad(300000);
    at.push(cpu_ns());
    sink += jsCall(300000);
    at.push(cpu_ns());
    Object.keys(took).forEach((which, i) => { took[which] += at[i + 1] - at[i]; });
    if (process.hrtime.bigint() - released < seconds * 1e9) {
        setTimeout(turn, 1);
        return;
    }
    tell({ sink, ...took });
}

function fixed() {
    const before = process.cpuUsage();
    for (let i = 0; i < units; i++) sink += jsHeavy() + jsLight();
    const used = process.cpuUsage(before);
    tell({ sink, cpu_ns: (used.user + used.system) * 1000, wall_ns: Number(process.hrtime.bigint() - released) });
}

function pieces() {
    for (let i = 0; i < piece; i++) sink += jsHeavy() + jsLight();
    pieceEnds.push(Number(process.hrtime.bigint()));
    if (over) tell({ sink });
    else setImmediate(pieces);
}

function tell(extra) {
    const truth = {
        program: 'node', executable: 'node', pid: process.pid, released_ns: Number(released),
        ended_ns: Number(process.hrtime.bigint()), threads: [], functions: [], chains: [], extra,
        piece_ends: pieceEnds,
    };
    console.log(JSON.stringify(truth));
}

process.stdin.once('data', () => {
    released = process.hrtime.bigint();
    process.stdin.on('end', () => process.exit(0));
    process.stdin.on('data', () => { over = true; });
    if (units) fixed();
    else if (piece) pieces();
    else turn();
});
// Long enough for everything to be compiled.
for (let i = 0; i < option('warm', 100); i++) {
    sink += jsHeavy() + jsLight() + jsNative(list) + jsAdd(120000) + jsLoad(300000) + jsCall(300000);
}
console.log(`READY ${process.pid}`);
