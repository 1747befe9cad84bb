// Everything that the page promises, in a browser, on a real recording (the demonstration service)
// and on made-up ones where a real one would not do.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { browser, open, settled } from '../browser.js';

/** @type {Awaited<ReturnType<typeof browser>>} */
let b;
before(async () => {
  b = await browser();
});
after(() => b.close());

/** Opens a page, runs `check`, and sees that nothing went wrong on the way. */
async function on(name, options, check) {
  const page = await open(b.context, name, options);
  try {
    await check(page);
    assert.deepEqual(page.wrong, []);
  } finally {
    await page.close();
  }
}

const look = (page) => page.evaluate(() => globalThis.wallscope.look);
const total = (page) => page.evaluate(() => globalThis.wallscope.selection.total);
/** Where a function's first frame lies in the flame graph, CSS pixels within the canvas. */
const place = (page, pattern) =>
  page.evaluate((source) => {
    const { flame, profile } = globalThis.wallscope;
    const { shape, from, to } = flame.scene;
    const wanted = new RegExp(source);
    for (let level = 0; level < shape.levels; level += 1) {
      for (let i = shape.levelStart[level]; i < shape.levelEnd[level]; i += 1) {
        const n = shape.order[i];
        if (shape.entry(n) < 0 || !wanted.test(profile.names[shape.entry(n)])) continue;
        const width = flame.scroller.clientWidth;
        const at = (ns) => ((ns - from) / (to - from)) * width;
        const x = (at(shape.left(n)) + at(shape.right(n))) / 2;
        flame.scroller.scrollTop = Math.max(0, level * 19 - 100);
        return { n, x, y: level * 19 + 9 - flame.scroller.scrollTop };
      }
    }
    return null;
  }, pattern);

test('it is one file, with a policy, and asks for nothing', async () => {
  await on('demo', {}, async (page) => {
    const policy = await page.locator('meta[http-equiv=Content-Security-Policy]').getAttribute('content');
    assert.match(policy, /^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'/);
    assert.doesNotMatch(policy, /unsafe/);
    // The policy is in force: a script that is not the page's own does not run.
    await page.evaluate(() => {
      const s = document.createElement('script');
      s.textContent = 'globalThis.intruder = 1';
      document.body.append(s);
    });
    assert.equal(await page.evaluate(() => globalThis.intruder), undefined);
    assert.equal(page.wrong.length, 1);
    assert.match(page.wrong.pop(), /Content Security Policy/);
  });
});

test('in every view the stacks sum to the ledger, to the nanosecond', async () => {
  await on('demo', {}, async (page) => {
    const states = { wall: [0, 1, 2, 3], 'on-cpu': [0], 'off-cpu': [2], runq: [1] };
    for (const [view, which] of Object.entries(states)) {
      await page.click(`[data-view=${view}]`);
      const exact = await page.evaluate((wanted) => {
        const of = (t, s) => [t.on_cpu, t.runnable, t.blocked, t.unknown][s].reduce((a, c) => a + c, 0);
        return globalThis.wallscope.profile.meta.threads.reduce((sum, t) => sum + wanted.reduce((a, s) => a + of(t, s), 0), 0);
      }, which);
      assert.equal(await total(page), exact, view);
      assert.ok(exact > 0, view);
    }
  });
});

test('the ledger stands on top: finding, bar, states with badges that say what they rest on', async () => {
  await on('demo', {}, async (page) => {
    assert.match(await page.locator('.finding').innerText(), /threads.* blocked .*no CPU work could save/);
    // The finding is the recorder's, by a rule that takes something for granted: suspected.
    await page.locator('.finding .badge.suspected').click();
    const why = await page.locator('.popup').innerText();
    for (const part of ['counted and not sampled', 'is a suspicion: it takes for granted that', 'Rule blocked, which speaks when', 'blocked most on', 'CPUs kept busy']) assert.ok(why.includes(part), part);
    await page.keyboard.press('Escape');
    assert.match(await page.locator('.bar.big').getAttribute('aria-label'), /on CPU · user .*blocked · network/);
    const legend = await page.locator('.legend-state').allInnerTexts();
    assert.equal(legend.length, 3);
    await page.locator('.legend-state .badge').first().click();
    assert.match(await page.locator('.popup').innerText(), /counted at every change/);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.popup').count(), 0);
    // A click on a part of the bar shows that part.
    await page.locator('.bar.big .state-blocked').first().click();
    const l = await look(page);
    assert.equal(l.view, 'off-cpu');
    assert.equal(l.reasons.length, 1);
  });
});

test('threads are bars that sort, and a click filters by them', async () => {
  await on('demo', {}, async (page) => {
    const names = () => page.locator('table.threads tbody tr td:first-child').allInnerTexts();
    await page.locator('table.threads th button', { hasText: 'Thread' }).click();
    const up = await names();
    assert.deepEqual(up.map((n) => n.split(' ')[0]), up.map((n) => n.split(' ')[0]).sort());
    await page.locator('table.threads th button', { hasText: 'On CPU' }).click();
    assert.notDeepEqual(await names(), up);
    const whole = await total(page);
    await page.locator('table.threads tbody tr').first().click();
    const one = await total(page);
    assert.ok(one > 0 && one < whole / 10);
    // The sentence of what is chosen is the page's own, and arithmetic.
    assert.match(await page.locator('.finding').innerText(), /One thread lived/);
    await page.locator('.finding .badge.exact').click();
    assert.match(await page.locator('.popup').innerText(), /sums of the chosen threads/);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('#chips .chip').count(), 1);
    await page.locator('table.threads tbody tr').nth(1).click({ modifiers: ['Control'] });
    assert.equal((await look(page)).threads.length, 2);
    await page.goBack();
    assert.equal(await total(page), one);
    await page.locator('#chips .chip').click();
    assert.equal(await total(page), whole);
  });
});

