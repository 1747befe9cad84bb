//! A function of the table, and the facts known at each of its instructions.

use super::go_file::{text_at, u32_at, u64_at};
use super::{Layout, Pclntab};

/// The function is always the outermost frame of a stack.
const FLAG_TOP: u8 = 1;
/// The function sets the stack pointer to a value that its table cannot express.
const FLAG_WRITES_SP: u8 = 2;

/// Maximum inlined calls at one instruction; compilers stop long before.
const MAX_INLINED: usize = 64;
/// Maximum stretches of one function that are searched for an address.
const MAX_STRETCHES: usize = 1 << 16;
/// Index of the table of inlined calls by instruction, and of the calls themselves.
const PCDATA_INLINE: u32 = 2;
const FUNCDATA_INLINE: u32 = 3;

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct GoFunction<'t, 'd> {
    pub(super) table: &'t Pclntab<'d>,
    /// First address.
    pub entry: u64,
    /// One past the last address, padding included.
    pub end: u64,
    pub(super) at: usize,
}

impl<'d> Pclntab<'d> {
    /// All functions, ascending.
    pub fn functions(&self) -> impl Iterator<Item = GoFunction<'_, 'd>> {
        (0..self.count).filter_map(|i| self.function(i))
    }

    /// The function that `address` lies in.
    pub fn at(&self, address: u64) -> Option<GoFunction<'_, 'd>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address_of(middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found = self.function(low.checked_sub(1)?)?;
        (address < found.end).then_some(found)
    }

    fn function(&self, index: usize) -> Option<GoFunction<'_, 'd>> {
        let (each, pointer) = self.entry_sizes();
        let at = self.functions + index * each + pointer;
        let offset = match self.layout {
            Layout::Go2 | Layout::Go16 => usize::try_from(u64_at(self.data, at)?).ok()?,
            _ => u32_at(self.data, at)? as usize,
        };
        // The offset is relative to the list from Go 1.16 on.
        let base = match self.layout {
            Layout::Go2 => 0,
            _ => self.functions,
        };
        let (entry, end) = (self.address_of(index)?, self.address_of(index + 1)?);
        let at = base.checked_add(offset)?;
        (entry < end && at < self.data.len()).then_some(GoFunction {
            table: self,
            entry,
            end,
            at,
        })
    }
}

/// One function at one place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFunction<'d> {
    /// Name, with its package: `net/http.(*conn).serve`.
    pub name: &'d [u8],
    /// Source file, empty where unknown.
    pub file: &'d [u8],
    /// Line, 0 where unknown.
    pub line: u32,
    /// Line of the function's declaration, 0 where unknown.
    pub start_line: u32,
}

