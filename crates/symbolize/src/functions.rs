//! Finds functions of a file by name, to place probes.
//!
//! [`functions`] lists the functions in a file's symbol tables (its own, `.gnu_debugdata`, and
//! those of its separate debug file). [`inlined`] lists inlined functions and their callers, which
//! tells a function without code of its own from one that does not exist. [`extent`] returns the
//! bounds of the code around an address, from symbols or, in a stripped file, from its unwind
//! information.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gimli::{BaseAddresses, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};
use wallscope_binfmt::elf::{Binding, Elf, Symbol, SymbolTable};
use wallscope_procfs::target_file::TargetRoot;

use crate::debugfile::{Roots, Search};
use crate::demangle::{Origin, demangle, demangle_from, shows_nim};
use crate::dwarf::{self, Sections};
use crate::source::Sources;

/// An inlined function, and the function that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// The function, demangled.
    pub function: String,
    /// The function that contains a copy, demangled.
    pub into: String,
}

/// A file with code. A debug file is searched beside it.
#[derive(Clone, Copy)]
pub struct CodeFile<'a> {
    /// Its content.
    pub elf: &'a Elf<'a>,
    /// Its path as seen from `root`.
    pub path: &'a Path,
    /// The root of its process; `None`: ours.
    pub root: Option<&'a Arc<TargetRoot>>,
}

/// Calls `visit` with every function symbol of a file, once for each table that has it.
pub fn functions(file: CodeFile<'_>, visit: &mut dyn FnMut(&Symbol<'_>)) {
    let CodeFile { elf, path, root } = file;
    let mut walk = |from: &Elf<'_>, table| {
        for symbol in from.symbols(table) {
            if symbol.function && elf.is_executable(symbol.address) {
                visit(&symbol);
            }
        }
    };
    walk(elf, SymbolTable::Static);
    walk(elf, SymbolTable::Dynamic);
    let mini = elf.mini_debug_data().ok().flatten();
    if let Some(mini) = mini.as_deref().and_then(|d| Elf::parse(d).ok()) {
        walk(&mini, SymbolTable::Static);
    }
    if !elf.has_static_symbols() {
        let directories = Sources::default().debug_directories;
        let roots = Roots::of(root.cloned());
        let search = Search::new(&roots, &directories, path);
        let map = search.debug_file(elf);
        if let Some(debug) = map.as_deref().and_then(|d| Elf::parse(d).ok()) {
            walk(&debug, SymbolTable::Static);
        }
    }
}

/// Returns the inlined copies of functions with a demangled name that `wanted` accepts, each pair
/// once. Stops reading debug information after `limit`.
pub fn inlined(file: CodeFile<'_>, limit: Duration, wanted: &dyn Fn(&str) -> bool) -> Vec<Inlined> {
    let CodeFile { elf, path, root } = file;
    let directories = Sources::default().debug_directories;
    let roots = Roots::of(root.cloned());
    let search = Search::new(&roots, &directories, path);
    let own = matches!(elf.section(".debug_info"), Ok(Some(_)));
    let map = (!own).then(|| search.debug_file(elf)).flatten();
    let debug = map.as_deref().and_then(|d| Elf::parse(d).ok());
    let from = if own { Some(elf) } else { debug.as_ref() };
    let Some(sections) = from.and_then(Sections::load) else {
        return Vec::new();
    };
    let sup_map = from.and_then(|f| search.supplementary(f));
    let sup_elf = sup_map.as_deref().and_then(|d| Elf::parse(d).ok());
    let sup = sup_elf.as_ref().and_then(Sections::load);
    let mut pairs = std::collections::BTreeSet::new();
    dwarf::inlined(
        &sections,
        sup.as_ref(),
        Instant::now() + limit,
        &mut |function, into| {
            let name = demangle(&function.name);
            if wanted(&name) {
                pairs.insert((name, demangle(&into.name)));
            }
        },
    );
    pairs
        .into_iter()
        .map(|(function, into)| Inlined { function, into })
        .collect()
}

/// Returns the first address and size in bytes of the function around virtual address `at`, and its
/// symbol's name if it has one.
pub fn extent(file: CodeFile<'_>, at: u64) -> Option<(u64, u64, Option<String>)> {
    let elf = file.elf;
    let mut best: Option<(u64, u64, bool, Vec<u8>)> = None;
    let mut origin = Origin::Native;
    functions(file, &mut |s| {
        if shows_nim(s.name) {
            origin = Origin::Nim;
        }
        let better = best
            .as_ref()
            .is_none_or(|b| s.binding != Binding::Local && !b.2);
        if at >= s.address && at - s.address < s.size && better {
            let name = s.name.to_vec();
            best = Some((s.address, s.size, s.binding != Binding::Local, name));
        }
    });
    if let Some((start, size, _, name)) = best {
        return Some((start, size, Some(demangle_from(&name, origin))));
    }
    let bytes = elf.section(".eh_frame").ok().flatten()?;
    let endian = if elf.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    };
    let frames = EhFrame::from(EndianSlice::new(&bytes, endian));
    let start_of = |name| elf.section_span(name).map_or(0, |s| s.start);
    let bases = BaseAddresses::default()
        .set_eh_frame(start_of(".eh_frame"))
        .set_text(start_of(".text"))
        .set_got(start_of(".got"));
    let entry = frames
        .fde_for_address(&bases, at, EhFrame::cie_from_offset)
        .ok()?;
    Some((entry.initial_address(), entry.len(), None))
}
