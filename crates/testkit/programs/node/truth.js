// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
// A JavaScript program that knows its shares: jsHeavy calls the same work three times, jsLight once, jsNative
// lets V8's own code work. How long each took is measured by itself, as V8 may compile the same work well into
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

const list = Array.from({ length: 5000 }, (_, i) => (i * 7919) % 5003);
let sink = 0;
let released = 0n;

// CPU time that jsHeavy and jsLight took, ns.
const took = { heavy_ns: 0, light_ns: 0 };

function cpu_ns() {
    const used = process.cpuUsage();
    return (used.user + used.system) * 1000;
}

function turn() {
    const before = cpu_ns();
    sink += jsHeavy();
    const between = cpu_ns();
    sink += jsLight();
    took.light_ns += cpu_ns() - between;
    took.heavy_ns += between - before;
    sink += jsNative(list);
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
for (let i = 0; i < option('warm', 100); i++) sink += jsHeavy() + jsLight() + jsNative(list);
console.log(`READY ${process.pid}`);
