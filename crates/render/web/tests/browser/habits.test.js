// One file without requests, keyboard, pictures, dark theme, phone, paper, names for screen readers, and
// hostile names.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { look, settled, suite } from '../browser.js';

const on = suite();

test('it is one file, with a policy, and asks for nothing', async () => {
  await on('demo', {}, async (page) => {
    const policy = await page.locator('meta[http-equiv=Content-Security-Policy]').getAttribute('content');
    assert.match(policy, /^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'/);
    assert.doesNotMatch(policy, /unsafe/);
    // The policy is in force: a script that is not the page's own does not run.
    await page.evaluate(() => {
      const s = document.createElement('script');
      s.textContent = 'globalThis.intruder = 1';
      document.body.append(s);
    });
    assert.equal(await page.evaluate(() => globalThis.intruder), undefined);
    assert.equal(page.wrong.length, 1);
    assert.match(page.wrong.pop(), /Content Security Policy/);
  });
});

test('the keyboard reaches everything', async () => {
  await on('demo', {}, async (page) => {
    const state = async () => (await look(page));
    await page.keyboard.press('i');
    assert.equal((await state()).icicle, false);
    await page.keyboard.press('i');
    await page.keyboard.press('t');
    assert.equal((await state()).tab, 'table');
    await page.keyboard.press('t');
    await page.keyboard.press('3');
    assert.equal((await state()).view, 'off-cpu');
    await page.keyboard.press('l');
    assert.equal((await state()).leaf, true);
    await page.keyboard.press('l');
    await page.keyboard.press('r');
    assert.equal((await state()).fold, true);
    await page.keyboard.press('r');
    await page.keyboard.press('m');
    assert.equal((await state()).mine, true);
    await page.keyboard.press('m');
    await page.keyboard.press('1');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowDown']) await page.keyboard.press(key);
    const cursor = await page.evaluate(() => globalThis.wallscope.flame.cursor);
    assert.ok(cursor > 0);
    assert.match(await page.locator('#live').innerText(), /%/);
    await page.keyboard.press('Enter');
    assert.equal((await state()).zoom, String(cursor));
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    assert.equal((await state()).zoom, '');
    for (const [key, tab] of [['o', 'heat'], ['d', 'domain'], ['f', 'flame']]) {
      await page.keyboard.press(key);
      assert.equal((await state()).tab, tab);
    }
    for (const [key, view] of [['2', 'on-cpu'], ['4', 'runq'], ['1', 'wall']]) {
      await page.keyboard.press(key);
      assert.equal((await state()).view, view);
    }
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('s');
    assert.equal(await page.locator('#focus').isVisible(), true);
    await page.keyboard.press('s');
    await page.keyboard.press('c');
    await page.waitForFunction(() => /copied/.test(document.getElementById('live').textContent));
    await page.keyboard.press('?');
    assert.match(await page.locator('.popup').innerText(), /callers and callees/);
    await page.keyboard.press('Escape');
  });
});

test('the keyboard stays at its element when that is made anew', async () => {
  await on('demo', {}, async (page) => {
    const at = () => page.evaluate(() => document.activeElement?.textContent ?? '');
    for (const [where, text] of [['#views', 'Off CPU'], ['#flame-tools', 'My code'], ['#flame-tools', 'Leaf first']]) {
      await page.locator(`${where} button`, { hasText: text }).focus();
      await page.keyboard.press('Enter');
      assert.equal(await at(), text);
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'none');
    }
    // One stop for all tabs; arrows go among them.
    await page.locator('#tab-flame').focus();
    await page.keyboard.press('ArrowRight');
    assert.equal((await look(page)).tab, 'table');
    assert.equal(await at(), 'Functions');
    await page.keyboard.press('End');
    assert.equal((await look(page)).tab, 'domain');
    assert.equal(await page.locator('#tabs [tabindex="0"]').count(), 1);
    await page.keyboard.press('Home');
    // A pop-up gives the keyboard back.
    await page.locator('#help').focus();
    await page.keyboard.press('Enter');
    assert.equal(await page.locator('.popup[role=dialog]').getAttribute('aria-label'), 'help');
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'help');
  });
});

