//! What the time on a CPU went into, beyond the program's own code, by functions on the stack that
//! are known: page faults, reclaim of memory, starting and ending threads and processes, garbage
//! collection, spinning.

use wallscope_model::scale::Scaled;
use wallscope_model::{BlockReason, FrameKind, Recording, Sample, StackId, State};

use super::places::functions;
use super::threads::Threads;
use super::waits::Waits;

/// A kind of work that is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel handles page faults.
    Fault,
    /// The kernel looks for memory to free.
    Reclaim,
    /// Threads or processes are started or ended.
    Start,
    /// A runtime collects garbage.
    Collect,
    /// Code that only waits, on a CPU.
    Spin,
}

/// Kinds with the functions that they are known by: of the kernel, and of programs. The first that
/// fits a stack counts. A name ending in `*` is a prefix.
const KINDS: [(Kind, &[&str], &[&str]); 4] = [
    (
        Kind::Reclaim,
        &[
            "try_to_free_mem_cgroup_pages",
            "try_to_free_pages",
            "shrink_node*",
            "shrink_lruvec*",
            "mem_cgroup_out_of_memory",
            "compact_zone*",
        ],
        &[],
    ),
    (
        Kind::Start,
        &[
            "kernel_clone",
            "do_exit",
            "do_group_exit",
            "bprm_execve",
            "do_execveat_common*",
            "ret_from_fork",
            "schedule_tail",
        ],
        &[
            "_dl_start",
            "_dl_relocate_object",
            "dl_main",
            "_dl_map_object*",
        ],
    ),
    (
        Kind::Collect,
        &[],
        &[
            // CPython
            "gc_collect_main*",
            "gc_collect_generations*",
            "gc_collect_with_callback*",
            "deduce_unreachable*",
            // Go
            "runtime.gcBgMarkWorker*",
            "runtime.gcDrain*",
            "runtime.gcAssistAlloc*",
            "runtime.bgsweep*",
            // V8
            "v8::internal::Heap::CollectGarbage*",
            "v8::internal::Heap::PerformGarbageCollection*",
            "v8::internal::MarkCompactCollector::*",
            "v8::internal::ScavengerCollector::*",
            // HotSpot
            "G1CollectedHeap::do_collection*",
            "G1CollectedHeap::do_full_collection*",
            "G1ParScanThreadState::*",
            "G1EvacuateRegions*",
            "G1FullGC*",
            "G1FullCollector::*",
            "PSScavenge*",
            "DefNewGeneration::*",
            "GenMarkSweep::*",
            "G1ParTask::*",
            "G1ConcurrentMark*",
            "ParallelScavengeHeap::*",
            "PSParallelCompact::*",
            "GenCollectedHeap::do_collection*",
            "VM_GenCollectForAllocation::*",
            // Ruby, Lua, Guile and others
            "gc_start*",
            "rb_gc*",
            "luaC_fullgc*",
            "luaC_step*",
            "GC_collect*",
            "caml_major_collection_slice*",
        ],
    ),
    (
        Kind::Fault,
        &[
            "asm_exc_page_fault",
            "exc_page_fault",
            "do_user_addr_fault",
            "handle_mm_fault",
            "do_mem_abort",
        ],
        &[],
    ),
];

/// Time by kind of work, ns.
#[derive(Clone, Debug, Default)]
pub struct Work {
    sums: [u64; 5],
    names: [Option<String>; 5],
    of_stack: Vec<Option<Kind>>,
}

impl Work {
    pub(super) fn new(
        recording: &Recording,
        scaled: &Scaled,
        waits: &Waits,
        threads: &Threads,
    ) -> Work {
        let shown: Vec<Option<(Kind, &str)>> = (0..recording.stacks.len() as u32)
            .map(|i| kind_of(recording, i))
            .collect();
        let mut work = Work {
            of_stack: shown.iter().map(|f| f.map(|(kind, _)| kind)).collect(),
            ..Work::default()
        };
        let mut names: Vec<(Kind, &str, u64)> = Vec::new();
        for piece in &scaled.pieces {
            let s = &recording.samples[piece.sample as usize];
            if waits.starved[piece.sample as usize] || s.idle || !threads.counts(piece.context) {
                continue;
            }
            let Some(kind) = work.kind(s) else { continue };
            let name = shown[s.stack.0 as usize].map_or("", |(_, name)| name);
            work.sums[kind as usize] += piece.ns;
            match names.iter_mut().find(|(k, n, _)| *k == kind && *n == name) {
                Some((_, _, ns)) => *ns += piece.ns,
                None => names.push((kind, name, piece.ns)),
            }
        }
        names.sort_by_key(|(_, _, ns)| *ns);
        for (kind, name, _) in names {
            work.names[kind as usize] = Some(name.to_string());
        }
        work
    }

    /// Time of that kind, ns.
    pub fn ns(&self, kind: Kind) -> u64 {
        self.sums[kind as usize]
    }

    /// What a sample's time went into.
    pub(super) fn kind(&self, sample: &Sample) -> Option<Kind> {
        let shown = *self.of_stack.get(sample.stack.0 as usize)?;
        match (sample.state, sample.reason) {
            (State::OnCpu, _) => shown,
            (State::Blocked, Some(BlockReason::Memory)) => Some(Kind::Reclaim),
            (State::Blocked, _) => shown.filter(|kind| *kind == Kind::Reclaim),
            _ => None,
        }
    }

    /// The function that most of it was known by.
    pub fn name(&self, kind: Kind) -> &str {
        self.names[kind as usize].as_deref().unwrap_or_default()
    }
}

/// What a stack shows, and the function that shows it.
fn kind_of(recording: &Recording, stack: u32) -> Option<(Kind, &str)> {
    let id = StackId(stack);
    if let Some(name) = crate::spin::spinner(recording, &recording.stacks[stack as usize].frames) {
        return Some((Kind::Spin, name));
    }
    let is = |name: &str, known: &str| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == known,
    };
    KINDS.iter().find_map(|(kind, kernel, user)| {
        let mut all = functions(recording, id);
        let found = all.find(|(frame, name)| {
            let known = if *frame == FrameKind::Kernel {
                kernel
            } else {
                user
            };
            known.iter().any(|k| is(name, k))
        });
        found.map(|(_, name)| (*kind, &**name))
    })
}
