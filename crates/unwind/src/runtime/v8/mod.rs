//! V8, which runs JavaScript in Node.js.
//!
//! ```text
//! layout.rs    where things are in V8's objects, as the build exports it for debuggers
//! heap.rs      objects and texts of V8's heap
//! function.rs  functions → names, files, lines
//! code.rs      machine code → functions inlined there, and places in the source
//! table.rs     functions → machine code, where V8 keeps a table of that
//! ```
//!
//! The native unwinder leaves V8's frames by their frame pointers and puts out which function each of
//! them runs ([`super::hotspot::Item::Script`]). What that function is called is read here, from the
//! process, soon after.
//!
//! Nothing is told to V8: its build describes itself (`v8dbg_…`), and Node.js has always been built
//! with that. Not known: what was inlined into a function that was compiled while it ran (it is named
//! itself), lines of code of the baseline compiler (where the function begins), what Maglev inlined in
//! V8 12.9 (which does not say), WebAssembly, regular expressions.

mod code;
mod function;
mod heap;
mod layout;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::hotspot::{Place, abi::Proc};
use super::{Facts as AnyFacts, Image, Refusal, Runtime};
use code::Code;
pub use function::Function;
use function::Shared;
use heap::Heap;
pub(crate) use layout::Layout;
use table::Table;

/// The row of the table.
pub const RUNTIME: Runtime = Runtime {
    name: "V8",
    tried: &["10.2", "11.3", "12.4", "13.6"],
    recognise,
};

/// How the names begin with which the build describes itself.
const PREFIX: &str = "v8dbg_";
/// Functions and pieces of code that are kept of one process.
const MOST_KEPT: usize = 1 << 16;

/// What is known of a file with V8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `11.3.244`; empty: its symbols were removed.
    pub version: String,
    pub(crate) layout: Layout,
    /// Where the code of functions is, for versions that have a table of it; `None`: not found.
    pub(crate) table: Option<Table>,
}

fn recognise(image: &Image<'_>) -> Option<Result<AnyFacts, Refusal>> {
    let places = image.exported_with(PREFIX);
    if places.is_empty() {
        return None;
    }
    let mut values = BTreeMap::new();
    for (name, place) in places {
        // What is 0 takes no room in the file.
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
        Ok(layout) => Ok(AnyFacts::V8(Box::new(Facts {
            version: version_name,
            table: Table::of(image).filter(|_| layout.by_table),
            layout,
        }))),
        Err(why) => Err(Refusal {
            what: format!("V8 {version_name} in {}", image.name()),
            why,
        }),
    })
}

impl Facts {
    /// What the unwinder is told of a process.
    pub fn process(&self) -> Proc {
        Proc {
            js_shared: self.layout.function_shared,
            js_code: self.layout.function_code,
            js_bytecode: self.layout.frame_bytecode,
            ..Proc::default()
        }
    }

    /// Whether it cannot be known which code object a function has: lines in compiled code, and what was
    /// inlined there.
    pub fn hides_code(&self) -> bool {
        self.layout.code.is_none() || (self.layout.by_table && self.table.is_none())
    }

    /// Whether its middle compiler (Maglev) says nothing of what its code stands for, so that what it inlined
    /// counts as the function that was compiled: so in the V8 of Node.js 23.
    pub fn hides_inlined(&self) -> bool {
        self.version.starts_with("12.9.")
    }
}

/// One function in a frame; several where they were inlined into each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The function.
    pub function: Arc<Function>,
    /// Line, 1-based; 0: not known.
    pub line: u32,
}

/// Why a function has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It could not be read, or is not what it should be.
    Unreadable,
    /// It is a part of V8 itself, with a name of its own.
    Builtin,
}

/// Functions and code of one process.
#[derive(Default)]
pub struct Isolate {
    /// What the addresses in the file of V8 are moved by.
    bias: u64,
    /// Where the table of code begins, once it is known.
    table: Option<u64>,
    kinds: FxHashMap<u64, u16>,
    shared: FxHashMap<u64, Option<Arc<Shared>>>,
    scripts: FxHashMap<u64, Arc<function::Script>>,
    code: FxHashMap<(u64, u64), Option<Arc<Code>>>,
}

impl Isolate {
    /// Of a process where the addresses in the file of V8 are moved by `bias`.
    pub fn new(bias: u64) -> Isolate {
        Isolate {
            bias,
            ..Isolate::default()
        }
    }

    /// What runs at `address` in the function at `function`, `place` in it: the functions there,
    /// the innermost first.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn scopes(
        &mut self,
        facts: &Facts,
        function: u64,
        place: Place,
        address: Option<u64>,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Vec<Scope>, Miss> {
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
            (Place::Bytecode(offset) | Place::Unsure(offset, _), None) => {
                return Ok(interpreted(offset));
            }
            (Place::Bytecode(offset), Some(_)) => return Ok(interpreted(offset)),
            (Place::Unsure(offset, code), Some(address)) => (Some(offset), code, address),
            (Place::Code(code), Some(address)) => (None, code, address),
            (Place::Code(_), None) => return Err(Miss::Builtin),
        };
        let code = match (facts.layout.by_table, &facts.table) {
            (false, _) => Some(code),
            (true, None) => None,
            (true, Some(table)) => table.code(&mut heap.memory, self.bias, &mut self.table, code),
        };
        // Code that has replaced what runs there is another one.
        if self.code.len() >= MOST_KEPT {
            self.code.clear();
        }
        let code = code.and_then(|code| {
            let entry = self.code.entry((code, function));
            entry
                .or_insert_with(|| Code::read(&mut heap, code).map(Arc::new))
                .clone()
        });
        let Some(code) = code.filter(|c| c.holds(address)) else {
            // The interpreter's own code, copied; or older machine code.
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

/// The function at `address`, known or read.
fn shared_of(
    heap: &mut Heap<'_>,
    known: &mut FxHashMap<u64, Option<Arc<Shared>>>,
    scripts: &mut FxHashMap<u64, Arc<function::Script>>,
    address: u64,
) -> Option<Arc<Shared>> {
    if let Some(Some(shared)) = known.get(&address) {
        return Some(Arc::clone(shared));
    }
    if known.len() >= MOST_KEPT {
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