test('hovering a frame tells total, share, interval and self', async () => {
  await on('demo', {}, async (page) => {
    const spot = await place(page, 'handle_request$');
    await settled(page);
    await page.locator('#flame canvas').hover({ position: spot });
    await page.locator('#tip:not([hidden])').waitFor();
    await page.waitForFunction(() => /samples/.test(document.getElementById('tip').innerText));
    const tip = await page.locator('#tip').innerText();
    assert.match(tip, /handle_request/);
    assert.match(tip, /\d % .* s .*\(.* … .*, [\d ]+ samples\) · self/);
    assert.match(tip, /on CPU .* blocked/);
  });
});

test('a click zooms, the trail and the back button return', async () => {
  await on('demo', {}, async (page) => {
    const spot = await place(page, 'handle_request$');
    await settled(page);
    await page.locator('#flame canvas').click({ position: spot });
    assert.equal((await look(page)).zoom, String(spot.n));
    const ends = await page.evaluate(() => [globalThis.wallscope.flame.scene.from, globalThis.wallscope.flame.scene.to]);
    assert.ok(ends[0] > 0);
    assert.match(await page.locator('#trail').innerText(), /all › .*handle_request/);
    await page.goBack();
    assert.equal((await look(page)).zoom, '');
    await page.goForward();
    await page.locator('#trail button').first().click();
    assert.equal((await look(page)).zoom, '');
    // Ctrl and the wheel zoom anywhere, and that is in the address too.
    await page.locator('#flame canvas').hover({ position: spot });
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -600);
    await page.keyboard.up('Control');
    await page.waitForFunction(() => globalThis.wallscope.look.zoom.includes('~'));
  });
});

