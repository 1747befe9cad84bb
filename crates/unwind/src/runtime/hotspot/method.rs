//! Java methods: names, source files, lines.

use super::structs::Layout;
use crate::runtime::memory::Memory;

/// Maximum bytes of a line table.
const MAX_TABLE_BYTES: usize = 1 << 18;
/// Method flag, in all versions: it has a line table.
const HAS_LINES: u8 = 1;

/// A Java method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// `java.util.HashMap.get`.
    pub name: String,
    /// `java/util/HashMap.java`; empty if the class has no source file.
    pub file: String,
    /// Its lowest line; 0: unknown.
    pub line: u32,
    /// Address and size in bytes of its bytecode.
    pub(super) code: u64,
    pub(super) code_size: u32,
    /// The class's line table: (bytecode index, line).
    lines: Vec<(u32, u32)>,
}

impl Method {
    /// The line of the bytecode with index `bci`; 0: unknown.
    pub fn line_at(&self, bci: u32) -> u32 {
        let before = self.lines.iter().filter(|(b, _)| *b <= bci);
        before.max_by_key(|(b, _)| *b).map_or(0, |(_, line)| *line)
    }

    /// The index of the bytecode at `bcp`, if it belongs to this method.
    pub(super) fn bci(&self, bcp: u64) -> Option<u32> {
        let index = bcp.wrapping_sub(self.code);
        (index < u64::from(self.code_size)).then_some(index as u32)
    }

    /// Reads the method at `address`; `first`: the smallest byte of a number (see [`number`]).
    pub(super) fn read(
        layout: &Layout,
        first: u8,
        address: u64,
        memory: &mut Memory<'_>,
    ) -> Option<Method> {
        let at = memory.word(address + layout.method.constant)?;
        let pool = memory.word(at.checked_add(layout.method.pool)?)?;
        let class = memory.word(pool.checked_add(layout.pool.holder)?)?;
        let short = |memory: &mut Memory<'_>, at: u64| memory.word(at).map(|w| w as u16);
        let name_index = short(memory, at + layout.method.name)?;
        let code_size = short(memory, at + layout.method.code_size)?;
        let flags = memory.word(at + layout.method.flags)? as u8;
        let (in_pool, source) = layout.pool.source_file;
        let source_index = short(memory, if in_pool { pool } else { class } + source)?;
        let name = constant(layout, pool, name_index, memory)?;
        let class = memory.word(class.checked_add(layout.class_name)?)?;
        let class = symbol(layout, class, memory)?;
        let source = match source_index {
            0 => None,
            index => constant(layout, pool, index, memory),
        };
        let code = at + layout.method.size;
        let lines = match flags & HAS_LINES {
            0 => Vec::new(),
            _ => lines(code + u64::from(code_size), first, memory),
        };
        Some(Method {
            name: format!("{}.{name}", dotted(&class)),
            file: source.map_or_else(String::new, |s| match class.rfind('/') {
                Some(end) if !s.contains('/') => format!("{}/{s}", &class[..end]),
                _ => s,
            }),
            line: lines.iter().map(|(_, line)| *line).min().unwrap_or(0),
            code,
            code_size: u32::from(code_size),
            lines,
        })
    }
}

/// A class name in source form. The number in a hidden class's name is removed: it means nothing
/// elsewhere.
fn dotted(class: &str) -> String {
    let known = match class.split_once("+0x").or_else(|| class.split_once("/0x")) {
        Some((known, number)) if number.bytes().all(|b| b.is_ascii_hexdigit()) => known,
        _ => class,
    };
    known.replace('/', ".")
}

/// Reads the name of the class at `class`, in source form.
pub(super) fn class_name(layout: &Layout, class: u64, memory: &mut Memory<'_>) -> Option<String> {
    let name = memory.word(class.checked_add(layout.class_name)?)?;
    Some(dotted(&symbol(layout, name, memory)?))
}

pub(super) fn constant(
    layout: &Layout,
    pool: u64,
    index: u16,
    memory: &mut Memory<'_>,
) -> Option<String> {
    let at = pool.checked_add(layout.pool.size + 8 * u64::from(index))?;
    let value = memory.word(at)?;
    // The lowest bit has version-dependent meanings.
    symbol(layout, value & !1, memory)
}

fn symbol(layout: &Layout, at: u64, memory: &mut Memory<'_>) -> Option<String> {
    let length = memory.word(at.checked_add(layout.symbol.length)?)? as u16;
    if length == 0 {
        return None;
    }
    let mut text = vec![0u8; usize::from(length)];
    memory.bytes(at.checked_add(layout.symbol.body)?, &mut text)?;
    // No name has control characters. Names are UTF-8 except for rare characters.
    let text = String::from_utf8_lossy(&text);
    (!text.chars().any(char::is_control)).then(|| text.into_owned())
}

