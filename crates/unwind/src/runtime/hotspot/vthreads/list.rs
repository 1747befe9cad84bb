//! Finds all virtual threads in the containers that the JDK keeps them in.
//!
//! ```text
//! started with methods of `Thread`   a set in the root container, unless the JDK only counts them
//!                                    (`-Djdk.trackAllThreads=false`)
//! by an executor                     a set in the executor or its container; a registry lists these
//! in structured concurrency          a set in the scope, to which the thread that opened it leads
//! ```
//!
//! The sets are hash tables that change while they are read. An element that is added or removed
//! meanwhile may be missed in one snapshot.

use rustc_hash::FxHashSet;
use std::sync::Arc;

use super::super::vm::Vm;
use super::classes::{Class, Classes};
use super::heap::Heap;
use crate::runtime::{memory::Memory, tasks};

const CONTAINERS: &str = "jdk.internal.vm.ThreadContainers";
/// Maximum threads, containers, and slots of a hash table.
pub(super) const MOST: usize = 1 << 18;
const MOST_CONTAINERS: usize = 1 << 14;
const MOST_SLOTS: usize = 1 << 22;
/// Bytes of an object that are read at once, and those of an object at the end of memory.
const LARGE_OBJECT: usize = 128;
const SMALL_OBJECT: usize = 24;
/// Maximum nodes of one slot's chain, and scopes of one thread.
const MOST_CHAIN: usize = 4096;
const MOST_SCOPES: usize = 64;

/// Wraps `memory` for reads of single words.
pub(super) fn with<R>(memory: &mut dyn tasks::Memory, f: impl FnOnce(&mut Memory<'_>) -> R) -> R {
    let mut read = |at: u64, to: &mut [u8]| memory.read(at, to);
    f(&mut Memory(&mut read))
}

/// Result of the search.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Threads, without duplicates.
    pub(super) threads: Vec<u64>,
    /// Number of threads that the JDK counts but does not list.
    pub(super) untracked: u64,
}

/// An object, as far as it was read.
pub(super) struct Object {
    pub(super) at: u64,
    pub(super) class: Arc<Class>,
    pub(super) bytes: Vec<u8>,
}

/// Everything needed to read the lists.
pub(super) struct Lists<'a> {
    pub(super) vm: &'a Vm,
    pub(super) heap: &'a Heap,
    pub(super) classes: &'a mut Classes,
    pub(super) memory: &'a mut dyn tasks::Memory,
}