test('frames are coloured by state, reason, kind and module; kernel and inlined ones are marked', async () => {
  await on('demo', {}, async (page) => {
    const key = async (button) => {
      await page.locator('#flame-tools button', { hasText: button }).click();
      return page.locator('#key').innerText();
    };
    assert.match(await key('Module'), /libc\.so\.6\n[\s\S]*wallscope-demo|wallscope-demo\n[\s\S]*libc\.so\.6/);
    assert.match(await key('Kind of code'), /own code[\s\S]*library[\s\S]*kernel/);
    assert.match(await key('Reason'), /network[\s\S]*lock|lock[\s\S]*network/);
    assert.match(await key('State'), /on CPU[\s\S]*runnable[\s\S]*blocked/);
    const drawn = await page.evaluate(() => {
      const { flame, profile } = globalThis.wallscope;
      const { shape, from, to } = flame.scene;
      // All levels at once, read back at once.
      flame.scroller.style.height = `${shape.levels * 19 + 10}px`;
      flame.draw();
      const width = flame.scroller.clientWidth;
      const { data } = flame.canvas.getContext('2d').getImageData(0, 0, width, shape.levels * 19);
      const marks = { kernel: 0, marked: 0, inlined: 0 };
      for (let level = 1; level < shape.levels; level += 1) {
        for (let i = shape.levelStart[level]; i < shape.levelEnd[level]; i += 1) {
          const n = shape.order[i];
          const x = ((shape.left(n) - from) / (to - from)) * width;
          if (((shape.right(n) - shape.left(n)) / (to - from)) * width < 30) continue;
          const at = ((flame.y(level) + 9) * width + Math.round(x) + 1) * 4;
          const [r, g, b] = data.subarray(at, at + 3);
          const dark = r === 0x5a && g === 0x4a && b === 0x42;
          const kernel = profile.kind[shape.entry(n)] === 1;
          marks.kernel += kernel;
          marks.marked += kernel && dark;
          if (!kernel && dark) throw new Error(`${profile.names[shape.entry(n)]} is marked as kernel`);
          marks.inlined += profile.inlined[shape.entry(n)];
        }
      }
      return marks;
    });
    assert.ok(drawn.kernel > 5 && drawn.marked === drawn.kernel && drawn.inlined > 5, JSON.stringify(drawn));
    // What is written slanted is what is inlined: the file says so in words.
    await page.click('#save');
    const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.popup button', { hasText: 'SVG' }).click()]);
    assert.match(readFileSync(await file.path()).toString(), /font-style="italic">[^<]*read_line/);
  });
});

test('the graph turns over, starts at the leaves, and folds recursion', async () => {
  const graph = (page) =>
    page.evaluate(() => {
      const { flame, profile } = globalThis.wallscope;
      const { shape } = flame.scene;
      const names = (level) => [...shape.order.subarray(shape.levelStart[level], shape.levelEnd[level])].map((n) => profile.names[shape.entry(n)]);
      let twice = 0;
      for (let level = 1; level < shape.levels; level += 1) {
        for (const n of shape.order.subarray(shape.levelStart[level], shape.levelEnd[level])) twice += shape.entry(n) >= 0 && shape.entry(shape.parent(n)) === shape.entry(n);
      }
      return { total: shape.total, twice, first: names(1), rootAbove: flame.y(0) < flame.y(1) };
    });
  await on('demo', { look: 'view=off-cpu' }, async (page) => {
    const plain = await graph(page);
    assert.ok(plain.rootAbove && plain.first.includes('__clone3'));
    await page.keyboard.press('i');
    await settled(page);
    assert.equal((await graph(page)).rootAbove, false);
    await page.keyboard.press('i');
    await page.keyboard.press('l');
    await settled(page);
    const leaves = await graph(page);
    assert.ok(leaves.first.includes('wait_woken') && !leaves.first.includes('__clone3'));
    assert.ok(Math.abs(leaves.total / plain.total - 1) < 1e-9);
  });
  // A Python program that calls itself, as it was recorded, and one made up.
  for (const [name, least] of [['recursion', 10], ['shop', 3]]) await on(name, {}, async (page) => {
    const plain = await graph(page);
    assert.ok(plain.twice >= least, `${plain.twice}`);
    await page.locator('#flame-tools button', { hasText: 'Fold recursion' }).click();
    await settled(page);
    const folded = await graph(page);
    assert.equal(folded.twice, 0);
    assert.ok(Math.abs(folded.total / plain.total - 1) < 1e-9);
  });
});

test('the panel of a function has its module, source, lines, callers and callees', async () => {
  await on('demo', { look: 'tab=table&query=::cache_get' }, async (page) => {
    await page.locator('table.functions tbody tr', { hasText: '::cache_get' }).first().click();
    const panel = await page.locator('#detail').innerText();
    assert.match(panel, /wallscope-demo/);
    assert.match(panel, /\.rs:\d+/);
    assert.match(panel, /Called by[\s\S]*handle_request/);
    assert.match(panel, /Calls[\s\S]*%/);
    assert.match(panel, /± [\d.]+ pp/);
    assert.match(panel, /Lines\n/);
    await page.locator('#detail .copy').click();
    await page.locator('#live.shown').waitFor();
    assert.match(await page.locator('#live').innerText(), /copied/);
    // What was copied is the stack, leaf first, with its modules.
    await page.fill('#query', '');
    await page.focus('#query');
    await page.keyboard.press('Control+V');
    assert.match(await page.locator('#query').inputValue(), /^wall: .* s\s+\S*::cache_get\s+\/\S+wallscope-demo\s+\S*handle_request/);
    await page.fill('#query', '::cache_get');
    await page.locator('#detail .close').click();
    assert.equal(await page.locator('#detail').isVisible(), false);
  });
});

