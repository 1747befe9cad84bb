//! Ruby objects: texts, arrays, names of identifiers and classes.

use super::super::memory::Memory;
use super::layout::{ClassNames, Layout};

/// Maximum bytes of a text that is read from a target.
const MOST_TEXT: u64 = 4096;
/// Maximum variables of a class among which its name is searched.
const MOST_VARIABLES: u64 = 1024;

/// Object types, in the first word of an object.
const TYPES: u64 = 0x1f;
const CLASS: u64 = 2;
const MODULE: u64 = 3;
const STRING: u64 = 5;
const ARRAY: u64 = 7;
/// Type of a proxy for a module among a class's ancestors.
const INCLUDED: u64 = 0x1c;
/// Flag of a text: it is not embedded; of an array: it is.
const APART: u64 = 1 << 13;
/// Flag of a singleton class; other bits from 3.4 on.
const OF_ONE: u64 = 3 << 12;

/// Identifiers below are operators, by their character or token; others are numbered from here,
/// above their kind bits.
const OPERATORS: u64 = 1024;
/// Identifiers in each part of the name table, which has two words for each.
const PART: u64 = 512;

/// Reads objects of one process.
pub(super) struct Objects<'m, 'r> {
    memory: &'m mut Memory<'r>,
    layout: &'m Layout,
    /// Address of the pointer to the table of identifiers.
    names: Option<u64>,
}

impl<'m, 'r> Objects<'m, 'r> {
    pub(super) fn new(
        memory: &'m mut Memory<'r>,
        layout: &'m Layout,
        names: Option<u64>,
    ) -> Objects<'m, 'r> {
        Objects {
            memory,
            layout,
            names,
        }
    }

    /// Reads a text.
    pub(super) fn text(&mut self, at: u64) -> Option<String> {
        let mut head = [0u8; 32];
        self.memory.bytes(at, &mut head)?;
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let flags = word(0);
        if flags & TYPES != STRING {
            return None;
        }
        let (from, length) = match (flags & APART != 0, self.layout.long_texts) {
            (true, _) => (word(24), word(16)),
            (false, true) => (at.wrapping_add(24), word(16)),
            (false, false) => (at.wrapping_add(16), flags >> 14 & 31),
        };
        if length > 1 << 40 {
            return None;
        }
        let mut bytes = vec![0u8; length.min(MOST_TEXT) as usize];
        if !bytes.is_empty() {
            self.memory.bytes(from, &mut bytes)?;
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn element(&mut self, array: u64, index: u64) -> Option<u64> {
        let flags = self.memory.word(array)?;
        if flags & TYPES != ARRAY {
            return None;
        }
        let from = match flags & APART != 0 {
            true if index < 128 => array.wrapping_add(16),
            true => return None,
            false if index >= self.memory.word(array.wrapping_add(16))? => return None,
            false => self.memory.word(array.wrapping_add(32))?,
        };
        self.memory.word(from.wrapping_add(8 * index))
    }

    /// Reads the file of an iseq: a text, or a pair in which the second text is the full path, if
    /// it is set.
    pub(super) fn path(&mut self, at: u64) -> Option<String> {
        self.text(at).or_else(|| {
            let whole = self.element(at, 1).and_then(|t| self.text(t));
            whole.or_else(|| {
                let told = self.element(at, 0)?;
                self.text(told)
            })
        })
    }

    /// Reads the name of an identifier.
    pub(super) fn identifier(&mut self, id: u64) -> Option<String> {
        let table = self.memory.word(self.names?)?;
        self.identifier_in(table, id)
    }

    fn identifier_in(&mut self, table: u64, id: u64) -> Option<String> {
        let number = if id < OPERATORS { id } else { id >> 4 };
        let part = self.element(table, number / PART)?;
        let text = self.element(part, number % PART * 2)?;
        self.text(text)
    }

    /// The prefix of the name of a method of the class at `at`: `Shop#`, `Shop.`.
    pub(super) fn class(&mut self, at: u64) -> Option<String> {
        let flags = self.memory.word(at)?;
        if flags & TYPES == INCLUDED {
            let module = self.memory.word(at.wrapping_add(8))?;
            return Some(self.class_path(module)? + "#");
        }
        if let Some(path) = self.class_path(at) {
            return Some(path + "#");
        }
        if flags & OF_ONE == 0 {
            return None;
        }
        let whose = match self.layout.classes {
            ClassNames::Beside(_, whose) => self.memory.word(at.wrapping_add(whose))?,
            _ => self.variable(at, "__attached__")?,
        };
        Some(self.class_path(whose)? + ".")
    }

    /// Reads the name of a class or module.
    fn class_path(&mut self, at: u64) -> Option<String> {
        if !matches!(self.memory.word(at)? & TYPES, CLASS | MODULE) {
            return None;
        }
        let text = match self.layout.classes {
            ClassNames::Beside(name, _) => self.memory.word(at.wrapping_add(name))?,
            _ => self.variable(at, "__classpath__")?,
        };
        self.text(text)
    }

    /// Reads a variable of a class.
    fn variable(&mut self, class: u64, name: &str) -> Option<u64> {
        let ClassNames::Variables(table) = self.layout.classes else {
            return None;
        };
        let more = self.memory.word(class.wrapping_add(24))?;
        let table = self.memory.word(more.wrapping_add(table))?;
        let first = self.memory.word(table.wrapping_add(32))?;
        let behind = self.memory.word(table.wrapping_add(40))?;
        let entries = self.memory.word(table.wrapping_add(48))?;
        (first..behind.min(first.saturating_add(MOST_VARIABLES))).find_map(|i| {
            let entry = entries.wrapping_add(i.wrapping_mul(24));
            let id = self.memory.word(entry.wrapping_add(8))?;
            let is_it = self.identifier(id).is_some_and(|n| n == name);
            is_it.then(|| self.memory.word(entry.wrapping_add(16)))?
        })
    }
}

/// Finds the pointer to the table of identifiers between `from` and `from + bytes`: in that table
/// `+` has the name `+`.
pub(super) fn find_names(
    memory: &mut Memory<'_>,
    layout: &Layout,
    from: u64,
    bytes: u64,
) -> Option<u64> {
    const MOST: u64 = 1 << 20;
    let mut words = vec![0u8; (bytes.min(MOST) & !7) as usize];
    memory.bytes(from, &mut words)?;
    let (words, _) = words.as_chunks::<8>();
    let mut objects = Objects::new(memory, layout, None);
    let at = words.iter().position(|word| {
        let table = u64::from_le_bytes(*word);
        let plus = u64::from(b'+');
        table.is_multiple_of(8)
            && table > 0x1000
            && objects.identifier_in(table, plus).as_deref() == Some("+")
    })?;
    Some(from.wrapping_add(8 * at as u64))
}
