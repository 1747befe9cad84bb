// Tasks of a runtime: which there are, what they wait for, and their stacks. The recording is of tasks.py.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { look, open, settled, suite } from '../browser.js';

const on = suite();

/** Width of the picture of tasks, ns. */
const width = (page) => page.evaluate(() => globalThis.wallscope.tasks.graph.scene.shape.total);

/** The row of tasks that began with a function. */
const row = (page, began) => page.locator('#pane-tasks tr[data-task]', { hasText: began });

/** Outermost to innermost functions of each stack that has time in the picture of tasks. */
const stacks = (page) =>
  page.evaluate(() => {
    const { profile, tasks } = globalThis.wallscope;
    const p = profile.tasks;
    const { weight } = tasks.selection;
    return [...weight.keys()].filter((r) => weight[r] > 0).map((r) => p.path(p.rowNode[r]).map((n) => p.names[p.entry[n]]));
  });

test('a recording with tasks has a tab for them, in their own time', async () => {
  await on('tasks', { look: 'tab=tasks' }, async (page) => {
    assert.equal(await page.locator('#tab-tasks').getAttribute('aria-selected'), 'true');
    const told = await page.evaluate(() => {
      const { profile } = globalThis.wallscope;
      const { groups, times } = profile.meta.tasks;
      const ns = groups.map(() => 0);
      profile.tasks.rowNs.forEach((v, r) => {
        ns[times[profile.tasks.rowContext[r]][0]] += v;
      });
      return { groups, ns };
    });
    assert.deepEqual(told.groups.map((g) => [g.name, g.kind, g.seen]).sort(), [['handle_order', 'asyncio task', 8], ['main', 'asyncio task', 1], ['send_mail', 'asyncio task', 1]]);
    // Eight handlers live all the time; so do the other two.
    const of = (name) => told.ns[told.groups.findIndex((g) => g.name === name)];
    assert.ok(Math.abs(of('handle_order') / of('main') - 8) < 0.1, `${of('handle_order')} and ${of('main')}`);
    const all = told.ns.reduce((a, b) => a + b);
    assert.equal(await width(page), all);
    const cells = await page.locator('#pane-tasks tr[data-task]').evaluateAll((rows) => rows.map((r) => [...r.cells].map((c) => c.innerText)));
    assert.match(cells[0][0], /^handle_order/);
    assert.equal(cells[0][1], '8');
    assert.match(cells[0][8], /^lock 8[\d.]+ %, timer [\d.]+ %/);
    for (const c of cells) assert.ok(Math.abs(c.slice(5, 8).reduce((sum, text) => sum + parseFloat(text.replace('>', '')), 0) - 100) < 1.1, c.join());
  });
});

test('a click on tasks selects their stacks; back and a link return to them; Enter does the same', async () => {
  await on('tasks', { look: 'tab=tasks' }, async (page) => {
    const all = await width(page);
    await row(page, 'send_mail').click();
    const part = await width(page);
    assert.ok(part > 0 && part < all / 5, `${part} of ${all}`);
    for (const stack of await stacks(page)) assert.ok(stack.includes('send_mail') && !stack.includes('save'), stack.join());
    assert.match(await page.locator('#pane-tasks h3').first().innerText(), /began with send_mail/);
    assert.equal(await row(page, 'send_mail').getAttribute('aria-current'), 'true');
    const link = page.url().split('#')[1];
    await page.goBack();
    assert.equal(await width(page), all);
    const other = await open(page.context(), 'tasks', { look: link });
    assert.equal(await width(other), part);
    await other.close();
    await row(page, 'send_mail').focus();
    await page.keyboard.press('Enter');
    assert.equal(await width(page), part);
    await page.locator('#pane-tasks h3 button', { hasText: 'all tasks' }).click();
    assert.equal(await width(page), all);
  });
});

test('the evidence of a verdict on tasks selects the tasks that wait there', async () => {
  await on('tasks', {}, async (page) => {
    assert.match(await page.locator('#cause').innerText(), /asyncio tasks on average wait for a lock in save/);
    await page.locator('#verdict button', { hasText: 'show it' }).first().click();
    const chosen = await look(page);
    assert.equal(chosen.tab, 'tasks');
    assert.equal(chosen.only, true);
    const found = await stacks(page);
    assert.ok(found.length > 0);
    for (const stack of found) assert.ok(stack.includes('save'), stack.join());
    // Nearly all that the verdict speaks of: 86 % of the handlers' time, and the sleep under the lock.
    const title = await page.locator('#pane-tasks tr[data-task]').allInnerTexts();
    assert.equal(title.length, 1);
    assert.match(title[0], /handle_order/);
    await page.goBack();
    assert.equal((await look(page)).tab, 'flame');
  });
});

test('filters of threads do not apply to tasks, and the page says so; processes do', async () => {
  await on('tasks', { look: 'tab=tasks&threads=0' }, async (page) => {
    assert.ok((await width(page)) > 0);
    assert.match(await page.locator('#pane-tasks p').first().innerText(), /do not apply/);
  });
  await on('tasks', { look: 'tab=tasks&pids=1&task=77' }, async (page) => {
    assert.equal((await look(page)).task, -1);
    assert.equal(await width(page), 0);
    assert.match(await page.locator('#pane-tasks').innerText(), /Nothing is left/);
  });
});

test('my code, leaf first and the view change the picture of tasks, and not its time', async () => {
  await on('tasks', { look: 'tab=tasks' }, async (page) => {
    const all = await width(page);
    const levels = () => page.evaluate(() => globalThis.wallscope.tasks.graph.scene.shape.levels);
    const deep = await levels();
    await page.keyboard.press('m');
    assert.ok((await levels()) < deep);
    assert.equal(await width(page), all);
    await page.keyboard.press('l');
    assert.equal(await width(page), all);
    await page.keyboard.press('3');
    assert.ok((await width(page)) < all);
    const states = await page.locator('#pane-tasks tr[data-task]').first().locator('td').allInnerTexts();
    assert.match(states[7], /^100(\.0)? %$/);
  });
});

test('tasks fit a phone, and are told under the pointer', async () => {
  await on('tasks', { look: 'tab=tasks', size: { width: 390, height: 844 } }, async (page) => {
    await settled(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    assert.ok(await row(page, 'handle_order').locator('td').first().isVisible());
    const { x, width: wide } = await page.locator('#tab-tasks').boundingBox();
    assert.ok(x >= 0 && x + wide <= 390, `the chosen tab is at ${x}`);
  });
  await on('tasks', { look: 'tab=tasks' }, async (page) => {
    await page.locator('#pane-tasks canvas').hover({ position: { x: 60, y: 9 } });
    await page.locator('#tip:not([hidden])').waitFor();
    assert.match(await page.locator('#tip').innerText(), /all tasks[\s\S]*100(\.0)? %[\s\S]*lock [\d.]+ %/);
  });
});

test('a recording without tasks has no tab for them', async () => {
  await on('demo', { look: 'tab=tasks' }, async (page) => {
    assert.equal((await look(page)).tab, 'flame');
    assert.equal(await page.locator('#tab-tasks').count(), 0);
  });
});
