//! Stacks of running threads by short stops, where these are permitted.
//!
//! A stop shows where a thread is a moment after the poll, once it has a CPU. The scheduler's counters tell
//! its state at the poll: whether it has got a CPU since, and how long it had waited for it. Run-queue
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

use wallscope_model::{BlockReason, State};
use wallscope_observe::{FoundThread, Observation, StopPlace, StoppedThread};
use wallscope_procfs::process::SchedStat;

use super::{
    account::observed,
    pending_stop::PendingStopSample,
    poller::ProcPoller,
    stop::{Asleep, Halted, StopRequest, StopResult, Stopper},
    stop_judgement::{self, BECAUSE_OF_US},
};
use crate::{
    backend::perf::{Running, WaitSite},
    syscalls,
};

impl ProcPoller {
    /// Has a running thread stopped briefly for its stack, if that was permitted.
    pub fn halt(&mut self, mut owed: PendingStopSample) {
        let index = owed.index();
        let t = &mut self.watch.threads[index];
        let may_stand = owed.waits && !t.wait_sites.is_empty();
        let may_stop = self.pending.stopper.is_some();
        owed.poll.behind = (may_stand || may_stop) && t.shares_our_cpu();
        if may_stand && (owed.poll.behind || may_stop) {
            owed.poll.woken_from = self.stack_of_queued(index).1;
        }
        let t = &self.watch.threads[index];
        let place = owed
            .poll
            .woken_from
            .and_then(|stack| t.wait_sites.with(stack));
        let reason = place.and_then(|p| p.reason);
        // Only the interrupt of a timer comes together with ours. For a thread that often waits for a CPU the
        // counters at its next poll tell nothing.
        let told = match self.pending.stopper {
            Some(_) => reason == Some(BlockReason::Timer) && owed.queued <= BECAUSE_OF_US,
            None => reason.is_some(),
        };
        if owed.poll.behind && told {
            self.pending.behind_us.insert(t.tid, owed);
            return;
        }
        let Some(stopper) = &mut self.pending.stopper else {
            return;
        };
        let t = &mut self.watch.threads[index];
        if t.wait_sites.has(BlockReason::PageFault) {
            owed.poll.left = t.last_ran();
        }
        let managed = self.processes.managed();
        match self.pending.asked.entry(t.tid) {
            Entry::Occupied(mut known) => known.get_mut().poll.end = owed.poll.end,
            Entry::Vacant(free) => {
                let python = managed.subject(&mut self.reader.managed, t.pid, t.tid);
                let asked = StopRequest {
                    pid: t.pid,
                    tid: t.tid,
                    files: t.files().clone(),
                    python,
                    faults: owed.poll.left.is_some(),
                };
                if stopper.ask(asked) {
                    free.insert(owed);
                }
            }
        }
    }

    /// The pending polls of threads that have halted since or are blocked again, with the findings.
    pub fn have_halted(&mut self) -> Vec<(PendingStopSample, StopResult)> {
        let all = self
            .pending
            .stopper
            .as_mut()
            .map_or_else(Vec::new, Stopper::take);
        let came = |(tid, found)| Some((self.pending.asked.remove(&tid), found?));
        let came = all.into_iter().filter_map(came);
        came.filter_map(|(owed, found)| Some((owed?, found)))
            .collect()
    }

    /// Takes the stacks of those threads.
    pub fn take_stacks(&mut self, found: Vec<(PendingStopSample, StopResult)>) {
        for (owed, found) in found {
            match found {
                StopResult::Halted(halted) => self.halted(&owed, *halted),
                StopResult::Asleep(asleep) => self.slept_before(&owed, &asleep),
            }
        }
    }

    /// Observes the counters `books` of a thread at its present poll, at `now`, if it had been woken at its last poll
    /// and waited behind us.
    pub fn was_woken(&mut self, index: usize, now: u64, books: SchedStat) {
        let t = &self.watch.threads[index];
        let Some(owed) = self.pending.behind_us.remove(&t.tid) else {
            return;
        };
        let place = (owed.poll.woken_from).and_then(|stack| t.wait_sites.with(stack));
        if let Some(reason) = place.and_then(|p| p.reason) {
            self.tell_stop(&owed, (now, books), FoundThread::Ran(reason));
        }
    }

    /// A thread is blocked again: it had just been woken at its poll.
    fn slept_before(&mut self, owed: &PendingStopSample, asleep: &Asleep) {
        let t = &self.watch.threads[owed.index()];
        let place = (owed.poll.woken_from).and_then(|stack| t.wait_sites.with(stack));
        if let Some(place) = place {
            let found = FoundThread::Asleep(place.reason);
            self.tell_stop(owed, (asleep.at, asleep.books), found);
        }
    }

    /// Observes the result of a poll that found a thread runnable. Returns the observation.
    fn tell_stop(
        &mut self,
        owed: &PendingStopSample,
        (time, books): (u64, SchedStat),
        found: FoundThread,
    ) -> StoppedThread {
        let stop = StoppedThread {
            poll: owed.poll,
            time,
            counters: observed(books),
            found,
        };
        self.intake.observe(&Observation::StoppedThread(stop));
        stop
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
        let place = self.watch.threads[index].wait_sites.with(stack);
        match place.and_then(|p| p.reason) {
            Some(BlockReason::PageFault) => StopPlace::Fault,
            _ => StopPlace::Computing,
        }
    }

    /// Attributes the stretch of a poll to the stack of the stopped thread.
    fn halted(&mut self, owed: &PendingStopSample, mut halted: Halted) {
        let (index, end) = (owed.index(), owed.poll.end);
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
        let in_call = halted.call.is_some();
        let found = FoundThread::Halted {
            in_call,
            left: halted.left,
            place,
            stack,
        };
        let stop = self.tell_stop(owed, (halted.at, halted.books), found);
        let queued = stop_judgement::did(&stop).is_some_and(|(s, _)| s == State::Runnable);
        if queued && in_call && owed.poll.woken_from.is_none() {
            let place = WaitSite {
                sp: running.registers.general[RSP],
                pc: running.registers.ip,
                frames: self.intake.estimator.samples.told_apart(stack),
                call: None,
                reason: None,
                stack,
            };
            self.watch.threads[index].wait_sites.note(place);
        }
    }
}

/// The register of a call's second argument, by its DWARF number.
const RSI: usize = 4;
/// The stack pointer.
const RSP: usize = 7;
