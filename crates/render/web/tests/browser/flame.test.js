// The flame graph, the panel of a function, and what is hidden, deep or folded in them.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { look, place, settled, suite } from '../browser.js';

const on = suite();

test('hovering a frame tells total, share, interval and self', async () => {
  await on('demo', {}, async (page) => {
    const spot = await place(page, 'handle_request$');
    await settled(page);
    await page.locator('#flame canvas').hover({ position: spot });
    await page.locator('#tip:not([hidden])').waitFor();
    await page.waitForFunction(() => /samples/.test(document.getElementById('tip').innerText));
    const tip = await page.locator('#tip').innerText();
    assert.match(tip, /handle_request/);
    assert.match(tip, /\d % .* s .*\(.* … .*, [\d ]+ samples\) · self/);
    assert.match(tip, /on CPU .* blocked/);
  });
});

test('a click zooms, the trail and the back button return', async () => {
  await on('demo', {}, async (page) => {
    const spot = await place(page, 'handle_request$');
    await settled(page);
    await page.locator('#flame canvas').click({ position: spot });
    assert.equal((await look(page)).zoom, String(spot.n));
    const ends = await page.evaluate(() => [globalThis.wallscope.flame.scene.from, globalThis.wallscope.flame.scene.to]);
    assert.ok(ends[0] > 0);
    assert.match(await page.locator('#trail').innerText(), /all › .*handle_request/);
    await page.goBack();
    assert.equal((await look(page)).zoom, '');
    await page.goForward();
    await page.locator('#trail button').first().click();
    assert.equal((await look(page)).zoom, '');
    // Ctrl and the wheel zoom anywhere, and that is in the address too.
    await page.locator('#flame canvas').hover({ position: spot });
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -600);
    await page.keyboard.up('Control');
    await page.waitForFunction(() => globalThis.wallscope.look.zoom.includes('~'));
  });
});

test('frames are coloured by state, reason, kind and module; kernel and inlined ones are marked', async () => {
  await on('demo', {}, async (page) => {
    const key = async (button) => {
      await page.locator('#flame-tools button', { hasText: button }).click();
      return page.locator('#key').innerText();
    };
    assert.match(await key('Module'), /libc\.so\.6\n[\s\S]*wallscope-demo|wallscope-demo\n[\s\S]*libc\.so\.6/);
    assert.match(await key('Kind of code'), /own code[\s\S]*library[\s\S]*kernel/);
    assert.match(await key('Reason'), /network[\s\S]*lock|lock[\s\S]*network/);
    assert.match(await key('State'), /on CPU[\s\S]*runnable[\s\S]*blocked/);
    const drawn = await page.evaluate(() => {
      const { flame, profile } = globalThis.wallscope;
      const { shape, from, to } = flame.scene;
      // All levels at once, read back at once.
      flame.scroller.style.height = `${shape.levels * 19 + 10}px`;
      flame.draw();
      const width = flame.scroller.clientWidth;
      const { data } = flame.canvas.getContext('2d').getImageData(0, 0, width, shape.levels * 19);
      const marks = { kernel: 0, marked: 0, inlined: 0 };
      for (let level = 1; level < shape.levels; level += 1) {
        for (let i = shape.levelStart[level]; i < shape.levelEnd[level]; i += 1) {
          const n = shape.order[i];
          const x = ((shape.left(n) - from) / (to - from)) * width;
          if (((shape.right(n) - shape.left(n)) / (to - from)) * width < 30) continue;
          const at = ((flame.y(level) + 9) * width + Math.round(x) + 1) * 4;
          const [r, g, b] = data.subarray(at, at + 3);
          const dark = r === 0x5a && g === 0x4a && b === 0x42;
          const kernel = profile.kind[shape.entry(n)] === 1;
          marks.kernel += kernel;
          marks.marked += kernel && dark;
          if (!kernel && dark) throw new Error(`${profile.names[shape.entry(n)]} is marked as kernel`);
          marks.inlined += profile.inlined[shape.entry(n)];
        }
      }
      return marks;
    });
    assert.ok(drawn.kernel > 5 && drawn.marked === drawn.kernel && drawn.inlined > 5, JSON.stringify(drawn));
    // What is written slanted is what is inlined: the file says so in words.
    await page.click('#save');
    const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.popup button', { hasText: 'SVG' }).click()]);
    assert.match(readFileSync(await file.path()).toString(), /font-style="italic">[^<]*read_line/);
  });
});

test('the graph turns over, starts at the leaves, and folds recursion', async () => {
  const graph = (page) =>
    page.evaluate(() => {
      const { flame, profile } = globalThis.wallscope;
      const { shape } = flame.scene;
      const names = (level) => [...shape.order.subarray(shape.levelStart[level], shape.levelEnd[level])].map((n) => profile.names[shape.entry(n)]);
      let twice = 0;
      for (let level = 1; level < shape.levels; level += 1) {
        for (const n of shape.order.subarray(shape.levelStart[level], shape.levelEnd[level])) twice += shape.entry(n) >= 0 && shape.entry(shape.parent(n)) === shape.entry(n);
      }
      return { total: shape.total, twice, first: names(1), rootAbove: flame.y(0) < flame.y(1) };
    });
  await on('demo', { look: 'view=off-cpu' }, async (page) => {
    const plain = await graph(page);
    assert.ok(plain.rootAbove && plain.first.includes('__clone3'));
    await page.keyboard.press('i');
    await settled(page);
    assert.equal((await graph(page)).rootAbove, false);
    await page.keyboard.press('i');
    await page.keyboard.press('l');
    await settled(page);
    const leaves = await graph(page);
    assert.ok(leaves.first.includes('wait_woken') && !leaves.first.includes('__clone3'));
    assert.ok(Math.abs(leaves.total / plain.total - 1) < 1e-9);
  });
  // A Python program that calls itself, as it was recorded, and one made up.
  for (const [name, least] of [['recursion', 10], ['shop', 3]]) await on(name, {}, async (page) => {
    const plain = await graph(page);
    assert.ok(plain.twice >= least, `${plain.twice}`);
    await page.locator('#flame-tools button', { hasText: 'Fold recursion' }).click();
    await settled(page);
    const folded = await graph(page);
    assert.equal(folded.twice, 0);
    assert.ok(Math.abs(folded.total / plain.total - 1) < 1e-9);
  });
});

