// The strip, the heat map and its stripes: a part of the time computes everything anew.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { look, settled, suite, total } from '../browser.js';

const on = suite();

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
      const { ledger, meta } = globalThis.wallscope.profile;
      const reasons = meta.threads[0].blocked.length;
      let sum = 0;
      for (let i = 0; i < ledger.rows; i += 1) {
        if (ledger.slice[i] < from || ledger.slice[i] >= to) continue;
        sum += ledger.onCpu[i] + ledger.runnable[i];
        for (let r = 0; r < reasons; r += 1) sum += ledger.blocked[i * reasons + r];
      }
      return sum;
    }, time[0]);
    // Of what the ledger counted in that time no share worth a thousandth has no place.
    assert.ok(Math.abs((await total(page)) / within - 1) < 1e-3, `${await total(page)} of ${within}`);
    assert.match(await page.locator('.finding').innerText(), /threads lived/);
    // Where the pointer is, the states' shares are told, the share on a CPU first.
    await page.mouse.move(box.x + box.width * 0.3, box.y + 20);
    assert.match(await page.locator('.strip-caption').innerText(), /s – .* s: on CPU [\d.]+ % · runnable [\d.]+ % · lock [\d.]+ % · .*network [\d.]+ %/);
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

test('the heat map and the lanes say what resolution they have', async () => {
  await on('demo', { look: 'tab=heat' }, async (page) => {
    assert.match(await page.locator('#pane-heat').innerText(), /a cell \d+ ms/);
    assert.match(await page.locator('.lanes canvas').getAttribute('aria-label'), /18 threads/);
  });
  await on('coarse', { look: 'tab=heat' }, async (page) => {
    assert.match(await page.locator('#pane-heat').innerText(), /steps of 1\.00 s/);
  });
});

test('what is drawn over time keeps to its room when that changes', async () => {
  await on('demo', { look: 'tab=heat' }, async (page) => {
    const over = () =>
      page.evaluate(() => {
        const pane = document.querySelector('#pane-heat').getBoundingClientRect();
        const canvases = [...document.querySelectorAll('#pane-heat canvas')];
        return { width: pane.width, beyond: Math.max(...canvases.map((c) => c.getBoundingClientRect().right - pane.right)) };
      });
    const before = await over();
    assert.ok(before.beyond <= 0, `${before.beyond} px at first`);
    await page.setViewportSize({ width: 900, height: 700 });
    await page.waitForFunction((w) => document.querySelector('#pane-heat').clientWidth < w, before.width);
    await settled(page);
    const after = await over();
    assert.ok(after.beyond <= 0, `${after.beyond} px in a narrower window`);
  });
});
