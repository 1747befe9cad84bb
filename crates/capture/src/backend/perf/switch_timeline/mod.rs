//! A thread's time by its switches.
//!
//! Each record ends an interval and begins another: on a CPU, preempted, or off the CPU after a voluntary switch.
//! All three are exact and do not depend on the scheduler's counters. The counters are read beside them now and
//! then. They serve for three things. They tell the run-queue latency after a wake-up, of which there is no record.
//! They count how often the thread was put on a CPU, which shows whether records are missing. If records are
//! missing, the counters replace the records of that stretch, which is reported as repaired.
//!
//! The state of a thread that was there before its events were opened is not known before its first record, or the
//! first reading of the counters.

use wallscope_observe::{FirstState, SwitchStep};
use wallscope_procfs::process::SchedStat;

use crate::backend::proc::{thread_ledger::SlicedLedger, time_kind::TimeKind};

mod schedstat_reconcile;
mod switch_record_latency;

pub use switch_record_latency::SwitchRecordLatency;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Unknown,
    OnCpu,
    PutOff,
    Queued,
    Off,
}

/// What was booked since the counters were read last, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    on_cpu: u64,
    /// Waiting for a CPU, by the records.
    waiting: u64,
    off: u64,
    /// Times it was put on a CPU after a voluntary switch.
    ins: u64,
    /// Times it was put on a CPU after a wait for a CPU that the records know.
    ins_waited: u64,
}

/// Readings of the scheduler's counters.
#[derive(Clone, Copy, Debug)]
struct CounterReadings {
    /// The one that was compared last, and when it was made.
    last: SchedStat,
    checked_ns: u64,
    /// One that has not been compared yet, and when it was made.
    next: Option<(u64, SchedStat)>,
    /// Nothing beyond `next` is to be booked.
    closing: bool,
}

/// Difference between the scheduler's counters and the records.
#[derive(Clone, Copy, Debug, Default)]
struct CounterGap {
    /// Times on a CPU that the counter has and the records have not.
    missing: i64,
    /// Waiting that the counter has and the ledger has not, ns.
    owed: i64,
    /// Records are known to be missing.
    lossy: bool,
    /// Checks in a row at which it had run without any record.
    silent: u32,
    /// It was on a CPU when it was joined, as far as is known, and no comparison has been made since.
    ran_when_joined: bool,
}

/// What is counted beside a thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounts {
    /// Voluntary switches.
    pub voluntary: u64,
    /// Preemptions.
    pub involuntary: u64,
    /// Time that was taken from the counters, ns.
    pub repaired_ns: u64,
    /// Waiting that the counter has from before the records began, ns.
    pub waited_before_ns: u64,
    /// Time on a CPU that the records have and the counter has not, ns.
    beyond: i64,
}

/// See the top of this file. Times are ns on the recording's clock.
#[derive(Clone, Debug)]
pub struct SwitchTimeline {
    at: At,
    /// When the present state began.
    begun: u64,
    /// Up to when it is booked.
    booked: u64,
    counters: CounterReadings,
    stretch: Stretch,
    lag: SwitchRecordLatency,
    gap: CounterGap,
    /// Totals are the counters'.
    by_counters: bool,
    moved: bool,
    /// Counts that were not reported yet.
    pub untold: SwitchCounts,
    /// Recent voluntary switches, and preemptions.
    lately: [u32; 2],
    /// Time on a CPU by its records, ns.
    pub computed_ns: u64,
    /// Time off the CPU until its first turn; `None`: that has come.
    before_turn: Option<u64>,
}

/// Checks in a row in which a thread ran and nothing was recorded of it, after which its records have stopped.
const DEAF: u32 = 3;
/// A thread that is preempted less often than once in so many switches is hardly ever preempted.
const RARELY_PREEMPTED: u32 = 16;
/// Voluntary switches that are enough to judge that.
const KNOWN: u32 = 256;