impl<'d> GoFunction<'_, 'd> {
    /// A field of 32 bits behind the entry's address.
    fn field(&self, offset: usize) -> Option<u32> {
        let entry = match self.table.layout {
            Layout::Go2 | Layout::Go16 => 8,
            _ => 4,
        };
        u32_at(self.table.data, self.at + entry + offset)
    }

    /// Offset of the last four bytes of the fixed part: kind, flags, padding, count of descriptions.
    fn tail(&self) -> usize {
        self.at
            + match self.table.layout {
                Layout::Go2 => 36,
                Layout::Go16 | Layout::Go20 => 40,
                Layout::Go18 => 36,
            }
    }

    /// Its name.
    pub fn name(&self) -> &'d [u8] {
        let name = self.field(0).and_then(|at| self.table.name_at(at));
        name.unwrap_or_default()
    }

    fn flags(&self) -> u8 {
        match self.table.layout {
            Layout::Go2 => 0,
            _ => self.table.data.get(self.tail() + 1).copied().unwrap_or(0),
        }
    }

    /// Whether it is always the outermost frame of a stack.
    pub fn is_top(&self) -> bool {
        self.flags() & FLAG_TOP != 0
    }

    /// Whether it moves the stack pointer in ways that [`GoFunction::depths`] does not say.
    pub fn moves_stack(&self) -> bool {
        self.flags() & FLAG_WRITES_SP != 0
    }

    /// Distance of the stack pointer below its value at entry, in bytes, for stretches of code.
    pub fn depths(&self) -> Values<'d> {
        self.values(self.field(12))
    }

    fn values(&self, offset: Option<u32>) -> Values<'d> {
        // Offset 0 is no table.
        let at = offset
            .filter(|at| *at != 0)
            .and_then(|at| self.table.values.checked_add(at as usize));
        Values {
            bytes: at
                .and_then(|at| self.table.data.get(at..))
                .unwrap_or_default(),
            address: self.entry,
            end: self.end,
            value: -1,
            first: true,
        }
    }

    fn value_at(&self, offset: Option<u32>, address: u64) -> Option<i32> {
        self.values(offset)
            .take(MAX_STRETCHES)
            .find(|s| s.end > address)
            .map(|s| s.value)
    }

    fn file_at(&self, address: u64) -> Option<&'d [u8]> {
        let t = self.table;
        let index = u32::try_from(self.value_at(self.field(16), address)?).ok()? as usize;
        let offset = match t.layout {
            Layout::Go2 => u32_at(t.data, t.files.checked_add(4 * index)?)?,
            _ => {
                let unit = self.field(28)? as usize;
                let at = unit.checked_add(index)?.checked_mul(4)?;
                u32_at(t.data, t.units.checked_add(at)?)?
            }
        };
        if offset == u32::MAX {
            return None;
        }
        let base = if t.layout == Layout::Go2 { 0 } else { t.files };
        text_at(t.data, base.checked_add(offset as usize)?)
    }

    fn line_at(&self, address: u64) -> u32 {
        let line = self.value_at(self.field(20), address);
        line.and_then(|l| u32::try_from(l).ok()).unwrap_or(0)
    }

    fn start_line(&self) -> u32 {
        match self.table.layout {
            Layout::Go20 => self.field(32).unwrap_or(0),
            _ => self.line_at(self.entry),
        }
    }

    /// Value number `index` at `address`, among the values by instruction beside the fixed ones.
    fn by_instruction(&self, index: u32, address: u64) -> Option<i32> {
        if index >= self.field(24)? {
            return None;
        }
        let at = self.tail() + 4 + 4 * index as usize;
        self.value_at(Some(u32_at(self.table.data, at)?), address)
    }

    /// The calls that were inlined into it, one after the other; empty where not known.
    fn inlined(&self) -> &'d [u8] {
        let find = || {
            let count = *self.table.data.get(self.tail() + 3)?;
            if FUNCDATA_INLINE >= u32::from(count) {
                return None;
            }
            let before = self.field(24)?.checked_add(FUNCDATA_INLINE)? as usize;
            let at = self
                .tail()
                .checked_add(4)?
                .checked_add(before.checked_mul(4)?)?;
            let offset = u32_at(self.table.data, at)?;
            if offset == u32::MAX {
                return None;
            }
            self.table.descriptions.get(offset as usize..)
        };
        match self.table.layout {
            Layout::Go18 | Layout::Go20 => find().unwrap_or_default(),
            _ => &[],
        }
    }

    /// The functions at `address`, innermost (inlined) first; the last one is this one.
    pub fn places(&self, address: u64) -> Vec<SourceFunction<'d>> {
        let mut places = Vec::new();
        let mut at = address;
        let calls = self.inlined();
        while places.len() < MAX_INLINED && !calls.is_empty() {
            let Some((name, start_line, parent)) = self.inlined_at(calls, at) else {
                break;
            };
            places.push(SourceFunction {
                name,
                file: self.file_at(at).unwrap_or_default(),
                line: self.line_at(at),
                start_line,
            });
            at = parent;
        }
        places.push(SourceFunction {
            name: self.name(),
            file: self.file_at(at).unwrap_or_default(),
            line: self.line_at(at),
            start_line: self.start_line(),
        });
        places
    }

    /// The innermost call that was inlined at `address`: its function's name and first line, and an
    /// instruction of the function that it was inlined into, at the line of the call.
    fn inlined_at(&self, calls: &[u8], address: u64) -> Option<(&'d [u8], u32, u64)> {
        let index = self.by_instruction(PCDATA_INLINE, address)?;
        let index = usize::try_from(index).ok()?;
        let (size, name, line, parent) = match self.table.layout {
            Layout::Go18 => (20, 12, None, 16),
            _ => (16, 4, Some(12), 8),
        };
        let at = index.checked_mul(size)?;
        let name = self.table.name_at(u32_at(calls, at + name)?)?;
        let line = line.and_then(|l| u32_at(calls, at + l)).unwrap_or(0);
        let parent = self.entry.checked_add(u32_at(calls, at + parent)?.into())?;
        (parent < self.end).then_some((name, line, parent))
    }
}

/// A stretch of code with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The value.
    pub value: i32,
}

/// Values by instruction, ascending; see [`GoFunction::depths`].
#[derive(Clone, Debug)]
pub struct Values<'d> {
    bytes: &'d [u8],
    address: u64,
    end: u64,
    value: i32,
    first: bool,
}

impl Values<'_> {
    fn varint(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl Iterator for Values<'_> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        let change = self.varint()?;
        if (change == 0 && !self.first) || self.address >= self.end {
            self.bytes = &[];
            return None;
        }
        self.first = false;
        let change = (change >> 1) as i32 ^ -((change & 1) as i32);
        self.value = self.value.wrapping_add(change);
        let start = self.address;
        self.address = start.saturating_add(self.varint()?.into()).min(self.end);
        Some(Stretch {
            start,
            end: self.address,
            value: self.value,
        })
    }
}