test('callers and callees of a function, up and down', async () => {
  await on('demo', { look: 'tab=table&query=::cache_get' }, async (page) => {
    await page.locator('table.functions tbody tr', { hasText: '::cache_get' }).first().click();
    await page.locator('#detail .focus').click();
    await page.locator('#focus').waitFor();
    const [up, down] = await page.evaluate(() => {
      const { callers, callees, profile } = globalThis.wallscope;
      return [callers, callees].map((g) => g.scene.shape.entries.map((e) => profile.names[e] ?? ''));
    });
    assert.match(up[0], /cache_get/);
    assert.match(down[0], /cache_get/);
    assert.ok(up.some((n) => /handle_request/.test(n)) && !down.some((n) => /handle_request/.test(n)));
    assert.ok(down.some((n) => /futex/.test(n)) && !up.some((n) => /futex/.test(n)));
    await page.keyboard.press('s');
    assert.equal(await page.locator('#focus').isVisible(), false);
  });
});

test('the table sorts, shows intervals, and marks what rests on too little', async () => {
  await on('demo', { look: 'tab=table' }, async (page) => {
    await page.locator('table.functions .badge').first().waitFor();
    const entries = () => page.locator('table.functions tbody tr').evaluateAll((rows) => rows.map((r) => Number(r.dataset.entry)));
    const value = (by) => page.evaluate((k) => [...globalThis.wallscope.selection.byEntry()[k]], by);
    const sorted = (list, values) => list.every((e, i) => i === 0 || values[list[i - 1]] >= values[e]);
    assert.ok(sorted(await entries(), await value('self')));
    await page.locator('table.functions th button', { hasText: 'Total' }).click();
    assert.ok(sorted(await entries(), await value('total')));
    assert.equal((await look(page)).sort, 'total');
    await page.locator('table.functions th button', { hasText: 'Function' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.badge.suspected').length > 0);
    assert.ok(await page.locator('table.functions .badge.sampled').count() > 0);
  });
});

test('a search lights the graph, filters the table, and tells the share', async () => {
  await on('demo', {}, async (page) => {
    await page.keyboard.press('/');
    await page.keyboard.type('cache_(get|put)');
    await page.waitForFunction(() => /%/.test(document.getElementById('found').textContent));
    const share = await page.evaluate(() => {
      const { selection, profile } = globalThis.wallscope;
      const nodes = profile.names.flatMap((n, e) => (/cache_(get|put)/.test(n) ? selection.nodesOf(e) : []));
      return nodes.reduce((a, n) => a + selection.time(n), 0) / selection.total;
    });
    assert.ok(share > 0.01);
    assert.ok((await page.locator('#found').innerText()).startsWith((share * 100).toFixed(1)));
    assert.ok(await page.evaluate(() => globalThis.wallscope.flame.scene.matches.includes(1)));
    await page.keyboard.press('Escape');
    await page.fill('#query', 'cache_get');
    await page.waitForFunction(() => globalThis.wallscope.look.query === 'cache_get');
    await page.locator('#tab-table').click();
    const rows = await page.locator('table.functions tbody tr').allInnerTexts();
    assert.ok(rows.length > 0 && rows.every((r) => /cache_get/.test(r)));
    await page.locator('#only').check();
    const kept = await total(page);
    await page.locator('#only').uncheck();
    assert.ok(kept > 0 && kept < (await total(page)));
    await page.fill('#query', '(unclosed');
    await page.waitForFunction(() => document.getElementById('query').classList.contains('wrong'));
  });
});

test('what is too narrow to draw can be reached by a click', async () => {
  await on('demo', {}, async (page) => {
    const strip = await page.evaluate(() => {
      const { flame } = globalThis.wallscope;
      const s = flame.strips.find((v) => flame.y(v.level) >= 0 && flame.y(v.level) < 300 && v.to - v.from > 1);
      return s && { x: (s.x0 + s.x1) / 2, y: flame.y(s.level) + 9, n: s.to - s.from };
    });
    assert.ok(strip, 'a real recording has frames too narrow to draw');
    await page.locator('#flame canvas').hover({ position: strip });
    assert.match(await page.locator('#tip').innerText(), new RegExp(`${strip.n} hidden`));
    await page.locator('#flame canvas').click({ position: strip });
    const span = await page.evaluate(() => {
      const { from, to, shape } = globalThis.wallscope.flame.scene;
      return (to - from) / shape.total;
    });
    assert.ok(span < 0.05);
  });
});

test('filters combine, and a link shows the same picture', async () => {
  await on('demo', {}, async (page) => {
    await page.click('[data-view=off-cpu]');
    await page.locator('[data-filter=reasons] summary').click();
    await page.locator('[data-filter=reasons] label', { hasText: 'lock' }).first().click();
    await page.locator('[data-filter=names] summary').click();
    await page.locator('[data-filter=names] label', { hasText: 'worker-0' }).click();
    await page.evaluate(() => globalThis.wallscope.change({ time: [[2, 30]], query: 'cache' }));
    const here = { total: await total(page), look: await look(page) };
    assert.ok(here.total > 0);
    assert.ok((await page.locator('#chips .chip').allInnerTexts()).some((c) => /lock/.test(c)));
    const address = new URL(page.url()).hash.slice(1);
    await on('demo', { look: address }, async (other) => {
      assert.equal(await total(other), here.total);
      assert.deepEqual(await look(other), here.look);
      assert.equal(await other.locator('#query').inputValue(), 'cache');
    });
  });
});

test('filters by process, state and idleness', async () => {
  await on('demo', {}, async (page) => {
    const choose = async (filter, n) => {
      await page.locator(`[data-filter=${filter}] summary`).click();
      await page.locator(`[data-filter=${filter}] label`).nth(n).click();
      await page.keyboard.press('Escape');
    };
    const ofThreads = (pid) => page.evaluate((p) => globalThis.wallscope.profile.meta.threads.filter((t) => t.pid === p).reduce((a, t) => a + [t.on_cpu, t.runnable, t.blocked, t.unknown].flat().reduce((x, y) => x + y, 0), 0), pid);
    const whole = await total(page);
    await choose('pids', 1);
    const [pid] = (await look(page)).pids;
    assert.equal(await total(page), await ofThreads(pid));
    assert.ok((await total(page)) < whole);
    await page.locator('#chips .chip').click();
    await choose('states', 1);
    assert.deepEqual((await look(page)).states, ['runnable']);
    const queued = await page.evaluate(() => globalThis.wallscope.profile.meta.threads.reduce((a, t) => a + t.runnable.reduce((x, y) => x + y, 0), 0));
    assert.equal(await total(page), queued);
  });
  for (const name of ['shop', 'waits']) await on(name, {}, async (page) => {
    const idle = await page.evaluate(() => globalThis.wallscope.profile.meta.threads.reduce((a, t) => a + t.idle, 0));
    assert.ok(idle > 0);
    const busy = await total(page);
    if (name === 'shop') assert.match(await page.locator('#chips').innerText(), /idle hidden: 18\.0 s/);
    await page.locator('#filters button', { hasText: 'show idle' }).click();
    assert.equal(await total(page), busy + idle);
    await page.locator('#filters button', { hasText: 'idle only' }).click();
    assert.equal(await total(page), idle);
    assert.match(new URL(page.url()).hash, /idle=only/);
  });
});

test('labels of the program filter the stacks, alone and together, and stand in the address', async () => {
  await on('labels', {}, async (page) => {
    const labelled = (...wanted) =>
      page.evaluate((pairs) => {
        const { profile } = globalThis.wallscope;
        const has = (r, pair) => (profile.labelSets[profile.rowLabels[r] - 1] ?? []).some((l) => profile.labels[l].text === pair);
        return profile.rowNs.reduce((sum, ns, r) => sum + (pairs.every((pair) => has(r, pair)) ? ns : 0), 0);
      }, wanted);
    const whole = await total(page);
    const choose = async (text) => {
      await page.locator('[data-filter=labels] summary').click();
      await page.locator('[data-filter=labels] label', { hasText: text }).click();
      await page.keyboard.press('Escape');
    };
    await choose('endpoint=/cart');
    const cart = await total(page);
    assert.ok(cart > 0 && cart < whole);
    assert.equal(cart, await labelled('endpoint=/cart'));
    assert.equal(await page.evaluate(() => globalThis.wallscope.selection.byEntry().total.some((ns, e) => ns > 0 && /sort\./.test(globalThis.wallscope.profile.names[e]))), false);
    // Labels of two keys must both be there.
    await choose('tenant=b');
    assert.equal(await total(page), await labelled('endpoint=/cart', 'tenant=b'));
    const address = new URL(page.url()).hash.slice(1);
    await on('labels', { look: address }, async (other) => {
      assert.deepEqual((await look(other)).labels, ['endpoint=/cart', 'tenant=b']);
      assert.equal(await total(other), await total(page));
      assert.equal(await other.locator('#chips .chip', { hasText: 'label endpoint=/cart' }).count(), 1);
    });
    // Values of one key are alternatives.
    await page.evaluate(() => globalThis.wallscope.change({ labels: ['endpoint=/cart', 'endpoint=/search'] }));
    assert.equal(await total(page), cart + (await labelled('endpoint=/search')));
    await page.evaluate(() => globalThis.wallscope.change({ labels: ['endpoint=/nowhere'] }));
    assert.equal(await total(page), 0);
    assert.match(await page.locator('#trail').innerText(), /Nothing is left/);
  });
});

test('brushing the strip computes everything for that time', async () => {
  await on('demo', {}, async (page) => {
    const box = await page.locator('#strip canvas').boundingBox();
    await page.mouse.move(box.x + box.width * 0.25, box.y + 30);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.4, box.y + 30, { steps: 4 });
    await page.mouse.move(box.x + box.width * 0.5, box.y + 30);
    await page.mouse.up();
    const { time } = await look(page);
    assert.equal(time.length, 1);
    const within = await page.evaluate(([from, to]) => {
      const { ledger } = globalThis.wallscope.profile;
      let sum = 0;
      for (let i = 0; i < ledger.rows; i += 1) {
        if (ledger.slice[i] < from || ledger.slice[i] >= to) continue;
        sum += ledger.onCpu[i] + ledger.runnable[i];
        for (let r = 0; r < 13; r += 1) sum += ledger.blocked[i * 13 + r];
      }
      return sum;
    }, time[0]);
    // Of what the ledger counted in that time no share worth a thousandth has no place.
    assert.ok(Math.abs((await total(page)) / within - 1) < 1e-3, `${await total(page)} of ${within}`);
    assert.match(await page.locator('.finding').innerText(), /threads lived/);
    // Where the pointer is, the states' shares are told, the share on a CPU first.
    await page.mouse.move(box.x + box.width * 0.3, box.y + 20);
    assert.match(await page.locator('.strip-caption').innerText(), /s – .* s: on CPU [\d.]+ % · runnable [\d.]+ % · blocked [\d.]+ %/);
    // The arrows move it.
    await page.locator('#strip canvas').focus();
    await page.keyboard.press('ArrowRight');
    assert.equal((await look(page)).time[0][0], time[0][0] + 1);
  });
});

test('a stripe of the heat map is the same part of each second', async () => {
  await on('shop', { look: 'tab=heat&view=off-cpu' }, async (page) => {
    const canvas = page.locator('canvas.heat');
    await canvas.scrollIntoViewIfNeeded();
    const box = await canvas.boundingBox();
    const bottom = box.y + box.height - 20 - 6;
    await page.mouse.move(box.x + 60, bottom);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width - 40, bottom - 40, { steps: 5 });
    await page.mouse.up();
    const { time } = await look(page);
    assert.ok(time.length > 15, `${time.length} stripes`);
    assert.ok(time.every(([from]) => from % 20 === 0));
    await page.locator('#tab-flame').click();
    assert.ok((await total(page)) > 0);
  });
});

