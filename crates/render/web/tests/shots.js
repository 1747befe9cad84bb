// Pictures of every view, to be looked at: `npm run shots [-- OUT-DIR]`.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { browser, open, settled, PAGES } from './browser.js';

const [out = join(PAGES, 'shots')] = process.argv.slice(2);
mkdirSync(out, { recursive: true });

const PHONE = { width: 390, height: 844 };

/** Chooses a function, so that its panel is open. */
async function panel(page) {
  await page.locator('table.functions tbody tr', { hasText: '::cache_get' }).click();
  await page.keyboard.press('f');
}

/** Drags from one place of an element to another, in shares of its size. */
async function drag(page, what, [x0, y0], [x1, y1]) {
  await page.locator(what).scrollIntoViewIfNeeded();
  const box = await page.locator(what).boundingBox();
  await page.mouse.move(box.x + box.width * x0, box.y + box.height * y0);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * x1, box.y + box.height * y1, { steps: 6 });
  await page.mouse.up();
}

/** Name, page, how it is opened, and what is done in it. @type {[string, string, any, ((page: any) => Promise<any>)?][]} */
const SHOTS = [
  ['wall', 'demo', {}],
  ['wall-dark', 'demo', { dark: true }],
  ['flame', 'demo', { look: 'icicle=0' }],
  ['on-cpu', 'demo', { look: 'view=on-cpu' }],
  ['off-cpu', 'demo', { look: 'view=off-cpu' }],
  ['runq', 'demo', { look: 'view=runq' }],
  ['leaf', 'demo', { look: 'view=off-cpu&leaf=1' }],
  ['fold', 'deep', { look: 'fold=1' }],
  ['module', 'demo', { look: 'view=on-cpu&colour=module' }],
  ['search', 'demo', { look: 'query=cache_&view=wall' }],
  ['search-dark', 'demo', { look: 'query=cache_&view=wall', dark: true }],
  ['only', 'demo', { look: 'query=cache_&only=1' }],
  ['table', 'demo', { look: 'tab=table' }],
  ['table-dark', 'demo', { look: 'tab=table', dark: true }],
  ['heat', 'demo', { look: 'tab=heat' }],
  ['heat-dark', 'demo', { look: 'tab=heat', dark: true }],
  ['stripe', 'shop', { look: 'tab=heat&view=off-cpu' }, (p) => drag(p, 'canvas.heat', [0.1, 0.8], [0.6, 0.7])],
  ['coarse', 'coarse', { look: 'tab=heat' }],
  ['domain', 'demo', { look: 'tab=domain' }],
  ['domain-dark', 'demo', { look: 'tab=domain', dark: true }],
  ['brush', 'demo', {}, (p) => drag(p, '#strip canvas', [0.3, 0.4], [0.5, 0.4])],
  ['threads', 'demo', { look: 'time=8-16&threads=0,1' }],
  ['filters', 'demo', { look: 'view=off-cpu&reasons=lock,network&names=worker-0,worker-1' }, (p) => p.locator('[data-filter=reasons] summary').click()],
  ['labels', 'labels', { look: 'labels=endpoint%3D%2Fcart' }, (p) => p.locator('[data-filter=labels] summary').click()],
  ['finding', 'demo', {}, (p) => p.locator('.finding .badge').click()],
  ['interval', 'demo', { look: 'tab=table' }, (p) => p.locator('table.functions .badge').first().click()],
  ['panel', 'demo', { look: 'tab=table&query=::cache_get' }, panel],
  ['panel-dark', 'demo', { look: 'tab=table&query=::cache_get', dark: true }, panel],
  ['callers', 'demo', { look: 'tab=table&query=::cache_get' }, async (p) => {
    await panel(p);
    await p.keyboard.press('s');
  }],
  ['zoomed', 'demo', {}, async (p) => {
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'Enter', 'ArrowDown']) await p.keyboard.press(key);
  }],
  ['hover', 'demo', {}, async (p) => {
    await p.locator('#flame canvas').hover({ position: { x: 300, y: 200 } });
    await p.locator('#tip:not([hidden])').waitFor();
  }],
  ['menu', 'demo', {}, (p) => p.locator('#flame canvas').click({ button: 'right', position: { x: 300, y: 200 } })],
  ['save', 'demo', {}, (p) => p.click('#save')],
  ['help', 'demo', {}, (p) => p.keyboard.press('?')],
  ['help-dark', 'demo', { dark: true }, (p) => p.keyboard.press('?')],
  ['nothing-left', 'demo', { look: 'view=on-cpu&reasons=lock' }],
  ['paper', 'demo', { print: true }],
  ['paper-dark', 'demo', { dark: true, print: true }],
  ['paper-table', 'demo', { look: 'tab=table', print: true }],
  ['phone', 'demo', { size: PHONE }],
  ['phone-table', 'demo', { look: 'tab=table', size: PHONE }],
  ['phone-heat', 'demo', { look: 'tab=heat', size: PHONE }],
  ['phone-domain', 'demo', { look: 'tab=domain', size: PHONE }],
  ['phone-panel', 'demo', { look: 'tab=table&query=::cache_get', size: PHONE }, panel],
  ['wakers', 'waits', { look: 'view=off-wake' }],
  ['wakers-panel', 'waits', { look: 'view=off-cpu&tab=table&query=::cache_get' }, panel],
  ['lanes', 'waits', { look: 'tab=lanes' }, (p) => p.locator('.tracks canvas').hover({ position: { x: 700, y: 60 } })],
  ['lanes-near', 'waits', { look: 'tab=lanes&range=1000000000~1100000000' }],
  ['lanes-dark', 'waits', { look: 'tab=lanes', dark: true }],
  ['waits', 'waits', { look: 'tab=waits' }, (p) => p.locator('#pane-waits summary').nth(1).click()],
  ['waits-dark', 'waits', { look: 'tab=waits', dark: true }],
  ['chains', 'waits', { look: 'tab=why&names=worker-0' }],
  ['chains-dark', 'waits', { look: 'tab=why', dark: true }],
  ['managed', 'recursion', { look: 'view=on-cpu' }],
  ['phone-lanes', 'waits', { look: 'tab=lanes', size: PHONE }],
  ['phone-waits', 'waits', { look: 'tab=waits', size: PHONE }],
  ['phone-chains', 'waits', { look: 'tab=why', size: PHONE }],
  ['hostile-waits', 'hostile', { look: 'tab=waits' }],
  ['hostile', 'hostile', {}],
  ['hostile-table', 'hostile', { look: 'tab=table' }],
  ['hostile-domain', 'hostile', { look: 'tab=domain' }],
  ['deep', 'deep', {}],
  ['empty', 'empty', {}],
];

const { context, close } = await browser();
try {
  for (const [name, page, options, act] of SHOTS) {
    const p = await open(context, page, options);
    await settled(p);
    if (act) await act(p);
    if (options.print) await p.emulateMedia({ media: 'print' });
    await settled(p);
    // Intervals come in between other work, and smooth things settle.
    await p.waitForTimeout(300);
    await p.screenshot({ path: join(out, `${name}.png`), fullPage: Boolean(options.print || options.size) });
    if (p.wrong.length > 0) console.log(name, p.wrong);
    await p.close();
  }
  console.log(`${SHOTS.length} pictures in ${out}`);
} finally {
  await close();
}
