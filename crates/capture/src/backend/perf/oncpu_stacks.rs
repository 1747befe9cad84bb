//! Stacks of running threads: from the copy in a sample, and from the memory of the threads themselves.
//!
//! A sample has the registers and some of the stack as they were. Callers further down are read right after, and so
//! are Python's frames, which lie elsewhere. The thread may go on meanwhile. Its switch records tell for how long
//! it has run since. A thread that was preempted meanwhile is as good as one that stands still.

use std::cell::Cell;

use rustc_hash::FxHashMap;
use wallscope_model::StackEnd;
use wallscope_unwind::{
    native::{CopiedMemory, End, FrameWord, StackStart},
    runtime::Role,
};

use super::{
    Record, Running,
    ran_since::{FRESH, SwitchTrail},
};
use crate::{
    backend::proc::{poller::ProcPoller, samples::Polled},
    clock,
    session::cost::thread_cpu_ns,
    target::read_memory,
};

/// Bytes at the end of the copied part of a stack. If they are unchanged, the callers beyond them are too.
const SEAM: usize = 512;
// Depth of the deepest stack, bytes: memory beyond it is none.
const DEEPEST: u64 = 1 << 30;

/// CPU time after a sample, ns, up to which memory beside the copied stack is believed to be unchanged.
const ELSEWHERE: u64 = 100_000;
/// CPU time after a sample, ns, up to which a thread that switched voluntarily since is believed to be
/// in the sampled function.
const AT_ONCE: u64 = 200_000;
/// CPU time after a sample, ns, up to which a thread that did not switch voluntarily may be read instead.
const STILL: u64 = 20_000_000;

impl ProcPoller {
    /// At `now` something has to be read at once of a thread that was sampled on `cpu`.
    pub fn reads_at_once(&mut self, cpu: Option<u32>, now: u64) {
        self.records.ring_wakeups.needed(now);
        self.records.affinity.read_from(cpu, now);
    }

    /// A poll that was due at `due` begins at `now`.
    pub fn stay_near(&mut self, now: u64, due: u64) {
        match self.records.ring_wakeups.is_needed(now) {
            true => self.records.affinity.poll_begins(now, due),
            false => self.records.affinity.leave(),
        }
    }

    /// Reads Python's frames, which are not on the stack, of threads that were sampled just now. These threads go
    /// on, so this comes before all else.
    pub(super) fn read_running(&mut self, records: &mut [(u64, Record)]) {
        let mut since: FxHashMap<u32, SwitchTrail> = FxHashMap::default();
        let now = clock::now();
        for (time, record) in records.iter_mut().rev() {
            match record {
                Record::In { tid, .. } => since
                    .entry(*tid)
                    .or_insert(SwitchTrail::until(now))
                    .got(*time),
                Record::Out { tid, preempted, .. } => {
                    let trail = since.entry(*tid).or_insert(SwitchTrail::until(now));
                    match preempted {
                        true => trail.put_off(*time),
                        false => trail.left(*time),
                    }
                }
                // The Python frames of that moment cannot be known any more.
                Record::Leaving { thread, .. }
                    if self.processes.managed().is_interpreted(thread.pid) => {}
                Record::Sample(r) | Record::Leaving { thread: r, .. } => {
                    let since = since
                        .get(&r.tid)
                        .copied()
                        .unwrap_or(SwitchTrail::until(now));
                    let moved = since.moved(*time, now);
                    r.moved = Some(moved);
                    let managed = self.processes.managed();
                    let Some(subject) = managed.subject(&mut self.reader.managed, r.pid, r.tid)
                    else {
                        continue;
                    };
                    self.reads_at_once(r.cpu, now);
                    let cpu = thread_cpu_ns();
                    let ran_ns = moved.by(clock::now());
                    if ran_ns <= if since.by_its_will { AT_ONCE } else { STILL } {
                        r.managed = self.reader.managed.read_running(subject);
                        r.late = ran_ns > FRESH;
                    }
                    match r.managed {
                        Some(_) => {
                            self.tally.read += 1;
                            self.tally.read_after_ns += ran_ns;
                        }
                        None => self.tally.unread += 1,
                    }
                    self.records.cost_ns += thread_cpu_ns() - cpu;
                }
                _ => {}
            }
        }
    }

    /// The index of the stack of a thread that was seen running at `time`.
    pub fn running(&mut self, r: &Running, time: u64, now: u64) -> u32 {
        if r.is_ending() || self.is_before_exec(r.pid) {
            return self.intake.stack(Polled::none(r.pid, StackEnd::Gone));
        }
        let (frames, end) = self.stack_of(r, time, now);
        let scope = self.processes.scope_of(r.pid, time, &frames);
        let managed = r.managed.as_ref();
        let managed = managed.filter(|m| self.processes.managed().interprets(m.pid, &frames));
        let Some(m) = managed else {
            return (self.intake).stack(Polled::of(scope, &frames, Box::default(), end));
        };
        let roles = self.processes.managed().roles(m.pid, &frames);
        let inner = roles.iter().position(|role| *role == Role::Interpreter);
        // Python's frames were read late: the native callees of the interpreter may belong to other frames.
        let from = inner.filter(|_| r.late).unwrap_or(0);
        self.processes.managed_mut().name(m);
        let (words, end) = (m.words.clone(), m.end_with(end));
        (self.intake).stack(Polled::of(scope, &frames[from..], words, end))
    }

