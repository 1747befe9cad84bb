//! Stacks of running threads by short stops, where these are permitted.
//!
//! A stop shows where a thread is a moment after the look, once it has a CPU. What it did at the look the
//! scheduler's books tell: whether it has been put on a CPU since, and for how long it had waited for
//! that. A wait that began with the look itself is our own doing: looks take CPUs from others, and their
//! timers wake sleepers a little early.
//!
//! Who ran at the look only because it had just been woken waits again by the time that it is to halt, and is not
//! stopped. To leave such looks out would take them from short waits. What it waited in before is still on its stack
//! when it is looked at ([`Looker::stack_of_queued`]), and the books tell that it has not computed for longer. Who was
//! woken by a timer and stands behind us on our CPU is not stopped at all, nor is anybody without permission: the books
//! at its next look tell whether it had to wait for anybody but us.

use std::collections::hash_map::Entry;

use wallscope_model::{BlockReason, Part, State, WaitSeen};
use wallscope_procfs::process::SchedStat;

use super::{
    pending_stop::{BECAUSE_OF_US, Owed},
    poller::Looker,
    samples::{Look, Weight},
    stop::{Asleep, Found, Halted, Stopper},
    time_kind::{ANY, Kind},
};
use crate::{
    backend::perf::{Place, Running},
    syscalls,
};

impl Looker {
    /// Has a running thread stopped for a moment to see its stack, if that was permitted.
    pub fn halt(&mut self, mut owed: Owed) {
        let t = &mut self.watch.threads[owed.index];
        let may_stand = owed.waits && !t.places.is_empty();
        owed.behind = may_stand && t.shares_our_cpu();
        if owed.behind || (may_stand && self.stopper.is_some()) {
            owed.stood = self.stack_of_queued(owed.index).1;
        }
        let t = &self.watch.threads[owed.index];
        let place = owed.stood.and_then(|stack| t.places.with(stack));
        let reason = place.and_then(|p| p.reason);
        // Other interrupts than that of a timer do not come with ours; and of a thread that often waits for a CPU the
        // books at its next look tell nothing.
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
        let managed = self.processes.managed();
        match self.owed.entry(t.tid) {
            Entry::Occupied(mut known) => known.get_mut().end = owed.end,
            Entry::Vacant(free) => {
                let python = managed.subject(&mut self.managed, t.pid, t.tid);
                if stopper.ask(t.pid, t.tid, t.files().clone(), python) {
                    free.insert(owed);
                }
            }
        }
    }

    /// Those that have halted since, or wait again: what was owed of them, and came.
    pub fn have_halted(&mut self) -> Vec<(Owed, Found)> {
        let all = self.stopper.as_mut().map_or_else(Vec::new, Stopper::take);
        let came = |(tid, found)| Some((self.owed.remove(&tid), found?));
        let came = all.into_iter().filter_map(came);
        came.filter_map(|(owed, found)| Some((owed?, found)))
            .collect()
    }

    /// Takes their stacks.
    pub fn take_stacks(&mut self, found: Vec<(Owed, Found)>) {
        for (owed, found) in found {
            match found {
                Found::Halted(halted) => self.halted(&owed, *halted),
                Found::Asleep(asleep) => self.slept_before(&owed, &asleep),
            }
        }
    }

    /// A thread is looked at again, and has these `books` now: what it did at its last look, if it stood behind us then,
    /// woken, and has run since.
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

    /// A thread that waits again was only woken by the time of its look: that stands for what it waited in before.
    fn slept_before(&mut self, owed: &Owed, asleep: &Asleep) {
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

    /// What the system call waits for that a thread has halted at the end of, if it is one to wait in.
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

    /// The stack of a thread that was stopped stands for the stretch of its look.
    fn halted(&mut self, owed: &Owed, halted: Halted) {
        let Owed { index, end, .. } = *owed;
        let waits = self.waits_in(&halted);
        let (state, reason) = owed.did(&halted, waits);
        let t = &self.watch.threads[index];
        let running = Running {
            pid: t.pid,
            tid: t.tid,
            period_ns: 0,
            cpu: None,
            user_mode: true,
            registers: halted.registers,
            stack: halted.stack,
            below: halted.below,
            managed: halted.managed,
            late: false,
            moved: None,
        };
        // What was copied is all there is: it goes on.
        let stack = self.running(&running, end, end);
        let stack = match (state, owed.stood) {
            // It stood there, and has gone on since.
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

    /// What a look saw with a stack stands for the stretch of that look.
    fn stood_for(
        &mut self,
        owed: &Owed,
        stack: u32,
        (state, reason, part): (State, Option<BlockReason>, Option<Part>),
    ) {
        let Owed {
            index, begin, end, ..
        } = *owed;
        let ns = end - begin;
        if let Some(reason) = reason {
            let book = &mut self.watch.threads[index].book;
            book.add(self.grid, begin, end, Kind::Seen(reason, ANY), ns);
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
