// Pictures of every view: `npm run shots [-- PAGE [OUT-DIR]]`.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { browser, open, settled, PAGES } from './browser.js';

const [page = 'demo', out = join(PAGES, 'shots')] = process.argv.slice(2);
mkdirSync(out, { recursive: true });

const PHONE = { width: 390, height: 844 };
const SHOTS = [
  ['wall', { look: '' }],
  ['wall-dark', { look: '', dark: true }],
  ['flame', { look: 'icicle=0' }],
  ['on-cpu', { look: 'view=on-cpu' }],
  ['off-cpu', { look: 'view=off-cpu' }],
  ['runq', { look: 'view=runq' }],
  ['leaf', { look: 'view=off-cpu&leaf=1' }],
  ['module', { look: 'view=on-cpu&colour=module' }],
  ['search', { look: 'query=cache_&view=wall' }],
  ['table', { look: 'tab=table' }],
  ['table-dark', { look: 'tab=table', dark: true }],
  ['heat', { look: 'tab=heat' }],
  ['heat-dark', { look: 'tab=heat', dark: true }],
  ['domain', { look: 'tab=domain' }],
  ['time', { look: 'time=8-16&threads=0,1' }],
  ['phone', { look: '', size: PHONE }],
  ['phone-table', { look: 'tab=table', size: PHONE }],
];

const { context, close } = await browser();
try {
  for (const [name, options] of SHOTS) {
    const p = await open(context, page, options);
    await settled(p);
    await p.waitForTimeout(300);
    await p.screenshot({ path: join(out, `${name}.png`) });
    if (p.wrong.length > 0) console.log(name, p.wrong);
    await p.close();
  }
  // A chosen function with its panel, its callers and callees, and the help.
  const p = await open(context, page, { look: 'query=::cache_get' });
  await p.keyboard.press('t');
  await p.locator('table.functions tbody tr', { hasText: '::cache_get' }).click();
  await p.keyboard.press('Escape');
  await p.keyboard.press('t');
  await settled(p);
  await p.screenshot({ path: join(out, 'panel.png') });
  await p.keyboard.press('s');
  await settled(p);
  await p.screenshot({ path: join(out, 'callers.png') });
  await p.keyboard.press('?');
  await settled(p);
  await p.screenshot({ path: join(out, 'help.png') });
  await p.keyboard.press('Escape');
  await p.keyboard.press('s');
  await p.locator('#flame canvas').hover({ position: { x: 300, y: 200 } });
  await p.waitForTimeout(200);
  await p.screenshot({ path: join(out, 'hover.png') });
  if (p.wrong.length > 0) console.log('interaction', p.wrong);
} finally {
  await close();
}
