//! A poll whose stack is still to come.

use wallscope_model::{BlockReason, State};
use wallscope_procfs::process::SchedStat;

use super::stop::{Asleep, Halted};

/// A thread that begins to wait for a CPU so soon after a look was due, ns, was woken by the very
/// interrupt that woke us: the kernel lets timers go off together. Where it is not known to the microsecond when that
/// was, it may as well seem to have been so long before.
const TOGETHER: u64 = 50_000;

/// A thread that waited behind us on our CPU, for no longer than this by its next poll, waited because of us. ns.
pub const BECAUSE_OF_US: u64 = 500_000;

/// A look at a thread that runs or wants to, for which its stack is still to come.
#[derive(Clone, Copy, Debug)]
pub struct PendingStopSample {
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

impl PendingStopSample {
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

    /// Whether a thread that has waited for a CPU `since` then, and for `reason` before that, waits only because of us.
    /// The kernel's counter may have the end of a sleep in it (Linux 6.12 and later), so that it seems to be longer.
    fn woken_with_us(&self, since: u64, reason: BlockReason) -> bool {
        let slept = self.behind && reason == BlockReason::Timer;
        let since_due = since >= self.due || (slept && since + BECAUSE_OF_US >= self.due);
        since_due && (since < self.due + TOGETHER || self.behind)
    }

    /// What the thread did, if it waits again; `None`: it computed, and where is not known.
    pub fn did_until(&self, asleep: &Asleep) -> Option<State> {
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
    pub fn did(&self, halted: &Halted, waits: Option<BlockReason>) -> (State, Option<BlockReason>) {
        match (self.queued_since(halted), waits) {
            (Some(since), Some(reason)) if !self.woken_with_us(since, reason) => {
                (State::Runnable, None)
            }
            // A waker makes way for the thread that it wakes rather than for us.
            (Some(since), None) if since < self.due || halted.call.is_some() => {
                (State::Runnable, None)
            }
            (_, Some(reason)) => (State::Blocked, Some(reason)),
            // It made way for us, if for anybody.
            (_, None) => (State::OnCpu, None),
        }
    }
}

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
        let owed = PendingStopSample {
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
        let owed = PendingStopSample {
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
