//! Stacks of running threads by short stops, where these are permitted.
//!
//! A stop shows where a thread is a moment after the poll, once it has a CPU. The scheduler's counters tell
//! what it did at the poll: whether it has got a CPU since, and how long it had waited for it. Run-queue
//! latency that began with the poll itself is our own doing: polls take CPUs from other threads, and the
//! timers of polls wake sleepers a little early.
//!
//! A thread that ran at the poll only because it had just been woken is blocked again before we can stop it.
//! We leave it alone. Its poll still counts: without such polls, short waits would come out too small. Its
//! wait before the wake-up is still on its stack at the poll ([`ProcPoller::stack_of_queued`]), and the
//! counters confirm that it was woken only about when the poll was due.
//!
//! Without permission no thread is stopped. A thread that a timer woke and that waits for our CPU behind us
//! is not stopped either. The counters at its next poll tell whether it had to wait for any thread but us.

use std::collections::hash_map::Entry;

use wallscope_model::{BlockReason, Part, State, WaitSeen};
use wallscope_procfs::process::SchedStat;

use super::{
    pending_stop::{BECAUSE_OF_US, PendingStopSample, StopPlace},
    poller::ProcPoller,
    samples::{Look, Weight},
    stop::{Asked, Asleep, Found, Halted, Stopper},
    time_kind::{ANY, TimeKind},
};
use crate::{
    backend::perf::{Place, Running},
    syscalls,
};

impl ProcPoller {
    /// Has a running thread stopped for a moment to see its stack, if that was permitted.
    pub fn halt(&mut self, mut owed: PendingStopSample) {
        let t = &mut self.watch.threads[owed.index];
        let may_stand = owed.waits && !t.places.is_empty();
        owed.behind = may_stand && t.shares_our_cpu();
        if owed.behind || (may_stand && self.stopper.is_some()) {
            owed.stood = self.stack_of_queued(owed.index).1;
        }
        let t = &self.watch.threads[owed.index];
        let place = owed.stood.and_then(|stack| t.places.with(stack));
        let reason = place.and_then(|p| p.reason);
        // Only the interrupt of a timer comes together with ours. For a thread that often waits for a CPU the
        // counters at its next poll tell nothing.
        let told = match self.stopper {
            Some(_) => reason == Some(BlockReason::Timer) && owed.queued <= BECAUSE_OF_US,
            None => reason.is_some(),
        };
        if owed.behind && told {
            self.woken.insert(t.tid, owed);
            return;
        }
        let Some(stopper) = &mut self.stopper else {
            return;
        };
        let t = &mut self.watch.threads[owed.index];
        if t.places.has(BlockReason::PageFault) {
            owed.left = t.last_ran();
        }
        let managed = self.processes.managed();
        match self.owed.entry(t.tid) {
            Entry::Occupied(mut known) => known.get_mut().end = owed.end,
            Entry::Vacant(free) => {
                let python = managed.subject(&mut self.managed, t.pid, t.tid);
                let asked = Asked {
                    pid: t.pid,
                    tid: t.tid,
                    files: t.files().clone(),
                    python,
                    faults: owed.left.is_some(),
                };
                if stopper.ask(asked) {
                    free.insert(owed);
                }
            }
        }
    }

    /// The pending polls of threads that have halted since or are blocked again, with what was found.
    pub fn have_halted(&mut self) -> Vec<(PendingStopSample, Found)> {
        let all = self.stopper.as_mut().map_or_else(Vec::new, Stopper::take);
        let came = |(tid, found)| Some((self.owed.remove(&tid), found?));
        let came = all.into_iter().filter_map(came);
        came.filter_map(|(owed, found)| Some((owed?, found)))
            .collect()
    }

    /// Takes their stacks.
    pub fn take_stacks(&mut self, found: Vec<(PendingStopSample, Found)>) {
        for (owed, found) in found {
            match found {
                Found::Halted(halted) => self.halted(&owed, *halted),
                Found::Asleep(asleep) => self.slept_before(&owed, &asleep),
            }
        }
    }

    /// Decides from the `books` of the next poll what a thread did at its last poll, if it was woken then and
    /// waited behind us, and has run since.
    pub fn was_woken(&mut self, index: usize, books: SchedStat) {
        let t = &self.watch.threads[index];
        let Some(owed) = self.woken.remove(&t.tid) else {
            return;
        };
        let then = &owed.books;
        let waited = books.run_delay_ns.saturating_sub(then.run_delay_ns);
        let place = owed.stood.and_then(|stack| t.places.with(stack));
        let Some(place) = place.filter(|_| books.timeslices != then.timeslices) else {
            return;
        };
        if waited <= BECAUSE_OF_US {
            self.stood_for(&owed, place.stack, (State::Blocked, place.reason, None));
        }
    }

