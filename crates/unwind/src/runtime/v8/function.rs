//! SharedFunctionInfo: the part of a function that all its closures share.
//!
//! Names and source positions are in the function's ScopeInfo, after its variables. Their order is
//! fixed, but each part may be absent, so parts are recognised by their values. The first text is
//! the name (or the name that V8 inferred). The last two ascending numbers in a row are the start
//! and end positions. Newer versions have these two at a fixed index.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::heap::{Heap, number};

/// Maximum characters of a name.
const MAX_NAME_CHARS: usize = 512;
/// Maximum characters of a path.
const MAX_PATH_CHARS: usize = 4096;
/// Maximum characters of a source in which lines are counted, and maximum lines.
const MAX_SOURCE_CHARS: usize = 16 << 20;
const MAX_LINES: usize = 1 << 20;
/// Maximum bytes of a position table.
const MAX_TABLE_BYTES: usize = 1 << 20;
/// Variables of a scope that are stored inline; more are in a separate object.
const INLINE_LOCALS: u64 = 75;
const MAX_LOCALS: u64 = 1 << 14;
/// Words after a scope's variables that are searched.
const MAX_TAIL_WORDS: usize = 10;

/// A JavaScript function, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name; `(anonymous)` if it has none.
    pub name: String,
    /// Path or URL of its source; empty: unknown.
    pub file: String,
    /// Its first line, 1-based; 0: unknown.
    pub line: u32,
}

/// A source file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    file: String,
    /// End of each line, in characters from the start; `None`: unknown.
    ends: Option<Vec<u32>>,
}

/// Data of a function that is cached.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) function: Arc<Function>,
    /// It is a builtin of V8.
    pub(super) builtin: bool,
    script: Option<Arc<Script>>,
    /// It has its own copy of the interpreter's entry (`--interpreted-frames-native-stack`).
    pub(super) own_interpreter: bool,
    /// Offset of the bytecode in its object, and the position table.
    bytecode: Option<(u64, Vec<u8>)>,
}

impl Script {
    fn read(heap: &mut Heap<'_>, at: u64) -> Option<Script> {
        let (name, source) = (heap.layout.script.name, heap.layout.script.source);
        let name = heap.memory.word(at + name)?;
        let file = heap.text(name, MAX_PATH_CHARS).unwrap_or_default();
        let file = file.strip_prefix("file://").unwrap_or(&file).to_owned();
        let ends = match heap.layout.script.line_ends {
            0 => None,
            ends => heap.memory.word(at + ends).and_then(|w| line_ends(heap, w)),
        };
        let ends = match ends {
            Some(ends) => Some(ends),
            None => {
                let source = heap.memory.word(at + source)?;
                heap.units(source, MAX_SOURCE_CHARS).map(|s| ends_of(&s))
            }
        };
        Some(Script { file, ends })
    }

    /// The line of a position, 1-based; 0: unknown.
    fn line(&self, position: u32) -> u32 {
        let line = |ends: &Vec<u32>| ends.partition_point(|end| *end < position) as u32 + 1;
        self.ends.as_ref().map_or(0, line)
    }
}

/// Reads the line ends that V8 has computed, as it does for error messages.
fn line_ends(heap: &mut Heap<'_>, word: u64) -> Option<Vec<u32>> {
    let kind = heap.layout.kinds.fixed_array;
    let at = heap.object_of(word, kind)?;
    let bytes = heap.array(at, 8, MAX_LINES)?;
    let ends: Vec<u32> = bytes
        .chunks_exact(8)
        .map(|w| number(u64::from_le_bytes(w.try_into().ok()?)))
        .collect::<Option<_>>()?;
    (!ends.is_empty() && ends.is_sorted()).then_some(ends)
}

fn ends_of(source: &[u16]) -> Vec<u32> {
    const NEW_LINES: [u16; 2] = [10, 13];
    let mut ends = Vec::new();
    for (i, unit) in source.iter().enumerate() {
        // A carriage return before a line feed does not end a line.
        let pair = *unit == 13 && source.get(i + 1) == Some(&10);
        if NEW_LINES.contains(unit) && !pair {
            ends.push(i as u32);
        }
    }
    ends.push(source.len() as u32);
    ends
}

