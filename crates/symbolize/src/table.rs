//! The recording's table of functions, without duplicates.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::{Function, FunctionId};

use crate::demangle::{Origin, demangle_from, printable};

/// Assigns function ids, and adds new functions to the table.
pub(crate) struct Table<'r> {
    functions: &'r mut Vec<Function>,
    ids: FxHashMap<Function, FunctionId>,
    texts: FxHashSet<Arc<str>>,
    /// Demangled and printable name by raw name: a few names recur often.
    names: FxHashMap<Origin, FxHashMap<Vec<u8>, Shown>>,
}

/// A demangled and a printable name.
type Shown = (Arc<str>, Arc<str>);

/// A name as a symbol table has it.
#[derive(Clone, Copy)]
pub(crate) struct RawName<'a> {
    pub bytes: &'a [u8],
    /// Origin of its module's names.
    pub origin: Origin,
}

impl<'r> Table<'r> {
    /// Creates a table that continues `functions`.
    pub(crate) fn new(functions: &'r mut Vec<Function>) -> Self {
        let ids = functions
            .iter()
            .enumerate()
            .map(|(i, f)| (f.clone(), id(i)))
            .collect();
        Table {
            functions,
            ids,
            texts: FxHashSet::default(),
            names: FxHashMap::default(),
        }
    }

    /// Returns the function with symbol name `raw`, declared at `line` of `file`.
    pub(crate) fn mangled(&mut self, raw: RawName<'_>, file: &Arc<str>, line: u32) -> FunctionId {
        let known = self.names.get(&raw.origin).and_then(|n| n.get(raw.bytes));
        let (name, system_name) = match known {
            Some(known) => known.clone(),
            None => {
                let name = self.text(&demangle_from(raw.bytes, raw.origin));
                let system_name = self.text(&printable(raw.bytes));
                let shown = (name.clone(), system_name.clone());
                let names = self.names.entry(raw.origin).or_default();
                names.insert(raw.bytes.to_vec(), shown);
                (name, system_name)
            }
        };
        let file = self.text(file);
        self.intern(Function {
            name,
            system_name,
            file,
            start_line: line,
        })
    }

    /// Returns the function with a name that is not mangled.
    pub(crate) fn plain(&mut self, raw: &[u8]) -> FunctionId {
        self.source(raw, &Arc::default(), 0)
    }

    /// Returns the function without a name that begins at `offset` in the file of a module.
    pub(crate) fn unnamed(&mut self, module: &str, offset: u64) -> FunctionId {
        let name = self.text(&format!("{module}+0x{offset:x}"));
        self.intern(Function {
            name,
            system_name: Arc::default(),
            file: Arc::default(),
            start_line: 0,
        })
    }

    /// Returns the function with a name that is not mangled, declared at `line` of `file`.
    pub(crate) fn source(&mut self, raw: &[u8], file: &Arc<str>, line: u32) -> FunctionId {
        let name = self.text(&printable(raw));
        let file = self.text(file);
        self.intern(Function {
            name: name.clone(),
            system_name: name,
            file,
            start_line: line,
        })
    }

    fn intern(&mut self, function: Function) -> FunctionId {
        if let Some(known) = self.ids.get(&function) {
            return *known;
        }
        let new = id(self.functions.len());
        self.functions.push(function.clone());
        self.ids.insert(function, new);
        new
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }
}

/// Ids have 32 bits: more functions do not fit any recording in memory.
fn id(index: usize) -> FunctionId {
    FunctionId(u32::try_from(index).unwrap_or(u32::MAX))
}
