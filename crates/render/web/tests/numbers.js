// How long pages take to open and how smooth they are: `npm run numbers [-- PAGE…]`. Prints a
// table. With speedscope installed (npm install --no-save speedscope), the same stacks in it.

import { copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { browser, open, settled, PAGES } from './browser.js';

const pages = process.argv.length > 2 ? process.argv.slice(2) : ['shop', '100k', '1m', 'deep', 'switches'];
const SPEEDSCOPE = process.env.SPEEDSCOPE ?? join(import.meta.dirname, '..', 'node_modules', 'speedscope', 'dist', 'release');

/** The 95th percentile. @param {number[]} values */
function p95(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.95))];
}

/** Gaps between pictures while `act` goes on, ms. */
async function frames(page, act) {
  await page.evaluate(() => {
    const gaps = [];
    let last = performance.now();
    let on = true;
    const tick = (now) => {
      gaps.push(now - last);
      last = now;
      if (on) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    globalThis.stopFrames = () => {
      on = false;
      return gaps.slice(1);
    };
  });
  await act();
  await settled(page);
  return page.evaluate(() => globalThis.stopFrames());
}

/** Time from the start of loading to the picture that shows the verdict, ms; infinite: there is none. */
const verdictShown = (page) => page.evaluate(() => new Promise((done) => {
  const found = (list) => done(list.getEntries().find((e) => e.element?.closest('#verdict'))?.startTime ?? Infinity);
  new PerformanceObserver(found).observe({ type: 'largest-contentful-paint', buffered: true });
}));

async function measure(context, name) {
  const started = performance.now();
  const page = await open(context, name, { timeout: 120_000 });
  await settled(page);
  const opened = performance.now() - started;
  const verdict = await verdictShown(page);
  await page.emulateMedia({ reducedMotion: 'no-preference' });
  const canvas = page.locator('#flame canvas');
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  const zooming = await frames(page, async () => {
    await page.mouse.move(box.x + box.width / 3, box.y + box.height / 2);
    await page.keyboard.down('Control');
    for (let i = 0; i < 24; i += 1) await page.mouse.wheel(0, i < 16 ? -240 : 300);
    await page.keyboard.up('Control');
    for (let i = 0; i < 6; i += 1) {
      const before = page.url();
      await page.mouse.click(box.x + box.width * (0.2 + 0.1 * i), box.y + box.height - 30 - 60 * i);
      await page.waitForTimeout(220);
      if (page.url() !== before) await page.goBack();
      await page.waitForTimeout(60);
    }
  });
  const searching = await frames(page, async () => {
    await page.keyboard.press('/');
    for (const key of 'class12.*method_1') {
      await page.keyboard.press(key);
      await page.waitForTimeout(60);
    }
    await page.waitForTimeout(200);
  });
  const hovering = await frames(page, async () => {
    for (let i = 0; i < 40; i += 1) {
      await page.mouse.move(box.x + (box.width * i) / 40, box.y + box.height - 10 - 8 * i);
      await page.waitForTimeout(16);
    }
  });
  const filtering = await frames(page, async () => {
    for (const key of ['2', '3', '1', '3', '1']) {
      await page.keyboard.press('Escape');
      await page.keyboard.press(key);
      await page.waitForTimeout(150);
    }
  });
  const nodes = await page.evaluate(() => globalThis.wallscope.profile.nodes);
  const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
  const size = statSync(join(PAGES, `${name}.html`)).size;
  if (page.wrong.length > 0) console.log(name, page.wrong);
  await page.close();
  return { name, size, nodes, opened, verdict, zooming, searching, hovering, filtering, heap };
}

/** The timeline: to its first picture from opening the page, and moving about in it. */
async function timeline(context, name) {
  const started = performance.now();
  const page = await open(context, name, { look: 'tab=lanes', timeout: 120_000 });
  await page.waitForFunction(() => globalThis.wallscope?.lanes?.frames > 0);
  const opened = performance.now() - started;
  const canvas = page.locator('.tracks canvas');
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  const at = { x: box.x + box.width / 2, y: box.y + 60 };
  const zooming = await frames(page, async () => {
    await page.mouse.move(at.x, at.y);
    await page.keyboard.down('Control');
    for (let i = 0; i < 30; i += 1) {
      await page.mouse.wheel(0, i < 20 ? -240 : 300);
      await page.waitForTimeout(16);
    }
    await page.keyboard.up('Control');
  });
  const moving = await frames(page, async () => {
    await page.mouse.down();
    for (let i = 0; i < 60; i += 1) {
      await page.mouse.move(at.x + 300 * Math.sin(i / 9), at.y);
      await page.waitForTimeout(16);
    }
    await page.mouse.up();
    for (let i = 0; i < 40; i += 1) {
      await page.mouse.move(box.x + 140 + i * 20, box.y + 26 + i * 5);
      await page.waitForTimeout(16);
    }
  });
  const intervals = await page.evaluate(() => globalThis.wallscope.lanes.lanes.reduce((a, l) => a + l.tag.length, 0));
  if (page.wrong.length > 0) console.log(name, page.wrong);
  await page.close();
  return { size: statSync(join(PAGES, `${name}.html`)).size, intervals, opened, zooming, moving };
}

/** Opens the page's stacks in speedscope, which reads a profile beside it from a script. */
async function speedscope(context, name) {
  const file = join(PAGES, `${name}.speedscope.json`);
  if (!existsSync(join(SPEEDSCOPE, 'index.html')) || !existsSync(file)) return null;
  const folder = mkdtempSync(join(tmpdir(), 'wallscope-speedscope-'));
  try {
    for (const f of readdirSync(SPEEDSCOPE)) copyFileSync(join(SPEEDSCOPE, f), join(folder, f));
    const data = readFileSync(file).toString('base64');
    writeFileSync(join(folder, 'profile.js'), `speedscope.loadFileFromBase64('${name}.json', '${data}')`);
    const page = await context.newPage();
    const started = performance.now();
    await page.goto(`${pathToFileURL(join(folder, 'index.html')).href}#localProfilePath=${encodeURIComponent(join(folder, 'profile.js').slice(1))}`, { timeout: 120_000 });
    try {
      await page.waitForFunction(() => [...document.querySelectorAll('canvas')].length >= 2 && !/Loading/.test(document.body.innerText), null, { timeout: 120_000 });
      await settled(page);
      return { opened: performance.now() - started };
    } catch (e) {
      return { failed: String(e).split('\n')[0].slice(0, 100) };
    } finally {
      await page.close();
    }
  } catch (e) {
    return { failed: String(e).split('\n')[0].slice(0, 100) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const { context, close } = await browser();
try {
  for (const name of pages) {
    const p = (values) => `${p95(values).toFixed(0)} ms (max ${Math.max(...values).toFixed(0)})`;
    if (name === 'switches') {
      const t = await timeline(context, name);
      console.log(`${name}: ${(t.size / 1e6).toFixed(2)} MB, ${t.intervals} intervals`);
      console.log(`  timeline open ${(t.opened / 1000).toFixed(2)} s; p95 of frames: zoom ${p(t.zooming)}, move ${p(t.moving)}`);
      continue;
    }
    const m = await measure(context, name);
    console.log(`${m.name}: ${(m.size / 1e6).toFixed(2)} MB, ${m.nodes} nodes, heap ${(m.heap / 1e6).toFixed(0)} MB`);
    console.log(`  verdict ${(m.verdict / 1000).toFixed(2)} s, open ${(m.opened / 1000).toFixed(2)} s; p95 of frames: zoom ${p(m.zooming)}, search ${p(m.searching)}, hover ${p(m.hovering)}, change of view ${p(m.filtering)}`);
    const s = await speedscope(context, name);
    if (s) console.log(`  speedscope: ${s.failed ? `did not open: ${s.failed}` : `open ${(s.opened / 1000).toFixed(2)} s`}`);
  }
} finally {
  await close();
}
