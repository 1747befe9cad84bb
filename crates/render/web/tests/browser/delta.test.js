// The page of a comparison, in a browser: the demonstration service against itself on a crowded
// machine.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { look, settled, suite } from '../browser.js';

const on = suite();
const sums = (page) =>
  page.evaluate(() => {
    const shape = globalThis.wallscope.shape();
    return { base: shape.base[0], fresh: shape.fresh[0], wide: shape.right(0) };
  });

test('widths are those of either side or the larger, and parents hold their children', async () => {
  await on('delta', {}, async (page) => {
    const both = await sums(page);
    assert.ok(both.wide >= Math.max(both.base, both.fresh));
    await page.keyboard.press('w');
    assert.equal((await look(page)).width, 'new');
    const fresh = await sums(page);
    assert.equal(fresh.wide, fresh.fresh);
    await page.click('#widths button:nth-child(3)');
    const base = await sums(page);
    assert.equal(base.wide, base.base);
    const held = await page.evaluate(() => {
      const s = globalThis.wallscope.shape();
      return [...s.order].every((n) => s.left(n) >= s.left(s.parent(n)) - 1 && s.right(n) <= s.right(s.parent(n)) + 1);
    });
    assert.ok(held);
  });
});

test('states add up to all, and what appeared or vanished is in the picture', async () => {
  await on('delta', {}, async (page) => {
    const all = await sums(page);
    let [base, fresh] = [0, 0];
    for (const key of ['2', '3', '4']) {
      await page.keyboard.press(key);
      const one = await sums(page);
      base += one.base;
      fresh += one.fresh;
    }
    assert.ok(Math.abs(base - all.base) < 10 && Math.abs(fresh - all.fresh) < 10);
    await page.keyboard.press('1');
    const kinds = await page.evaluate(() => {
      const { flame } = globalThis.wallscope;
      const { shape, paint } = flame.scene;
      const classes = new Set([...shape.order].map((n) => paint.classOf(shape.entry(n))));
      return { gone: classes.has(7), fresh: classes.has(8), more: classes.size };
    });
    assert.ok(kinds.gone && kinds.fresh && kinds.more > 4, JSON.stringify(kinds));
    assert.ok((await page.locator('#key span').allTextContents()).includes('gone'));
  });
});

test('search, keyboard and address work as in the page of a recording', async () => {
  await on('delta', {}, async (page) => {
    await page.keyboard.press('/');
    await page.keyboard.type('cache_get|serve');
    assert.match(await page.locator('#found').textContent(), /^\d+ functions$/);
    const matches = await page.evaluate(() => globalThis.wallscope.flame.scene.matches.some((m) => m === 1));
    assert.ok(matches);
    assert.match(page.url(), /q=cache_get/);
    await page.keyboard.press('Escape');
    assert.equal((await look(page)).query, '');
    await page.locator('#sentence').click();
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    const { zoom } = await look(page);
    assert.ok(zoom > 0);
    assert.ok((await page.locator('#trail button').count()) >= 2);
    await page.keyboard.press('Escape');
    assert.equal((await look(page)).zoom, 0);
    await page.keyboard.press('p');
    assert.equal((await look(page)).colours, 'safe');
    await page.keyboard.press('i');
    await page.keyboard.press('?');
    assert.ok(await page.locator('.popup').isVisible());
  });
  await on('delta', { look: 'state=off-cpu&width=base&colours=safe' }, async (page) => {
    const l = await look(page);
    assert.deepEqual([l.state, l.width, l.colours], ['off-cpu', 'base', 'safe']);
  });
});

test('the table has noise in grey and in words; a row searches', async () => {
  await on('delta', {}, async (page) => {
    const grey = page.locator('#table tr.quiet');
    assert.ok((await grey.count()) > 0);
    for (const text of await grey.allTextContents()) assert.match(text, /noise|too few samples/);
    await grey.first().click();
    assert.match((await look(page)).query, /^\^/);
    await page.locator('#flame canvas').hover({ position: { x: 300, y: 200 } });
    await settled(page);
  });
});
