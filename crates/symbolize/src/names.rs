//! Predicts how good the names of a file's functions will be.

use std::path::Path;

use wallscope_binfmt::elf::{Elf, SymbolTable};
use wallscope_model::Module;

use crate::{
    debugfile::{Roots, Search},
    go,
    module::open,
    source::{ModuleSource, Sources},
};

/// The best source of a file's function names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// DWARF: functions, inlined ones too, and lines.
    DebugInfo,
    /// Go's pclntab: functions, inlined ones too, and lines.
    Go,
    /// A table of all symbols: functions, no lines.
    Symbols,
    /// Exported functions only.
    Exported,
    /// No names.
    Nothing,
}

/// Returns the best source of names for `module`, from the bytes that `source` gives. `None`: they
/// cannot be read.
pub fn best(module: &Module, source: Option<&ModuleSource>, sources: &Sources) -> Option<Names> {
    let data = open(module, sources, source).ok()?;
    let elf = Elf::parse(&data).ok()?;
    if go::is_go(&elf) {
        return Some(Names::Go);
    }
    if has_dwarf(&elf) {
        return Some(Names::DebugInfo);
    }
    let roots = Roots::of(sources.root_of(source));
    let path = Path::new(&*module.path);
    let search = Search::new(&roots, &sources.debug_directories, path);
    let map = search.debug_file(&elf);
    let debug = map.as_deref().and_then(|d| Elf::parse(d).ok());
    let mini = || matches!(elf.section(".gnu_debugdata"), Ok(Some(_)));
    Some(match debug {
        Some(debug) if has_dwarf(&debug) => Names::DebugInfo,
        Some(debug) if debug.has_static_symbols() => Names::Symbols,
        _ if elf.has_static_symbols() || mini() => Names::Symbols,
        _ if elf.symbols(SymbolTable::Dynamic).any(|s| s.function) => Names::Exported,
        _ => Names::Nothing,
    })
}

/// Whether a file has debug information. The abbreviation table shows this without decompressing
/// the rest.
fn has_dwarf(elf: &Elf<'_>) -> bool {
    matches!(elf.section(".debug_abbrev"), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::Arc};

    use wallscope_model::ModuleKind;

    use super::*;

    #[test]
    fn names_are_told_by_what_a_file_holds() {
        let of = |source: ModuleSource| {
            let module = Module {
                kind: ModuleKind::Elf,
                path: "/nowhere/at/all".into(),
                build_id: Arc::default(),
                pid: 0,
            };
            best(&module, Some(&source), &Sources::default())
        };
        let own = std::env::current_exe().expect("this test");
        let own = File::open(own).expect("readable");
        let named = of(ModuleSource::from_file(own, 0));
        assert!(
            matches!(named, Some(Names::DebugInfo | Names::Symbols)),
            "{named:?}"
        );
        assert_eq!(of(ModuleSource::from_bytes(b"no program".to_vec())), None);
    }
}
