import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, count, duration, escapeXml, percent, printable, shorten } from '../../js/text.js';

test('lengths of time keep three digits and the unit that suits', () => {
  const cases = [
    [0, '0 s'], [7, '7.00 ns'], [999, '999 ns'], [1_000, '1.00 µs'], [999_600, '1.00 ms'], [45_600_000, '45.6 ms'],
    [1_234_000_000, '1.23 s'], [599e9, '599 s'], [3_725e9, '1 h 2 min'], [-5e6, '−5.00 ms'],
  ];
  for (const [ns, text] of cases) assert.equal(duration(ns), text);
});

test('something is never rounded to nothing, nor nearly all to all', () => {
  assert.equal(percent(0), '0 %');
  assert.equal(percent(1e-9), '< 0.01 %');
  assert.equal(percent(0.005), '0.50 %');
  assert.equal(percent(0.9999), '> 99.9 %');
  assert.equal(percent(1), '100.0 %');
  assert.equal(percent(0 / 0), '–');
});

test('counts and bytes', () => {
  assert.equal(count(1234567), '1 234 567');
  assert.equal(bytes(1023), '1023 B');
  assert.equal(bytes(31 * 1024 * 1024), '31.0 MiB');
});

test('what cannot be seen is made visible', () => {
  assert.equal(printable('plain'), 'plain');
  assert.equal(printable('a\u0000b\u001b[31m'), 'a‹00›b‹1b›[31m');
  assert.equal(printable('\u202etxt.exe'), '‹202e›txt.exe');
  assert.equal(printable('関数 اسم'), '関数 اسم');
  // Twice in a row: the pattern keeps no state.
  assert.equal(printable('\u200bx'), '‹200b›x');
});

test('long names lose what tells least first', () => {
  const cpp = 'std::vector<std::pair<int, Foo>, std::allocator<std::pair<int, Foo> > >::push_back(std::pair<int, Foo>&&)';
  assert.equal(shorten(cpp, 200), cpp);
  assert.equal(shorten(cpp, 60), 'std::vector<…>::push_back(…)');
  assert.equal(shorten(cpp, 26), 'std::vector<…>::push_back');
  assert.equal(shorten(cpp, 22), '…vector<…>::push_back');
  assert.equal(shorten(cpp, 12), '…push_back');
  assert.equal(shorten(cpp, 5), 'push…');
  assert.equal(shorten('<std::net::TcpStream as std::io::Read>::read_buf', 24), '…TcpStream::read_buf');
  assert.equal(shorten('Foo::operator<(Foo const&) const', 20), 'Foo::operator<');
  assert.equal(shorten('[truncated:no_mapping]', 12).length <= 12, true);
});

test('names with dots keep their ends too', () => {
  const go = 'github.com/acme/shop/internal/stock.(*Cache).Record';
  assert.equal(shorten(go, 34), '…internal/stock.(*Cache).Record');
  assert.equal(shorten(go, 24), '…stock.(*Cache).Record');
  assert.equal(shorten(go, 18), '…(*Cache).Record');
  assert.equal(shorten(go, 9), '…Record');
  assert.equal(shorten(go, 5), 'Reco…');
  const java = 'java.util.concurrent.ThreadPoolExecutor$Worker.run';
  assert.equal(shorten(java, 41), '…concurrent.ThreadPoolExecutor$Worker.run');
  assert.equal(shorten(java, 20), '…run');
  assert.equal(shorten('slices.SortFunc[go.shape.[]uint8,go.shape.int]', 46), 'slices.SortFunc[go.shape.[]uint8,go.shape.int]');
  assert.equal(shorten('slices.SortFunc[go.shape.[]uint8,go.shape.int]', 12), 'SortFunc[go…');
  // A suffix of the compiler is no name, nor is the end of a file's.
  assert.equal(shorten('ext4_map_blocks.isra.0', 12), 'ext4_map_bl…');
  assert.equal(shorten('libpython3.11.so.1.0+0x1f3a2', 14), 'libpython3.11…');
});

test('shortening keeps its promise for every length and any name', () => {
  const names = ['', '<', '<<<<', '>>>', '(((', 'a::', '::::', `x${'<'.repeat(5000)}`, 'y'.repeat(100_000), '<a as b>::c', 'operator()', '{closure#0}<…>'];
  for (const name of names) {
    for (const most of [0, 1, 2, 3, 10, 50]) {
      const short = shorten(name, most);
      assert.ok(short.length <= Math.max(most, 0) || name.length <= most, `${name.slice(0, 20)} at ${most}: ${short}`);
    }
  }
});

test('text for SVG cannot end its element', () => {
  assert.equal(escapeXml('<a b="c">&\''), '&#60;a b=&#34;c&#34;&#62;&#38;&#39;');
});