/// Reads the line table at `at`. It holds differences: small ones in one byte, others as a number
/// each.
fn lines(at: u64, first: u8, memory: &mut Memory<'_>) -> Vec<(u32, u32)> {
    let mut stream = Stream::new(at, MAX_TABLE_BYTES, memory);
    let (mut bci, mut line) = (0u32, 0u32);
    let mut lines = Vec::new();
    loop {
        let (by, to) = match stream.byte() {
            None | Some(0) => break,
            Some(0xff) => {
                let mut signed = || {
                    let n = number(first, || stream.byte())?;
                    Some((n >> 1) ^ (n & 1).wrapping_neg())
                };
                match (signed(), signed()) {
                    (Some(by), Some(to)) => (by, to),
                    _ => break,
                }
            }
            Some(byte) => (u32::from(byte >> 3), u32::from(byte & 7)),
        };
        (bci, line) = (bci.wrapping_add(by), line.wrapping_add(to));
        lines.push((bci, line));
    }
    lines
}

/// A stream of bytes of a process.
pub(super) struct Stream<'m, 'r> {
    memory: &'m mut Memory<'r>,
    at: u64,
    left: usize,
    buffer: [u8; 128],
    next: usize,
}

impl<'m, 'r> Stream<'m, 'r> {
    pub(super) fn new(at: u64, most: usize, memory: &'m mut Memory<'r>) -> Stream<'m, 'r> {
        Stream {
            memory,
            at,
            left: most,
            buffer: [0; 128],
            next: 128,
        }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        if self.next == self.buffer.len() {
            self.left = self.left.checked_sub(self.buffer.len())?;
            self.memory.bytes(self.at, &mut self.buffer)?;
            self.at += self.buffer.len() as u64;
            self.next = 0;
        }
        self.next += 1;
        Some(self.buffer[self.next - 1])
    }
}

/// Decodes a number of one to five bytes ("UNSIGNED5"): six bits of each byte but the last. Byte
/// values count from `first`, which is 1 from JDK 20 on, so that no byte is zero.
pub(super) fn number(first: u8, mut byte: impl FnMut() -> Option<u8>) -> Option<u32> {
    const HIGH: u8 = 192;
    let mut sum = 0u32;
    for shift in [0, 6, 12, 18, 24] {
        let b = byte()?;
        sum = sum.wrapping_add(u32::from(b.checked_sub(first)?) << shift);
        if b < HIGH {
            break;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(first: u8, bytes: &[u8]) -> Option<u32> {
        let mut bytes = bytes.iter().copied();
        number(first, || bytes.next())
    }

    #[test]
    fn numbers_of_both_ages() {
        assert_eq!(of(0, &[0]), Some(0));
        assert_eq!(of(0, &[191]), Some(191));
        assert_eq!(of(0, &[192, 0]), Some(192));
        assert_eq!(of(0, &[255, 191]), Some(255 + (191 << 6)));
        assert_eq!(of(1, &[1]), Some(0));
        assert_eq!(of(1, &[191]), Some(190));
        assert_eq!(of(1, &[192, 1]), Some(191));
        assert_eq!(of(1, &[0]), None);
        assert_eq!(of(0, &[200]), None);
        assert_eq!(of(0, &[255; 5]), Some(255u32.wrapping_mul(0x0104_1041)));
    }

    #[test]
    fn names_as_they_are_written() {
        assert_eq!(dotted("java/util/HashMap$Node"), "java.util.HashMap$Node");
        assert_eq!(dotted("A$$Lambda$14/0x0000000800c03000"), "A$$Lambda$14");
        assert_eq!(dotted("A$$Lambda+0x0000000800c03000"), "A$$Lambda");
        assert_eq!(dotted("a/0xyz"), "a.0xyz");
    }

    #[test]
    fn a_line_table_of_both_kinds_of_entries() {
        let mut bytes = vec![(1 << 3) | 5, (4 << 3) | 1, 0xff];
        // Bytecode +200, line -3 (as signed numbers: 400, 5).
        bytes.extend([208, 3, 5, 0]);
        bytes.resize(256, 0);
        let mut read = |at: u64, to: &mut [u8]| {
            let from = (at - 0x1000) as usize;
            bytes.get(from..from + to.len()).is_some_and(|b| {
                to.copy_from_slice(b);
                true
            })
        };
        let found = lines(0x1000, 0, &mut Memory(&mut read));
        assert_eq!(found, [(1, 5), (5, 6), (205, 3)]);
        let method = Method {
            name: String::new(),
            file: String::new(),
            line: 3,
            code: 0x5000,
            code_size: 300,
            lines: found,
        };
        assert_eq!(
            [0, 1, 4, 5, 204, 205, 299].map(|b| method.line_at(b)),
            [0, 5, 5, 6, 6, 3, 3]
        );
        assert_eq!(method.bci(0x5000 + 299), Some(299));
        assert_eq!(method.bci(0x5000 + 300), None);
        assert_eq!(method.bci(0x4fff), None);
    }
}
