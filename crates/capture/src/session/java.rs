//! Java: the VMs of processes, and the meaning of frames in their code.
//!
//! The unwinder emits the facts of a frame: an address in compiled code and the number of the compilation, or a
//! method and the position in its bytecode. This module turns that into methods and lines. It reads them from the
//! process as soon as a new stack comes in: the process may be gone later, and so may code and classes.

mod safepoints;
mod stops;

use std::{
    collections::{BTreeMap, hash_map::Entry},
    sync::Arc,
};

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_procfs::process;
use wallscope_unwind::{
    native::FrameWord,
    runtime::{
        Facts,
        hotspot::{self, FrameName, Item, Miss, Opening, Pauses, Scope, Vm, abi::Proc},
    },
};

use super::found_runtime::FoundRuntime;
use crate::{
    clock::now,
    event::{MonitorPlace, PARKED},
    target::read_memory,
};
use stops::Stops;

/// Placeholder for the frames of a virtual thread that the VM has not brought back from the heap.
const LEFT_IN_HEAP: &str = "[left in the heap]";
/// Attempts to read a frame before it is given up.
const TRIES: u8 = 3;
/// Most futexes of sleeping threads that are remembered; the kernel programs have room for as many.
const MAX_SLEEPS: usize = 65536;
/// Interval between polls of a VM that is just starting, ns.
const WAIT: u64 = 2_000_000;
/// Time after which a VM's tables will never have the entries that they still lack, ns: by then its file has been
/// loaded.
const LOADED: u64 = 3_000_000_000;

/// A VM that is not ready to be read.
struct Starting {
    found: FoundRuntime,
    bias: u64,
    since: u64,
    next: u64,
    opening: Option<Opening>,
}

/// Result of naming a frame.
enum Named {
    /// Methods, the innermost first.
    Methods(Vec<Scope>),
    /// Code of the VM's own.
    Stub(Arc<str>),
    Missed(Miss, u8),
}