impl SwitchTimeline {
    /// Begins at `now`, in a state that is not known, when the counters stood at `books`.
    pub fn joined(now: u64, books: SchedStat) -> SwitchTimeline {
        SwitchTimeline {
            at: At::Unknown,
            begun: now,
            booked: now,
            counters: CounterReadings {
                last: books,
                checked_ns: now,
                next: None,
                closing: false,
            },
            stretch: Stretch::default(),
            lag: SwitchRecordLatency::default(),
            gap: CounterGap {
                ran_when_joined: true,
                ..CounterGap::default()
            },
            by_counters: false,
            moved: true,
            untold: SwitchCounts::default(),
            lately: [0; 2],
            computed_ns: 0,
            before_turn: Some(0),
        }
    }

    /// The counters make its totals, and the records divide them.
    pub fn by_counters(self) -> SwitchTimeline {
        SwitchTimeline {
            by_counters: true,
            ..self
        }
    }

    /// Begins in this state.
    pub fn in_state(mut self, state: FirstState) -> SwitchTimeline {
        let at = match state {
            FirstState::Unknown => At::Unknown,
            FirstState::Born => At::Queued,
            FirstState::Blocked => At::Off,
            FirstState::OnCpu => At::OnCpu,
        };
        self.gap.ran_when_joined &= matches!(at, At::Unknown | At::OnCpu);
        SwitchTimeline { at, ..self }
    }

    /// Time since which it is off the CPU after a voluntary switch, if it is.
    pub fn off_since(&self) -> Option<u64> {
        (self.at == At::Off).then_some(self.begun)
    }

    /// Time since which it is off the CPU after a voluntary switch, if nothing is to be done until its next record:
    /// the counters have been read and compared.
    pub fn rests_since(&self) -> Option<u64> {
        let settled = !self.moved && self.counters.next.is_none() && !self.is_deaf();
        self.off_since().filter(|_| settled)
    }

    /// Since when it is on a CPU, if it is.
    pub fn on_since(&self) -> Option<u64> {
        (self.at == At::OnCpu).then_some(self.begun)
    }

    /// Whether it is preempted.
    pub fn is_put_off(&self) -> bool {
        self.at == At::PutOff
    }

    /// Time for which it has waited for a CPU by now, ns: the scheduler's counter has it only when the wait is
    /// over.
    pub fn in_line_ns(&self) -> u64 {
        match self.at {
            At::PutOff | At::Queued => self.booked.saturating_sub(self.begun),
            At::Unknown | At::OnCpu | At::Off => 0,
        }
    }

    /// Whether more than one in [`RARELY_PREEMPTED`] of its recent switches was a preemption.
    pub fn is_put_off_often(&self) -> bool {
        let [left, put_off] = self.lately;
        put_off * RARELY_PREEMPTED > left
    }

    /// Whether it has switched often enough to judge that.
    pub fn is_known(&self) -> bool {
        self.lately[0] >= KNOWN
    }

    /// It left its CPU.
    fn note_switch(&mut self, preempted: bool) {
        self.lately[usize::from(preempted)] += 1;
        if self.lately.iter().sum::<u32>() > 4 * KNOWN {
            self.lately = self.lately.map(|n| n / 2);
        }
    }

    /// The counts have been reported, and begin anew.
    pub fn told(&mut self) {
        self.untold = SwitchCounts::default();
    }

    /// The counters as they were compared last.
    pub fn books(&self) -> SchedStat {
        self.counters.last
    }

    /// Whether anything was recorded since the counters were read last.
    pub fn moved(&self) -> bool {
        self.moved
    }

    /// Some records are missing: the next check believes the counters.
    pub fn mistrust(&mut self) {
        (self.gap.lossy, self.moved) = (true, true);
    }

    /// Whether its records have stopped coming although it runs.
    pub fn is_deaf(&self) -> bool {
        self.gap.silent >= DEAF
    }

