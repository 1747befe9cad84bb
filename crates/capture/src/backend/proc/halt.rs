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
    book::{ANY, Kind},
    looker::Looker,
    samples::{Look, Weight},
    stop::{Asleep, Found, Halted, Stopper},
};
use crate::{
    backend::perf::{Place, Running, is_behind_us},
    syscalls,
};

/// A thread that begins to wait for a CPU so soon after a look was due, ns, was woken by the very
/// interrupt that woke us: the kernel lets timers go off together. Where it is not known to the microsecond when that
/// was, it may as well seem to have been so long before.
const TOGETHER: u64 = 50_000;

/// Who stood behind us on our CPU and has waited for no longer than this by its next look, ns, did so because of us.
const BECAUSE_OF_US: u64 = 500_000;

/// A look at a thread that runs or wants to, for which its stack is still to come.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    /// Index of the thread.
    pub index: usize,
    /// When the look was due, ns on the recording's clock.
    pub due: u64,
    /// When it was made.
    pub looked: u64,
    /// The scheduler's books of the thread then.
    pub books: SchedStat,
    /// For how long it had waited for a CPU since the look before, ns.
    pub queued: u64,
    /// Whether it had waited for other things since then.
    pub waits: bool,
    /// The stack of the wait that it may just have been woken from, as an index of the samples' stacks.
    pub stood: Option<u32>,
    /// Whether it was on, or waited for, the CPU that we were on.
    pub behind: bool,
    /// The stretch that the look stands for.
    pub begin: u64,
    /// Its end.
    pub end: u64,
}

impl Owed {
    /// Since when the thread had waited for a CPU when it was looked at, if it had.
    fn queued_since(&self, halted: &Halted) -> Option<u64> {
        let (then, now) = (&self.books, &halted.books);
        let computed = now.on_cpu_ns.saturating_sub(then.on_cpu_ns);
        let waited = now.run_delay_ns.saturating_sub(then.run_delay_ns);
        // More than there was time for: the counter lagged, as it does while a thread has a CPU.
        let lagged = computed > halted.at.saturating_sub(self.looked);
        if now.timeslices == then.timeslices || lagged {
            return None;
        }
        let since = halted.at.saturating_sub(computed + waited);
        (since < self.looked).then_some(since)
    }

    /// Whether who has waited for a CPU `since` then, and for `reason` before that, would not have but for us. The
    /// kernel's counter may have the end of a sleep in it (Linux 6.12 and later), so that it seems to be longer.
    fn woken_with_us(&self, since: u64, reason: BlockReason) -> bool {
        let slept = self.behind && reason == BlockReason::Timer;
        let since_due = since >= self.due || (slept && since + BECAUSE_OF_US >= self.due);
        since_due && (since < self.due + TOGETHER || self.behind)
    }

    /// What the thread did, if it waits again; `None`: it computed, and where is not known.
    fn did_until(&self, asleep: &Asleep) -> Option<State> {
        let (then, now) = (&self.books, &asleep.books);
        let computed = now.on_cpu_ns.saturating_sub(then.on_cpu_ns);
        let waited = now.run_delay_ns.saturating_sub(then.run_delay_ns);
        // It began to wait some time between the two readings.
        let slept = self.looked.midpoint(asleep.at);
        let woken = slept.saturating_sub(computed + waited);
        if woken + TOGETHER >= self.due {
            Some(State::Blocked)
        } else {
            (now.timeslices != then.timeslices).then_some(State::Runnable)
        }
    }

    /// What the thread did, if it has halted at the end of a call that `waits`.
    fn did(&self, halted: &Halted, waits: Option<BlockReason>) -> (State, Option<BlockReason>) {
        match (self.queued_since(halted), waits) {
            (Some(since), Some(reason)) if !self.woken_with_us(since, reason) => {
                (State::Runnable, None)
            }
            // Who wakes another one makes way for that one rather than for us.
            (Some(since), None) if since < self.due || halted.call.is_some() => {
                (State::Runnable, None)
            }
            (_, Some(reason)) => (State::Blocked, Some(reason)),
            // It made way for us, if for anybody.
            (_, None) => (State::OnCpu, None),
        }
    }
}

