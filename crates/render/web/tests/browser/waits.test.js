// Why it waited: the timeline, wakers, lengths, locks, peers and chains, on a recording of the
// demonstration service made with --timeline.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { longestLock, look, settled, suite, total } from '../browser.js';

const on = suite();

test('the intervals of each lane sum to the ledger of its thread', async () => {
  await on('waits', { look: 'tab=lanes' }, async (page) => {
    const worst = await page.evaluate(() => {
      const { lanes, profile } = globalThis.wallscope;
      const sum = (list) => list.reduce((a, c) => a + c, 0);
      return Math.max(
        ...lanes.lanes.map((lane) => {
          const t = profile.meta.threads[lane.context];
          const exact = [t.on_cpu, t.runnable, t.blocked].map(sum);
          const own = [0, 0, 0, 0];
          lane.tag.forEach((tag, i) => {
            own[tag & 3] += lane.edge[i + 1] - lane.edge[i];
          });
          // Repairs come later than the intervals were told.
          return Math.max(...exact.map((ns, s) => Math.abs(ns - own[s]))) - t.repaired - sum(t.unknown);
        }),
      );
    });
    assert.ok(worst <= 0, `${worst} ns`);
    assert.equal(await page.evaluate(() => globalThis.wallscope.lanes.lanes.length), await page.evaluate(() => globalThis.wallscope.profile.meta.threads.length));
  });
});

test('a lane is painted as its time was: single intervals in their colour, many by their shares', async () => {
  // Near and far: what is painted is what the intervals say of the stretch in sight.
  for (const range of ['', '1000000000~1400000000', '2000000000~2004000000']) {
    await on('waits', { look: `tab=lanes&range=${range}` }, async (page) => {
      await page.waitForFunction(() => globalThis.wallscope.lanes.frames > 0);
      const off = await page.evaluate(() => {
        const { lanes } = globalThis.wallscope;
        const wide = Math.floor(lanes.width());
        const shown = lanes.shown.slice(0, 10);
        const { data } = lanes.canvas.getContext('2d').getImageData(130, 0, wide, 16 + shown.length * 20);
        const span = lanes.to - lanes.from;
        let worst = 0;
        shown.forEach((lane, k) => {
          let known = 0;
          let cpu = 0;
          for (let i = 0; i < lane.tag.length; i += 1) {
            const part = Math.max(0, Math.min(lanes.to, lane.edge[i + 1]) - Math.max(lanes.from, lane.edge[i]));
            if ((lane.tag[i] & 3) < 3) known += part;
            if ((lane.tag[i] & 3) === 0) cpu += part;
          }
          let painted = 0;
          let yellow = 0;
          for (let y = 16 + k * 20 + 1; y < 16 + k * 20 + 19; y += 1) {
            for (let x = 0; x < wide; x += 1) {
              const at = (y * wide + x) * 4;
              painted += data[at + 3] > 0;
              yellow += data[at] === 0xeb && data[at + 1] === 0xa9 && data[at + 2] === 0x3b;
            }
          }
          const all = wide * 18;
          worst = Math.max(worst, Math.abs(painted / all - known / span), Math.abs(yellow / all - cpu / span));
        });
        return worst;
      });
      assert.ok(off < 0.02, `${range}: ${off}`);
    });
  }
});

test('the timeline zooms, moves, keeps its place in the address, and follows the filters', async () => {
  await on('waits', { look: 'tab=lanes' }, async (page) => {
    const canvas = page.locator('.tracks canvas');
    await canvas.hover({ position: { x: 700, y: 60 } });
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -900);
    await page.keyboard.up('Control');
    await page.waitForFunction(() => globalThis.wallscope.look.range.includes('~'));
    const [from, to] = (await look(page)).range.split('~').map(Number);
    assert.ok(from > 0 && to < 4e9 && to - from < 2e9);
    const address = page.url();
    await canvas.focus();
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction((was) => location.href !== was, address);
    const shifted = Number((await look(page)).range.split('~')[0]);
    assert.ok(Math.abs(shifted - from - (to - from) * 0.2) < 2, `${from} ${shifted}`);
    await page.keyboard.press('0');
    await page.waitForFunction(() => globalThis.wallscope.look.range === '');
    // A click on a name shows that thread alone, and again all.
    await canvas.click({ position: { x: 40, y: 26 } });
    assert.equal((await look(page)).threads.length, 1);
    assert.equal(await page.evaluate(() => globalThis.wallscope.lanes.shown.length), 1);
    await canvas.click({ position: { x: 40, y: 26 } });
    assert.equal((await look(page)).threads.length, 0);
  });
});