    /// Takes a record. Returns the interval off the CPU that it ends.
    pub fn step(
        &mut self,
        book: &mut SlicedLedger<'_>,
        lag: &mut SwitchRecordLatency,
        time: u64,
        step: SwitchStep,
    ) -> Option<(u64, u64)> {
        self.settle(book, lag, time);
        if self.counters.closing && self.counters.next.is_none() {
            return None;
        }
        let time = time.max(self.booked);
        self.moved = true;
        if self.at == At::Unknown {
            self.at = match step {
                SwitchStep::In => At::Off,
                SwitchStep::Out { .. } | SwitchStep::End => At::OnCpu,
            };
            self.gap.ran_when_joined &= self.at == At::OnCpu;
        }
        let next = match (step, self.at) {
            // The thread has two events, and the record of the other one has said this already.
            (SwitchStep::In, At::OnCpu) | (SwitchStep::Out { .. }, At::Off | At::PutOff) => {
                return None;
            }
            (SwitchStep::In, At::PutOff | At::Queued) => {
                self.stretch.ins_waited += 1;
                At::OnCpu
            }
            (SwitchStep::In, _) => {
                self.stretch.ins += 1;
                At::OnCpu
            }
            (SwitchStep::Out { preempted: true }, _) => {
                self.untold.involuntary += 1;
                self.note_switch(true);
                At::PutOff
            }
            (SwitchStep::Out { preempted: false }, _) => {
                self.untold.voluntary += 1;
                self.note_switch(false);
                At::Off
            }
            (SwitchStep::End, at) => at,
        };
        let ended = (self.at == At::Off).then_some((self.begun, time));
        self.advance(book, time);
        (self.at, self.begun) = (next, time);
        if step == SwitchStep::End {
            self.date_back(book, self.lag.or(lag));
        }
        if step == SwitchStep::End && self.gap.lossy {
            // The counters cannot be read any more.
            let s = self.stretch;
            for (kind, ns) in [(TimeKind::OnCpu, s.on_cpu), (TimeKind::Off, s.off)] {
                book.shift(self.counters.checked_ns, kind, TimeKind::Unknown, ns);
            }
        }
        ended
    }

    /// The recorder ended at `time`: until then the thread is as its last record says. Returns the interval off
    /// the CPU that counts up to there.
    pub fn end_early(
        &mut self,
        book: &mut SlicedLedger<'_>,
        lag: &mut SwitchRecordLatency,
        time: u64,
    ) -> Option<(u64, u64)> {
        self.settle(book, lag, time);
        if self.at != At::Unknown {
            return self.step(book, lag, time, SwitchStep::End);
        }
        let ns = time.saturating_sub(self.booked);
        book.add(self.booked, time, TimeKind::Unknown, ns);
        book.ledger.seen_ns = book.ledger.seen_ns.max(time);
        None
    }

    /// Books the open interval up to `time`.
    fn advance(&mut self, book: &mut SlicedLedger<'_>, time: u64) {
        let ns = time.saturating_sub(self.booked);
        let (kind, sum) = match self.at {
            At::Unknown => return,
            At::OnCpu => (TimeKind::OnCpu, &mut self.stretch.on_cpu),
            At::PutOff => (TimeKind::PutOff, &mut self.stretch.waiting),
            At::Queued => (TimeKind::Queued, &mut self.stretch.waiting),
            At::Off => (TimeKind::Off, &mut self.stretch.off),
        };
        *sum += ns;
        if self.at == At::OnCpu {
            self.computed_ns += ns;
        }
        book.add(self.booked, time, kind, ns);
        self.booked = self.booked.max(time);
        book.ledger.seen_ns = book.ledger.seen_ns.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{
        perf::wait_strata::WaitStrata,
        proc::thread_ledger::{ThreadLedger, Totals},
    };
    use wallscope_model::Slices;

    const GRID: Slices = Slices {
        start_ns: 0,
        width_ns: 50,
        count: 0,
    };
    const OUT: SwitchStep = SwitchStep::Out { preempted: false };
    /// A turn on the CPU of 20 µs, by its records.
    const IN_AND_OUT: [(u64, SwitchStep); 2] = [(50_000, SwitchStep::In), (70_000, OUT)];
    const PUT_OFF: SwitchStep = SwitchStep::Out { preempted: true };

    fn books(on_cpu: u64, run_delay: u64, timeslices: u64) -> SchedStat {
        SchedStat {
            on_cpu_ns: on_cpu,
            run_delay_ns: run_delay,
            timeslices,
        }
    }

    fn run(
        course: &mut SwitchTimeline,
        steps: &[(u64, SwitchStep)],
        end: u64,
        last: SchedStat,
    ) -> Totals {
        let (mut book, mut lag) = (ThreadLedger::new(0), SwitchRecordLatency::default());
        for (time, step) in steps {
            course.step(&mut book.sliced(GRID), &mut lag, *time, *step);
        }
        course.read(end, last);
        course.settle(&mut book.sliced(GRID), &mut lag, end);
        let totals = book.finish(&WaitStrata::default());
        let all = totals.on_cpu
            + totals.woken
            + totals.preempted
            + totals.unknown
            + totals.blocked.iter().sum::<u64>();
        assert_eq!(all, end, "nothing is booked twice or left out: {totals:?}");
        totals
    }

    #[test]
    fn intervals_are_those_of_the_records() {
        let mut c = SwitchTimeline::joined(0, books(7, 7, 7));
        let steps = [
            (10, SwitchStep::In),
            (30, PUT_OFF),
            (36, SwitchStep::In),
            (60, OUT),
        ];
        // It waited for the CPU in 4 of the first 10 ns off the CPU.
        let t = run(&mut c, &steps, 100, books(51, 17, 9));
        assert_eq!((t.on_cpu, t.preempted, t.woken), (44, 6, 4));
        assert_eq!(
            (
                c.untold.voluntary,
                c.untold.involuntary,
                c.untold.repaired_ns
            ),
            (1, 1, 0)
        );
        assert_eq!(c.off_since(), Some(60));
    }

    #[test]
    fn the_first_record_tells_what_was_before() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        assert_eq!(run(&mut c, &[(40, OUT)], 50, books(40, 0, 1)).on_cpu, 40);
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        assert_eq!(run(&mut c, &[], 50, books(46, 0, 1)).on_cpu, 50);
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        assert_eq!(run(&mut c, &[], 50, books(0, 0, 1)).on_cpu, 0);
        let mut c = SwitchTimeline::joined(0, SchedStat::default()).in_state(FirstState::Born);
        let t = run(&mut c, &[(5, SwitchStep::In)], 50, books(45, 5, 1));
        assert_eq!((t.woken, t.on_cpu), (5, 45));
    }