impl Shared {
    /// Reads the function with the tagged pointer `address`.
    pub(super) fn read(
        heap: &mut Heap<'_>,
        scripts: &mut FxHashMap<u64, Arc<Script>>,
        address: u64,
    ) -> Option<Shared> {
        let kinds = heap.layout.kinds;
        let at = heap.object_of(address, kinds.shared)?;
        let data = heap.memory.word(at + heap.layout.shared.data)?;
        let name = heap.memory.word(at + heap.layout.shared.name)?;
        let (mut text, mut begin) = (None, None);
        if let Some((object, kind)) = heap.object(name) {
            if kind == kinds.scope {
                (text, begin) = scope(heap, object)?;
            } else {
                text = heap.text(name, MAX_NAME_CHARS);
            }
        }
        let script = heap.memory.word(at + heap.layout.shared.script)?;
        let script = script_of(heap, scripts, script);
        let line = match (begin, &script) {
            (Some(begin), Some(script)) => script.line(begin),
            _ => 0,
        };
        let function = Function {
            name: text
                .filter(|t| !t.is_empty())
                .unwrap_or_else(|| "(anonymous)".into()),
            file: script.as_ref().map_or(String::new(), |s| s.file.clone()),
            line,
        };
        let bytecode = bytecode(heap, data);
        Some(Shared {
            function: Arc::new(function),
            // The builtin's number.
            builtin: number(data).is_some(),
            script,
            own_interpreter: bytecode.as_ref().is_some_and(|b| b.copied),
            bytecode: bytecode.map(|b| (b.begin, b.positions)),
        })
    }

    /// The line of a position in its source, 1-based; 0: unknown.
    pub(super) fn line_at(&self, position: u32) -> u32 {
        self.script.as_ref().map_or(0, |s| s.line(position))
    }

    /// Converts an offset in its bytecode object to a source position.
    pub(super) fn position_of_bytecode(&self, offset: u32) -> Option<u32> {
        let (begin, table) = self.bytecode.as_ref()?;
        // Tagged pointers are odd.
        let offset = (u64::from(offset) + 1).checked_sub(*begin)?;
        let last = Positions::new(table)
            .take_while(|p| p.reaches(offset))
            .last()?;
        last.position()
    }
}

fn script_of(
    heap: &mut Heap<'_>,
    scripts: &mut FxHashMap<u64, Arc<Script>>,
    word: u64,
) -> Option<Arc<Script>> {
    let kind = heap.layout.kinds.script;
    let at = heap.object_of(word, kind)?;
    if let Some(known) = scripts.get(&at) {
        return Some(Arc::clone(known));
    }
    let script = Arc::new(Script::read(heap, at)?);
    scripts.insert(at, Arc::clone(&script));
    Some(script)
}

/// Reads the name in a scope, and the start position of its function.
fn scope(heap: &mut Heap<'_>, at: u64) -> Option<(Option<String>, Option<u32>)> {
    let (first, locals) = (heap.layout.scope.first, heap.layout.scope.locals);
    let words = at + 8;
    let locals = u64::from(number(heap.memory.word(words + 8 * locals)?)?);
    if locals > MAX_LOCALS {
        return None;
    }
    let skip = match locals {
        n if n < INLINE_LOCALS => first + 2 * n,
        n => first + 1 + n,
    };
    let mut name = None;
    let begin = match heap.layout.scope.place {
        Some(place) => number(heap.memory.word(words + 8 * place)?),
        None => None,
    };
    let mut numbers: Vec<u32> = Vec::new();
    for i in 0..MAX_TAIL_WORDS as u64 {
        let Some(word) = heap.memory.word(words + 8 * (skip + i)) else {
            break;
        };
        match number(word) {
            Some(n) => {
                numbers.push(n);
                continue;
            }
            None if begin.is_none() && begin_of(&numbers).is_some() => break,
            None => numbers.clear(),
        }
        if name.is_none() {
            name = heap.text(word, MAX_NAME_CHARS).filter(|t| !t.is_empty());
        }
    }
    Some((name, begin.or(begin_of(&numbers))))
}

fn begin_of(numbers: &[u32]) -> Option<u32> {
    match numbers {
        [.., begin, end] if begin < end => Some(*begin),
        _ => None,
    }
}

/// The bytecode of a function.
struct Bytecode {
    /// Offset of its first byte in its object.
    begin: u64,
    positions: Vec<u8>,
    /// The function has its own copy of the interpreter's entry.
    copied: bool,
}