test('stripes of a program that computes in one half of each second and sleeps in the other', async () => {
  await on('recursion', { look: 'tab=heat' }, async (page) => {
    const canvas = page.locator('canvas.heat');
    const whole = await total(page);
    let sum = 0;
    const sleeps = [];
    for (let k = 0; k < 4; k += 1) {
      await canvas.scrollIntoViewIfNeeded();
      const box = await canvas.boundingBox();
      const y = box.y + ((box.height - 20) * (k + 0.5)) / 4;
      await page.mouse.move(box.x + 60, y);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width - 6, y, { steps: 4 });
      await page.mouse.up();
      const { time } = await look(page);
      assert.ok(time.length >= 5 && time.every(([from, to]) => from % 4 === 3 - k && to === from + 1), JSON.stringify(time));
      const all = await total(page);
      sum += all;
      sleeps.push(await page.evaluate(() => {
        const { profile, selection } = globalThis.wallscope;
        return selection.byEntry().total[profile.names.indexOf('rest')] / selection.total;
      }));
    }
    assert.ok(Math.abs(sum / whole - 1) < 1e-6, `${sum} ${whole}`);
    // A quarter of a second lies in one half of it, or in both.
    assert.ok(Math.max(...sleeps) > 0.85 && Math.min(...sleeps) < 0.15, sleeps.join(' '));
  });
});