test('one thread has its stacks in time order, in steps of the recording', async () => {
  await on('waits', { look: 'tab=lanes' }, async (page) => {
    assert.equal(await page.locator('#pane-lanes .ordered').isVisible(), false);
    assert.match(await page.locator('#pane-lanes').innerText(), /Choose one thread/);
    await page.locator('#threads tbody tr', { hasText: 'worker-0' }).click();
    assert.match(await page.locator('#pane-lanes h3').innerText(), /Stacks of worker-0 \d+ in time order/);
    const told = await page.evaluate(() => {
      const { lanes, profile, selection } = globalThis.wallscope;
      const { shape, paint, from, to } = lanes.order.graph.scene;
      // Each stack's time in the picture, beside its time in the slices.
      const drawn = new Map();
      const [begin, end] = [(s) => profile.sliceBegin(s), (s) => profile.sliceBegin(s + 1)];
      let outside = 0;
      for (const n of shape.order) {
        const [left, right, up] = [shape.left(n), shape.right(n), shape.parent(n)];
        if (left < shape.left(up) - 1 || right > shape.right(up) + 1) outside += 1;
        for (let s = 0; shape.level(n) === 1 && s < profile.slices; s += 1) drawn.set(s, (drawn.get(s) ?? 0) + Math.max(0, Math.min(right, end(s)) - Math.max(left, begin(s))));
      }
      const known = new Map();
      selection.weight.forEach((ns, r) => {
        if (ns === 0) return;
        for (let k = profile.sliceStart[r]; k < profile.sliceStart[r + 1]; k += 1) known.set(profile.slice[k], (known.get(profile.slice[k]) ?? 0) + profile.sliceNs[k]);
      });
      const worst = Math.max(...[...known].map(([s, ns]) => Math.abs(Math.min(end(s) - begin(s), ns) - drawn.get(s)) / (end(s) - begin(s))));
      const states = paint.sums.reduce((a, sum) => a + sum.at(-1), 0);
      return { outside, worst, slices: known.size, states, sum: [...drawn.values()].reduce((a, b) => a + b, 0), from, to, duration: profile.duration };
    });
    assert.equal(told.outside, 0);
    assert.ok(told.slices > 5 && told.worst < 0.11, JSON.stringify(told));
    assert.ok(Math.abs(told.states - told.sum) < 1e-6 * told.sum + 1000, JSON.stringify(told));
    assert.deepEqual([told.from, told.to], [0, told.duration]);
  });
  await on('waits', { look: 'tab=lanes&names=worker-0&range=1000000000~1400000000' }, async (page) => {
    const { from, to } = await page.evaluate(() => globalThis.wallscope.lanes.order.graph.scene);
    assert.deepEqual([from, to], [1e9, 1.4e9]);
  });
});

test('pointing at a wait tells what it was, and an arrow comes from its waker', async () => {
  await on('waits', { look: 'tab=lanes' }, async (page) => {
    const spot = await longestLock(page);
    assert.ok(spot.ns > 50e6);
    await page.locator('.tracks canvas').hover({ position: spot });
    await page.waitForFunction(() => globalThis.wallscope.lanes.hot !== null);
    const told = await page.locator('#pane-lanes .strip-caption').innerText();
    assert.match(told, /: blocked \(lock\) for \d+ ms from .* on, ended by /);
    assert.ok(told.includes(spot.by), told);
  });
});

test('the view of wakers has the same time as that of waits, with the wakers on top', async () => {
  await on('waits', { look: 'view=off-cpu' }, async (page) => {
    const waits = await total(page);
    await page.click('[data-view=off-wake]');
    assert.equal(await total(page), waits);
    await page.evaluate(() => globalThis.wallscope.change({ reasons: ['lock'] }));
    const locks = await total(page);
    assert.ok(locks > 0 && locks < waits);
    await page.locator('#tabs button', { hasText: 'Functions' }).click();
    const functions = await page.locator('table.functions tbody').innerText();
    assert.match(functions, /\[woken by compaction\]/);
    // In time too: a part of the recording has a part of the waits, as in the other view.
    await page.evaluate(() => globalThis.wallscope.change({ reasons: [], time: [[3, 9]] }));
    const part = await total(page);
    await page.evaluate(() => globalThis.wallscope.change({ view: 'off-cpu' }));
    assert.ok(Math.abs(part / (await total(page)) - 1) < 1e-6);
  });
});

