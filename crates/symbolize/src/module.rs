//! Resolves all addresses of one ELF module: opens it, reads it, and closes it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use wallscope_binfmt::elf::{Binding, Elf, SectionSpan, Symbol, SymbolTable};
use wallscope_binfmt::mapped::MappedFile;
use wallscope_model::{Line, Module};
use wallscope_procfs::target_file::{Purpose, TargetPath};

use crate::debugfile::{Roots, Search};
use crate::demangle::{Origin, is_mangled};
use crate::dwarf::{self, Sections};
use crate::elf::SymbolSearch;
use crate::extent;
use crate::go;
use crate::losses::Losses;
use crate::source::{ModuleSource, Sources};
use crate::table::{RawName, Table};
use crate::unnamed;

/// Maximum bytes of functions without a size that are examined in one module: a hostile one could
/// have many that never end.
const MAX_LABEL_BYTES: u64 = 4 << 20;

/// The addresses of one module to resolve.
pub(crate) struct ModuleAddresses<'a> {
    /// The module.
    pub module: &'a Module,
    /// File offsets, ascending, without duplicates.
    pub offsets: &'a [u64],
}

/// Places of a module's bytes and debug information.
#[derive(Clone, Copy)]
pub(crate) struct ModuleFiles<'a> {
    /// The sources of all modules.
    pub sources: &'a Sources,
    /// The source that the capture kept for this module.
    pub kept: Option<&'a ModuleSource>,
}

/// Resolves `wanted`; returns the lines of each offset, empty if it stays unresolved. Counts the
/// misses in `losses`, in distinct addresses.
pub(crate) fn resolve(
    wanted: &ModuleAddresses<'_>,
    files: ModuleFiles<'_>,
    table: &mut Table<'_>,
    losses: &mut Losses,
) -> Vec<Vec<Line>> {
    let ModuleFiles {
        sources,
        kept: source,
    } = files;
    let unresolved = vec![Vec::new(); wanted.offsets.len()];
    let name = wanted.module.name();
    let count = wanted.offsets.len() as u64;
    let data = match open(wanted.module, sources, source) {
        Ok(data) => data,
        Err(cause) => {
            losses.add(format!("{cause}: module {name}"), count);
            return unresolved;
        }
    };
    let elf = match Elf::parse(&data) {
        Ok(elf) => elf,
        Err(_) => {
            losses.add(format!("unreadable ELF file: module {name}"), count);
            return unresolved;
        }
    };
    let kept = source.is_some_and(|s| s.file.is_some() || s.bytes.is_some());
    if !is_same(&elf, wanted.module, kept) {
        losses.add(format!("file was replaced: module {name}"), count);
        return unresolved;
    }
    let mut lines = Resolver {
        elf: &elf,
        data: &data,
        name,
        table,
        losses,
        deadline: Instant::now() + sources.time_per_module,
        origin: Origin::Native,
    }
    .run(wanted, sources, source);
    lines.resize(wanted.offsets.len(), Vec::new());
    lines
}

/// A module's bytes, mapped or borrowed.
pub(crate) enum Bytes<'a> {
    File(MappedFile),
    Memory(&'a [u8]),
}

impl std::ops::Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::File(map) => map,
            Bytes::Memory(bytes) => bytes,
        }
    }
}

/// Returns the module's bytes: those that the capture kept, else the file at its path if that is
/// proven to be the same file.
pub(crate) fn open<'a>(
    module: &Module,
    sources: &Sources,
    source: Option<&'a ModuleSource>,
) -> Result<Bytes<'a>, String> {
    if let Some(bytes) = source.and_then(|s| s.bytes.as_deref()) {
        return Ok(Bytes::Memory(bytes));
    }
    if let Some(file) = source.and_then(|s| s.file.as_ref()) {
        return match MappedFile::map(file) {
            Ok(map) => Ok(Bytes::File(map)),
            Err(_) => Err("file cannot be mapped".into()),
        };
    }
    if module.build_id.is_empty() {
        return Err("file was not kept".into());
    }
    let root = sources.root_of(source).ok_or("file is gone")?;
    let file = root.open(&TargetPath::new(&*module.path), Purpose::Object);
    let file = file.map_err(|refusal| match refusal.is_absent() {
        true => "file is gone".into(),
        false => format!("file refused: {refusal}"),
    })?;
    match MappedFile::map(&file) {
        Ok(map) => Ok(Bytes::File(map)),
        Err(_) => Err("file cannot be mapped".into()),
    }
}

/// Whether `elf` is the build that was recorded, or the recording does not name a build. An `elf` without a
/// build id is accepted if it was `kept` open, and refused if it was found by its name.
fn is_same(elf: &Elf<'_>, module: &Module, kept: bool) -> bool {
    module.build_id.is_empty()
        || elf
            .build_id()
            .map_or(kept, |id| id.as_str() == &*module.build_id)
}

struct Resolver<'a, 'd, 't, 'r> {
    elf: &'a Elf<'d>,
    /// The whole file.
    data: &'d [u8],
    name: &'a str,
    table: &'t mut Table<'r>,
    losses: &'t mut Losses,
    deadline: Instant,
    /// Origin of the file's names.
    origin: Origin,
}

