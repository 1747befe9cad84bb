//! `.gopclntab`: what a Go program keeps for its own tracebacks, and `strip` leaves in place.
//!
//! For every function its name and extent; for every instruction the stack pointer's distance from
//! where it was at entry, file and line, and the calls that were inlined there. Written by the Go
//! linker, described by `runtime/symtab.go` and `debug/gosym`; the four layouts are those of Go
//! 1.2, 1.16, 1.18 and 1.20. Inlined calls are read from 1.18 on.
//!
//! Works on bytes that may be truncated or hostile: every read is bounded, what makes no sense is
//! `None`. Only 64-bit little-endian programs are read.

use std::collections::HashMap;

/// What is asked of the file that the table lies in.
pub trait GoFile<'d> {
    /// Virtual address and bytes of a section that is not compressed.
    fn section(&self, name: &str) -> Option<(u64, &'d [u8])>;
    /// Whether `address` is in a segment that is mapped executable.
    fn is_code(&self, address: u64) -> bool;
}

/// The layout, by the first version of Go that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    Go2,
    Go16,
    Go18,
    Go20,
}

/// The function only ever stands at the outermost end of a stack.
const FLAG_TOP: u8 = 1;
/// The function sets the stack pointer to what its table cannot say.
const FLAG_WRITES_SP: u8 = 2;

/// Most inlined calls at one instruction; compilers stop long before.
const MOST_INLINED: usize = 64;
/// Most stretches of one function that are looked through for an address.
const MOST_STRETCHES: usize = 1 << 16;
/// Index of the table of inlined calls by instruction, and of the calls themselves.
const PCDATA_INLINE: u32 = 2;
const FUNCDATA_INLINE: u32 = 3;

/// The table.
#[derive(Clone, Debug)]
pub struct Pclntab<'d> {
    data: &'d [u8],
    layout: Layout,
    /// Address that entries are relative to, from 1.18 on.
    text: u64,
    count: usize,
    /// Where names, compilation units' files, file names, values by instruction, and functions
    /// begin.
    names: usize,
    units: usize,
    files: usize,
    values: usize,
    functions: usize,
    /// What descriptions of inlined calls are relative to, from its first byte on.
    descriptions: &'d [u8],
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct GoFunction<'t, 'd> {
    table: &'t Pclntab<'d>,
    /// First address.
    pub entry: u64,
    /// One past the last address, padding included.
    pub end: u64,
    at: usize,
}

/// One function at one place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'d> {
    /// Name, with its package: `net/http.(*conn).serve`.
    pub name: &'d [u8],
    /// Source file, empty where unknown.
    pub file: &'d [u8],
    /// Line, 0 where unknown.
    pub line: u32,
    /// Line of the function's declaration, 0 where unknown.
    pub start_line: u32,
}