    #[test]
    fn who_stood_in_line_before_has_only_what_was_since() {
        let mut c = SwitchTimeline::joined(0, books(0, 7, 1));
        let (mut book, mut lag) = (ThreadLedger::new(0), SwitchRecordLatency::default());
        let mut upto = |c: &mut SwitchTimeline, step: Option<u64>, end, books| {
            if let Some(time) = step {
                c.step(&mut book.sliced(GRID), &mut lag, time, SwitchStep::In);
            }
            c.read(end, books);
            c.settle(&mut book.sliced(GRID), &mut lag, end);
        };
        upto(&mut c, None, 20, books(0, 7, 1));
        assert_eq!(c.untold.waited_before_ns, 0);
        upto(&mut c, Some(40), 50, books(10, 107, 2));
        let t = book.finish(&WaitStrata::default());
        assert_eq!((t.on_cpu, t.woken, c.untold.waited_before_ns), (10, 40, 60));
    }

    #[test]
    fn what_is_said_twice_counts_once() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        let steps = [
            (10, SwitchStep::In),
            (11, SwitchStep::In),
            (30, OUT),
            (31, OUT),
        ];
        let t = run(&mut c, &steps, 50, books(20, 0, 2));
        assert_eq!(
            (t.on_cpu, c.untold.voluntary, c.untold.repaired_ns),
            (20, 1, 0)
        );
    }

    #[test]
    fn missing_records_are_found_by_the_count_of_turns() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        let t = run(
            &mut c,
            &[(10, SwitchStep::In), (20, OUT)],
            100,
            books(50, 0, 5),
        );
        assert_eq!((t.on_cpu, c.untold.repaired_ns), (50, 40));
        // A mistrusted stretch in which nothing is wrong changes nothing.
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        c.mistrust();
        let t = run(
            &mut c,
            &[(10, SwitchStep::In), (20, OUT)],
            100,
            books(10, 0, 2),
        );
        assert_eq!((t.on_cpu, c.untold.repaired_ns), (10, 0));
    }

    #[test]
    fn who_is_hardly_ever_put_off_is_told_by_the_latest_switches() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        (0..KNOWN - 1).for_each(|_| c.note_switch(false));
        assert!(!c.is_known() && !c.is_put_off_often());
        (0..KNOWN / RARELY_PREEMPTED).for_each(|_| c.note_switch(true));
        c.note_switch(false);
        assert!(c.is_known() && !c.is_put_off_often());
        c.note_switch(true);
        assert!(c.is_put_off_often());
        (0..100_000).for_each(|_| c.note_switch(false));
        assert!(!c.is_put_off_often());
        (0..KNOWN).for_each(|_| c.note_switch(true));
        assert!(c.is_put_off_often());
    }

    #[test]
    fn who_waited_all_the_time_has_lost_nothing() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        let (mut book, mut lag) = (ThreadLedger::new(0), SwitchRecordLatency::default());
        for (time, step) in [(10, SwitchStep::In), (20, OUT)] {
            c.step(&mut book.sliced(GRID), &mut lag, time, step);
        }
        let mut read = |c: &mut SwitchTimeline, now, on_cpu, turns| {
            c.read(now, books(on_cpu, 0, turns));
            c.settle(&mut book.sliced(GRID), &mut lag, now);
        };
        read(&mut c, 30, 10, 2);
        c.mistrust();
        read(&mut c, 40, 10, 2);
        assert_eq!((c.off_since(), c.rests_since()), (Some(20), Some(20)));
        // This thread ran; whether it still does is not known.
        c.mistrust();
        read(&mut c, 50, 14, 3);
        assert_eq!((c.off_since(), c.on_since()), (None, None));
        let totals = book.finish(&WaitStrata::default());
        assert_eq!((totals.on_cpu, c.untold.repaired_ns), (14, 4));
    }

    #[test]
    fn time_that_the_counter_leaves_out_is_told() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        let mut book = ThreadLedger::new(0);
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            0,
            SwitchStep::In,
        );
        // It had 900 of each 1,000, by the counter; once the counter was 50 late.
        for (now, counted) in [(1_000, 900), (2_000, 1_750), (3_000, 2_700)] {
            c.read(now, books(counted, 0, 2));
            c.settle(
                &mut book.sliced(GRID),
                &mut SwitchRecordLatency::default(),
                now,
            );
        }
        assert_eq!((c.beyond_ns(10), c.beyond_ns(400)), (290, 0));
        assert_eq!(
            (
                book.clone().finish(&WaitStrata::default()).on_cpu,
                c.untold.repaired_ns
            ),
            (3_000, 0)
        );
        // Off its CPU, it has a counter that is up to date.
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            3_000,
            OUT,
        );
        assert_eq!(c.beyond_ns(400), 300);
        c.told();
        assert_eq!(c.beyond_ns(0), 0);
    }

    #[test]
    fn records_that_stop_are_noticed() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        let mut book = ThreadLedger::new(0);
        for poll in 1..=3 {
            assert!(!c.is_deaf());
            c.read(poll * 100, books(poll * 10, 0, 1 + poll * 5));
            c.settle(
                &mut book.sliced(GRID),
                &mut SwitchRecordLatency::default(),
                u64::MAX,
            );
        }
        assert!(c.is_deaf());
        assert_eq!(book.finish(&WaitStrata::default()).on_cpu, 30);
    }

    #[test]
    fn a_reading_is_compared_with_the_records_of_its_own_moment() {
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        let mut book = ThreadLedger::new(0);
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            10,
            SwitchStep::In,
        );
        // Read while it ran; its records until then come later.
        c.read_last(60, books(40, 0, 7));
        for (time, step) in [
            (20, OUT),
            (30, SwitchStep::In),
            (40, OUT),
            (50, SwitchStep::In),
            (55, OUT),
        ] {
            c.step(
                &mut book.sliced(GRID),
                &mut SwitchRecordLatency::default(),
                time,
                step,
            );
        }
        c.settle(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            59,
        );
        assert_eq!(c.booked, 55);
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            70,
            SwitchStep::In,
        );
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            90,
            OUT,
        );
        let t = book.clone().finish(&WaitStrata::default());
        assert_eq!(
            (book.seen_ns, t.on_cpu),
            (60, 40),
            "of which the records had 25"
        );
        assert_eq!(c.untold.repaired_ns, 15);
    }

    #[test]
    fn few_late_records_are_dated_back_by_the_mean_of_all_threads() {
        let mut lag = SwitchRecordLatency::default();
        let grid = Slices {
            width_ns: 1_000_000,
            ..GRID
        };
        let mut all = Vec::new();
        // By its counters, one is 2,000 late at each switch, the other 4,000.
        for late in [2_000, 4_000] {
            let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
            let mut book = ThreadLedger::new(0);
            for step in [
                (50_000, SwitchStep::In),
                (150_000, PUT_OFF),
                (170_000, SwitchStep::In),
                (200_000, OUT),
            ] {
                c.step(&mut book.sliced(grid), &mut lag, step.0, step.1);
            }
            c.read_last(300_000, books(130_000 + 2 * late, 20_000 - late, 3));
            c.settle(&mut book.sliced(grid), &mut lag, u64::MAX);
            assert_eq!(c.untold.repaired_ns, 0);
            all.push(book.finish(&WaitStrata::default()));
        }
        assert_eq!(lag.ns(), 3_000);
        assert_eq!((all[0].on_cpu, all[0].preempted), (134_000, 18_000));
        // Short of its own counter, it gets the rest too.
        assert_eq!((all[1].on_cpu, all[1].preempted), (138_000, 17_000));
    }

    #[test]
    fn many_late_records_are_dated_back_by_their_own_mean() {
        // All others are 9,000 late, this one 2,000.
        let mut lag = SwitchRecordLatency::default();
        lag.add(9_000_000, 1_000);
        let grid = Slices {
            width_ns: 1_000_000_000,
            ..GRID
        };
        let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
        let mut book = ThreadLedger::new(0);
        for turn in 0..100 {
            let begin = turn * 100_000;
            for (after, step) in IN_AND_OUT {
                c.step(&mut book.sliced(grid), &mut lag, begin + after, step);
            }
        }
        c.read_last(10_000_000, books(2_200_000, 0, 101));
        c.settle(&mut book.sliced(grid), &mut lag, u64::MAX);
        assert_eq!(
            (
                book.finish(&WaitStrata::default()).on_cpu,
                c.untold.repaired_ns
            ),
            (2_200_000, 0)
        );
    }

    #[test]
    fn records_that_come_later_and_later_leave_nothing_out() {
        // The first turns are dated back by the mean of those before them, which grows.
        let total = |ran_when_joined: bool| {
            let mut lag = SwitchRecordLatency::default();
            let grid = Slices {
                width_ns: 1_000_000_000,
                ..GRID
            };
            let mut c = SwitchTimeline::joined(0, books(0, 0, 1));
            let mut book = ThreadLedger::new(0);
            let mut counted = 0;
            if ran_when_joined {
                // Its counter was read half a tick late then.
                c.step(&mut book.sliced(grid), &mut lag, 10_000, OUT);
                counted += 10_000 + 2_000_000;
            }
            for turn in 0..100 {
                let begin = 20_000 + turn * 100_000;
                for (after, step) in IN_AND_OUT {
                    c.step(&mut book.sliced(grid), &mut lag, begin + after, step);
                }
                counted += 20_000 + turn * 100;
                c.read(begin + 80_000, books(counted, 0, turn + 2));
                c.settle(&mut book.sliced(grid), &mut lag, begin + 80_000);
            }
            assert_eq!(c.untold.repaired_ns, 0);
            (book.finish(&WaitStrata::default()).on_cpu, counted)
        };
        let (booked, counted) = total(false);
        assert_eq!(booked, counted);
        let (booked, counted) = total(true);
        let before = 2_000_000;
        assert!(
            booked.abs_diff(counted - before) < 50_000,
            "{booked} of {counted}"
        );
    }

    #[test]
    fn an_end_after_a_loss_is_unknown_back_to_the_last_reading() {
        let mut c = SwitchTimeline::joined(0, SchedStat::default()).in_state(FirstState::Born);
        let mut book = ThreadLedger::new(0);
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            0,
            SwitchStep::In,
        );
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            10,
            OUT,
        );
        c.mistrust();
        c.step(
            &mut book.sliced(GRID),
            &mut SwitchRecordLatency::default(),
            30,
            SwitchStep::End,
        );
        let t = book.finish(&WaitStrata::default());
        assert_eq!((t.unknown, t.on_cpu), (30, 0));
    }
}
