//! Status and stack of each virtual thread at one moment.

use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

use super::chunk::{BELOW, ChunkStack};
use super::classes::Class;
use super::facts::{ProcessFacts, ThreadFacts};
use super::heap::{half, word};
use super::list::{HeapReader, with_words};
use super::offsets::{
    CHUNK, CarrierOffsets, ChunkOffsets, SUSPENDED, State, THREAD, ThreadOffsets,
};
use super::reasons;
use crate::runtime::tasks::Memory;

/// Maximum chunks of one thread.
const MAX_CHUNKS: usize = 64;
/// Status of a thread.
pub(super) enum ThreadStatus {
    Ready,
    Running,
    /// The way it waits, and the class of the parked-for object.
    Waiting(String),
}

/// A virtual thread in a snapshot.
pub(super) struct ThreadSnapshot {
    pub(super) tid: u64,
    pub(super) status: ThreadStatus,
    /// Its stack, innermost part first.
    pub(super) parts: Vec<StackPart>,
}

/// A part of a stack: addresses of the first word and one past the last, and the index of its
/// bytes, which start [`BELOW`] bytes lower.
pub(super) struct StackPart {
    first: u64,
    end: u64,
    from: usize,
}

impl StackPart {
    /// The address and number of its bytes.
    fn span(&self) -> (u64, usize) {
        let bytes = (self.end - self.first + BELOW) as usize;
        (self.first - BELOW, bytes)
    }
}

/// All virtual threads at one moment.
#[derive(Default)]
pub(super) struct ThreadSnapshots {
    pub(super) threads: Vec<ThreadSnapshot>,
    /// Threads seen for the first time, with the names of their start classes.
    pub(super) new: Vec<(u64, ThreadFacts, String)>,
    pub(super) untracked: u64,
    /// Number of threads that ran while their stacks were read.
    pub(super) changed: u64,
    stacks: Vec<u8>,
}

impl ThreadSnapshots {
    pub(super) fn part(&self, piece: &StackPart) -> ChunkStack<'_> {
        let bytes = piece.span().1;
        ChunkStack {
            first: piece.first,
            end: piece.end,
            bytes: &self.stacks[piece.from..piece.from + bytes],
        }
    }
}

/// A virtual thread that is being read.
struct VirtualThread {
    at: u64,
    tid: u64,
    number: u32,
    state: State,
    continuation: u64,
    carrier: u64,
    blocker: u64,
    name: u64,
    target: u64,
    /// Chunks of its stack, innermost first, with their headers.
    chunks: Vec<(u64, Vec<u8>)>,
    parts: Vec<StackPart>,
    /// Whether `parts` contains the whole stack.
    whole: bool,
}

/// Reads all threads. `None`: there are none (yet). The result is valid only if no object moved
/// meanwhile.
pub(super) fn take(
    known: &mut ProcessFacts,
    own: &FxHashMap<u64, ThreadFacts>,
    memory: &mut dyn Memory,
) -> Option<ThreadSnapshots> {
    let mut lists = HeapReader {
        vm: &known.vm,
        heap: &known.heap,
        classes: &mut known.classes,
        memory,
    };
    let found = lists.all(&mut known.containers)?;
    let mut sight = ThreadSnapshots {
        untracked: found.untracked,
        ..ThreadSnapshots::default()
    };
    if known.places.is_none() {
        let mut all = found.threads.iter();
        known.places = all.find_map(|at| lists.learn_offsets(*at));
    }
    let Some(places) = &known.places else {
        return (found.untracked > 0).then_some(sight);
    };
    let mut threads = lists.heads(places, &found.threads);
    let tails = lists.continuations(places, &mut threads);
    if known.chunk.is_none() {
        known.chunk = tails.iter().find_map(|(_, at)| lists.learn_chunk(*at));
    }
    if let Some(chunk) = &known.chunk {
        lists.chunks(chunk, &mut threads, tails);
        lists.stacks(&mut threads, &mut sight.stacks);
        sight.changed = lists.confirm(places, &mut threads, &sight.stacks);
    }
    let blockers = lists.blockers(&threads);
    for thread in threads {
        if !own.contains_key(&thread.tid) {
            let (start, name) = lists.start(thread.target).unwrap_or_default();
            let label = (thread.name != 0).then(|| lists.label(thread.name));
            let new = ThreadFacts {
                start,
                label: label.flatten().map(Arc::from),
            };
            sight.new.push((thread.tid, new, name));
        }
        sight.threads.push(ThreadSnapshot {
            tid: thread.tid,
            status: lists.status(known.record, &thread, blockers.get(&thread.blocker)),
            parts: match thread.whole {
                true => thread.parts,
                false => Vec::new(),
            },
        });
    }
    Some(sight)
}

