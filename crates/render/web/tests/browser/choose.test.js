// Table, search, filters, labels, and the address that repeats what was chosen.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { look, settled, suite, total } from '../browser.js';

const on = suite();

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

test('Enter in the search goes from match to match, widest first, and brings each in sight', async () => {
  await on('demo', {}, async (page) => {
    await page.fill('#query', 'cache_');
    const visited = [];
    for (const key of ['Enter', 'Enter', 'Shift+Enter']) {
      await page.keyboard.press(key);
      await settled(page);
      visited.push(await page.evaluate(() => {
        const { flame, profile } = globalThis.wallscope;
        const { shape } = flame.scene;
        const y = flame.y(shape.level(flame.cursor));
        return { name: profile.names[shape.entry(flame.cursor)], ns: shape.right(flame.cursor) - shape.left(flame.cursor), seen: y >= 0 && y + 19 <= flame.scroller.clientHeight };
      }));
    }
    assert.ok(visited.every((v) => /cache_/.test(v.name) && v.seen), JSON.stringify(visited));
    assert.ok(visited[0].ns >= visited[1].ns);
    assert.deepEqual(visited[2], visited[0]);
    assert.match(await page.locator('#live').innerText(), /match 1 of \d+/);
    await page.fill('#query', 'no such function');
    await page.keyboard.press('Enter');
    assert.match(await page.locator('#live').innerText(), /No frame here matches/);
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