impl<'d> Resolver<'_, 'd, '_, '_> {
    fn run(
        mut self,
        wanted: &ModuleAddresses<'_>,
        sources: &Sources,
        source: Option<&ModuleSource>,
    ) -> Vec<Vec<Line>> {
        // Offsets ascend; addresses need not, as segments may have another order in memory.
        let mapped: Vec<Option<u64>> = wanted
            .offsets
            .iter()
            .map(|o| self.elf.vaddr_of_offset(*o))
            .collect();
        let mut addresses: Vec<u64> = mapped.iter().flatten().copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let roots = Roots::of(sources.root_of(source));
        let path = Path::new(&*wanted.module.path);
        let search = Search::new(&roots, &sources.debug_directories, path);
        let found = self.lookup(&addresses, &search);
        for refusal in search.refusals() {
            let cause = format!("debug file refused: {refusal}: module {}", self.name);
            self.losses.add(cause, 1);
        }
        let mut without_symbols = 0;
        let mut lines: Vec<Vec<Line>> = mapped
            .iter()
            .map(|address| {
                let lines = address
                    .and_then(|a| addresses.binary_search(&a).ok())
                    .map(|at| found[at].clone())
                    .unwrap_or_default();
                without_symbols += u64::from(lines.is_empty());
                lines
            })
            .collect();
        self.losses
            .add(format!("no symbols: module {}", self.name), without_symbols);
        self.name_unnamed(&mapped, &mut lines);
        lines
    }

    /// Names functions without a name by their start, if it is known.
    fn name_unnamed(&mut self, mapped: &[Option<u64>], lines: &mut [Vec<Line>]) {
        let (at, addresses): (Vec<usize>, Vec<u64>) = (mapped.iter().enumerate())
            .filter_map(|(i, address)| Some((i, (*address).filter(|_| lines[i].is_empty())?)))
            .unzip();
        for (i, start) in at.into_iter().zip(unnamed::starts(self.elf, &addresses)) {
            if let Some(offset) = start.and_then(|s| self.elf.offset_of_vaddr(s)) {
                let function = self.table.unnamed(self.name, offset);
                lines[i] = vec![Line { function, line: 0 }];
            }
        }
    }

    /// Returns the lines at each of `addresses` (virtual, ascending).
    fn lookup(&mut self, addresses: &[u64], search: &Search<'_>) -> Vec<Vec<Line>> {
        let Some(mut lines) = go::resolve(self.elf, addresses, self.table) else {
            return self.lookup_native(addresses, search);
        };
        let left: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].is_empty()).collect();
        if !left.is_empty() {
            let wanted: Vec<u64> = left.iter().map(|i| addresses[*i]).collect();
            let found = self.lookup_native(&wanted, search);
            for (i, found) in left.into_iter().zip(found) {
                lines[i] = found;
            }
        }
        lines
    }

    /// Like [`Resolver::lookup`], from the tables of compilers other than Go's.
    fn lookup_native(&mut self, addresses: &[u64], search: &Search<'_>) -> Vec<Vec<Line>> {
        let has_dwarf = matches!(self.elf.section(".debug_info"), Ok(Some(_)));
        let complete = has_dwarf && self.elf.has_static_symbols();
        let debug_map = (!complete).then(|| search.debug_file(self.elf)).flatten();
        let debug = debug_map.as_deref().and_then(|d| Elf::parse(d).ok());
        let mini_data = match self.elf.mini_debug_data() {
            Ok(data) => data,
            Err(_) => {
                let cause = format!("unreadable .gnu_debugdata: module {}", self.name);
                self.losses.add(cause, 1);
                None
            }
        };
        let mini = mini_data.as_deref().and_then(|d| Elf::parse(d).ok());

        let mut symbols = SymbolSearch::new(addresses);
        symbols.add(self.elf, SymbolTable::Static, self.elf);
        for other in [&debug, &mini].into_iter().flatten() {
            symbols.add(other, SymbolTable::Static, self.elf);
        }
        symbols.add(self.elf, SymbolTable::Dynamic, self.elf);
        self.origin = symbols.origin();
        let sections = self.elf.code_sections();
        let mut left = MAX_LABEL_BYTES;
        let symbols = symbols.finish(&sections, |label| {
            self.label_end(&sections, label, &mut left)
        });

        let answers = self.debug_information(addresses, debug.as_ref(), has_dwarf, search);
        let stubs = self.elf.plt_entries();
        addresses
            .iter()
            .enumerate()
            .map(|(i, address)| {
                let symbol = symbols[i].as_ref();
                let answer = answers.get(i);
                if let Some(answer) = answer.filter(|a| !a.functions.is_empty()) {
                    let lines = self.lines_of_functions(&answer.functions, symbol);
                    if !lines.is_empty() {
                        return lines;
                    }
                }
                if let Some(symbol) = symbol {
                    let (file, line) = answer.and_then(|a| a.line.clone()).unwrap_or_default();
                    let name = self.raw(symbol.name);
                    let function = self.table.mangled(name, &file, 0);
                    return vec![Line { function, line }];
                }
                if self.returns_from_signal(*address) {
                    let function = self.table.plain(b"__restore_rt");
                    return vec![Line { function, line: 0 }];
                }
                let after = stubs.partition_point(|s| s.start <= *address);
                match after.checked_sub(1).map(|at| &stubs[at]) {
                    Some(stub) if *address < stub.end => {
                        let name = [&stub.name[..], b"@plt"].concat();
                        let function = self.table.plain(&name);
                        vec![Line { function, line: 0 }]
                    }
                    _ => Vec::new(),
                }
            })
            .collect()
    }

    /// Returns the bytes from `address` to the end of its section, as far as the file has them.
    fn code_from(&self, sections: &[SectionSpan], address: u64) -> Option<&'d [u8]> {
        let at = sections
            .partition_point(|s| s.start <= address)
            .checked_sub(1)?;
        let size = usize::try_from(sections[at].end.checked_sub(address)?).ok()?;
        let offset = usize::try_from(self.elf.offset_of_vaddr(address)?).ok()?;
        let rest = self.data.get(offset..)?;
        Some(&rest[..rest.len().min(size)])
    }

    /// Returns the latest possible end of the function at `label`, which has no size. `left`: bytes
    /// of such functions that may still be examined.
    fn label_end(&self, sections: &[SectionSpan], label: u64, left: &mut u64) -> u64 {
        if !self.elf.is_x86_64() || *left == 0 {
            return u64::MAX;
        }
        let Some(code) = self.code_from(sections, label) else {
            return u64::MAX;
        };
        let end = extent::end(code, label);
        *left = left.saturating_sub(end - label);
        end
    }

    fn raw<'n>(&self, bytes: &'n [u8]) -> RawName<'n> {
        RawName {
            bytes,
            origin: self.origin,
        }
    }

    /// Whether `address` is in the return trampoline of signal handlers, or is the byte before it: unwinding
    /// gives return address − 1, and no call stands before the trampoline.
    fn returns_from_signal(&self, address: u64) -> bool {
        let code = |address| {
            let offset = usize::try_from(self.elf.offset_of_vaddr(address)?).ok()?;
            self.data.get(offset..)
        };
        self.elf.is_x86_64()
            && [Some(address), address.checked_add(1)]
                .into_iter()
                .flatten()
                .any(|a| code(a).is_some_and(extent::returns_from_signal))
    }

    fn debug_information(
        &mut self,
        addresses: &[u64],
        debug: Option<&Elf<'_>>,
        own: bool,
        search: &Search<'_>,
    ) -> Vec<dwarf::Answer> {
        let from = if own { Some(self.elf) } else { None };
        let Some(from) = from.or(debug) else {
            return Vec::new();
        };
        let Some(sections) = Sections::load(from) else {
            return Vec::new();
        };
        let sup_map = search.supplementary(from);
        let sup_elf = sup_map.as_deref().and_then(|d| Elf::parse(d).ok());
        let sup = sup_elf.as_ref().and_then(Sections::load);
        let executable = |address| self.elf.is_executable(address);
        let query = dwarf::Query {
            wanted: addresses,
            executable: &executable,
            deadline: self.deadline,
        };
        let (answers, omissions) = dwarf::resolve(&sections, sup.as_ref(), query);
        let causes = [
            ("split debug information is not read", omissions.split),
            (
                "debug information took too long",
                u64::from(omissions.timed_out),
            ),
            (
                "malformed debug information",
                u64::from(omissions.malformed),
            ),
        ];
        for (cause, count) in causes {
            self.losses
                .add(format!("{cause}: module {}", self.name), count);
        }
        answers
    }

    /// Returns lines for DWARF's functions, innermost first.
    fn lines_of_functions(
        &mut self,
        functions: &[dwarf::FunctionAt],
        symbol: Option<&Symbol<'_>>,
    ) -> Vec<Line> {
        let last = functions.len() - 1;
        let mut lines = Vec::with_capacity(functions.len());
        for (i, at) in functions.iter().enumerate() {
            let described = &at.function;
            let mut name: Cow<'_, [u8]> = Cow::Borrowed(&described.name);
            if i == last
                && let Some(symbol) = symbol
                && (name.is_empty() || is_better(symbol, at))
            {
                name = Cow::Borrowed(symbol.name);
            }
            if name.is_empty() {
                continue;
            }
            let file: &Arc<str> = if described.file.is_empty() {
                &at.file
            } else {
                &described.file
            };
            let name = self.raw(&name);
            let function = self.table.mangled(name, file, described.line);
            lines.push(Line {
                function,
                line: at.line,
            });
        }
        lines
    }
}

/// Whether the symbol names the function at `at` better than DWARF: it is the exported name of
/// the function (`read`, where DWARF has `__GI___libc_read`), or it has arguments where DWARF has
/// only a bare name.
fn is_better(symbol: &Symbol<'_>, at: &dwarf::FunctionAt) -> bool {
    let exported = symbol.binding != Binding::Local;
    symbol.address == at.entry
        && symbol.function
        && !at.function.is_linkage
        && (exported || is_mangled(symbol.name))
}
