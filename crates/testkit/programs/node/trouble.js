// SPDX-License-Identifier: MIT OR Apache-2.0
// A service that fills its heap: V8 collects garbage most of the time.
'use strict';

const KEPT = 120000;
const kept = new Array(KEPT);

function makeEntry(n) {
  return { id: n, name: 'entry ' + n, parts: [n, n + 1, { more: [n] }] };
}

function replaceEntries(from) {
  for (let n = from; n < from + 20000; n++) kept[(n * 7919) % KEPT] = makeEntry(n);
}

for (let from = 0; ; from += 20000) replaceEntries(from);