test('managed code is called so, and has a colour of its own', async () => {
  await on('recursion', { look: 'view=on-cpu' }, async (page) => {
    assert.match(await page.locator('#key').innerText(), /managed/);
    const kinds = await page.evaluate(() => {
      const { lastPaint, profile } = globalThis.wallscope;
      const colour = (name) => lastPaint.colours[lastPaint.classOf(profile.names.indexOf(name))];
      return [colour('fib'), colour('PyList_Append')];
    });
    assert.deepEqual(kinds, ['#7fa8f5', '#f0c75e']);
  });
});

test('the heat map and the lanes say what resolution they have', async () => {
  await on('demo', { look: 'tab=heat' }, async (page) => {
    assert.match(await page.locator('#pane-heat').innerText(), /a cell \d+ ms/);
    assert.match(await page.locator('.lanes canvas').getAttribute('aria-label'), /18 threads/);
  });
  await on('coarse', { look: 'tab=heat' }, async (page) => {
    assert.match(await page.locator('#pane-heat').innerText(), /steps of 1\.00 s/);
  });
});

test('the domain: what, how, not seen, lost, cost, and the command to see more', async () => {
  await on('demo', { look: 'tab=domain' }, async (page) => {
    const text = await page.locator('#pane-domain').innerText();
    for (const part of ['What was measured', 'How each state is known', 'exact total', 'resolves shares down to', 'How well the books close', 'What was not seen', 'Remedy: ', 'What was lost', 'What measuring cost', 'of one CPU', 'How to sharpen it', 'wallscope record -F 499']) {
      assert.ok(text.includes(part), part);
    }
  });
});