    /// The stack of a thread of which registers and some stack were copied at `time` while it ran.
    pub fn stack_of(&mut self, r: &Running, time: u64, now: u64) -> (Vec<FrameWord>, StackEnd) {
        self.intake.keep_memory(|| r.memory(time));
        let stack = self.unwind_running(r, time);
        let new = matches!(stack.1, StackEnd::NoMapping | StackEnd::TableNotLoaded);
        if new && self.remap(r.pid, now) {
            return self.unwind_running(r, time);
        }
        stack
    }

    fn unwind_running(&mut self, r: &Running, time: u64) -> (Vec<FrameWord>, StackEnd) {
        let mut beyond = false;
        let at_once = Cell::new(false);
        let mut deeper = DeeperCallers {
            until: time + FRESH,
            same: None,
        };
        let tables = self.processes.files().tables();
        let memory = CopiedMemory {
            stack: |address: u64, to: &mut [u8]| {
                let n = match address < r.end() {
                    true if r.is_below(address) => {
                        at_once.set(true);
                        elsewhere(r, address, to)
                    }
                    true if r.is_not_copied(address) => {
                        at_once.set(true);
                        match deeper.read(r, address, to) {
                            0 => r.read(address, to),
                            n => n,
                        }
                    }
                    true => r.read(address, to),
                    false => {
                        at_once.set(true);
                        deeper.read(r, address, to)
                    }
                };
                beyond |= n == 0 && (r.end()..r.end().saturating_add(DEEPEST)).contains(&address);
                n
            },
            // As it is now.
            beside: |address, to: &mut [u8]| {
                at_once.set(true);
                read_memory(r.pid, address, to)
            },
            code: |address, to: &mut [u8]| read_memory(r.pid, address, to),
        };
        let start = StackStart::new(r.pid, &r.registers);
        let stack = self.reader.unwinder.unwind_copy(tables, start, memory);
        if at_once.get() {
            self.reads_at_once(r.cpu, clock::now());
        }
        let words: Vec<u64> = stack.frames.iter().map(|w| w.0).collect();
        self.processes.managed_mut().name_walked(&words, r.pid);
        let end = if beyond && stack.end == End::Unreadable {
            StackEnd::WindowEnd
        } else {
            stack.end.into()
        };
        (stack.frames, end)
    }
}

/// The part of a stack beyond the copy, read from the thread itself: the callers of the copied frames. It counts
/// only if the end of the copy is unchanged and the sample was taken just now: frames that the thread has left stay
/// on the stack for a while.
struct DeeperCallers {
    /// Time after which the memory says nothing, ns.
    until: u64,
    same: Option<bool>,
}

impl DeeperCallers {
    fn read(&mut self, r: &Running, address: u64, to: &mut [u8]) -> usize {
        let same = *self.same.get_or_insert_with(|| {
            let tail = &r.stack[r.stack.len().saturating_sub(SEAM)..];
            let mut now = [0u8; SEAM];
            let now = &mut now[..tail.len()];
            let at = r.end() - tail.len() as u64;
            !tail.is_empty() && read_memory(r.tid, at, now) == now.len() && now == tail
        });
        match same && clock::now() <= self.until {
            true => read_memory(r.tid, address, to),
            false => 0,
        }
    }
}

/// Memory outside of the copied stack, read from the thread itself: the stack of a goroutine, say, that runs on the
/// stack of its thread for a moment. It is read only if the thread has hardly run since.
fn elsewhere(r: &Running, address: u64, to: &mut [u8]) -> usize {
    let moved = r.moved.as_ref();
    match moved.is_some_and(|m| m.by(clock::now()) <= ELSEWHERE) {
        true => read_memory(r.tid, address, to),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_read_where_what_was_copied_is_unchanged_and_new() {
        let mut own = vec![7u8; 4096];
        let sp = own.as_ptr() as u64;
        let mut r = Running {
            pid: std::process::id(),
            tid: std::process::id(),
            period_ns: 0,
            cpu: None,
            user_mode: true,
            registers: wallscope_unwind::native::Registers::default(),
            stack: own[..1024].to_vec(),
            below: Vec::new(),
            managed: None,
            late: false,
            moved: None,
            first: None,
        };
        r.registers.general[7] = sp;
        own[2048] = 9;
        let deeper = |until| DeeperCallers { until, same: None };
        let mut to = [0u8; 8];
        let read = deeper(u64::MAX).read(&r, sp + 2048, &mut to);
        assert_eq!((read, to[0]), (8, 9));
        assert_eq!(deeper(0).read(&r, sp + 2048, &mut to), 0, "long ago");
        own[1000] = 8;
        std::hint::black_box(&own);
        assert_eq!(deeper(u64::MAX).read(&r, sp + 2048, &mut to), 0, "changed");
    }
}