impl HeapReader<'_> {
    /// Reads the given number of bytes at each address; also returns whether each could be read.
    fn objects(&mut self, all: &[(u64, usize)]) -> (Vec<u8>, Vec<bool>) {
        let mut bytes = vec![0u8; all.iter().map(|w| w.1).sum()];
        let readable = self.memory.read_all(all, &mut bytes);
        (bytes, readable)
    }

    /// Reads the threads at `all` that have started and not ended.
    fn heads(&mut self, places: &ThreadOffsets, all: &[u64]) -> Vec<VirtualThread> {
        let wanted: Vec<_> = all.iter().map(|at| (*at, places.bytes)).collect();
        let (bytes, readable) = self.objects(&wanted);
        let mut threads = Vec::with_capacity(all.len());
        let heads = bytes.chunks_exact(places.bytes.max(1));
        for ((head, at), _) in heads.zip(all).zip(readable).filter(|(_, ok)| *ok) {
            let class = self.heap.class(head);
            // Other classes are bound to an OS thread, which has a ledger.
            if !class
                .and_then(|c| self.class(c))
                .is_some_and(|c| c.is(THREAD))
            {
                continue;
            }
            let pointer = |at: usize| {
                let to = self.heap.pointer_in(head, at).unwrap_or(0);
                if self.heap.is_object(to) { to } else { 0 }
            };
            let number = half(head, places.state).unwrap_or(0);
            let Some(state) = places.states.get(&(number & !SUSPENDED)) else {
                continue;
            };
            threads.push(VirtualThread {
                at: *at,
                tid: word(head, places.tid).unwrap_or(0),
                number,
                state: *state,
                continuation: pointer(places.continuation),
                carrier: pointer(places.carrier),
                blocker: pointer(places.blocker),
                name: pointer(places.name),
                target: 0,
                chunks: Vec::new(),
                parts: Vec::new(),
                whole: true,
            });
        }
        threads
    }

    /// Reads the continuations' targets. For unmounted threads, returns the first chunk of the
    /// stack, with the thread's index.
    fn continuations(
        &mut self,
        places: &ThreadOffsets,
        threads: &mut [VirtualThread],
    ) -> Vec<(usize, u64)> {
        let bytes = places.continuation_bytes;
        let wanted: Vec<_> = threads.iter().map(|t| (t.continuation, bytes)).collect();
        let (all, readable) = self.objects(&wanted);
        let mut tails = Vec::new();
        let objects = all.chunks_exact(bytes.max(1)).zip(readable);
        for ((i, thread), (object, ok)) in threads.iter_mut().enumerate().zip(objects) {
            let pointer = |at: usize| {
                let to = self.heap.pointer_in(object, at).filter(|_| ok);
                to.filter(|to| self.heap.is_object(*to))
            };
            thread.target = pointer(places.target).unwrap_or(0);
            let mounted = matches!(thread.state, State::Mounted | State::Pinned);
            if let Some(tail) = pointer(places.tail)
                && !mounted
            {
                tails.push((i, tail));
            }
        }
        tails
    }

    /// Finds all chunks of the stacks.
    fn chunks(
        &mut self,
        places: &ChunkOffsets,
        threads: &mut [VirtualThread],
        mut level: Vec<(usize, u64)>,
    ) {
        for _ in 0..MAX_CHUNKS {
            if level.is_empty() {
                return;
            }
            let wanted: Vec<_> = level.iter().map(|(_, at)| (*at, places.head)).collect();
            let (bytes, readable) = self.objects(&wanted);
            let heads = bytes.chunks_exact(places.head.max(1)).zip(readable);
            let mut next = Vec::new();
            for ((i, at), (head, ok)) in level.into_iter().zip(heads) {
                let class = self.heap.class(head).filter(|_| ok);
                let is_chunk = class
                    .and_then(|c| self.class(c))
                    .is_some_and(|c| c.is(CHUNK));
                let thread = &mut threads[i];
                match places.span(at, head).filter(|_| is_chunk) {
                    None => thread.whole = false,
                    Some((first, end)) => {
                        thread.chunks.push((at, head.to_vec()));
                        // An empty chunk is reserve space.
                        if first < end {
                            thread.parts.push(StackPart {
                                first,
                                end,
                                from: 0,
                            });
                        }
                        let parent = self.heap.pointer_in(head, places.parent).unwrap_or(0);
                        if self.heap.is_object(parent) {
                            next.push((i, parent));
                        }
                    }
                }
            }
            level = next;
        }
        for (i, _) in level {
            threads[i].whole = false;
        }
    }

    /// Reads all parts of the stacks.
    fn stacks(&mut self, threads: &mut [VirtualThread], to: &mut Vec<u8>) {
        let parts = threads.iter().filter(|t| t.whole).flat_map(|t| &t.parts);
        let wanted: Vec<_> = parts.map(StackPart::span).collect();
        let (bytes, readable) = self.objects(&wanted);
        let mut from = 0;
        let mut readable = readable.into_iter();
        for thread in threads.iter_mut().filter(|t| t.whole) {
            for part in &mut thread.parts {
                part.from = from;
                from += part.span().1;
                thread.whole &= readable.next().unwrap_or(false);
            }
        }
        *to = bytes;
    }

    /// Drops the stacks of threads that ran meanwhile; returns their number. The comparison detects
    /// a thread that ran and waits again, unless its stack is equal.
    fn confirm(
        &mut self,
        places: &ThreadOffsets,
        threads: &mut [VirtualThread],
        stacks: &[u8],
    ) -> u64 {
        let waiting = |t: &VirtualThread| t.whole && !t.chunks.is_empty();
        let mut wanted = Vec::new();
        for thread in threads.iter().filter(|t| waiting(t)) {
            wanted.push((thread.at + places.state as u64, 4));
            wanted.extend(thread.chunks.iter().map(|(at, head)| (*at, head.len())));
            wanted.extend(thread.parts.iter().map(StackPart::span));
        }
        let (bytes, readable) = self.objects(&wanted);
        let (mut changed, mut from) = (0, 0);
        let mut readable = readable.into_iter();
        let mut next = |length: usize| {
            let now = &bytes[from..from + length];
            from += length;
            readable.next().unwrap_or(false).then_some(now)
        };
        for thread in threads.iter_mut().filter(|t| waiting(t)) {
            let mut same = next(4) == Some(&thread.number.to_le_bytes()[..]);
            for (_, head) in &thread.chunks {
                // Its header without the collector's mark bits.
                same &= next(head.len()).is_some_and(|now| now.get(8..) == head.get(8..));
            }
            for part in &thread.parts {
                let length = part.span().1;
                let before = stacks.get(part.from..part.from + length);
                same &= next(length) == before && before.is_some();
            }
            changed += u64::from(!same);
            thread.whole = same;
        }
        changed
    }

    /// Reads the classes of parked-for objects.
    fn blockers(&mut self, threads: &[VirtualThread]) -> FxHashMap<u64, Arc<Class>> {
        let all: FxHashSet<u64> = { threads.iter() }
            .map(|t| t.blocker)
            .filter(|b| *b != 0)
            .collect();
        let wanted: Vec<_> = all.iter().map(|at| (*at, 16)).collect();
        let (bytes, readable) = self.objects(&wanted);
        let mut classes = FxHashMap::default();
        for ((head, ok), at) in bytes.chunks_exact(16).zip(readable).zip(all) {
            let class = self.heap.class(head).filter(|_| ok);
            if let Some(class) = class.and_then(|c| self.class(c)) {
                classes.insert(at, class);
            }
        }
        classes
    }

    fn status(
        &mut self,
        record: Option<CarrierOffsets>,
        thread: &VirtualThread,
        blocker: Option<&Arc<Class>>,
    ) -> ThreadStatus {
        let parked = |how: &str| match blocker {
            Some(class) => ThreadStatus::Waiting(format!("{how}: {}", class.name())),
            None => ThreadStatus::Waiting(how.to_owned()),
        };
        match thread.state {
            State::Ready => ThreadStatus::Ready,
            State::Parked => parked(reasons::PARKED),
            State::Pinned => parked(reasons::PINNED),
            State::Monitor => ThreadStatus::Waiting(reasons::MONITOR.to_owned()),
            State::Wait => ThreadStatus::Waiting(reasons::WAIT.to_owned()),
            State::Mounted => {
                let carrier = self.carrier(record, thread.carrier);
                let sleeps = |(tid, _)| self.memory.sleeps(tid);
                match (carrier, carrier.and_then(sleeps)) {
                    (Some((_, waits)), Some(true)) => ThreadStatus::Waiting(waits.to_owned()),
                    _ => ThreadStatus::Running,
                }
            }
        }
    }

    /// The OS thread id, as seen in the process, of the carrier with its object at `carrier`, and
    /// its kind of wait if it is blocked.
    fn carrier(
        &mut self,
        record: Option<CarrierOffsets>,
        carrier: u64,
    ) -> Option<(u32, &'static str)> {
        let places = record?;
        let at = self.class_of(carrier)?.field("eetop")? as u64;
        with_words(self.memory, |m| {
            let record = m.word(carrier + at)?;
            let mut is_set = |place: Option<u64>| {
                let word = place.and_then(|at| m.word(record.checked_add(at)?));
                word.is_some_and(|monitor| monitor != 0)
            };
            let waits = match (is_set(places.pending), is_set(places.waiting)) {
                (true, _) => reasons::MONITOR,
                (_, true) => reasons::WAIT,
                _ => reasons::CARRIER,
            };
            let system = m.word(record.checked_add(places.system)?)?;
            Some((m.half(system.checked_add(places.id)?)?, waits))
        })
    }
}
