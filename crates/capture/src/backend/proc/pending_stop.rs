//! A poll of a thread that still lacks its stack: the thread has been asked to stop for it.

use wallscope_model::{BlockReason, State};
use wallscope_procfs::process::SchedStat;

use super::stop::{Asleep, Halted};

/// A thread that becomes runnable within this time after a poll was due, ns, was woken by the interrupt that
/// woke us: the kernel expires timers together. If the wake-up is not timed to the microsecond, it may also
/// appear this long before the poll.
const TOGETHER: u64 = 50_000;

/// Longest run-queue latency, ns, that counts as our doing if a thread was behind us on our CPU at its last
/// poll.
pub const BECAUSE_OF_US: u64 = 500_000;

/// A poll of a running or runnable thread that still lacks its stack.
#[derive(Clone, Copy, Debug)]
pub struct PendingStopSample {
    /// Index of the thread.
    pub index: usize,
    /// When the poll was due, ns on the recording's clock.
    pub due: u64,
    /// When it was made.
    pub looked: u64,
    /// The scheduler's books of the thread then.
    pub books: SchedStat,
    /// Its run-queue latency since the poll before, ns.
    pub queued: u64,
    /// Whether it had waited for other things since then.
    pub waits: bool,
    /// The stack of the wait that it may just have been woken from, as an index of the samples' stacks.
    pub stood: Option<u32>,
    /// Whether it was on, or waited for, the CPU that we were on.
    pub behind: bool,
    /// Begin of the stretch that the poll stands for.
    pub begin: u64,
    /// Its end.
    pub end: u64,
}

impl PendingStopSample {
    /// Since when the thread had waited for a CPU at the poll, if it had.
    fn queued_since(&self, halted: &Halted) -> Option<u64> {
        let (then, now) = (&self.books, &halted.books);
        let computed = now.on_cpu_ns.saturating_sub(then.on_cpu_ns);
        let waited = now.run_delay_ns.saturating_sub(then.run_delay_ns);
        // More than the elapsed time: the counter lagged, as it does while a thread is on a CPU.
        let lagged = computed > halted.at.saturating_sub(self.looked);
        if now.timeslices == then.timeslices || lagged {
            return None;
        }
        let since = halted.at.saturating_sub(computed + waited);
        (since < self.looked).then_some(since)
    }

    /// Whether only we keep a thread from its CPU. It has waited for a CPU `since` then, and for `reason`
    /// before. The kernel's counter may include the end of a sleep (Linux 6.12 and later): then the latency
    /// seems longer.
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
            // A waker is preempted by the thread that it wakes rather than by us.
            (Some(since), None) if since < self.due || halted.call.is_some() => {
                (State::Runnable, None)
            }
            (_, Some(reason)) => (State::Blocked, Some(reason)),
            // If any thread preempted it, we did.
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

    /// What a thread did at such a poll if it waited `behind` us for our CPU.
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
