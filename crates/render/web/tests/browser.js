// Starts Chromium and opens pages from files, watching for anything that a page must not do.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Where the pages that are tested lie. */
export const PAGES = process.env.PAGES ?? join(import.meta.dirname, '..', '..', '..', '..', 'target', 'pages');

/** A browser with nothing in it. */
export async function browser() {
  const folder = mkdtempSync(join(tmpdir(), 'wallscope-chromium-'));
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    args: FLAGS,
    viewport: { width: 1400, height: 950 },
    acceptDownloads: true,
  });
  return {
    context,
    async close() {
      await context.close();
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/**
 * Opens a page made of a recording and waits until it shows something.
 * @param {import('playwright-core').BrowserContext} context
 * @param {string} file a name among `PAGES`, or a path
 * @param {{look?: string, dark?: boolean, size?: {width: number, height: number}, timeout?: number}} [options]
 */
export async function open(context, file, options = {}) {
  const page = await context.newPage();
  /** Requests, errors and complaints: there must be none. */
  const wrong = [];
  page.on('request', (r) => {
    if (!/^(file|data|blob):/.test(r.url())) wrong.push(`request: ${r.url()}`);
  });
  page.on('pageerror', (e) => wrong.push(`error: ${e.message}`));
  page.on('console', (m) => {
    if (m.type() === 'error' || m.type() === 'warning') wrong.push(`console: ${m.text()}`);
  });
  if (options.size) await page.setViewportSize(options.size);
  await page.emulateMedia({ colorScheme: options.dark ? 'dark' : 'light', reducedMotion: 'reduce' });
  const path = file.includes('/') ? file : join(PAGES, `${file}.html`);
  await page.goto(pathToFileURL(path).href + (options.look ? `#${options.look}` : ''), { timeout: options.timeout ?? 60_000 });
  await page.waitForFunction(() => document.documentElement.dataset.ready || document.querySelector('.failed'), null, { timeout: options.timeout ?? 60_000 });
  return Object.assign(page, { wrong });
}

/** Waits until what was asked for is drawn. */
export async function settled(page) {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/**
 * A browser for the tests of a file. What it gives opens a page of `PAGES`, runs `check` on it, and
 * sees that nothing went wrong on the way.
 * @returns {(name: string, options: {look?: string, dark?: boolean, size?: {width: number, height: number}},
 *   check: (page: Awaited<ReturnType<typeof open>>) => Promise<void>) => Promise<void>}
 */
export function suite() {
  /** @type {Awaited<ReturnType<typeof browser>>} */
  let b;
  before(async () => {
    b = await browser();
  });
  after(() => b.close());
  return async (name, options, check) => {
    const page = await open(b.context, name, options);
    try {
      await check(page);
      assert.deepEqual(page.wrong, []);
    } finally {
      await page.close();
    }
  };
}

/** What is chosen: view, tab, filters, range. */
export const look = (page) => page.evaluate(() => globalThis.wallscope.look);

/** The time of what is chosen, nanoseconds. */
export const total = (page) => page.evaluate(() => globalThis.wallscope.selection.total);

/** Where a function's first frame lies in the flame graph, CSS pixels within the canvas. */
export const place = (page, pattern) =>
  page.evaluate((source) => {
    const { flame, profile } = globalThis.wallscope;
    const { shape, from, to } = flame.scene;
    const wanted = new RegExp(source);
    for (let level = 0; level < shape.levels; level += 1) {
      for (let i = shape.levelStart[level]; i < shape.levelEnd[level]; i += 1) {
        const n = shape.order[i];
        if (shape.entry(n) < 0 || !wanted.test(profile.names[shape.entry(n)])) continue;
        const width = flame.scroller.clientWidth;
        const at = (ns) => ((ns - from) / (to - from)) * width;
        const x = (at(shape.left(n)) + at(shape.right(n))) / 2;
        flame.scroller.scrollTop = Math.max(0, level * 19 - 100);
        return { n, x, y: level * 19 + 9 - flame.scroller.scrollTop };
      }
    }
    return null;
  }, pattern);

/** The longest wait for a lock with a known waker: its length, its waker, and its position in the lanes. */
export const longestLock = (page) =>
  page.evaluate(() => {
    const { lanes, profile } = globalThis.wallscope;
    let best = { ns: 0, x: 0, y: 0, by: '' };
    lanes.shown.forEach((lane, k) => {
      lane.tag.forEach((tag, i) => {
        const ns = lane.edge[i + 1] - lane.edge[i];
        if (profile.reason(tag) !== 'lock' || lane.waker[i] === 0 || ns < best.ns) return;
        best = { ns, x: (lanes.x(lane.edge[i]) + lanes.x(lane.edge[i + 1])) / 2, y: 16 + k * 20 + 10, by: profile.meta.threads[lane.waker[i] - 1].name };
      });
    });
    return best;
  });
