//! V8, which runs JavaScript in Node.js.
//!
//! ```text
//! layout.rs    offsets in V8's objects, from the build's debugger constants
//! heap.rs      objects and texts of V8's heap
//! function.rs  functions → names, files, lines
//! code.rs      machine code → inlined functions and source positions
//! table.rs     functions → machine code, where V8 keeps a table of it
//! thread_names.rs  names of Node.js's threads
//! ```
//!
//! The native unwinder unwinds V8's frames by frame pointer and emits the function of each
//! ([`super::hotspot::Item::Script`]). Its name is read here, from the process, soon after.
//!
//! Nothing is configured in V8: its build describes itself (`v8dbg_…`), and Node.js builds always
//! include that. Not known: functions inlined by on-stack replacement (the outer one is named),
//! lines of baseline code (the function's first line is used), functions inlined by Maglev in V8
//! 12.9 (which does not record them), WebAssembly, regular expressions.

mod code;
mod function;
mod heap;
mod layout;
mod table;
mod thread_names;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::hotspot::{ScriptPosition, abi::Proc};
use super::image::{Image, Refusal};
use super::process_memory::Memory;
use code::Code;
pub use function::Function;
use function::Shared;
use heap::Heap;
pub(crate) use layout::Layout;
use table::CodeTable;
pub use thread_names::Threads;

/// Prefix of the names under which the build describes itself.
const PREFIX: &str = "v8dbg_";
/// Maximum cached functions and code objects of one process.
const MAX_CACHED: usize = 1 << 16;

/// Facts about a file with V8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `11.3.244`; empty: the file is stripped.
    pub version: String,
    pub(crate) layout: Layout,
    /// Location of the table of code, for versions that have one; `None`: not found.
    pub(crate) table: Option<CodeTable>,
    entries: thread_names::Entries,
}

/// The facts of a file that contains the runtime.
pub(super) fn recognise(image: &Image<'_>) -> Option<Result<Facts, Refusal>> {
    let places = image.exported_with(PREFIX);
    if places.is_empty() {
        return None;
    }
    let mut values = BTreeMap::new();
    for (name, place) in places {
        // Zero values take no space in the file.
        let bytes = image.at(place.address, 4).unwrap_or(&[0; 4]);
        if let Ok(bytes) = bytes.try_into() {
            values.insert(name, i32::from_le_bytes(bytes));
        }
    }
    let part = |which: &str| {
        let place = image.symbol(&format!("_ZN2v88internal7Version6{which}_E"))?;
        let bytes = image.at(place.address, 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let parts = [part("major"), part("minor"), part("build")];
    let version = parts.map(Option::unwrap_or_default);
    let version_name = match parts {
        [Some(_), ..] => version.map(|n| n.to_string()).join("."),
        _ => String::new(),
    };
    Some(match Layout::of(&values, version) {
        Ok(layout) => Ok(Facts {
            version: version_name,
            table: CodeTable::of(image).filter(|_| layout.by_table),
            layout,
            entries: thread_names::Entries::of(image),
        }),
        Err(why) => Err(Refusal {
            what: format!("V8 {version_name} in {}", image.name()),
            why,
        }),
    })
}

impl Facts {
    /// Reads names of Node.js's threads, by their ids in the process's own PID namespace.
    pub fn thread_names(
        &self,
        threads: Threads<'_>,
        memory: &mut dyn Memory,
    ) -> Vec<(u32, String)> {
        thread_names::read(&self.entries, threads, memory)
    }

    /// The unwinder's parameters for a process.
    pub fn process(&self) -> Proc {
        Proc {
            js_shared: self.layout.function_shared,
            js_code: self.layout.function_code,
            js_bytecode: self.layout.frame_bytecode,
            ..Proc::default()
        }
    }

    /// Whether the code object of a function cannot be found: then lines in compiled code and
    /// inlined functions are unknown.
    pub fn hides_code(&self) -> bool {
        self.layout.code.is_none() || (self.layout.by_table && self.table.is_none())
    }

    /// Whether Maglev records nothing about its code, so that inlined functions count as the
    /// compiled one. This holds for the V8 of Node.js 23.
    pub fn hides_inlined(&self) -> bool {
        self.version.starts_with("12.9.")
    }
}

/// A frame of JavaScript, as a walk found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptFrame {
    /// Address of the function.
    pub function: u64,
    /// Place in it.
    pub place: ScriptPosition,
    /// Address of the instruction, if that is in no file.
    pub address: Option<u64>,
}

/// A function in a frame; a frame has several if they were inlined into each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The function.
    pub function: Arc<Function>,
    /// Line, 1-based; 0: unknown.
    pub line: u32,
}