test('the keyboard reaches everything', async () => {
  await on('demo', {}, async (page) => {
    const state = async () => (await look(page));
    await page.keyboard.press('i');
    assert.equal((await state()).icicle, false);
    await page.keyboard.press('i');
    await page.keyboard.press('t');
    assert.equal((await state()).tab, 'table');
    await page.keyboard.press('t');
    await page.keyboard.press('3');
    assert.equal((await state()).view, 'off-cpu');
    await page.keyboard.press('l');
    assert.equal((await state()).leaf, true);
    await page.keyboard.press('l');
    await page.keyboard.press('r');
    assert.equal((await state()).fold, true);
    await page.keyboard.press('r');
    await page.keyboard.press('1');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowDown']) await page.keyboard.press(key);
    const cursor = await page.evaluate(() => globalThis.wallscope.flame.cursor);
    assert.ok(cursor > 0);
    assert.match(await page.locator('#live').innerText(), /%/);
    await page.keyboard.press('Enter');
    assert.equal((await state()).zoom, String(cursor));
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    assert.equal((await state()).zoom, '');
    for (const [key, tab] of [['o', 'heat'], ['m', 'domain'], ['f', 'flame']]) {
      await page.keyboard.press(key);
      assert.equal((await state()).tab, tab);
    }
    for (const [key, view] of [['2', 'on-cpu'], ['4', 'runq'], ['1', 'wall']]) {
      await page.keyboard.press(key);
      assert.equal((await state()).view, view);
    }
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('s');
    assert.equal(await page.locator('#focus').isVisible(), true);
    await page.keyboard.press('s');
    await page.keyboard.press('c');
    await page.waitForFunction(() => /copied/.test(document.getElementById('live').textContent));
    await page.keyboard.press('?');
    assert.match(await page.locator('.popup').innerText(), /callers and callees/);
    await page.keyboard.press('Escape');
  });
});

