// The pictures in docs/img, made from the recordings in tests/fixtures: `npm run pictures`.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { browser, longestLock, open, settled } from './browser.js';

const out = join(import.meta.dirname, '..', '..', '..', '..', 'docs', 'img');
mkdirSync(out, { recursive: true });
const size = { width: 1180, height: 800 };

/** A picture of the page from the top of `from` to `height` pixels below. */
async function picture(context, name, look, from, height, act = async () => 0, file = 'demo') {
  const page = await open(context, file, { look, size: { ...size, height: 1500 } });
  const below = (await act(page)) ?? 0;
  await settled(page);
  await page.waitForTimeout(400);
  const box = await page.locator(from).boundingBox();
  await page.screenshot({ path: join(out, `${name}.png`), clip: { x: 0, y: Math.max(0, box.y - 6 + below), width: size.width, height } });
  await page.close();
}

/** Zooms to what serves the requests; gives how far below the tabs its callers stand. */
async function zoomed(page) {
  return page.evaluate(() => {
    const { flame, profile } = globalThis.wallscope;
    const { shape } = flame.scene;
    const widest = [...shape.order].filter((n) => /::handle_request$/.test(profile.names[shape.entry(n)] ?? '')).sort((a, b) => shape.right(b) - shape.left(b) - shape.right(a) + shape.left(a))[0];
    globalThis.wallscope.change({ zoom: String(widest) });
    flame.scroller.scrollTop = 0;
    return 92 + (shape.level(widest) - 2) * 19;
  });
}

/** Points at the longest wait for a lock, so that its waker is shown. */
async function pointed(page) {
  await page.waitForFunction(() => globalThis.wallscope.lanes.frames > 0);
  await page.locator('.tracks canvas').hover({ position: await longestLock(page) });
}

const { context, close } = await browser();
try {
  await picture(context, 'page', '', '#head', 660);
  await picture(context, 'ledger', '', '#ledger', 250);
  await picture(context, 'time', 'time=16-30', '#strip', 190);
  await picture(context, 'flame-wall', '', '#main', 340, zoomed);
  await picture(context, 'flame-off-cpu', 'view=off-cpu', '#main', 400, zoomed);
  await picture(context, 'flame-on-cpu', 'view=on-cpu', '#main', 240, zoomed);
  await picture(context, 'table', 'tab=table', '#main', 360);
  await picture(context, 'heat', 'tab=heat&heat=on_cpu', '#main', 480);
  await picture(context, 'callers', 'tab=table&query=::cache_get', '#main', 640, async (page) => {
    await page.locator('table.functions tbody tr', { hasText: '::cache_get' }).click();
    await page.locator('#detail .focus').click();
    await page.keyboard.press('Escape');
  });
  const waits = (name, look, height, act) => picture(context, name, look, '#main', height, act, 'waits');
  await waits('wakers', 'view=off-wake&reasons=lock&names=worker-0,worker-1,worker-2,worker-3', 420, async () => 340);
  await waits('waits', 'tab=waits', 560);
  await waits('chains', 'tab=why', 420);
  await waits('timeline', 'tab=lanes', 400, pointed);
  await picture(context, 'tasks', 'tab=tasks', '#main', 480, async () => 0, 'tasks');
  await picture(context, 'delta', '', 'body', 620, async () => 330, 'delta');
} finally {
  await close();
}
