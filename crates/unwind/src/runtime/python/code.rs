//! Code objects: the name, file and lines of a Python frame.

use super::{
    Facts,
    layout::{Lines, Objects},
    lines,
};

/// Maximum characters of a text that is read from a target.
const MAX_TEXT_CHARS: u64 = 4096;
/// Flag of a coroutine function's code.
const COROUTINE: u32 = 0x80;
/// Maximum bytes of a line table.
const MAX_TABLE_BYTES: u64 = 1 << 20;

/// Python's name of a module body.
const MODULE: &str = "<module>";

/// A function, from its code object; also a PHP or Ruby function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its name; from 3.11 on with its class or enclosing function.
    pub name: String,
    /// The source file.
    pub file: String,
    /// Its first line.
    pub line: u32,
    /// Whether it is an `async def` (that is no generator).
    pub coroutine: bool,
    table: Vec<u8>,
    format: Lines,
}

/// Reason why a code object could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Miss {
    /// The memory is gone.
    Unreadable,
    /// Another object, or another code object than the one that ran, is there.
    Changed,
}

impl Facts {
    /// Reads the code object at `address` of a process with load bias `bias`. `check` is the
    /// checksum that the walk computed.
    ///
    /// # Errors
    /// The reason for the miss; no other errors.
    pub fn read_code(
        &self,
        bias: u64,
        address: u64,
        check: u32,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Code, Miss> {
        let o = &self.layout.objects;
        let mut head = [0u8; 192];
        if !read(address, &mut head) {
            return Err(Miss::Unreadable);
        }
        let word = |at: u16| -> u64 {
            let at = usize::from(at);
            u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"))
        };
        let line = word(o.line) as u32;
        // The second word of every object is its type.
        let of_code = word(8) == self.code_type.wrapping_add(bias);
        if !of_code || self::check(word(o.name), line) != check {
            return Err(Miss::Changed);
        }
        let name = text(o, word(o.name), &mut read)?;
        let file = text(o, word(o.file), &mut read)?;
        // A function without a line table still has its name and first line.
        let table = bytes(word(o.table), &mut read).unwrap_or_default();
        Ok(Code {
            name,
            file,
            line,
            coroutine: word(o.flags) as u32 & COROUTINE != 0,
            table,
            format: o.lines,
        })
    }
}

impl Code {
    /// Creates a function for frames that contain their lines.
    pub(in crate::runtime) fn of_told_lines(name: String, file: String, line: u32) -> Code {
        Code {
            name,
            file,
            line,
            coroutine: false,
            table: Vec::new(),
            format: Lines::InFrame,
        }
    }

    /// Creates a function with a table of positions (`ruby/lines.rs`); an empty table gives no
    /// line.
    pub(in crate::runtime) fn of_positions(
        name: String,
        file: String,
        line: u32,
        table: Vec<u8>,
    ) -> Code {
        Code {
            name,
            file,
            line,
            coroutine: false,
            table,
            format: Lines::Places,
        }
    }

    /// Placeholder for a module body that disappeared before we could read it.
    pub fn module_body() -> Code {
        Code {
            name: MODULE.into(),
            file: "<not read in time>".into(),
            line: 0,
            coroutine: false,
            table: Vec::new(),
            format: Lines::Increments,
        }
    }

    /// Whether it is a module body. Up to 3.10, and from 3.13 on, all module bodies share one name
    /// object and mostly one first line. So the checksum of one also identifies the others, which
    /// disappear once they have run. In between, each has a name of its own.
    pub fn is_module_body(&self) -> bool {
        self.name == MODULE && self.line == 1
    }

    /// The line of the instruction at `lasti` bytes; the first line if the table does not tell.
    pub fn line_at(&self, lasti: i32) -> u32 {
        lines::line(self.format, &self.table, self.line, lasti).unwrap_or(self.line)
    }
}

/// Checksum that distinguishes code objects at a reused address, by the address of the name and the
/// first line. The walk computes the same value (`bpf/python_core.h`).
pub(in crate::runtime) fn check(name: u64, line: u32) -> u32 {
    ((name ^ u64::from(line) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// Reads the content of a `bytes` object.
fn bytes(at: u64, read: &mut impl FnMut(u64, &mut [u8]) -> bool) -> Result<Vec<u8>, Miss> {
    let mut size = [0u8; 8];
    if at == 0 || !read(at.wrapping_add(16), &mut size) {
        return Err(Miss::Unreadable);
    }
    let size = u64::from_le_bytes(size);
    if size > MAX_TABLE_BYTES {
        return Err(Miss::Changed);
    }
    let mut content = vec![0u8; size as usize];
    if !content.is_empty() && !read(at.wrapping_add(32), &mut content) {
        return Err(Miss::Unreadable);
    }
    Ok(content)
}

/// Reads the content of a `str` object.
pub(super) fn text(
    o: &Objects,
    at: u64,
    read: &mut impl FnMut(u64, &mut [u8]) -> bool,
) -> Result<String, Miss> {
    let mut head = [0u8; 40];
    if at == 0 || !read(at, &mut head) {
        return Err(Miss::Unreadable);
    }
    let length = u64::from_le_bytes(head[16..24].try_into().expect("eight bytes"));
    let state = u32::from_le_bytes(head[32..36].try_into().expect("four bytes"));
    let (width, compact, ascii) = (state >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
    if compact == 0 || !matches!(width, 1 | 2 | 4) || length > 1 << 40 {
        return Err(Miss::Changed);
    }
    let length = length.min(MAX_TEXT_CHARS) as usize;
    let from = u64::from(if ascii == 1 { o.ascii } else { o.compact });
    let mut raw = vec![0u8; length * width as usize];
    if !raw.is_empty() && !read(at.wrapping_add(from), &mut raw) {
        return Err(Miss::Unreadable);
    }
    let character = |n: u32| char::from_u32(n).unwrap_or(char::REPLACEMENT_CHARACTER);
    Ok(match width {
        1 => raw.iter().map(|b| char::from(*b)).collect(),
        2 => raw
            .chunks_exact(2)
            .map(|c| character(u32::from(u16::from_le_bytes([c[0], c[1]]))))
            .collect(),
        _ => raw
            .chunks_exact(4)
            .map(|c| character(u32::from_le_bytes([c[0], c[1], c[2], c[3]])))
            .collect(),
    })
}