fn bytecode(heap: &mut Heap<'_>, data: u64) -> Option<Bytecode> {
    let kinds = heap.layout.kinds;
    let (mut at, mut kind) = heap.object(data)?;
    let mut copied = false;
    for _ in 0..2 {
        // With baseline code or debug data, the bytecode is one step further.
        let next = match kind {
            k if k == kinds.bytecode => break,
            k if k == kinds.code => heap.layout.code?.deoptimization,
            k if k == kinds.interpreter_data => 8,
            _ => return None,
        };
        copied |= kind == kinds.interpreter_data;
        let word = heap.memory.word(at + next)?;
        (at, kind) = heap.object(word)?;
    }
    if kind != kinds.bytecode {
        return None;
    }
    let table = heap.memory.word(at + heap.layout.bytecode_positions)?;
    let (table, _) = heap.object(table)?;
    let table = heap.array(table, 1, MAX_TABLE_BYTES)?;
    Some(Bytecode {
        begin: heap.layout.bytecode_data,
        positions: table,
        copied,
    })
}

/// A row of a position table: a source position, from this offset in the code on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PositionRow {
    pub(super) code: u64,
    raw: i64,
}

impl PositionRow {
    /// Whether it starts at `offset` or before. A function's entry precedes its first instruction.
    pub(super) fn reaches(self, offset: u64) -> bool {
        self.code as i64 <= offset as i64
    }

    /// The position, in characters from the start of the source.
    pub(super) fn position(self) -> Option<u32> {
        position(self.raw as u64)
    }

    /// The inlining id, from 1 on; 0: not inlined.
    pub(super) fn inlining(self) -> u16 {
        inlining(self.raw as u64)
    }
}

/// Decodes the source position: bit 0 set: outside any source; then 30 bits, position + 1; then 16
/// bits, the inlining id.
pub(super) fn position(raw: u64) -> Option<u32> {
    let position = raw >> 1 & ((1 << 30) - 1);
    (raw & 1 == 0 && position > 0).then(|| position as u32 - 1)
}

/// Decodes the inlining id; see [`PositionRow::inlining`].
pub(super) fn inlining(raw: u64) -> u16 {
    (raw >> 31) as u16
}

/// Iterator over a position table: differences in variable-length encoding, with the sign in the
/// lowest bit. A negative offset step marks another kind of row.
pub(super) struct Positions<'t> {
    table: &'t [u8],
    row: PositionRow,
}

impl<'t> Positions<'t> {
    pub(super) fn new(table: &'t [u8]) -> Positions<'t> {
        Positions {
            table,
            row: PositionRow {
                code: u64::MAX,
                raw: 0,
            },
        }
    }

    fn next_number(&mut self) -> Option<i64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.table.split_first()?;
            self.table = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }
}

impl Iterator for Positions<'_> {
    type Item = PositionRow;

    fn next(&mut self) -> Option<PositionRow> {
        let step = self.next_number()?;
        let step = if step < 0 { -(step + 1) } else { step };
        let position = self.next_number()?;
        self.row.code = self.row.code.wrapping_add(step as u64);
        self.row.raw = self.row.raw.wrapping_add(position);
        Some(self.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_feeds_and_returns() {
        let text: Vec<u16> = "ab\r\nc\rd\n".encode_utf16().collect();
        let script = Script {
            file: String::new(),
            ends: Some(ends_of(&text)),
        };
        let lines: Vec<u32> = [0, 1, 4, 6, 8].map(|p| script.line(p)).into();
        assert_eq!(lines, [1, 1, 2, 3, 4]);
    }

    #[test]
    fn rows_of_positions_are_summed() {
        // (0, 5 << 1), then two bytes later back by 2 << 1, in a row of the other kind.
        let table = [0x02, 0x14, 0x05, 0x07];
        let rows: Vec<_> = Positions::new(&table).collect();
        assert_eq!(rows[0].code, 0);
        assert_eq!(rows[0].position(), Some(4));
        assert_eq!(rows[1].code, 2);
        assert_eq!(rows[1].position(), Some(2));
        assert!(Positions::new(&[0x80, 0x80]).next().is_none());
    }

    #[test]
    fn the_last_two_numbers_in_a_row_are_begin_and_end() {
        assert_eq!(begin_of(&[2, 100, 200]), Some(100));
        assert_eq!(begin_of(&[200, 100]), None);
        assert_eq!(begin_of(&[7]), None);
    }
}