test('one click leads from a function that waits to the wakers', async () => {
  await on('waits', { look: 'view=off-cpu&tab=table&query=::cache_get' }, async (page) => {
    await page.locator('table.functions tbody tr', { hasText: '::cache_get' }).first().click();
    const panel = await page.locator('#detail').innerText();
    assert.match(panel, /Wakers of its waits[\s\S]*woken by compaction/i);
    assert.match(panel, /How long its single intervals were[\s\S]*blocked: about \d+, half up to [\d.]+ m?s, 99 % up to/i);
    assert.ok((await page.locator('#detail .histogram i').count()) > 3);
    await page.locator('#detail button', { hasText: 'With their stacks' }).click();
    const l = await look(page);
    assert.equal(l.view, 'off-wake');
    assert.ok(l.focus >= 0);
    await settled(page);
    const names = await page.evaluate(() => {
      const { callees, profile } = globalThis.wallscope;
      const { shape } = callees.scene;
      return [...shape.order].map((n) => profile.names[shape.entry(n)] ?? '');
    });
    assert.ok(names.some((n) => n.startsWith('[woken by ')) && names.some((n) => /futex_wake|unlock/.test(n)));
  });
});

test('waits have their lengths by reason or by thread, locks their holders, peers their requests', async () => {
  await on('waits', { look: 'tab=waits' }, async (page) => {
    const text = () => page.locator('#pane-waits').innerText();
    const all = await text();
    for (const part of [/blocked: lock/, /runnable: preempted/, /on CPU/, /futex 0x[0-9a-f]+ \(heap of process \d+\)/, /awaits/, /owes/, /127\.0\.0\.1:\d+/]) assert.match(all, part);
    await page.locator('#pane-waits summary', { hasText: 'heap of process' }).first().click();
    assert.match(await text(), /ended by compaction in \S*compaction, meanwhile:[\s\S]*compaction is blocked \(timer\) in .*write_segment/);
    // The counts of one thread are its own.
    await page.locator('table.threads tbody tr', { hasText: 'compaction' }).click();
    const rows = await page.locator('#pane-waits table').first().locator('tbody tr').allInnerTexts();
    assert.equal(rows.length, 3);
    const switches = await page.evaluate(() => globalThis.wallscope.profile.meta.threads.find((t) => t.name === 'compaction').switches.reduce((a, c) => a + c, 0));
    const stretches = Number(rows[0].split('\t')[1].replace(/\D/g, ''));
    // The last stretch may still have been open, and one or two switches are hidden.
    assert.ok(Math.abs(stretches - switches) <= 3, `${stretches} ${switches}`);
  });
});

test('chains show what time was really spent on, and sum to what is chosen', async () => {
  await on('waits', { look: 'tab=why' }, async (page) => {
    const sums = () =>
      page.evaluate(() => {
        const { chains, selection } = globalThis.wallscope;
        const { shape } = chains.graph.scene;
        let own = 0;
        let worst = 0;
        for (let n = 0; n < shape.entries.length; n += 1) {
          own += shape.selfs[n];
          worst = Math.min(worst, shape.selfs[n]);
        }
        return { total: shape.total, own, worst, chosen: selection.total, levels: shape.levels };
      });
    const s = await sums();
    assert.ok(Math.abs(s.total / s.chosen - 1) < 1e-9 && Math.abs(s.own / s.chosen - 1) < 1e-9, JSON.stringify(s));
    assert.ok(s.worst > -10 && s.levels > 4, JSON.stringify(s));
    // Asked about a function, it is the time of that.
    await page.evaluate(() => {
      const page = globalThis.wallscope;
      page.change({ pick: page.profile.names.findIndex((n) => n.endsWith('::cache_get')) });
    });
    const asked = await sums();
    assert.ok(asked.total > 0 && asked.total < s.total / 2);
    const ends = await page.locator('#pane-why table').innerText();
    assert.match(ends, /compaction is blocked \((timer|disk)/);
  });
});

test('a recording without these has no empty tabs for them', async () => {
  await on('labels', { look: 'tab=lanes' }, async (page) => {
    assert.equal((await look(page)).tab, 'flame');
    const tabs = await page.locator('#tabs button').allInnerTexts();
    assert.deepEqual(tabs, ['Flame graph', 'Functions', 'Over time', 'Waits', 'What was measured']);
    assert.equal(await page.locator('[data-view=off-wake]').count(), 0);
    await page.keyboard.press('w');
    assert.match(await page.locator('#pane-waits').innerText(), /No requests on connections were seen/);
  });
});