impl<'d> Pclntab<'d> {
    /// The table of a Go program; `None` where `file` holds none that can be read.
    pub fn find(file: &impl GoFile<'d>) -> Option<Pclntab<'d>> {
        let named = [".gopclntab", ".data.rel.ro.gopclntab"]
            .into_iter()
            .find_map(|name| file.section(name));
        // Linkers of C merge it into the constants that need relocation.
        let (address, data) = named.or_else(|| {
            let (address, data) = file.section(".data.rel.ro")?;
            file.section(".note.go.buildid")?;
            let at = (0..data.len())
                .step_by(32)
                .find(|at| Pclntab::parse(&data[*at..]).is_some_and(|t| t.count > 0))?;
            Some((address.wrapping_add(at as u64), &data[at..]))
        })?;
        let mut table = Pclntab::parse(data)?;
        let relocations = Relocations::of(file);
        if table.layout >= Layout::Go18 {
            // Where the program may be loaded anywhere, the loader writes the address.
            if !file.is_code(table.text) {
                table.text = relocations.at(address.wrapping_add(24))?;
            }
            if !file.is_code(table.text) {
                return None;
            }
        }
        table.find_descriptions(file, address, &relocations);
        Some(table)
    }

    /// The table whose bytes ([`Pclntab::bytes`]) and [`Pclntab::text`] were kept. Without inlined calls.
    pub fn over(data: &'d [u8], text: u64) -> Option<Pclntab<'d>> {
        Some(Pclntab {
            text,
            ..Pclntab::parse(data)?
        })
    }

    /// Its bytes, and perhaps what follows them.
    pub fn bytes(&self) -> &'d [u8] {
        self.data
    }

    /// The address that it counts from, 0 where it has whole addresses.
    pub fn text(&self) -> u64 {
        self.text
    }

    /// Reads the header.
    fn parse(data: &'d [u8]) -> Option<Pclntab<'d>> {
        let layout = match u32_at(data, 0)? {
            0xffff_fffb => Layout::Go2,
            0xffff_fffa => Layout::Go16,
            0xffff_fff0 => Layout::Go18,
            0xffff_fff1 => Layout::Go20,
            _ => return None,
        };
        // Two zeroes, the least length of an instruction, the size of a pointer.
        if data[4..6] != [0, 0] || data[6] != 1 || *data.get(7)? != 8 {
            return None;
        }
        let word = |index: usize| usize::try_from(u64_at(data, 8 + 8 * index)?).ok();
        let count = word(0)?;
        let mut table = Pclntab {
            data,
            layout,
            text: 0,
            count,
            names: 0,
            units: 0,
            files: 0,
            values: 0,
            functions: 0,
            descriptions: &[],
        };
        match layout {
            Layout::Go2 => {
                table.functions = 16;
                let after = 16 + count.checked_mul(16)? + 8;
                table.files = u32_at(data, after)? as usize;
            }
            _ => {
                let skip = if layout == Layout::Go16 { 2 } else { 3 };
                if skip == 3 {
                    table.text = u64_at(data, 24)?;
                }
                table.names = word(skip)?;
                table.units = word(skip + 1)?;
                table.files = word(skip + 2)?;
                table.values = word(skip + 3)?;
                table.functions = word(skip + 4)?;
            }
        }
        // The list of functions, and the address behind the last one, lie within.
        let (each, last) = table.entry_sizes();
        let bytes = count.checked_mul(each)?.checked_add(last)?;
        (table.functions.checked_add(bytes)? <= data.len()).then_some(table)
    }

    /// Bytes of an entry of the list of functions, and of a pointer in it.
    fn entry_sizes(&self) -> (usize, usize) {
        match self.layout {
            Layout::Go2 | Layout::Go16 => (16, 8),
            Layout::Go18 | Layout::Go20 => (8, 4),
        }
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no function.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

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

    fn address_of(&self, index: usize) -> Option<u64> {
        let (each, _) = self.entry_sizes();
        let at = self.functions + index * each;
        match self.layout {
            Layout::Go2 | Layout::Go16 => u64_at(self.data, at),
            _ => self.text.checked_add(u64::from(u32_at(self.data, at)?)),
        }
    }

    fn function(&self, index: usize) -> Option<GoFunction<'_, 'd>> {
        let (each, pointer) = self.entry_sizes();
        let at = self.functions + index * each + pointer;
        let offset = match self.layout {
            Layout::Go2 | Layout::Go16 => usize::try_from(u64_at(self.data, at)?).ok()?,
            _ => u32_at(self.data, at)? as usize,
        };
        // From 1.16 on relative to the list.
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

    fn name_at(&self, offset: u32) -> Option<&'d [u8]> {
        text_at(self.data, self.names.checked_add(offset as usize)?)
    }

    /// Finds what inlined calls are described in: a section of constants, whose address stands in
    /// the program's description of itself, which begins with the address of this table.
    fn find_descriptions(
        &mut self,
        file: &impl GoFile<'d>,
        address: u64,
        relocations: &Relocations<'d>,
    ) {
        let index = match self.layout {
            Layout::Go18 => 38,
            Layout::Go20 => 40,
            _ => return,
        };
        let names = address.wrapping_add(self.names as u64);
        let places = [".noptrdata", ".go.module", ".data.rel.ro", ".data"];
        let relocated = relocations.to(address);
        let found = places.into_iter().find_map(|name| {
            let (start, bytes) = file.section(name)?;
            let word = |at: usize| match relocated {
                Some(_) => relocations.at(start.wrapping_add(at as u64)),
                None => u64_at(bytes, at),
            };
            let begins = |at: &usize| word(*at) == Some(address) && word(at + 8) == Some(names);
            let at = match relocated {
                Some(place) => usize::try_from(place.checked_sub(start)?).ok()?,
                None => (0..bytes.len()).step_by(8).find(begins)?,
            };
            begins(&at).then(|| word(at.checked_add(index * 8)?))?
        });
        let Some(base) = found else { return };
        for name in [".rodata", ".data.rel.ro", ".gopclntab", ".go.func"] {
            if let Some((start, bytes)) = file.section(name)
                && let Some(skip) = base.checked_sub(start)
                && let Some(rest) = bytes.get(skip as usize..)
            {
                self.descriptions = rest;
                return;
            }
        }
    }
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

    /// Where the last four bytes of the fixed part are: kind, flags, padding, count of descriptions.
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

    /// Whether it only ever stands at the outermost end of a stack.
    pub fn is_top(&self) -> bool {
        self.flags() & FLAG_TOP != 0
    }

    /// Whether it moves the stack pointer in ways that [`GoFunction::depths`] does not say.
    pub fn moves_stack(&self) -> bool {
        self.flags() & FLAG_WRITES_SP != 0
    }

    /// How far the stack pointer is below where it was at entry, in bytes, for stretches of code.
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
            .take(MOST_STRETCHES)
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

    /// Value `index` of those that are kept by instruction beside the fixed ones.
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
    pub fn places(&self, address: u64) -> Vec<Place<'d>> {
        let mut places = Vec::new();
        let mut at = address;
        let calls = self.inlined();
        while places.len() < MOST_INLINED && !calls.is_empty() {
            let Some((name, start_line, parent)) = self.inlined_at(calls, at) else {
                break;
            };
            places.push(Place {
                name,
                file: self.file_at(at).unwrap_or_default(),
                line: self.line_at(at),
                start_line,
            });
            at = parent;
        }
        places.push(Place {
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

/// Addresses that the loader writes: (where, what). Empty for programs with a fixed place.
pub struct Relocations<'d>(&'d [u8]);

impl<'d> Relocations<'d> {
    /// Those of `file`.
    pub fn of(file: &impl GoFile<'d>) -> Relocations<'d> {
        Relocations(file.section(".rela.dyn").map_or(&[], |s| s.1))
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        const RELATIVE: u64 = 8;
        self.0
            .chunks_exact(24)
            .filter_map(|r| (u64_at(r, 8)? == RELATIVE).then_some((u64_at(r, 0)?, u64_at(r, 16)?)))
    }

    /// What is written, by place.
    pub fn by_place(&self) -> HashMap<u64, u64> {
        self.all().collect()
    }

    /// What is written at `place`.
    fn at(&self, place: u64) -> Option<u64> {
        self.all().find(|r| r.0 == place).map(|r| r.1)
    }

    /// Where `address` is written first.
    fn to(&self, address: u64) -> Option<u64> {
        self.all().find(|r| r.1 == address).map(|r| r.0)
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The text at `at`, up to its zero, if that is within 4 KiB.
fn text_at(data: &[u8], at: usize) -> Option<&[u8]> {
    let rest = data.get(at..)?;
    let rest = &rest[..rest.len().min(1 << 12)];
    let end = rest.iter().position(|b| *b == 0)?;
    Some(&rest[..end])
}
