//! Ruby functions: their names and files.

use super::super::python::{Code, Miss, check};
use super::{
    super::memory::Memory,
    Facts,
    layout::BODY,
    lines,
    objects::{self, Objects},
};

/// Shown in place of the file for methods written in C.
const INTERNAL: &str = "ruby:internal";

/// In an iseq's body: its file, its name and its first line.
const PATH: usize = 64;
const LABEL: usize = 80;
const FIRST_LINE: usize = 88;

/// `RB_IMEMO` and the kinds of such objects (`bpf/python_abi.h`).
const IMEMO: u64 = 0x1a;
const MENT: u64 = 6;
const CODE: u64 = 7;
/// In a method definition: mask of the method's type, and the type of methods written in Ruby.
const METHOD_KINDS: u32 = 15;
const IN_RUBY: u32 = 0;

impl Facts {
    /// Reads the function at `address` of a process with load bias `bias`. `check` is the checksum
    /// that the walk computed.
    ///
    /// # Errors
    /// The reason for the miss.
    pub fn read_code(
        &self,
        bias: u64,
        address: u64,
        check: u32,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Code, Miss> {
        Reader {
            memory: Memory(&mut read),
            facts: self,
            bias,
        }
        .read(address, check)
    }
}

/// Reads functions of one process.
struct Reader<'r> {
    memory: Memory<'r>,
    facts: &'r Facts,
    bias: u64,
}

impl Reader<'_> {
    /// Reads the function at `address`; `seen` is the checksum that the walk computed.
    fn read(&mut self, address: u64, seen: u32) -> Result<Code, Miss> {
        let mut head = [0u8; 40];
        let known = self.memory.bytes(address, &mut head);
        known.ok_or(Miss::Unreadable)?;
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let flags = word(0);
        if flags & 0x1f != IMEMO {
            return Err(Miss::Changed);
        }
        match flags >> 12 & 15 {
            MENT => {
                let (definition, called, class) = (word(16), word(24), word(32));
                if check(definition ^ called, 0) != seen {
                    return Err(Miss::Changed);
                }
                self.method(definition, called, class)
            }
            CODE if check(word(usize::from(BODY)), 0) == seen => {
                self.code(word(usize::from(BODY)), "")
            }
            _ => Err(Miss::Changed),
        }
    }

    fn method(&mut self, definition: u64, called: u64, class: u64) -> Result<Code, Miss> {
        let kind = self.memory.half(definition).ok_or(Miss::Unreadable)?;
        let (names, layout) = (self.names(), &self.facts.layout);
        let mut objects = Objects::new(&mut self.memory, layout, names);
        let class = objects.class(class).unwrap_or_default();
        if kind & METHOD_KINDS == IN_RUBY {
            let code = self.memory.word(definition.wrapping_add(8));
            let body = code.and_then(|c| self.memory.word(c.wrapping_add(BODY.into())));
            return self.code(body.ok_or(Miss::Unreadable)?, &class);
        }
        let name = objects.identifier(called).ok_or(Miss::Unreadable)?;
        Ok(Code::of_positions(
            class + &name,
            INTERNAL.into(),
            0,
            Vec::new(),
        ))
    }

    /// Reads the iseq with its body at `body`, of a method of `class`.
    fn code(&mut self, body: u64, class: &str) -> Result<Code, Miss> {
        let layout = &self.facts.layout;
        let mut bytes = [0u8; 160];
        let known = self.memory.bytes(body, &mut bytes);
        known.ok_or(Miss::Unreadable)?;
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let line = match layout.boxed_line {
            true => word(FIRST_LINE) >> 1,
            false => word(FIRST_LINE),
        } as u32;
        let mut objects = Objects::new(&mut self.memory, layout, None);
        let name = objects.text(word(LABEL)).ok_or(Miss::Changed)?;
        let file = objects.path(word(PATH)).ok_or(Miss::Changed)?;
        let found = lines::LineTable {
            entries: word(layout.lines),
            entry: layout.line,
            count: word(layout.lines + 16) as u32,
            places: word(layout.lines + 24),
            words: (word(0) >> 32) as u32,
            first: word(8),
        };
        // A function without a line table still has its name and first line.
        let table = lines::read(&mut self.memory, &found).unwrap_or_default();
        Ok(Code::of_positions(
            format!("{class}{name}"),
            file,
            line,
            table,
        ))
    }

    /// The address of the table of identifiers in this process.
    fn names(&mut self) -> Option<u64> {
        if let Some(at) = self.facts.names.get() {
            return Some(at.wrapping_add(self.bias));
        }
        let (from, bytes) = self.facts.data;
        let from = from.wrapping_add(self.bias);
        let at = objects::find_names(&mut self.memory, &self.facts.layout, from, bytes)?;
        let _ = self.facts.names.set(at.wrapping_sub(self.bias));
        Some(at)
    }
}
