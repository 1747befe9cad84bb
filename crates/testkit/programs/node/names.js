// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';
// Workers with names that Node.js knows, and its own pools of threads, in known numbers (UV_THREADPOOL_SIZE and
// --v8-pool-size of the one that starts it). Each worker finds out its thread's id by itself.
//
// Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
const { Worker, isMainThread, parentPort } = require('worker_threads');
const fs = require('fs');

if (!isMainThread) {
    parentPort.postMessage(Number(fs.readlinkSync('/proc/thread-self').split('/')[2]));
    setInterval(() => {
        const end = Date.now() + 5;
        while (Date.now() < end);
    }, 20);
} else {
    const at = process.argv.indexOf('--seconds');
    const seconds = at < 0 ? 3 : Number(process.argv[at + 1]);
    const threads = [];
    const row = (tid, name) => ({
        pid: process.pid, tid, name, start_ns: 0, end_ns: 0, work_wall_ns: 0, on_cpu_ns: 0, run_delay_ns: 0,
        voluntary_switches: 0, involuntary_switches: 0, operations: 0, finished: true,
    });
    const start = (name) => new Promise((done) => {
        new Worker(__filename, { name }).once('message', (tid) => {
            threads.push(row(tid, name));
            done();
        });
    });
    // The first request makes the pool.
    fs.stat('.', async () => {
        await start('found-at-start');
        console.log(`READY ${process.pid}`);
    });
    process.stdin.once('data', async () => {
        const released = Number(process.hrtime.bigint());
        process.stdin.on('end', () => process.exit(0));
        for (const name of ['indexer', 'a worker with a rather long name']) await start(name);
        setTimeout(() => {
            console.log(JSON.stringify({
                program: 'names', executable: 'node', pid: process.pid, released_ns: released,
                ended_ns: Number(process.hrtime.bigint()), threads, functions: [], chains: [], extra: {},
            }));
        }, seconds * 1000);
    });
}
