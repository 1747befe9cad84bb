//! `.gopclntab`: the table that a Go program keeps for its own tracebacks. `strip` leaves it in place.
//!
//! The table has the name and extent of every function. For every instruction it has file, line, the
//! inlined calls, and the distance of the stack pointer from its value at entry. The Go linker writes
//! the table; `runtime/symtab.go` and `debug/gosym` describe it. The four layouts are those of Go
//! 1.2, 1.16, 1.18 and 1.20. Inlined calls are read from 1.18 on. From 1.26 on the table does not say where
//! the code begins: the program's description of itself (`moduledata`) does.
//!
//! The bytes may be truncated or hostile: every read is bounded, and a malformed entry is `None`. Only
//! 64-bit little-endian programs are read.

mod function;
mod go_file;
mod relocations;

use go_file::{text_at, u32_at, u64_at};

pub use function::{GoFunction, SourceFunction, Stretch, Values};
pub use go_file::GoFile;
pub use relocations::Relocations;

/// The layout, by the first version of Go that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    Go2,
    Go16,
    Go18,
    Go20,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Pclntab<'d> {
    data: &'d [u8],
    layout: Layout,
    /// Address that entries are relative to, from 1.18 on.
    text: u64,
    count: usize,
    /// Offsets at which names, compilation units' files, file names, values by instruction, and
    /// functions begin.
    names: usize,
    units: usize,
    files: usize,
    values: usize,
    functions: usize,
    /// The bytes that contain the descriptions of inlined calls: offsets of these count from the first byte.
    descriptions: &'d [u8],
}

