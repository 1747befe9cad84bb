// The ledger, the domain, and that every view holds the same time, on recordings of real programs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { look, suite, total } from '../browser.js';

const on = suite();

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

test('the ledger: bar, states with badges that name their basis', async () => {
  await on('demo', {}, async (page) => {
    // The verdict speaks of everything; the page's own sentence is for a selection.
    assert.equal(await page.locator('.finding').count(), 0);
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

test('idle time that is hidden below is hatched in the bars, and left out of the strip', async () => {
  await on('shop', {}, async (page) => {
    const drawn = () =>
      page.evaluate(() => {
        const { profile, strip } = globalThis.wallscope;
        const parts = [...document.querySelectorAll('.bar.big .idle')];
        const wall = profile.meta.threads.reduce((a, t) => a + t.wall, 0);
        const share = (e) => (Number.parseFloat(e.style.width) / 100) * (Number.parseFloat(e.style.getPropertyValue('--idle')) / 100);
        return {
          hatched: parts.reduce((a, e) => a + share(e), 0) * wall,
          idle: profile.meta.threads.reduce((a, t) => a + t.idle, 0),
          strip: strip.layers.reduce((a, l) => a + l.ns.reduce((x, y) => x + y, 0), 0),
          all: strip.states.reduce((a, s) => a + s.reduce((x, y) => x + y, 0), 0),
        };
      });
    const hidden = await drawn();
    assert.ok(hidden.idle > 0 && Math.abs(hidden.hatched / hidden.idle - 1) < 0.01, JSON.stringify(hidden));
    assert.ok(Math.abs((hidden.all - hidden.strip) / hidden.idle - 1) < 0.1, JSON.stringify(hidden));
    assert.match(await page.locator('.bar.big').getAttribute('aria-label'), /% of it idle/);
    await page.locator('#filters button', { hasText: 'show idle' }).click();
    const shown = await drawn();
    assert.equal(shown.hatched, 0);
    assert.equal(shown.strip, shown.all);
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

test('the domain: what, how, not seen, lost, cost, and the command to see more', async () => {
  await on('demo', { look: 'tab=domain' }, async (page) => {
    const text = await page.locator('#pane-domain').innerText();
    for (const part of ['What was measured', 'How each state is known', 'exact total', 'resolves shares down to', 'How well the books close', 'What was not seen', 'Remedy: ', 'What was lost', 'What measuring cost', 'of one CPU', 'How to sharpen it', 'wallscope record -F 499']) {
      assert.ok(text.includes(part), part);
    }
  });
});

test('a recording of nothing is a page too', async () => {
  for (const tab of ['flame', 'table', 'heat', 'domain']) {
    await on('empty', { look: `tab=${tab}` }, async (page) => {
      assert.match(await page.locator('.finding').innerText(), /No thread has any time/);
    });
  }
});