impl Lists<'_> {
    /// Finds all virtual threads; `None` if the containers do not exist (yet). `containers`: the
    /// address of their class, once known.
    pub(super) fn all(&mut self, containers: &mut u64) -> Option<Found> {
        if *containers == 0 {
            let (vm, classes) = (self.vm, &mut *self.classes);
            *containers = with(self.memory, |m| classes.find(CONTAINERS, vm, m))?;
        }
        let class = self.class(*containers)?;
        let root = self.fixed(&class, "ROOT_CONTAINER").filter(|at| *at != 0)?;
        let mut found = Found::default();
        let mut seen = FxHashSet::default();
        let root_class = self.class_of(root)?;
        match self.fixed(&root_class, "VTHREADS") {
            Some(set) => self.elements(set, &mut found.threads),
            None => {
                let counter = self.fixed(&root_class, "VTHREAD_COUNT");
                found.untracked = counter.and_then(|at| self.sum(at)).unwrap_or(0);
            }
        }
        let mut registered = Vec::new();
        if let Some(registry) = self.fixed(&class, "CONTAINER_REGISTRY") {
            self.elements(registry, &mut registered);
        }
        for reference in registered.into_iter().take(MOST_CONTAINERS) {
            if let Some(container) = self.field(reference, "referent")
                && seen.insert(container)
            {
                self.container(container, &mut found.threads);
            }
        }
        // Then the threads in scopes that these opened, and so on.
        let mut owners: Vec<u64> = self.platform_threads();
        owners.extend(&found.threads);
        let mut next = 0;
        while next < found.threads.len() + owners.len() && found.threads.len() < MOST {
            let opened = self.scopes(&owners, &mut seen);
            if opened.is_empty() {
                break;
            }
            next = found.threads.len();
            for scope in opened {
                self.container(scope, &mut found.threads);
            }
            owners = found.threads[next..].to_vec();
        }
        let mut once = FxHashSet::default();
        found.threads.retain(|at| once.insert(*at));
        found.threads.truncate(MOST);
        Some(found)
    }

    pub(super) fn class(&mut self, address: u64) -> Option<Arc<Class>> {
        let (vm, classes) = (self.vm, &mut *self.classes);
        with(self.memory, |m| classes.at(address, vm, m))
    }

    pub(super) fn class_of(&mut self, object: u64) -> Option<Arc<Class>> {
        let heap = self.heap;
        let class = with(self.memory, |m| heap.class_at(object, m))?;
        self.class(class)
    }

    /// The object that a static field points to.
    fn fixed(&mut self, class: &Class, name: &str) -> Option<u64> {
        let at = class.field(name)? as u64;
        let heap = self.heap;
        with(self.memory, |m| {
            let statics = class.statics(m)?;
            heap.pointer_at(statics + at, m)
        })
    }

    /// The value of a static number.
    pub(super) fn constant(&mut self, class: &Class, name: &str) -> Option<u32> {
        let at = class.field(name)? as u64;
        with(self.memory, |m| {
            let statics = class.statics(m)?;
            m.half(statics + at)
        })
    }

    /// Reads the start of the object at `at`, which contains all fields that are used.
    pub(super) fn object(&mut self, at: u64) -> Option<Object> {
        if !self.heap.is_object(at) {
            return None;
        }
        let mut bytes = vec![0u8; LARGE_OBJECT];
        // The memory may end with the object.
        if !self.memory.read(at, &mut bytes) {
            bytes.truncate(SMALL_OBJECT);
            self.memory.read(at, &mut bytes).then_some(())?;
        }
        let class = self.class(self.heap.class(&bytes)?)?;
        Some(Object { at, class, bytes })
    }

    /// The object that a field points to, if it is not null.
    pub(super) fn pointer(&mut self, object: &Object, name: &str) -> Option<u64> {
        let at = object.class.field(name)?;
        let to = match self.heap.pointer_in(&object.bytes, at) {
            Some(to) => to,
            None => {
                let heap = self.heap;
                with(self.memory, |m| heap.pointer_at(object.at + at as u64, m))?
            }
        };
        self.heap.is_object(to).then_some(to)
    }

    /// Like [`Lists::pointer`], for the object at `at`.
    fn field(&mut self, at: u64, name: &str) -> Option<u64> {
        let object = self.object(at)?;
        self.pointer(&object, name)
    }

    /// Appends the threads of one container.
    fn container(&mut self, container: u64, to: &mut Vec<u64>) {
        let Some(mut object) = self.object(container) else {
            return;
        };
        if let Some(flock) = self.pointer(&object, "flock") {
            match self.object(flock) {
                Some(flock) => object = flock,
                None => return,
            }
        }
        // Field names of a flock or an executor, and of other containers.
        let set = self.pointer(&object, "threads");
        if let Some(set) = set.or_else(|| self.pointer(&object, "virtualThreads")) {
            self.elements(set, to);
        }
    }

    /// The containers that `threads` opened for other threads.
    fn scopes(&mut self, threads: &[u64], seen: &mut FxHashSet<u64>) -> Vec<u64> {
        const FIELD: &str = "headStackableScopes";
        let mut opened = Vec::new();
        let Some(class) = threads.first().and_then(|t| self.class_of(*t)) else {
            return opened;
        };
        // One offset for all: the field is declared in `java.lang.Thread`.
        let Some(at) = class.field(FIELD) else {
            return opened;
        };
        let bytes = self.heap.pointer();
        let wanted: Vec<_> = threads.iter().map(|t| (t + at as u64, bytes)).collect();
        let mut heads = vec![0u8; wanted.len() * bytes];
        let readable = self.memory.read_all(&wanted, &mut heads);
        let heads: Vec<u64> = heads
            .chunks_exact(bytes)
            .zip(readable)
            .filter_map(|(b, ok)| self.heap.pointer_in(b, 0).filter(|_| ok))
            .filter(|p| self.heap.is_object(*p))
            .collect();
        for head in heads {
            let mut scope = Some(head);
            for _ in 0..MOST_SCOPES {
                let Some(at) = scope else { break };
                if !seen.insert(at) || opened.len() >= MOST_CONTAINERS {
                    break;
                }
                let Some(object) = self.object(at) else { break };
                if self.pointer(&object, "flock").is_some() {
                    opened.push(at);
                }
                scope = self.pointer(&object, "previous");
            }
        }
        opened
    }

    /// The objects of the platform threads.
    fn platform_threads(&mut self) -> Vec<u64> {
        let all = self.vm.threads.iter().filter(|t| t.object != 0);
        let wanted: Vec<_> = all.map(|t| (t.object, 8)).collect();
        let mut bytes = vec![0u8; 8 * wanted.len()];
        let readable = self.memory.read_all(&wanted, &mut bytes);
        let all = bytes.chunks_exact(8).zip(readable);
        all.filter_map(|(b, ok)| super::heap::word(b, 0).filter(|_| ok))
            .filter(|p| self.heap.is_object(*p))
            .collect()
    }

    /// Appends the elements of a concurrent set, from its hash table.
    fn elements(&mut self, set: u64, to: &mut Vec<u64>) {
        let mut tables: Vec<u64> = (self.field(set, "map"))
            .and_then(|map| self.field(map, "table"))
            .into_iter()
            .collect();
        let mut known: FxHashSet<u64> = FxHashSet::default();
        // While the table grows, slots lead to the next table.
        while let Some(table) = tables.pop() {
            if !known.insert(table) || known.len() > 4 {
                continue;
            }
            let heap = self.heap;
            let slots = with(self.memory, |m| heap.pointers(table, MOST_SLOTS, m));
            self.nodes(slots.unwrap_or_default(), to, &mut tables);
        }
    }

    fn nodes(&mut self, mut level: Vec<u64>, to: &mut Vec<u64>, tables: &mut Vec<u64>) {
        // A node: header, hash and three pointers.
        let bytes = if self.heap.pointer() == 4 { 32 } else { 48 };
        for _ in 0..MOST_CHAIN {
            if level.is_empty() || to.len() >= MOST {
                break;
            }
            let wanted: Vec<_> = level.iter().map(|at| (*at, bytes)).collect();
            let mut nodes = vec![0u8; bytes * wanted.len()];
            let readable = self.memory.read_all(&wanted, &mut nodes);
            let mut next = Vec::new();
            let mut moved = FxHashSet::default();
            for ((node, ok), at) in nodes.chunks_exact(bytes).zip(readable).zip(&level) {
                let class = self.heap.class(node).filter(|_| ok);
                let Some(class) = class.and_then(|c| self.class(c)) else {
                    continue;
                };
                let pointer = |name: &str| {
                    let at = class.field(name)?;
                    let to = self.heap.pointer_in(node, at)?;
                    self.heap.is_object(to).then_some(to)
                };
                if class.field("nextTable").is_some() {
                    moved.insert(*at);
                    continue;
                }
                to.extend(pointer("key"));
                next.extend(pointer("next"));
                // A slot with many nodes is a tree; its nodes are also in a list.
                if class.field("waiter").is_some() {
                    let first = self.field(*at, "first");
                    next.extend(first);
                }
            }
            // All of them are one object.
            for at in moved.into_iter().take(2) {
                tables.extend(self.field(at, "nextTable"));
            }
            level = next;
        }
    }

    /// Reads the value of a striped counter.
    fn sum(&mut self, counter: u64) -> Option<u64> {
        let class = self.class_of(counter)?;
        let base = class.field("base")? as u64;
        let cells = self.field(counter, "cells");
        let heap = self.heap;
        let (mut sum, cells) = with(self.memory, |m| {
            let base = m.word(counter + base)?;
            let cells = cells.and_then(|at| heap.pointers(at, 1024, m));
            Some((base, cells.unwrap_or_default()))
        })?;
        for cell in cells {
            let Some(at) = self.class_of(cell).and_then(|c| c.field("value")) else {
                continue;
            };
            let value = with(self.memory, |m| m.word(cell + at as u64));
            sum = sum.wrapping_add(value.unwrap_or(0));
        }
        i64::try_from(sum).ok().map(|n| n as u64)
    }
}
