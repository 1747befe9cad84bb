// Starts Chromium and opens pages from files, watching for anything that a page must not do.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
export const PAGES = process.env.PAGES ?? join(import.meta.dirname, '..', '..', 'target', 'pages');

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
