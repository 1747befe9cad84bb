//! What a thread did at a poll that found it runnable, as the scheduler's counters tell afterwards.

use wallscope_model::{BlockReason, Part, State};
use wallscope_observe::{
    CpuDeparture, FoundThread, RunnablePoll, SchedCounters, StopPlace, StoppedThread,
};

/// A thread that becomes runnable within this time after a poll was due, ns, was woken by the interrupt that
/// woke us: the kernel expires timers together. If the wake-up is not timed to the microsecond, it may also
/// appear this long before the poll.
const TOGETHER: u64 = 50_000;

/// Longest run-queue latency, ns, that counts as our doing if a thread was behind us on our CPU at its last
/// poll.
pub const BECAUSE_OF_US: u64 = 500_000;

/// Shortest block before a wait for a CPU that counts as one, ns. Its two clocks agree to the microsecond (95 of 95
/// threads that made way for us, 2 virtual CPUs, Linux 6.18).
const MIN_FAULT: u64 = 2_000;

/// Stack and state that the stretch of a poll is attributed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The stack, as an index of the samples' stacks.
    pub stack: u32,
    /// State.
    pub state: State,
    /// Block reason, for blocked time.
    pub reason: Option<BlockReason>,
    /// Part of the state, for other time.
    pub part: Option<Part>,
}

/// What a thread did at its poll. `None`: that is not known.
pub fn judge(s: &StoppedThread) -> Option<Stretch> {
    let poll = &s.poll;
    match s.found {
        FoundThread::Halted { stack, .. } => {
            let (state, reason) = did(s)?;
            // A thread halts on its way back to user mode, wherever it was.
            let part = match state {
                State::OnCpu => Some(Part::User),
                State::Runnable => Some(Part::Woken),
                _ => None,
            };
            // A runnable thread was still at the wait that it was woken from at the poll, and has run on since.
            let from = poll.woken_from.filter(|_| state == State::Runnable);
            Some(Stretch {
                stack: from.unwrap_or(stack),
                state,
                reason,
                part,
            })
        }
        FoundThread::Asleep(reason) => {
            let state = did_until(s)?;
            let blocked = state == State::Blocked;
            if blocked && reason.is_none() {
                return None;
            }
            Some(Stretch {
                stack: poll.woken_from?,
                state,
                reason: reason.filter(|_| blocked),
                part: (state == State::Runnable).then_some(Part::Woken),
            })
        }
        FoundThread::Ran(reason) => {
            let [_, waited] = since(poll.counters, s.counters);
            let ran = s.counters.timeslices != poll.counters.timeslices;
            (ran && waited <= BECAUSE_OF_US).then_some(Stretch {
                stack: poll.woken_from?,
                state: State::Blocked,
                reason: Some(reason),
                part: None,
            })
        }
    }
}

/// Time on a CPU and on a run queue between two readings, ns.
fn since(then: SchedCounters, now: SchedCounters) -> [u64; 2] {
    [
        now.on_cpu_ns.saturating_sub(then.on_cpu_ns),
        now.run_delay_ns.saturating_sub(then.run_delay_ns),
    ]
}

/// Time since which the thread had waited for a CPU at the poll; `None`: it had not.
fn queued_since(s: &StoppedThread) -> Option<u64> {
    let polled = s.poll.time;
    let [computed, waited] = since(s.poll.counters, s.counters);
    // More than the elapsed time: the counter lagged, as it does while a thread is on a CPU.
    let lagged = computed > s.time.saturating_sub(polled);
    if s.counters.timeslices == s.poll.counters.timeslices || lagged {
        return None;
    }
    let since = s.time.saturating_sub(computed.saturating_add(waited));
    (since < polled).then_some(since)
}

/// Whether only we keep a thread from its CPU. It has waited for a CPU since time `since`, and was blocked for
/// `reason` before. The kernel's counter may include the end of a sleep (Linux 6.12 and later): then the latency
/// seems longer.
fn woken_with_us(poll: &RunnablePoll, since: u64, reason: BlockReason) -> bool {
    let slept = poll.behind && reason == BlockReason::Timer;
    let since_due = since >= poll.due || (slept && since.saturating_add(BECAUSE_OF_US) >= poll.due);
    since_due && (since < poll.due.saturating_add(TOGETHER) || poll.behind)
}

/// State at the poll of a thread that is blocked again; `None`: it computed at an unknown place.
fn did_until(s: &StoppedThread) -> Option<State> {
    let [computed, waited] = since(s.poll.counters, s.counters);
    // It began to wait some time between the two readings.
    let slept = s.poll.time.midpoint(s.time);
    let woken = slept.saturating_sub(computed.saturating_add(waited));
    if woken.saturating_add(TOGETHER) >= s.poll.due {
        Some(State::Blocked)
    } else {
        (s.counters.timeslices != s.poll.counters.timeslices).then_some(State::Runnable)
    }
}

