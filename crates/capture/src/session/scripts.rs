//! JavaScript: processes with V8, and the names of the functions in their frames.
//!
//! The unwinder emits the function of a frame as its address in V8's heap. This module turns that into names and
//! lines. It reads them from the process as soon as a new stack comes in: the process may be gone later, and V8 moves
//! its objects now and then.

use std::{
    collections::{BTreeMap, hash_map::Entry},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use wallscope_unwind::runtime::{
    Facts,
    hotspot::{self, Item, ScriptPosition, abi::Proc},
    v8::{self, Isolate, Miss, ScriptFrame},
};

use super::found_runtime::FoundRuntime;
use crate::target::read_memory;

/// Attempts to read a function before it is given up.
const TRIES: u8 = 3;

/// A process with V8.
struct Space {
    found: FoundRuntime,
    isolate: Isolate,
}

/// Result of naming a frame.
enum Named {
    /// Functions, the innermost first.
    Scopes(Vec<v8::Scope>),
    Missed(Miss, u8),
}

/// All processes with V8.
#[derive(Default)]
pub struct Scripts {
    spaces: FxHashMap<u32, Space>,
    names: FxHashMap<(u32, Item), Named>,
    /// Processes that the unwinder has not been told of yet.
    news: Vec<(u32, Proc)>,
    versions: BTreeMap<String, u64>,
    /// Whether the code of functions is unknown for one of them.
    hidden: bool,
    /// Whether one of them does not report the functions that its middle compiler inlined.
    maglev: bool,
    /// Processes that the unwinder could not be told of.
    pub unheard: u64,
}

impl Scripts {
    /// Process `pid` has the file of `found` mapped, its addresses moved by `bias`.
    pub fn mapped(&mut self, pid: u32, found: &FoundRuntime, bias: u64) {
        let Ok(Facts::V8(facts)) = &**found else {
            return;
        };
        let known = self.spaces.get(&pid);
        if known.is_some_and(|s| Arc::ptr_eq(&s.found, found)) {
            return;
        }
        *self.versions.entry(facts.version.clone()).or_default() += 1;
        self.hidden |= facts.hides_code();
        self.maglev |= facts.hides_inlined();
        self.news.push((pid, facts.process()));
        let space = Space {
            found: Arc::clone(found),
            isolate: Isolate::new(bias),
        };
        self.spaces.insert(pid, space);
    }

    /// Process `pid` is gone, or runs something else. Its names stay, for its stacks.
    pub fn forget(&mut self, pid: u32) {
        self.spaces.remove(&pid);
    }

    /// Whether a process has V8.
    pub fn has_vms(&self) -> bool {
        !self.spaces.is_empty()
    }

    /// Returns the V8 of process `pid` for the unwinder, if the process has one.
    pub fn proc(&self, pid: u32) -> Option<Proc> {
        match &*self.spaces.get(&pid)?.found {
            Ok(Facts::V8(facts)) => Some(facts.process()),
            _ => None,
        }
    }

    /// Takes the processes that the unwinder does not know yet.
    pub fn take_news(&mut self) -> Vec<(u32, Proc)> {
        std::mem::take(&mut self.news)
    }

    /// Reads the names of V8's frames in a stack. `pid` is the stack's process; `None`: the process that the
    /// words name. Returns whether there was a frame to read.
    pub fn name(&mut self, words: &[u64], pid: Option<u32>) -> bool {
        let (told, items) = hotspot::items(words);
        let Some(pid) = told.and(pid).or(told) else {
            return false;
        };
        let Some(space) = self.spaces.get_mut(&pid) else {
            return false;
        };
        let Ok(Facts::V8(facts)) = &*space.found else {
            return false;
        };
        let mut new = false;
        for item in items {
            let Item::Script {
                frame,
                function,
                place,
            } = item
            else {
                continue;
            };
            let item = key(item);
            let named = self.names.entry((pid, item));
            let tries = match &named {
                Entry::Vacant(_) => 0,
                Entry::Occupied(o) => match o.get() {
                    Named::Missed(Miss::Unreadable, tries) if *tries < TRIES => *tries,
                    _ => continue,
                },
            };
            new = true;
            let address = (frame.file() == 0).then(|| frame.lookup_offset());
            let mut read = |at: u64, to: &mut [u8]| read_memory(pid, at, to) == to.len();
            let frame = ScriptFrame {
                function,
                place,
                address,
            };
            let found = space.isolate.scopes(facts, frame, &mut read);
            named.insert_entry(match found {
                Ok(scopes) => Named::Scopes(scopes),
                Err(miss) => Named::Missed(miss, tries + 1),
            });
        }
        new
    }

    /// The functions of a frame of process `pid`, the innermost first; `None`: it is none of a
    /// script's, or not known.
    pub fn scopes(&self, pid: u32, item: Item) -> Option<&[v8::Scope]> {
        match self.names.get(&(pid, key(item)))? {
            Named::Scopes(scopes) => Some(scopes),
            Named::Missed(..) => None,
        }
    }

    /// Versions that were found, in words for the user.
    pub fn describe(&self) -> impl Iterator<Item = String> + '_ {
        self.versions
            .keys()
            .map(|version| format!("V8 {version}").trim_end().to_owned())
    }

    /// Notes on it for the user.
    pub fn notes(&self) -> Option<String> {
        (!self.versions.is_empty()).then(|| {
            if self.hidden {
                return "JavaScript: the file of V8 does not say where compiled code is described (its symbols \
                        were removed): functions there have their first lines, and what was inlined into \
                        them counts as theirs"
                    .to_owned();
            }
            if self.maglev {
                return "JavaScript: V8 12.9 (Node.js 23) does not say what its middle compiler inlined; it counts as \
                        the function that was compiled, with its first line (`node --no-maglev` tells these \
                        apart, at its price)"
                    .to_owned();
            }
            "JavaScript: a function that V8 compiled in the middle of a loop of it counts what was inlined \
             into it as its own (`node --no-use-osr` tells these apart, at its price)"
                .to_owned()
        })
    }

    /// Losses, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let unreadable = |n: &&Named| matches!(n, Named::Missed(Miss::Unreadable, _));
        vec![
            (
                "JavaScript frame whose function could not be read".to_owned(),
                self.names.values().filter(unreadable).count() as u64,
            ),
            (
                "V8 of a process not told to the unwinder".to_owned(),
                self.unheard,
            ),
        ]
    }
}

/// Removes the parts of a frame that do not change its name. For interpreted code, the position in the bytecode names
/// it.
fn key(item: Item) -> Item {
    match item {
        Item::Script {
            function,
            place: place @ ScriptPosition::Bytecode(_),
            ..
        } => Item::Script {
            frame: wallscope_unwind::native::FrameWord(0),
            function,
            place,
        },
        other => other,
    }
}