    /// A thread that is blocked again had just been woken at its poll: the poll counts for the wait before.
    fn slept_before(&mut self, owed: &PendingStopSample, asleep: &Asleep) {
        let t = &self.watch.threads[owed.index];
        let Some(place) = owed.stood.and_then(|stack| t.places.with(stack)) else {
            return;
        };
        let Some(state) = owed.did_until(asleep) else {
            return;
        };
        let reason = place.reason.filter(|_| state == State::Blocked);
        if state == State::Blocked && reason.is_none() {
            return;
        }
        let part = (state == State::Runnable).then_some(Part::Woken);
        self.stood_for(owed, place.stack, (state, reason, part));
    }

    /// Block reason of the system call at the end of which a thread has halted, if that call waits.
    fn waits_in(&self, halted: &Halted) -> Option<BlockReason> {
        const WAITS: [BlockReason; 4] = [
            BlockReason::Lock,
            BlockReason::Timer,
            BlockReason::Poll,
            BlockReason::Child,
        ];
        let call = halted.call?;
        if call as i64 == libc::SYS_futex && !syscalls::futex_waits(halted.registers.general[RSI]) {
            return None;
        }
        let reason = self.table.get(call).copied()?;
        WAITS.into_iter().find(|wait| *wait as u8 == reason)
    }

    /// Whether a thread was seen to wait for a page with `stack`.
    fn faults_at(&self, index: usize, stack: u32) -> StopPlace {
        let place = self.watch.threads[index].places.with(stack);
        match place.and_then(|p| p.reason) {
            Some(BlockReason::PageFault) => StopPlace::Fault,
            _ => StopPlace::Computing,
        }
    }

    /// Attributes the stretch of a poll to the stack of the stopped thread.
    fn halted(&mut self, owed: &PendingStopSample, mut halted: Halted) {
        let PendingStopSample { index, end, .. } = *owed;
        let waits = self.waits_in(&halted);
        let t = &self.watch.threads[index];
        let running = Running {
            pid: t.pid,
            tid: t.tid,
            period_ns: 0,
            cpu: None,
            user_mode: true,
            registers: halted.registers,
            stack: std::mem::take(&mut halted.stack),
            below: std::mem::take(&mut halted.below),
            managed: halted.managed.take(),
            late: false,
            moved: None,
            first: None,
        };
        // All of the stack has been copied: the thread may run on.
        let stack = self.running(&running, end, end);
        let place = match waits {
            Some(reason) => StopPlace::Call(reason),
            None => self.faults_at(index, stack),
        };
        let (state, reason) = owed.did(&halted, place);
        let stack = match (state, owed.stood) {
            // The thread was there at the poll, and has run on since.
            (State::Runnable, Some(stood)) => stood,
            (State::Runnable, None) if halted.call.is_some() => {
                let place = Place {
                    sp: running.registers.general[RSP],
                    pc: running.registers.ip,
                    frames: self.samples.told_apart(stack),
                    call: None,
                    reason: None,
                    stack,
                };
                self.watch.threads[index].places.note(place);
                stack
            }
            _ => stack,
        };
        // A thread halts on its way back to user mode, wherever it was.
        let part = match state {
            State::OnCpu => Some(Part::User),
            State::Runnable => Some(Part::Woken),
            _ => None,
        };
        self.stood_for(owed, stack, (state, reason, part));
    }

    /// Attributes the stretch of a poll to the stack that it saw.
    fn stood_for(
        &mut self,
        owed: &PendingStopSample,
        stack: u32,
        (state, reason, part): (State, Option<BlockReason>, Option<Part>),
    ) {
        let PendingStopSample {
            index, begin, end, ..
        } = *owed;
        let ns = end - begin;
        if let Some(reason) = reason {
            let book = &mut self.watch.threads[index].book;
            book.add(self.grid, begin, end, TimeKind::Seen(reason, ANY), ns);
        }
        self.samples.add(
            self.grid,
            &Look {
                thread: index as u32,
                stack,
                state,
                reason,
                part,
                begin,
                end,
                ns,
                weight: Weight::Own,
                seen: WaitSeen::default(),
            },
        );
    }
}

/// The register of a call's second argument, by its DWARF number.
const RSI: usize = 4;
/// The stack pointer.
const RSP: usize = 7;