/// Time from an earlier departure to a later one, ns; `None`: they are of different CPUs.
pub fn between(earlier: CpuDeparture, later: CpuDeparture) -> Option<u64> {
    let same = later.migrations == earlier.migrations;
    same.then(|| later.at_ns.checked_sub(earlier.at_ns))
        .flatten()
}

/// Time for which a thread that waits for a CPU at the poll was blocked before that, ns: from its departure from the
/// CPU to the begin of its wait for one.
fn blocked_before(s: &StoppedThread, left: Option<CpuDeparture>) -> Option<u64> {
    let passed = between(s.poll.left?, left?)?;
    let [computed, waited] = since(s.poll.counters, s.counters);
    Some(passed.saturating_sub(computed.saturating_add(waited)))
}

/// State at the poll of a thread that has halted; `None`: it has not halted.
pub fn did(s: &StoppedThread) -> Option<(State, Option<BlockReason>)> {
    let FoundThread::Halted {
        in_call,
        left,
        place,
        ..
    } = s.found
    else {
        return None;
    };
    Some(match (queued_since(s), place) {
        (Some(since), StopPlace::Call(reason)) if !woken_with_us(&s.poll, since, reason) => {
            (State::Runnable, None)
        }
        (_, StopPlace::Call(reason)) => (State::Blocked, Some(reason)),
        // On another CPU a waker is preempted by the thread that it wakes rather than by us.
        (Some(since), _) if since < s.poll.due || (in_call && !s.poll.behind) => {
            (State::Runnable, None)
        }
        // The page came between the time at which the poll was due and the poll.
        (Some(_), StopPlace::Fault)
            if blocked_before(s, left).is_some_and(|ns| ns >= MIN_FAULT) =>
        {
            (State::Blocked, Some(BlockReason::PageFault))
        }
        // If any thread preempted it, we did.
        _ => (State::OnCpu, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Option<BlockReason> = Some(BlockReason::Lock);

    /// State of a thread at a poll that was made 90 µs after it was due, if it halts 40 µs later, having
    /// computed and waited for so many µs since.
    fn did_halted(
        timeslices: u64,
        computed: u64,
        waited: u64,
        waits: Option<BlockReason>,
    ) -> State {
        did_where(false, timeslices, computed, waited, waits)
    }

    /// State of a thread at such a poll if it waited `behind` us for our CPU.
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
        did_at_stop(stopped(behind, told, place))
    }

    fn did_at_stop(s: StoppedThread) -> State {
        did(&s).expect("it has halted").0
    }

    /// A poll and its stop, between which a thread had so many turns, and computed and waited for so many µs.
    fn stopped(
        behind: bool,
        (timeslices, computed, waited): (u64, u64, u64),
        place: StopPlace,
    ) -> StoppedThread {
        StoppedThread {
            poll: RunnablePoll {
                thread: 0,
                due: 50_000_000,
                time: 50_090_000,
                counters: counters(0, 0, 3),
                left: None,
                woken_from: None,
                behind,
                begin: 40_000_000,
                end: 50_090_000,
            },
            time: 50_130_000,
            counters: counters(computed, waited, 3 + timeslices),
            found: FoundThread::Halted {
                in_call: false,
                left: None,
                place,
                stack: 7,
            },
        }
    }

    fn counters(computed: u64, waited: u64, timeslices: u64) -> SchedCounters {
        SchedCounters {
            on_cpu_ns: 7_000 + computed * 1000,
            run_delay_ns: 9_000 + waited * 1000,
            timeslices,
        }
    }

    /// A thread that waits again at 50.250 ms, having computed and waited for so many µs since the poll.
    fn did_again(timeslices: u64, computed: u64, waited: u64) -> Option<State> {
        let told = (timeslices, computed, waited);
        let mut s = stopped(false, told, StopPlace::Computing);
        (s.poll.time, s.poll.end, s.poll.woken_from) = (50_150_000, 50_150_000, Some(1));
        (s.time, s.found) = (50_250_000, FoundThread::Asleep(LOCK));
        judge(&s).map(|stretch| stretch.state)
    }

    #[test]
    fn a_thread_that_waits_again_was_only_woken() {
        // By the timer that woke us, and a little before.
        for waited in [50, 190, 230] {
            assert_eq!(did_again(1, 10, waited), Some(State::Blocked));
        }
        assert_eq!(did_again(0, 90, 0), Some(State::Blocked), "since the look");
        assert_eq!(did_again(1, 10, 900), Some(State::Runnable), "long before");
        assert_eq!(did_again(0, 900, 0), None, "it computed");
    }

    #[test]
    fn a_wait_that_goes_on_for_no_known_reason_tells_nothing() {
        let mut s = stopped(false, (1, 10, 50), StopPlace::Computing);
        (s.poll.time, s.poll.end, s.poll.woken_from) = (50_150_000, 50_150_000, Some(1));
        (s.time, s.found) = (50_250_000, FoundThread::Asleep(LOCK));
        assert_eq!(judge(&s).map(|stretch| stretch.reason), Some(LOCK));
        s.found = FoundThread::Asleep(None);
        assert_eq!(judge(&s), None);
    }

    #[test]
    fn the_counters_tell_whether_a_thread_waited_for_a_cpu() {
        for waits in [None, LOCK] {
            assert_eq!(
                did_halted(1, 20, 300, waits),
                State::Runnable,
                "long before"
            );
        }
        // It had a CPU all the time; its counter lagged, and it made way for us; it was polled first.
        for (timeslices, computed, waited) in [(0, 2000, 0), (1, 2000, 30), (1, 10, 5)] {
            assert_eq!(did_halted(timeslices, computed, waited, None), State::OnCpu);
            assert_eq!(
                did_halted(timeslices, computed, waited, LOCK),
                State::Blocked
            );
        }
    }

    #[test]
    fn we_preempt_a_thread_in_a_system_call_only_on_our_own_cpu() {
        let did = |behind: bool, waited: u64| {
            let mut s = stopped(behind, (1, 10, waited), StopPlace::Computing);
            s.found = FoundThread::Halted {
                in_call: true,
                left: None,
                place: StopPlace::Computing,
                stack: 7,
            };
            did_at_stop(s)
        };
        // It has waited since 20 µs after the poll was due.
        assert_eq!(did(true, 100), State::OnCpu);
        assert_eq!(did(false, 100), State::Runnable, "a thread that it woke");
        assert_eq!(did(true, 300), State::Runnable, "long before");
    }

    /// A poll is due at 50 ms and made 90 µs later, and the thread halts after 40 µs more.
    #[test]
    fn a_page_that_comes_before_the_poll_ends_a_wait_and_no_computing() {
        // The thread waited for a CPU from 30 µs after the poll was due, having been blocked for so many µs.
        let did = |blocked: u64| {
            let mut s = stopped(false, (1, 10, 90), StopPlace::Fault);
            let left = |at_us: u64| CpuDeparture {
                at_ns: at_us * 1000,
                migrations: 4,
            };
            s.poll.left = Some(left(700));
            s.found = FoundThread::Halted {
                in_call: false,
                left: Some(left(800 + blocked)),
                place: StopPlace::Fault,
                stack: 7,
            };
            did_at_stop(s)
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
    fn a_thread_woken_with_us_is_blocked_and_one_preempted_by_us_runs() {
        assert_eq!(did_halted(1, 10, 100, LOCK), State::Blocked, "20 µs after");
        assert_eq!(did_halted(1, 10, 50, LOCK), State::Runnable, "70 µs after");
        assert_eq!(did_halted(1, 10, 100, None), State::OnCpu);
        assert_eq!(did_halted(1, 10, 130, None), State::Runnable, "before");
        let behind = |waited, waits| did_where(true, 1, 10, waited, waits);
        assert_eq!(behind(50, LOCK), State::Blocked, "we have its CPU");
        assert_eq!(behind(300, LOCK), State::Runnable, "before that");
        assert_eq!(behind(300, Some(BlockReason::Timer)), State::Blocked);
        assert_eq!(behind(900, Some(BlockReason::Timer)), State::Runnable);
    }

    #[test]
    fn the_stretch_goes_to_the_stack_of_the_poll() {
        let mut s = stopped(false, (1, 20, 300), StopPlace::Computing);
        s.poll.woken_from = Some(3);
        let at = |s: &StoppedThread| judge(s).map(|j| (j.stack, j.state, j.part));
        assert_eq!(at(&s), Some((3, State::Runnable, Some(Part::Woken))));
        s.poll.woken_from = None;
        assert_eq!(at(&s), Some((7, State::Runnable, Some(Part::Woken))));
        let s = stopped(false, (0, 2000, 0), StopPlace::Computing);
        assert_eq!(at(&s), Some((7, State::OnCpu, Some(Part::User))));
    }

    #[test]
    fn a_thread_that_waited_behind_us_slept_until_then() {
        let mut s = stopped(true, (1, 10, 90), StopPlace::Computing);
        (s.poll.woken_from, s.found) = (Some(3), FoundThread::Ran(BlockReason::Lock));
        let slept = judge(&s).map(|j| (j.stack, j.reason));
        assert_eq!(slept, Some((3, LOCK)));
        s.counters.timeslices = s.poll.counters.timeslices;
        assert_eq!(judge(&s), None, "it has not run");
        s.counters = counters(10, 900, 4);
        assert_eq!(judge(&s), None, "others kept it from its CPU");
    }
}