impl<'d> Pclntab<'d> {
    /// The table of a Go program; `None` where `file` holds none that can be read.
    pub fn find(file: &impl GoFile<'d>) -> Option<Pclntab<'d>> {
        let named = [".gopclntab", ".data.rel.ro.gopclntab"]
            .into_iter()
            .find_map(|name| file.section(name));
        // C linkers merge the section into the constants that need relocation.
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
        let module = Module::find(file, &table, address, &relocations);
        if table.layout >= Layout::Go18 {
            // Where the program may be loaded anywhere, the loader writes the address; from 1.26 on it is
            // not in the table.
            if !file.is_code(table.text) {
                let written = relocations.at(address.wrapping_add(24));
                let text = written.or_else(|| module.as_ref()?.word(Module::TEXT));
                table.text = text?;
            }
            if !file.is_code(table.text) {
                return None;
            }
        }
        if let Some(module) = module {
            table.find_descriptions(file, address, &module);
        }
        Some(table)
    }

    /// Rebuilds a table from its kept [`Pclntab::bytes`] and [`Pclntab::text`]. It reads no inlined calls.
    pub fn over(data: &'d [u8], text: u64) -> Option<Pclntab<'d>> {
        Some(Pclntab {
            text,
            ..Pclntab::parse(data)?
        })
    }

    /// Its bytes, perhaps followed by other bytes of the section.
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

    fn address_of(&self, index: usize) -> Option<u64> {
        let (each, _) = self.entry_sizes();
        let at = self.functions + index * each;
        match self.layout {
            Layout::Go2 | Layout::Go16 => u64_at(self.data, at),
            _ => self.text.checked_add(u64::from(u32_at(self.data, at)?)),
        }
    }

    fn name_at(&self, offset: u32) -> Option<&'d [u8]> {
        text_at(self.data, self.names.checked_add(offset as usize)?)
    }

    /// Finds the bytes that describe inlined calls: a section of constants, or a part of the table. The
    /// program's description of itself (`moduledata`) holds their address.
    fn find_descriptions(&mut self, file: &impl GoFile<'d>, address: u64, module: &Module<'_, 'd>) {
        let end = address.wrapping_add(self.data.len() as u64);
        let base = match self.layout {
            Layout::Go18 => module.word(38),
            // From 1.26 on the end of the table follows it, a few words further on.
            Layout::Go20 => (40..48)
                .find(|at| module.word(at + 1) == Some(end))
                .or(Some(40))
                .and_then(|at| module.word(at)),
            _ => None,
        };
        let Some(base) = base else { return };
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

/// The program's description of itself, `runtime.moduledata`: words, of which the first one is the address of
/// the table and the second one that of its names.
struct Module<'r, 'd> {
    start: u64,
    bytes: &'d [u8],
    /// The relocations of its addresses, if the loader writes them.
    relocations: Option<&'r Relocations<'d>>,
}

impl<'r, 'd> Module<'r, 'd> {
    /// The word that says where the code begins.
    const TEXT: usize = 22;

    fn find(
        file: &impl GoFile<'d>,
        table: &Pclntab<'d>,
        address: u64,
        relocations: &'r Relocations<'d>,
    ) -> Option<Module<'r, 'd>> {
        let names = address.wrapping_add(table.names as u64);
        let places = [".noptrdata", ".go.module", ".data.rel.ro", ".data"];
        let relocated = relocations.to(address);
        places.into_iter().find_map(|name| {
            let (start, bytes) = file.section(name)?;
            let module = |at: usize| {
                Some(Module {
                    start: start.wrapping_add(at as u64),
                    bytes: bytes.get(at..)?,
                    relocations: relocated.map(|_| relocations),
                })
            };
            let begins =
                |m: &Module<'_, '_>| m.word(0) == Some(address) && m.word(1) == Some(names);
            match relocated {
                Some(place) => {
                    module(usize::try_from(place.checked_sub(start)?).ok()?).filter(begins)
                }
                None => (0..bytes.len()).step_by(8).filter_map(module).find(begins),
            }
        })
    }

    /// An address in it.
    fn word(&self, index: usize) -> Option<u64> {
        match self.relocations {
            Some(relocations) => relocations.at(self.start.wrapping_add(8 * index as u64)),
            None => u64_at(self.bytes, 8 * index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: u64 = 0x50_0000;
    const CODE: u64 = 0x40_2440;

    /// A program as its sections.
    struct File(Vec<(&'static str, u64, Vec<u8>)>);

    impl<'d> GoFile<'d> for &'d File {
        fn section(&self, name: &str) -> Option<(u64, &'d [u8])> {
            let found = self.0.iter().find(|s| s.0 == name)?;
            Some((found.1, &found.2))
        }

        fn is_code(&self, address: u64) -> bool {
            (0x40_0000..0x48_0000).contains(&address)
        }
    }

    /// A table of one function of 64 bytes, `f`, that begins 16 bytes into the code.
    fn table(text: u64) -> Vec<u8> {
        let mut bytes = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        // How many functions and files, where the code begins; then names, units, files, values, functions.
        for word in [1, 0, text, 72, 74, 74, 74, 80] {
            bytes.extend(u64::to_le_bytes(word));
        }
        bytes.extend(b"f\0\0\0\0\0\0\0");
        // Start of the function and offset of its description; end; the description, which is only its name.
        for half in [16u32, 12, 80, 16, 0] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.resize(200, 0);
        bytes
    }

    /// The program's description of itself: `gofunc` at word `at`, the table's end behind it.
    fn module(at: usize) -> Vec<u8> {
        let mut words = vec![0u64; 60];
        (words[0], words[1], words[22]) = (TABLE, TABLE + 72, CODE);
        (words[at], words[at + 1]) = (TABLE + 120, TABLE + 200);
        // Something in front of it.
        let words = [TABLE, 0, 7].into_iter().chain(words);
        words.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn where_the_code_begins_is_told_by_the_table_or_by_the_program() {
        let found = |file: &File| {
            let table = Pclntab::find(&file)?;
            let name = table.at(CODE + 20).map(|f| f.name().to_vec());
            Some((table.text(), name, table.descriptions.len()))
        };
        let f = Some(b"f".to_vec());
        let old = File(vec![(".gopclntab", TABLE, table(CODE))]);
        assert_eq!(found(&old), Some((CODE, f.clone(), 0)));
        // Go 1.26 and 1.27.
        for at in [40, 43] {
            let new = File(vec![
                (".gopclntab", TABLE, table(0)),
                (".go.module", 0x60_0000, module(at)),
            ]);
            assert_eq!(found(&new), Some((CODE, f.clone(), 80)), "{at}");
        }
        // The loader writes all addresses, so that there are none in the file.
        let written: Vec<u8> = [
            (0, TABLE),
            (1, TABLE + 72),
            (22, CODE),
            (43, TABLE + 120),
            (44, TABLE + 200),
        ]
        .into_iter()
        .flat_map(|(word, what)| [0x60_0000 + 24 + 8 * word, 8, what])
        .flat_map(u64::to_le_bytes)
        .collect();
        let moved = File(vec![
            (".gopclntab", TABLE, table(0)),
            (".go.module", 0x60_0000, vec![0; 600]),
            (".rela.dyn", 0x10_0000, written),
        ]);
        assert_eq!(found(&moved), Some((CODE, f, 80)));
        // Nothing in the file says where the code begins.
        let silent = File(vec![(".gopclntab", TABLE, table(0))]);
        assert_eq!(found(&silent), None);
    }
}