test('it saves its picture as SVG and PNG', async () => {
  await on('demo', { look: 'view=off-cpu' }, async (page) => {
    const save = async (what) => {
      await page.click('#save');
      const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.popup button', { hasText: what }).click()]);
      return readFileSync(await file.path());
    };
    const svg = (await save('SVG')).toString();
    assert.match(svg, /^<svg xmlns/);
    assert.match(svg, /cache_get/);
    const sound = await page.evaluate((text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror') === null, svg);
    assert.ok(sound);
    const png = await save('PNG');
    assert.deepEqual([...png.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    assert.ok(png.length > 10_000);
  });
});

test('dark and light, on a phone, and on paper', async () => {
  await on('demo', { dark: true }, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await ground(), 'rgb(22, 24, 27)');
    await page.click('#theme');
    assert.equal(await ground(), 'rgb(255, 255, 255)');
    await page.evaluate(() => localStorage.removeItem('wallscope-theme'));
  });
  for (const tab of ['flame', 'table', 'heat', 'domain']) {
    await on('demo', { size: { width: 390, height: 844 }, look: `tab=${tab}` }, async (page) => {
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= 392, `${tab} is ${wide} wide on a phone`);
    });
  }
  await on('demo', { dark: true }, async (page) => {
    await page.emulateMedia({ media: 'print' });
    assert.equal(await page.locator('#bar').isVisible(), false);
    assert.equal(await page.locator('#ledger').isVisible(), true);
    // What the sheet shows while it is taken: in light, and every level of the picture.
    const state = () =>
      page.evaluate(() => ({
        dark: document.documentElement.classList.contains('dark'),
        ground: getComputedStyle(document.body).backgroundColor,
        drawn: globalThis.wallscope.flame.canvas.clientHeight,
        needed: globalThis.wallscope.flame.scene.shape.levels * 19,
      }));
    await page.evaluate(() => addEventListener('beforeprint', () => { globalThis.printed = [document.documentElement.className, globalThis.wallscope.flame.canvas.clientHeight]; }));
    const sheets = await page.pdf();
    assert.equal(sheets.subarray(0, 5).toString(), '%PDF-');
    const after = await state();
    const [theme, drawn] = await page.evaluate(() => globalThis.printed);
    assert.equal(theme, 'paper');
    assert.ok(drawn >= after.needed, `${drawn} of ${after.needed}`);
    assert.equal(after.dark, true);
  });
});

test('what is drawn has names for a screen reader', async () => {
  await on('demo', {}, async (page) => {
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll('button, input, canvas')].filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).map((e) => e.outerHTML.slice(0, 80)),
    );
    assert.deepEqual(nameless, []);
    assert.match(await page.locator('#flame canvas').getAttribute('aria-label'), /flame graph of all time.*levels/);
  });
});

test('hostile names are shown as they are, and do nothing', async () => {
  for (const tab of ['flame', 'table', 'heat', 'domain']) {
    await on('hostile', { look: `tab=${tab}` }, async (page) => {
      page.on('dialog', () => assert.fail('a name opened a dialog'));
      await settled(page);
      assert.equal(await page.evaluate(() => globalThis.broken), undefined);
      assert.equal(await page.locator('img, iframe, b').filter({ hasText: 'bold' }).count(), 0);
      assert.match(await page.title(), /<script>alert\('title'\)<\/script>/);
    });
  }
  await on('hostile', { look: 'tab=table' }, async (page) => {
    const text = await page.locator('table.functions').innerText();
    assert.ok(text.includes('</script><script>globalThis.broken=1</script>'));
    assert.ok(text.includes('\ufffdevil_reversed'));
    assert.ok(text.includes('__proto__'));
    await page.locator('table.functions tbody tr', { hasText: 'xxxxxxxx' }).click();
    assert.match(await page.locator('#detail').innerText(), /100 000 characters/);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 1400);
  });
});
