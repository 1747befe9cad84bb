//! A poll of a thread that still lacks its stack: the thread has been asked to stop for it.

use wallscope_model::{BlockReason, State};
use wallscope_procfs::process::SchedStat;

use super::{
    last_ran::LastRan,
    stop::{Asleep, Halted},
};

/// A thread that becomes runnable within this time after a poll was due, ns, was woken by the interrupt that
/// woke us: the kernel expires timers together. If the wake-up is not timed to the microsecond, it may also
/// appear this long before the poll.
const TOGETHER: u64 = 50_000;

/// Longest run-queue latency, ns, that counts as our doing if a thread was behind us on our CPU at its last
/// poll.
pub const BECAUSE_OF_US: u64 = 500_000;

/// A thread that was blocked for less before it began to wait for a CPU was not blocked, ns. The two clocks that tell
/// agree to the microsecond (95 of 95 threads that made way for us, 2 virtual CPUs, Linux 6.18).
const MIN_FAULT: u64 = 2_000;

/// Wait that a thread has just been woken from, as far as the stack of its stop tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopPlace {
    /// It was at the end of a call that waits.
    Call(BlockReason),
    /// It has been seen to wait there for a page.
    Fault,
    /// Nothing is known to wait there.
    Computing,
}

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
    /// When it had left its CPU by then, where that is of use.
    pub left: Option<LastRan>,
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

    /// How long a thread that waits for its CPU at the poll was blocked before that, ns: it had left its CPU so much
    /// earlier than it began to wait.
    fn blocked_before(&self, halted: &Halted) -> Option<u64> {
        let passed = halted.left?.since(self.left?)?;
        let computed = halted.books.on_cpu_ns.saturating_sub(self.books.on_cpu_ns);
        let waited = (halted.books.run_delay_ns).saturating_sub(self.books.run_delay_ns);
        Some(passed.saturating_sub(computed + waited))
    }

    /// What the thread did, if it has halted at `place`.
    pub fn did(&self, halted: &Halted, place: StopPlace) -> (State, Option<BlockReason>) {
        match (self.queued_since(halted), place) {
            (Some(since), StopPlace::Call(reason)) if !self.woken_with_us(since, reason) => {
                (State::Runnable, None)
            }
            (_, StopPlace::Call(reason)) => (State::Blocked, Some(reason)),
            // A waker is preempted by the thread that it wakes rather than by us.
            (Some(since), _) if since < self.due || halted.call.is_some() => {
                (State::Runnable, None)
            }
            // The page came between the moment for which the poll was set and the poll.
            (Some(_), StopPlace::Fault)
                if self
                    .blocked_before(halted)
                    .is_some_and(|ns| ns >= MIN_FAULT) =>
            {
                (State::Blocked, Some(BlockReason::PageFault))
            }
            // If any thread preempted it, we did.
            _ => (State::OnCpu, None),
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
        let place = waits.map_or(StopPlace::Computing, StopPlace::Call);
        did_at(behind, (timeslices, computed, waited), place)
    }

    fn did_at(behind: bool, told: (u64, u64, u64), place: StopPlace) -> State {
        let (owed, halted) = pair(behind, told);
        owed.did(&halted, place).0
    }

    /// A poll and its stop, between which a thread had so many turns, and computed and waited for so many µs.
    fn pair(
        behind: bool,
        (timeslices, computed, waited): (u64, u64, u64),
    ) -> (PendingStopSample, Halted) {
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
            left: None,
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
            left: None,
        };
        (owed, halted)
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
            left: None,
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

    /// A poll is due at 50 ms and made 90 µs later, and the thread halts after 40 µs more.
    #[test]
    fn a_page_that_comes_before_the_poll_ends_a_wait_and_no_computing() {
        // The thread waited for a CPU from 30 µs after the poll was due, having been blocked for so many µs.
        let did = |blocked: u64| {
            let (mut owed, mut halted) = pair(false, (1, 10, 90));
            let last_ran = |at_us: u64| LastRan {
                at_ns: at_us * 1000,
                migrations: 4,
            };
            owed.left = Some(last_ran(700));
            halted.left = Some(last_ran(800 + blocked));
            owed.did(&halted, StopPlace::Fault).0
        };
        assert_eq!(did(0), State::OnCpu, "it made way for us");
        assert_eq!(did(1), State::OnCpu);
        assert_eq!(did(6), State::Blocked);
        assert_eq!(did(200), State::Blocked, "the page came");
        let at = |books, place| did_at(false, books, place);
        assert_eq!(
            at((1, 10, 90), StopPlace::Fault),
            State::OnCpu,
            "nothing tells"
        );
        assert_eq!(at((1, 10, 400), StopPlace::Fault), State::Runnable);
        assert_eq!(at((0, 2000, 0), StopPlace::Fault), State::OnCpu);
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