/// Reason why a function has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It could not be read, or has the wrong type.
    Unreadable,
    /// It is a builtin of V8, which has a symbol of its own.
    Builtin,
}

/// Cache of the functions and code of one process.
#[derive(Default)]
pub struct Isolate {
    /// Load bias of the file with V8.
    bias: u64,
    /// Address of the table of code, once known.
    table: Option<u64>,
    kinds: FxHashMap<u64, u16>,
    shared: FxHashMap<u64, Option<Arc<Shared>>>,
    scripts: FxHashMap<u64, Arc<function::Script>>,
    code: FxHashMap<(u64, u64), Option<Arc<Code>>>,
}

impl Isolate {
    /// Creates a cache for a process with load bias `bias`.
    pub fn new(bias: u64) -> Isolate {
        Isolate {
            bias,
            ..Isolate::default()
        }
    }

    /// The functions that run in a frame, innermost first.
    ///
    /// # Errors
    /// Reason why they are unknown.
    pub fn scopes(
        &mut self,
        facts: &Facts,
        frame: ScriptFrame,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Vec<Scope>, Miss> {
        let ScriptFrame {
            function,
            place,
            address,
        } = frame;
        let mut heap = Heap::new(&facts.layout, &mut self.kinds, read);
        let shared = shared_of(&mut heap, &mut self.shared, &mut self.scripts, function)
            .ok_or(Miss::Unreadable)?;
        if shared.builtin {
            return Err(Miss::Builtin);
        }
        let at = |shared: &Shared, position: Option<u32>| Scope {
            function: Arc::clone(&shared.function),
            line: position.map_or(shared.function.line, |p| shared.line_at(p)),
        };
        let interpreted = |offset| vec![at(&shared, shared.position_of_bytecode(offset))];
        let (bytecode, code, address) = match (place, address) {
            (ScriptPosition::Bytecode(offset) | ScriptPosition::Unsure(offset, _), None) => {
                return Ok(interpreted(offset));
            }
            (ScriptPosition::Bytecode(offset), Some(_)) => return Ok(interpreted(offset)),
            (ScriptPosition::Unsure(offset, code), Some(address)) => (Some(offset), code, address),
            (ScriptPosition::Code(code), Some(address)) => (None, code, address),
            (ScriptPosition::Code(_), None) => return Err(Miss::Builtin),
        };
        let code = match (facts.layout.by_table, &facts.table) {
            (false, _) => Some(code),
            (true, None) => None,
            (true, Some(table)) => table.code(&mut heap.memory, self.bias, &mut self.table, code),
        };
        // New code replaces old code under another key.
        if self.code.len() >= MAX_CACHED {
            self.code.clear();
        }
        let code = code.and_then(|code| {
            let entry = self.code.entry((code, function));
            entry
                .or_insert_with(|| Code::read(&mut heap, code).map(Arc::new))
                .clone()
        });
        let Some(code) = code.filter(|c| c.holds(address)) else {
            // A copy of the interpreter's entry, or older machine code.
            let copied = bytecode.filter(|_| shared.own_interpreter);
            return Ok(copied.map_or_else(|| vec![at(&shared, None)], interpreted));
        };
        let mut scopes = Vec::new();
        for step in code.at(address) {
            let inner = match step.inlined {
                Some(inlined) => shared_of(&mut heap, &mut self.shared, &mut self.scripts, inlined)
                    .ok_or(Miss::Unreadable)?,
                None => Arc::clone(&shared),
            };
            scopes.push(at(&inner, step.position));
        }
        Ok(scopes)
    }
}

/// Returns the function at `address`, cached or read.
fn shared_of(
    heap: &mut Heap<'_>,
    known: &mut FxHashMap<u64, Option<Arc<Shared>>>,
    scripts: &mut FxHashMap<u64, Arc<function::Script>>,
    address: u64,
) -> Option<Arc<Shared>> {
    if let Some(Some(shared)) = known.get(&address) {
        return Some(Arc::clone(shared));
    }
    if known.len() >= MAX_CACHED {
        known.clear();
        scripts.clear();
    }
    let shared = Shared::read(heap, scripts, address).map(Arc::new);
    known.insert(address, shared.clone());
    shared
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
