//! Names of threads, as the module `threading` keeps them.
//!
//! Up to 3.13 the interpreter does not tell the kernel. `threading._active` is a dict of the running threads'
//! objects; each has the attributes `_name` and `_native_id`, the kernel's id of the thread. The dict is found as
//! a program would find it, and stays at its place, across a fork too.
//!
//! Not read: threads that `threading` has not met (those of C libraries, `_thread.start_new_thread`).

use super::{
    Facts,
    asyncio::{
        objects::{Objects, PageCache},
        offsets::Offsets,
    },
};
use crate::runtime::process_memory::Memory;

/// Maximum threads of a process of which names are read.
const MAX_THREADS: usize = 4096;
/// Maximum characters of a name.
const MAX_NAME_CHARS: usize = 128;

/// Reader of the names of one process's threads.
#[derive(Default)]
pub struct ThreadNames {
    /// Addresses of the interpreters' `threading._active`.
    active: Vec<u64>,
}

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadNamesRead {
    /// The program has not imported `threading`.
    NoThreading,
    /// Names by the thread's id in its own PID namespace.
    Names(Vec<(u32, String)>),
    /// `threading` is there, and its list could not be read: it changed meanwhile, or this version keeps it in
    /// another way.
    Unreadable,
}

impl ThreadNames {
    /// Reads the names in a process with load bias `bias`.
    pub fn read(&mut self, facts: &Facts, bias: u64, memory: &mut dyn Memory) -> ThreadNamesRead {
        let Some(offsets) = Offsets::of(facts.minor, facts.layout.modules) else {
            return ThreadNamesRead::Unreadable;
        };
        let mut objects = Objects {
            memory,
            pages: &mut PageCache::default(),
            offsets: &offsets,
            texts: &facts.layout.objects,
        };
        if self.active.is_empty() {
            let Some(found) = find_active(&mut objects, facts, bias) else {
                return ThreadNamesRead::Unreadable;
            };
            self.active = found;
        }
        if self.active.is_empty() {
            return ThreadNamesRead::NoThreading;
        }
        let mut names = Vec::new();
        for dict in &self.active {
            match named(&mut objects, *dict) {
                Some(own) => names.extend(own),
                None => {
                    self.active.clear();
                    return ThreadNamesRead::Unreadable;
                }
            }
        }
        ThreadNamesRead::Names(names)
    }
}

/// Finds the dict of each interpreter that has imported `threading`; `None`: one has, without such a dict.
fn find_active(objects: &mut Objects<'_>, facts: &Facts, bias: u64) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for (_, modules) in objects.interpreters(facts, bias) {
        if let Some(module) = objects.module_dict(modules, "threading") {
            found.push(objects.item(module, "_active")?);
        }
    }
    Some(found)
}

/// The threads in such a dict that have a name and an id; `None`: it is none.
fn named(objects: &mut Objects<'_>, dict: u64) -> Option<Vec<(u32, String)>> {
    let class = objects.type_of(dict)?;
    if objects.type_name(class)? != "dict" {
        return None;
    }
    let threads = objects.dict_values(dict)?;
    let mut names = Vec::with_capacity(threads.len().min(MAX_THREADS));
    for thread in threads.into_iter().take(MAX_THREADS) {
        // A thread that is just starting has no id yet.
        let id = objects.attribute(thread, "_native_id");
        let name = objects.attribute(thread, "_name");
        if let (Some(id), Some(name)) = (id, name)
            && let (Some(id), Some(name)) = (objects.small_integer(id), objects.text(name))
        {
            names.push((id, name.chars().take(MAX_NAME_CHARS).collect()));
        }
    }
    Some(names)
}
