//! Field offsets of virtual threads, their stacks and their carriers, learnt from the classes.

use rustc_hash::FxHashMap;

use super::heap::half;
use super::list::{HeapReader, with_words};
use crate::runtime::hotspot::structs::Tables;

/// Maximum bytes of an object of fixed size, and of a part of a stack.
pub(super) const MAX_OBJECT_BYTES: usize = 1024;

pub(super) const MAX_STACK_BYTES: u64 = 1 << 17;

pub(super) const CHUNK: &str = "jdk.internal.vm.StackChunk";

/// Class names.
pub(super) const THREAD: &str = "java.lang.VirtualThread";

/// Meaning of a state number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Mounted,
    Pinned,
    Parked,
    Monitor,
    Wait,
}

/// States by their names in the class, for all versions.
const STATES: &[(&str, State)] = &[
    ("STARTED", State::Ready),
    ("RUNNABLE", State::Ready),
    ("UNPARKED", State::Ready),
    ("YIELDED", State::Ready),
    ("UNBLOCKED", State::Ready),
    ("RUNNING", State::Mounted),
    ("PARKING", State::Mounted),
    ("TIMED_PARKING", State::Mounted),
    ("YIELDING", State::Mounted),
    ("BLOCKING", State::Mounted),
    ("WAITING", State::Mounted),
    ("TIMED_WAITING", State::Mounted),
    ("PINNED", State::Pinned),
    ("TIMED_PINNED", State::Pinned),
    ("PARKED", State::Parked),
    ("TIMED_PARKED", State::Parked),
    ("BLOCKED", State::Monitor),
    ("WAIT", State::Wait),
    ("TIMED_WAIT", State::Wait),
];

/// Set in a state while a debugger suspends the thread.
pub(super) const SUSPENDED: u32 = 1 << 8;

/// Offsets in virtual threads and their continuations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadOffsets {
    pub(super) bytes: usize,
    /// Offsets in a virtual thread.
    pub(super) state: usize,
    pub(super) carrier: usize,
    pub(super) continuation: usize,
    pub(super) blocker: usize,
    pub(super) tid: usize,
    pub(super) name: usize,
    /// Offsets in a continuation.
    pub(super) tail: usize,
    pub(super) target: usize,
    pub(super) continuation_bytes: usize,
    pub(super) states: FxHashMap<u32, State>,
}

/// Offsets in a stack chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkOffsets {
    /// Bytes before its stack.
    pub(super) head: usize,
    pub(super) parent: usize,
    pub(super) size: usize,
    pub(super) sp: usize,
    /// End of the stack: its index (`true`), or, up to JDK 21, the words between it and the chunk's
    /// end.
    pub(super) bottom: (bool, usize),
}

impl ChunkOffsets {
    /// Addresses of the first word of the stack in the chunk at `at`, and one past the last.
    pub(super) fn span(&self, at: u64, head: &[u8]) -> Option<(u64, u64)> {
        let size = u64::from(half(head, self.size)?);
        let sp = u64::from(half(head, self.sp)?);
        let (is_index, bottom) = self.bottom;
        let bottom = u64::from(half(head, bottom)?);
        let bottom = if is_index {
            bottom
        } else {
            size.checked_sub(bottom)?
        };
        let start = at + self.head as u64;
        let sane = size <= MAX_STACK_BYTES / 8 && sp <= bottom && bottom <= size;
        sane.then(|| (start + 8 * sp, start + 8 * bottom))
    }
}

/// Offsets in the VM's record of a thread, for carriers.
#[derive(Clone, Copy, Debug)]
pub(super) struct CarrierOffsets {
    /// The OS thread, and the id in it.
    pub(super) system: u64,
    pub(super) id: u64,
    /// The monitor that it is about to enter, and the monitor that it waits to be notified by.
    /// Before JDK 24 a virtual thread blocks its carrier on these.
    pub(super) pending: Option<u64>,
    pub(super) waiting: Option<u64>,
}

impl CarrierOffsets {
    pub(super) fn of(tables: &Tables) -> Option<CarrierOffsets> {
        let field = |name: &str| {
            let of = ["JavaThread", "Thread"].into_iter();
            { of }.find_map(|of| tables.get(of, name))
        };
        Some(CarrierOffsets {
            system: field("_osthread")?,
            id: tables.get("OSThread", "_thread_id")?,
            pending: field("_current_pending_monitor"),
            waiting: field("_current_waiting_monitor"),
        })
    }
}

impl HeapReader<'_> {
    /// Learns the offsets from one thread.
    pub(super) fn learn_offsets(&mut self, thread: u64) -> Option<ThreadOffsets> {
        let class = self.class_of(thread).filter(|c| c.is(THREAD))?;
        let at = class.field("cont")? as u64;
        let heap = self.heap;
        let continuation = with_words(self.memory, |m| heap.pointer_at(thread + at, m))?;
        let of = self.class_of(continuation)?;
        // Some state names exist in some versions only.
        let states = STATES.iter().filter_map(|(name, state)| {
            let number = self.static_number(&class, name)?;
            Some((number, *state))
        });
        Some(ThreadOffsets {
            bytes: Some(class.size).filter(|n| *n <= MAX_OBJECT_BYTES)?,
            state: class.field("state")?,
            carrier: class.field("carrierThread")?,
            continuation: class.field("cont")?,
            blocker: class.field("parkBlocker")?,
            tid: class.field("tid")?,
            name: class.field("name")?,
            tail: of.field("tail")?,
            target: of.field("target")?,
            continuation_bytes: Some(of.size).filter(|n| *n <= MAX_OBJECT_BYTES)?,
            states: states.collect(),
        })
    }

    /// Learns the offsets from one chunk.
    pub(super) fn learn_chunk(&mut self, chunk: u64) -> Option<ChunkOffsets> {
        let class = self.class_of(chunk).filter(|c| c.is(CHUNK))?;
        Some(ChunkOffsets {
            head: Some(class.size).filter(|n| *n <= MAX_OBJECT_BYTES)?,
            parent: class.field("parent")?,
            size: class.field("size")?,
            sp: class.field("sp")?,
            bottom: match class.field("bottom") {
                Some(at) => (true, at),
                None => (false, class.field("argsize")?),
            },
        })
    }
}
