// The verdict comes first, before the data; its buttons select the time that it rests on.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { look, open, PAGES, suite, total } from '../browser.js';

const on = suite();

test('the verdict is the first thing on the page, in few lines', async () => {
  await on('waits', {}, async (page) => {
    const order = await page.evaluate(() => {
      const of = (id) => [...document.body.children].findIndex((e) => e.id === id);
      return [of('head'), of('verdict'), of('top'), of('main')];
    });
    assert.deepEqual(order, [...order].sort((a, b) => a - b));
    assert.ok(order[1] > 0);
    const lines = await page.locator('#verdict > dl > dt').allInnerTexts();
    assert.ok(lines.length >= 2 && lines.length <= 4, lines.join());
    assert.equal(lines[0], 'Impact');
    const { bottom, top } = await page.evaluate(() => document.getElementById('verdict').getBoundingClientRect().toJSON());
    assert.ok(bottom - top < 300, `${bottom - top} high`);
    // The rest is behind a disclosure.
    assert.equal(await page.locator('#verdict details').getAttribute('open'), null);
    assert.equal(await page.locator('#verdict details dl').isVisible(), false);
    await page.locator('#verdict summary').click();
    assert.match(await page.locator('#verdict details').innerText(), /of active time[\s\S]*which speaks when/);
    assert.equal(await page.locator('section[aria-labelledby=cause]').count(), 1);
  });
});

test('it is there without any script', async () => {
  const html = readFileSync(join(PAGES, 'waits.html'), 'utf8');
  const before = html.slice(0, html.indexOf('id="data"'));
  assert.match(before, /<h2 id="cause"><bdi>[^<]{10,}/);
});

test('its evidence selects the threads, the stacks and the reason; back returns; a link shows the same', async () => {
  await on('waits', {}, async (page) => {
    const plain = await look(page);
    const whole = await total(page);
    await page.locator('#verdict [data-choice="0"]').click();
    const chosen = await look(page);
    const choice = await page.evaluate(() => globalThis.wallscope.profile.meta.choices[0]);
    assert.equal(chosen.view, choice.view);
    assert.deepEqual(chosen.reasons, choice.reasons);
    assert.deepEqual(chosen.threads, choice.threads);
    const part = await total(page);
    assert.ok(part > 0 && part < whole, `${part} of ${whole}`);
    if (choice.function) assert.equal(await page.evaluate(() => globalThis.wallscope.profile.names[globalThis.wallscope.look.pick]), choice.function);
    // The selection has a sentence of its own, below the verdict on everything.
    assert.match(await page.locator('.finding').innerText(), /lived/);
    const link = page.url();
    await page.goBack();
    assert.deepEqual(await look(page), plain);
    await page.goForward();
    assert.deepEqual(await look(page), chosen);
    const other = await open(page.context(), 'waits', { look: link.split('#')[1] });
    assert.deepEqual(await look(other), chosen);
    assert.equal(await total(other), part);
    await other.close();
  });
});

test('an address that means nothing shows the whole recording', async () => {
  for (const odd of ['view=nothing&threads=99999,-1,x&time=7-3&pick=1e9&focus=77777777&zoom=abc&range=~&colour=no&heat=no&sort=;', '%', '=&==&&&', 'zoom=999999999&leaf=1', 'query=(((&only=1', '__proto__=x&constructor=y']) {
    await on('waits', { look: odd }, async (page) => {
      assert.equal(await page.locator('.failed').count(), 0, odd);
      assert.ok(await page.locator('#flame canvas').isVisible());
    });
  }
});

test('my code: own frames and the calls they make, in the same time', async () => {
  await on('waits', {}, async (page) => {
    const levels = () => page.evaluate(() => globalThis.wallscope.flame.scene.shape.levels);
    const width = () => page.evaluate(() => globalThis.wallscope.flame.scene.shape.total);
    const [deep, all] = [await levels(), await width()];
    await page.keyboard.press('m');
    assert.ok((await levels()) < deep);
    assert.equal(await width(), all);
    assert.match(page.url(), /mine=1/);
    const foreign = await page.evaluate(() => {
      const { flame, profile } = globalThis.wallscope;
      const { shape } = flame.scene;
      return [...shape.order].filter((n) => n > 0 && shape.entry(n) >= 0 && profile.kind[shape.entry(n)] === 1 && shape.self(n) < shape.right(n) - shape.left(n)).length;
    });
    assert.equal(foreign, 0, 'a frame of the kernel has others below it');
    await page.keyboard.press('t');
    const self = await page.evaluate(() => {
      const { selection, profile } = globalThis.wallscope;
      return [selection.total, profile.names.length];
    });
    assert.ok(self[0] > 0);
    await page.goBack();
    await page.goBack();
    assert.equal((await look(page)).mine, false);
  });
});