impl Looker {
    /// Has a running thread stopped for a moment to see its stack, if that was permitted.
    pub fn halt(&mut self, mut owed: Owed) {
        let t = &mut self.watch.threads[owed.index];
        let may_stand = owed.waits && !t.places.is_empty();
        owed.behind = may_stand && is_behind_us(t);
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

#[cfg(test)]
mod tests {
    use wallscope_unwind::native::Registers;

    use super::*;

    const LOCK: Option<BlockReason> = Some(BlockReason::Lock);

    /// What a thread did at a look, that was made 90 µs after it was due, if it halts 40 µs later, having
    /// computed and waited for so many µs since.
    fn did(timeslices: u64, computed: u64, waited: u64, waits: Option<BlockReason>) -> State {
        did_where(false, timeslices, computed, waited, waits)
    }

    /// The same of one that stands `behind` us.
    fn did_where(
        behind: bool,
        timeslices: u64,
        computed: u64,
        waited: u64,
        waits: Option<BlockReason>,
    ) -> State {
        let books = |computed: u64, waited: u64, timeslices| SchedStat {
            on_cpu_ns: 7_000 + computed * 1000,
            run_delay_ns: 9_000 + waited * 1000,
            timeslices,
        };
        let owed = Owed {
            index: 0,
            due: 50_000_000,
            looked: 50_090_000,
            books: books(0, 0, 3),
            queued: 0,
            waits: true,
            stood: None,
            behind,
            begin: 40_000_000,
            end: 50_090_000,
        };
        let halted = Halted {
            registers: Registers::default(),
            call: None,
            stack: Vec::new(),
            below: Vec::new(),
            managed: None,
            at: 50_130_000,
            books: books(computed, waited, 3 + timeslices),
        };
        owed.did(&halted, waits).0
    }

    /// A thread that waits again at 50.250 ms, having computed and waited for so many µs since the look.
    fn did_until(timeslices: u64, computed: u64, waited: u64) -> Option<State> {
        let books = |on_cpu_ns: u64, run_delay_ns: u64, timeslices| SchedStat {
            on_cpu_ns: on_cpu_ns * 1000,
            run_delay_ns: run_delay_ns * 1000,
            timeslices,
        };
        let owed = Owed {
            index: 0,
            due: 50_000_000,
            looked: 50_150_000,
            books: books(0, 0, 3),
            queued: 0,
            waits: true,
            stood: Some(1),
            behind: false,
            begin: 40_000_000,
            end: 50_150_000,
        };
        owed.did_until(&Asleep {
            at: 50_250_000,
            books: books(computed, waited, 3 + timeslices),
        })
    }

    #[test]
    fn who_waits_again_was_only_woken() {
        // By the timer that woke us, and a little before.
        for waited in [50, 190, 230] {
            assert_eq!(did_until(1, 10, waited), Some(State::Blocked));
        }
        assert_eq!(did_until(0, 90, 0), Some(State::Blocked), "since the look");
        assert_eq!(did_until(1, 10, 900), Some(State::Runnable), "long before");
        assert_eq!(did_until(0, 900, 0), None, "it computed");
    }

    #[test]
    fn the_books_tell_who_waited_for_a_cpu() {
        for waits in [None, LOCK] {
            assert_eq!(did(1, 20, 300, waits), State::Runnable, "long before");
        }
        // It had a CPU all the time; its counter lagged, and it made way for us; it was looked at first.
        for (timeslices, computed, waited) in [(0, 2000, 0), (1, 2000, 30), (1, 10, 5)] {
            assert_eq!(did(timeslices, computed, waited, None), State::OnCpu);
            assert_eq!(did(timeslices, computed, waited, LOCK), State::Blocked);
        }
    }

    #[test]
    fn who_is_woken_with_us_waits_on_and_who_is_put_off_by_us_computes() {
        assert_eq!(did(1, 10, 100, LOCK), State::Blocked, "20 µs after");
        assert_eq!(did(1, 10, 50, LOCK), State::Runnable, "70 µs after");
        assert_eq!(did(1, 10, 100, None), State::OnCpu);
        assert_eq!(did(1, 10, 130, None), State::Runnable, "before");
        let behind = |waited, waits| did_where(true, 1, 10, waited, waits);
        assert_eq!(behind(50, LOCK), State::Blocked, "we have its CPU");
        assert_eq!(behind(300, LOCK), State::Runnable, "before that");
        assert_eq!(behind(300, Some(BlockReason::Timer)), State::Blocked);
        assert_eq!(behind(900, Some(BlockReason::Timer)), State::Runnable);
    }
}