/// Meaning of a frame in a VM's code.
pub enum Meaning<'a> {
    /// Methods, the innermost first.
    Methods(&'a [Scope]),
    /// Code of the VM's own, by its name.
    Stub(&'a str),
    /// Java code of unknown name.
    Unnamed,
}

/// All processes with a VM.
#[derive(Default)]
pub struct Java {
    vms: FxHashMap<u32, (u64, Vm)>,
    starting: FxHashMap<u32, Starting>,
    names: FxHashMap<(u32, Item), Named>,
    /// VMs that the unwinder has not been told of yet.
    news: Vec<(u32, Proc)>,
    /// Counters of pauses of each process's VM, at the first and the last reading.
    pauses: BTreeMap<u32, (Pauses, Pauses)>,
    /// Futexes that threads sleep on: (process, address).
    sleeps: FxHashSet<(u32, u64)>,
    /// Those of `sleeps` that the kernel programs have not been told of yet.
    new_sleeps: Vec<(u32, u64)>,
    /// Threads by process and their id in the process's own PID namespace, where that differs from ours.
    inner: FxHashMap<(u32, u32), u32>,
    /// Threads that the kernel programs have not been told of yet, with the place of their monitor.
    new_threads: Vec<MonitorPlace>,
    /// Places at which VMs stop threads.
    stops: Stops,
    versions: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
    /// VMs that the kernel programs could not be told of.
    pub unheard: u64,
}

impl Java {
    /// Process `pid` has the file of `found` mapped, its addresses moved by `bias`.
    pub fn mapped(&mut self, pid: u32, found: &FoundRuntime, bias: u64) {
        let known = self.vms.get(&pid).map(|(bias, _)| *bias);
        let waits = self.starting.get(&pid).map(|s| s.bias);
        if known == Some(bias) || waits == Some(bias) {
            return;
        }
        let starting = Starting {
            found: Arc::clone(found),
            bias,
            since: now(),
            next: 0,
            opening: None,
        };
        self.starting.insert(pid, starting);
        self.poll();
    }

    /// Polls the VMs that were not ready, if it is time to.
    pub fn poll(&mut self) {
        if self.starting.is_empty() {
            return;
        }
        let time = now();
        let Java {
            vms,
            stops,
            starting,
            news,
            versions,
            refused,
            ..
        } = self;
        starting.retain(|pid, s| {
            if time < s.next {
                return true;
            }
            s.next = time + WAIT;
            let Ok(Facts::HotSpot(facts)) = &*s.found else {
                return false;
            };
            let mut read = reader(*pid);
            let opened = match &s.opening {
                Some(opening) => Vm::open(opening, &mut read),
                None => Opening::read(facts, s.bias, &mut read).and_then(|opening| {
                    s.opening = opening;
                    s.opening
                        .as_ref()
                        .map_or(Ok(None), |o| Vm::open(o, &mut read))
                }),
            };
            match opened {
                Ok(Some(vm)) => {
                    *versions.entry(vm.version.clone()).or_default() += 1;
                    news.push((*pid, vm.proc));
                    vms.insert(*pid, (s.bias, vm));
                    stops.opened(*pid, &s.found);
                    false
                }
                Ok(None) => true,
                Err(_) if time - s.since < LOADED => true,
                Err(refusal) => {
                    refused.entry(refusal.to_string()).or_insert(1);
                    false
                }
            }
        });
    }

    /// Reads the VMs' counters of pauses.
    pub fn count(&mut self) {
        for (pid, (_, vm)) in &mut self.vms {
            if let Some(pauses) = vm.pauses(&mut reader(*pid)) {
                self.pauses.entry(*pid).or_insert((pauses, pauses)).1 = pauses;
            }
        }
    }

    /// Notes that `futex` is slept on if `words`, the named stack of a thread of `pid` that waited there,
    /// puts its thread to sleep. To the kernel such a sleep is a wait for a condition variable, but each
    /// thread has its own.
    pub fn waited(&mut self, pid: u32, futex: u64, words: &[u64]) {
        let key = (pid, futex & !7);
        if self.sleeps.len() < MAX_SLEEPS
            && !self.sleeps.contains(&key)
            && self.sleeps(pid, words.iter().copied())
        {
            self.sleeps.insert(key);
            self.new_sleeps.push(key);
        }
    }

    /// Whether the innermost method of a stack that has been named puts its thread to sleep.
    pub fn sleeps(&self, pid: u32, words: impl IntoIterator<Item = u64>) -> bool {
        let words: Vec<u64> = words.into_iter().collect();
        let (_, items) = hotspot::items(&words);
        let innermost = items.iter().find(|i| !matches!(i, Item::Native(_)));
        match innermost.and_then(|item| self.meaning(pid, *item)) {
            Some(Meaning::Methods([scope, ..])) => {
                scope.method.name.starts_with("java.lang.Thread.sleep")
            }
            _ => false,
        }
    }

    /// New addresses that threads sleep on, for the kernel programs.
    pub fn take_sleeps(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.new_sleeps)
    }

    /// Reads the VMs' lists of threads, where they have changed.
    pub fn read_threads(&mut self) {
        for (pid, (_, vm)) in &mut self.vms {
            let Some((pending, owner)) = vm.monitor_offsets() else {
                continue;
            };
            let Some(threads) = vm.new_threads(&mut reader(*pid)) else {
                continue;
            };
            // A process in a PID namespace of its own knows its threads by other ids.
            let apart = process::inner_tid(*pid).is_ok_and(|inner| inner != *pid);
            if apart {
                for tid in process::threads(*pid).unwrap_or_default() {
                    if let Ok(inner) = process::inner_tid(tid) {
                        self.inner.insert((*pid, inner), tid);
                    }
                }
            }
            let threads = threads.to_vec();
            let parking = vm.parking(&mut reader(*pid));
            for thread in threads {
                let tid = match apart {
                    true => self.inner.get(&(*pid, thread.tid)).copied(),
                    false => Some(thread.tid),
                };
                self.new_threads.extend(tid.map(|tid| {
                    MonitorPlace {
                        tid,
                        pending: thread.record + pending,
                        owner,
                        parked: parking
                            .filter(|_| thread.object != 0)
                            .map(|p| (thread.object, p)),
                    }
                }));
            }
        }
    }

    /// Returns new threads, with the place of their monitor, for the kernel programs.
    pub fn take_threads(&mut self) -> Vec<MonitorPlace> {
        std::mem::take(&mut self.new_threads)
    }

    /// Returns the thread of `pid` that the VM's owner word `owner` stands for.
    pub fn owner(&self, pid: u32, owner: u64) -> Option<u32> {
        let tid = self.vms.get(&pid)?.1.owner(owner)?;
        Some(self.inner.get(&(pid, tid)).copied().unwrap_or(tid))
    }

    /// Returns the thread of `pid` that owns the monitor at `monitor` now.
    pub fn has_monitor(&self, pid: u32, monitor: u64) -> Option<u32> {
        if monitor & PARKED != 0 {
            return None; // its owner is not known
        }
        let tid = (self.vms.get(&pid)?.1).monitor_owner(monitor, &mut reader(pid))?;
        Some(self.inner.get(&(pid, tid)).copied().unwrap_or(tid))
    }

    /// Returns the class of the object that the monitor at `monitor` in `pid` belongs to, or that a thread is
    /// parked for.
    pub fn monitor_class(&self, pid: u32, monitor: u64) -> Option<String> {
        let (_, vm) = self.vms.get(&pid)?;
        match monitor & PARKED {
            0 => vm.monitor_class(monitor, &mut reader(pid)),
            _ => vm.class(monitor as u32, &mut reader(pid)),
        }
    }

    /// Notes on the VMs for the user.
    pub fn notes(&self) -> Vec<String> {
        let ms = |ns: u64| ns as f64 / 1e6;
        let runs = |s: &Scope| s.method.name.starts_with("java.lang.VirtualThread.run");
        let mounted = |n: &Named| matches!(n, Named::Methods(all) if all.iter().any(runs));
        let of_virtual = self.names.values().any(mounted).then(|| {
            "Java's virtual threads: what they do while mounted is in their carrier threads' ledgers, where \
             which of them it was is not told; what they do at any time is only in the table of virtual \
             threads"
                .to_owned()
        });
        let left = |n: &Named| matches!(n, Named::Stub(name) if **name == *LEFT_IN_HEAP);
        let barred = self.names.values().any(left).then(|| {
            "Java's virtual threads: where one goes on after a wait, the VM leaves its outer frames in the \
             heap until they are returned to; those are missing in its carrier's stacks, where \
             `[left in the heap]` stands"
                .to_owned()
        });
        let pauses = self
            .pauses
            .iter()
            .map(|(pid, (first, last))| (pid, last.since(*first)))
            .filter(|(_, p)| p.times > 0)
            .map(|(pid, p)| {
                format!(
                    "safepoints of the Java VM in process {pid}, by its own count: {} stopped its \
                     Java threads for {:.1} ms, after {:.1} ms until all of them stood still",
                    p.times,
                    ms(p.stopped_ns),
                    ms(p.reaching_ns)
                )
            });
        pauses.chain(of_virtual).chain(barred).collect()
    }

    /// Takes the VMs that the unwinder does not know yet.
    pub fn take_news(&mut self) -> Vec<(u32, Proc)> {
        std::mem::take(&mut self.news)
    }

    /// Process `pid` is gone, or runs something else. Its names stay, for its stacks.
    pub fn forget(&mut self, pid: u32) {
        self.stops.forget(pid);
        self.vms.remove(&pid);
        self.starting.remove(&pid);
    }

    /// Whether a process has a VM.
    pub fn has_vms(&self) -> bool {
        !self.vms.is_empty()
    }

    /// The VM of process `pid`, for the unwinder.
    pub fn proc(&self, pid: u32) -> Option<Proc> {
        self.vms.get(&pid).map(|(_, vm)| vm.proc)
    }

    /// Reads the functions of a VM's frames in a stack. `pid` is the stack's process; `None`: the process that
    /// the words name. Returns whether anything had to be read from the process.
    pub fn name(&mut self, words: impl IntoIterator<Item = u64>, pid: Option<u32>) -> bool {
        let words: Vec<u64> = words.into_iter().collect();
        let (told, items) = hotspot::items(&words);
        let Some(pid) = told.and(pid).or(told) else {
            return false;
        };
        let Some((_, vm)) = self.vms.get_mut(&pid) else {
            return false;
        };
        let (mut new, mut read) = (false, reader(pid));
        let mut read = |at: u64, to: &mut [u8]| {
            new = true;
            read(at, to)
        };
        for item in items {
            if matches!(item, Item::Native(word) if !in_code(vm, word)) {
                continue;
            }
            let named = self.names.entry((pid, item));
            let tries = match &named {
                Entry::Vacant(_) => 0,
                Entry::Occupied(o) => match o.get() {
                    Named::Missed(_, tries) if *tries < TRIES => *tries,
                    _ => continue,
                },
            };
            let found = match item {
                Item::Native(word)
                    if !word.is_exact() && vm.is_left_in_heap(word.offset(), &mut read) =>
                {
                    Ok(Named::Stub(LEFT_IN_HEAP.into()))
                }
                Item::Native(word) => vm
                    .stub(word.lookup_offset(), &mut read)
                    .map(|name| Named::Stub(name.into()))
                    .ok_or(Miss::Unreadable),
                _ => vm.scopes(&item, &mut read).map(Named::Methods),
            };
            named.insert_entry(found.unwrap_or_else(|miss| Named::Missed(miss, tries + 1)));
        }
        new
    }

    /// Takes over the functions that another reader found for frames of process `pid`.
    pub fn adopt(&mut self, pid: u32, frames: impl IntoIterator<Item = (Item, FrameName)>) {
        for (item, told) in frames {
            let named = match told {
                FrameName::Methods(scopes) => Named::Methods(scopes),
                FrameName::Stub(name) => Named::Stub(name.into()),
                FrameName::Missed(miss) => Named::Missed(miss, TRIES),
            };
            match self.names.entry((pid, item)) {
                Entry::Occupied(known) if !matches!(known.get(), Named::Missed(..)) => {}
                entry => _ = entry.insert_entry(named),
            }
        }
    }

    /// Returns the function of a frame of process `pid`; `None`: it is not a VM's.
    pub fn meaning(&self, pid: u32, item: Item) -> Option<Meaning<'_>> {
        match (self.names.get(&(pid, item)), item) {
            (Some(Named::Methods(scopes)), _) => Some(Meaning::Methods(scopes)),
            (Some(Named::Stub(name)), _) => Some(Meaning::Stub(name)),
            (_, Item::Native(_) | Item::Script { .. }) => None,
            _ => Some(Meaning::Unnamed),
        }
    }

    /// Whether some VM was not ready to be read at the last poll.
    pub fn is_starting(&self) -> bool {
        !self.starting.is_empty()
    }

    /// Reasons why VMs cannot be read.
    pub fn refusals(&self) -> impl Iterator<Item = &str> {
        self.refused.keys().map(String::as_str)
    }

    /// VMs that were found, in words for the user.
    pub fn describe(&self) -> Vec<String> {
        self.versions
            .keys()
            .map(|version| format!("HotSpot {version}"))
            .collect()
    }

    /// Losses, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let missed = |which: Miss| {
            let names = self.names.values();
            names
                .filter(|n| matches!(n, Named::Missed(miss, _) if *miss == which))
                .count() as u64
        };
        let mut losses = vec![
            (
                "Java frame whose method could not be read".to_owned(),
                missed(Miss::Unreadable),
            ),
            (
                "Java frame whose code was gone before its method was read".to_owned(),
                missed(Miss::Changed),
            ),
            (
                "HotSpot VM not told to the kernel programs".to_owned(),
                self.unheard,
            ),
            (
                "HotSpot VM that never was ready to be read".to_owned(),
                self.starting.len() as u64,
            ),
        ];
        losses.extend(
            self.refused
                .iter()
                .map(|(why, n)| (format!("Java frames not read: {why}"), *n)),
        );
        losses
    }
}

fn in_code(vm: &Vm, word: FrameWord) -> bool {
    word.file() == 0 && vm.proc.owns(word.lookup_offset())
}

/// Reads memory of `pid`, whole or not at all.
fn reader(pid: u32) -> impl FnMut(u64, &mut [u8]) -> bool {
    move |address, to| read_memory(pid, address, to) == to.len()
}