test('the panel of a function has its module, source, lines, callers and callees', async () => {
  await on('demo', { look: 'tab=table&query=::cache_get' }, async (page) => {
    await page.locator('table.functions tbody tr', { hasText: '::cache_get' }).first().click();
    const panel = await page.locator('#detail').innerText();
    assert.match(panel, /wallscope-demo/);
    assert.match(panel, /\.rs:\d+/);
    assert.match(panel, /Called by[\s\S]*handle_request/);
    assert.match(panel, /Calls[\s\S]*%/);
    assert.match(panel, /± [\d.]+ pp/);
    assert.match(panel, /Lines\n/);
    await page.locator('#detail .copy').click();
    await page.locator('#live.shown').waitFor();
    assert.match(await page.locator('#live').innerText(), /copied/);
    // What was copied is the stack, leaf first, with its modules.
    await page.fill('#query', '');
    await page.focus('#query');
    await page.keyboard.press('Control+V');
    assert.match(await page.locator('#query').inputValue(), /^wall: .* s\s+\S*::cache_get\s+\/\S+wallscope-demo\s+\S*handle_request/);
    await page.fill('#query', '::cache_get');
    await page.locator('#detail .close').click();
    assert.equal(await page.locator('#detail').isVisible(), false);
  });
});

test('callers and callees of a function, up and down', async () => {
  await on('demo', { look: 'tab=table&query=::cache_get' }, async (page) => {
    await page.locator('table.functions tbody tr', { hasText: '::cache_get' }).first().click();
    await page.locator('#detail .focus').click();
    await page.locator('#focus').waitFor();
    const [up, down] = await page.evaluate(() => {
      const { callers, callees, profile } = globalThis.wallscope;
      return [callers, callees].map((g) => g.scene.shape.entries.map((e) => profile.names[e] ?? ''));
    });
    assert.match(up[0], /cache_get/);
    assert.match(down[0], /cache_get/);
    assert.ok(up.some((n) => /handle_request/.test(n)) && !down.some((n) => /handle_request/.test(n)));
    assert.ok(down.some((n) => /futex/.test(n)) && !up.some((n) => /futex/.test(n)));
    await page.keyboard.press('s');
    assert.equal(await page.locator('#focus').isVisible(), false);
  });
});

test('what is too narrow to draw can be reached by a click', async () => {
  await on('demo', {}, async (page) => {
    const strip = await page.evaluate(() => {
      const { flame } = globalThis.wallscope;
      const s = flame.strips.find((v) => flame.y(v.level) >= 0 && flame.y(v.level) < 300 && v.to - v.from > 1);
      return s && { x: (s.x0 + s.x1) / 2, y: flame.y(s.level) + 9, n: s.to - s.from };
    });
    assert.ok(strip, 'a real recording has frames too narrow to draw');
    await page.locator('#flame canvas').hover({ position: strip });
    assert.match(await page.locator('#tip').innerText(), new RegExp(`${strip.n} hidden`));
    await page.locator('#flame canvas').click({ position: strip });
    const span = await page.evaluate(() => {
      const { from, to, shape } = globalThis.wallscope.flame.scene;
      return (to - from) / shape.total;
    });
    assert.ok(span < 0.05);
  });
});

test('managed code is called so, and has a colour of its own', async () => {
  await on('recursion', { look: 'view=on-cpu' }, async (page) => {
    assert.match(await page.locator('#key').innerText(), /managed/);
    const kinds = await page.evaluate(() => {
      const { lastPaint, profile } = globalThis.wallscope;
      const colour = (name) => lastPaint.colours[lastPaint.classOf(profile.names.indexOf(name))];
      return [colour('fib'), colour('PyList_Append')];
    });
    assert.deepEqual(kinds, ['#7fa8f5', '#f0c75e']);
  });
});

test('thousands of levels are drawn where one scrolls to', async () => {
  await on('deep', {}, async (page) => {
    const deepest = await page.evaluate(async () => {
      const { flame } = globalThis.wallscope;
      flame.scroller.scrollTop = flame.scroller.scrollHeight;
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const c = flame.canvas.getContext('2d');
      const y = flame.y(flame.scene.shape.levels - 1);
      const pixel = c.getImageData(40, Math.round(y + 9), 1, 1).data;
      return { levels: flame.scene.shape.levels, y, alpha: pixel[3] };
    });
    assert.ok(deepest.levels > 5000);
    assert.ok(deepest.y > 0 && deepest.y < 900);
    assert.equal(deepest.alpha, 255);
    await page.keyboard.press('r');
    await page.keyboard.press('l');
    await settled(page);
  });
});