test('it saves its picture as SVG and PNG', async () => {
  await on('demo', { look: 'view=off-cpu' }, async (page) => {
    const save = async (what) => {
      await page.click('#save');
      const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.popup button', { hasText: what }).click()]);
      return readFileSync(await file.path());
    };
    const svg = (await save('SVG')).toString();
    assert.match(svg, /^<svg xmlns/);
    assert.match(svg, /cache_get/);
    const sound = await page.evaluate((text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror') === null, svg);
    assert.ok(sound);
    const png = await save('PNG');
    assert.deepEqual([...png.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    assert.ok(png.length > 10_000);
  });
});

test('dark and light, on a phone, and on paper', async () => {
  await on('demo', { dark: true }, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await ground(), 'rgb(22, 24, 27)');
    await page.click('#theme');
    assert.equal(await ground(), 'rgb(255, 255, 255)');
    await page.evaluate(() => localStorage.removeItem('wallscope-theme'));
  });
  for (const tab of ['flame', 'table', 'heat', 'domain']) {
    await on('demo', { size: { width: 390, height: 844 }, look: `tab=${tab}` }, async (page) => {
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= 392, `${tab} is ${wide} wide on a phone`);
    });
  }
  await on('demo', { dark: true }, async (page) => {
    await page.emulateMedia({ media: 'print' });
    assert.equal(await page.locator('#bar').isVisible(), false);
    assert.equal(await page.locator('#ledger').isVisible(), true);
    // What the sheet shows while it is taken: in light, and every level of the picture.
    const state = () =>
      page.evaluate(() => ({
        dark: document.documentElement.classList.contains('dark'),
        ground: getComputedStyle(document.body).backgroundColor,
        drawn: globalThis.wallscope.flame.canvas.clientHeight,
        needed: globalThis.wallscope.flame.scene.shape.levels * 19,
      }));
    await page.evaluate(() => addEventListener('beforeprint', () => { globalThis.printed = [document.documentElement.className, globalThis.wallscope.flame.canvas.clientHeight]; }));
    const sheets = await page.pdf();
    assert.equal(sheets.subarray(0, 5).toString(), '%PDF-');
    const after = await state();
    const [theme, drawn] = await page.evaluate(() => globalThis.printed);
    assert.equal(theme, 'paper');
    assert.ok(drawn >= after.needed, `${drawn} of ${after.needed}`);
    assert.equal(after.dark, true);
  });
});

test('what is drawn has names for those who do not see it', async () => {
  await on('demo', {}, async (page) => {
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll('button, input, canvas')].filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).map((e) => e.outerHTML.slice(0, 80)),
    );
    assert.deepEqual(nameless, []);
    assert.match(await page.locator('#flame canvas').getAttribute('aria-label'), /flame graph of all time.*levels/);
  });
});

test('hostile names are shown as they are, and do nothing', async () => {
  for (const tab of ['flame', 'table', 'heat', 'domain']) {
    await on('hostile', { look: `tab=${tab}` }, async (page) => {
      page.on('dialog', () => assert.fail('a name opened a dialog'));
      await settled(page);
      assert.equal(await page.evaluate(() => globalThis.broken), undefined);
      assert.equal(await page.locator('img, iframe, b').filter({ hasText: 'bold' }).count(), 0);
      assert.match(await page.title(), /<script>alert\('title'\)<\/script>/);
    });
  }
  await on('hostile', { look: 'tab=table' }, async (page) => {
    const text = await page.locator('table.functions').innerText();
    assert.ok(text.includes('</script><script>globalThis.broken=1</script>'));
    assert.ok(text.includes('‹202e›evil_reversed'));
    assert.ok(text.includes('__proto__'));
    await page.locator('table.functions tbody tr', { hasText: 'xxxxxxxx' }).click();
    assert.match(await page.locator('#detail').innerText(), /100 000 characters/);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 1400);
  });
});

test('thousands of levels are drawn where one scrolls to', async () => {
  await on('deep', {}, async (page) => {
    const deepest = await page.evaluate(async () => {
      const { flame } = globalThis.wallscope;
      flame.scroller.scrollTop = flame.scroller.scrollHeight;
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const c = flame.canvas.getContext('2d');
      const y = flame.y(flame.scene.shape.levels - 1);
      const pixel = c.getImageData(40, Math.round(y + 9), 1, 1).data;
      return { levels: flame.scene.shape.levels, y, alpha: pixel[3] };
    });
    assert.ok(deepest.levels > 5000);
    assert.ok(deepest.y > 0 && deepest.y < 900);
    assert.equal(deepest.alpha, 255);
    await page.keyboard.press('r');
    await page.keyboard.press('l');
    await settled(page);
  });
});

test('a recording of nothing is a page too', async () => {
  for (const tab of ['flame', 'table', 'heat', 'domain']) {
    await on('empty', { look: `tab=${tab}` }, async (page) => {
      assert.match(await page.locator('.finding').innerText(), /No thread has any time/);
    });
  }
});
