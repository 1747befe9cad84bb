//! A thread's time by the scheduler's own counters, read now and then.
//!
//! `schedstat` counts a thread's on-CPU time and run-queue latency between two polls. For the rest of the time the
//! thread was blocked. Only that rest is a difference, and it is exact because the two counters are.
//!
//! The counters lag for a thread that is runnable right now: to the next tick while it runs, to its next turn while it
//! waits for a CPU. The time of such a thread since the last poll is therefore held back until the counters have moved
//! on. Once it has its turn, the counter has its whole run-queue latency. The part that exceeds the time since it was
//! last known not to wait lies before it was watched, and is left out.

use wallscope_model::BlockReason;
use wallscope_procfs::process::SchedStat;

use super::{thread_ledger::SlicedLedger, time_kind::TimeKind};

/// What a poll saw the thread do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolledActivity {
    /// On a CPU, or waiting for one.
    Running,
    /// Blocked.
    Blocked(BlockReason),
}

/// A thread's counters at its last poll, and the time that they do not explain yet.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    last: SchedStat,
    /// Length of the last stretch, which is not given to a state yet, ns.
    pending: u64,
    /// The part of that stretch, at its end, in which the counters did not move, ns.
    still: u64,
    /// Time by which the counters exceed the clock, to be taken from later blocked time, ns.
    debt: u64,
}

impl Counters {
    /// Begins where the counters stand at `base`.
    pub fn new(base: SchedStat) -> Counters {
        Counters {
            last: base,
            pending: 0,
            still: 0,
            debt: 0,
        }
    }

    /// The counters at the last poll.
    pub fn last(&self) -> SchedStat {
        self.last
    }

    /// Whether the thread has not run since the last poll.
    pub fn unchanged(&self, books: SchedStat) -> bool {
        self.last == books
    }

    /// On-CPU time and run-queue latency since the last poll, ns.
    pub fn since(&self, books: SchedStat) -> [u64; 2] {
        [
            books.on_cpu_ns.saturating_sub(self.last.on_cpu_ns),
            books.run_delay_ns.saturating_sub(self.last.run_delay_ns),
        ]
    }

    /// Takes a poll at `now`: gives the time since the last one to states.
    pub fn book_poll(
        &mut self,
        mut book: SlicedLedger<'_>,
        now: u64,
        books: SchedStat,
        doing: PolledActivity,
    ) {
        let begin = book.ledger.seen_ns;
        let dt = now.saturating_sub(begin);
        let unchanged = self.unchanged(books);
        let [on_cpu, queued] = self.since(books);
        let have = self.pending + dt;
        let queued = queued.min(have.saturating_sub(on_cpu));
        book.add(begin, now, TimeKind::OnCpu, on_cpu);
        book.add(begin, now, TimeKind::Queued, queued);
        let taken = on_cpu + queued + self.debt;
        self.debt = taken.saturating_sub(have);
        let mut rest = have.saturating_sub(taken);
        self.pending = match doing {
            PolledActivity::Running if unchanged => rest,
            PolledActivity::Running => rest.min(dt),
            PolledActivity::Blocked(_) => 0,
        };
        self.still = match doing {
            PolledActivity::Running if unchanged => self.still + dt,
            _ => 0,
        };
        rest -= self.pending;
        book.add(begin, now, TimeKind::Blocked, rest);
        (self.last, book.ledger.seen_ns) = (books, now);
    }

    /// Gives the time that was held back to a state: no poll follows.
    pub fn settle(&mut self, mut book: SlicedLedger<'_>) {
        let end = book.ledger.seen_ns;
        let pending = std::mem::take(&mut self.pending);
        // It waited for a CPU to the very end. Its turn never came, so no counter has that time.
        let queued = std::mem::take(&mut self.still).min(pending);
        let turned = end.saturating_sub(queued);
        let begin = end.saturating_sub(pending);
        book.add(begin, turned, TimeKind::Blocked, pending - queued);
        book.add(turned, end, TimeKind::Queued, queued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::perf::wait_strata::WaitStrata;
    use crate::backend::proc::thread_ledger::{ThreadLedger, Totals};
    use wallscope_model::Slices;

    const MS: u64 = 1_000_000;
    const GRID: Slices = Slices {
        start_ns: 0,
        width_ns: 50 * MS,
        count: 0,
    };

    struct Reader(ThreadLedger, Counters);

    impl Reader {
        fn new(start: u64) -> Reader {
            Reader(ThreadLedger::new(start), Counters::new(books(0, 0, 1)))
        }

        fn poll(&mut self, now: u64, books: SchedStat, doing: PolledActivity) {
            let book = self.0.sliced(GRID);
            self.1.book_poll(book, now * MS, books, doing);
        }

        fn finish(mut self) -> Totals {
            self.1.settle(self.0.sliced(GRID));
            self.0.finish(&WaitStrata::default())
        }
    }

    fn books(on_cpu_ms: u64, run_delay_ms: u64, timeslices: u64) -> SchedStat {
        SchedStat {
            on_cpu_ns: on_cpu_ms * MS,
            run_delay_ns: run_delay_ms * MS,
            timeslices,
        }
    }

    fn sum(t: &Totals) -> u64 {
        t.on_cpu + t.woken + t.blocked.iter().sum::<u64>()
    }

    #[test]
    fn the_rest_is_blocked() {
        let mut r = Reader::new(0);
        let lock = PolledActivity::Blocked(BlockReason::Lock);
        r.poll(10, books(2, 1, 3), lock);
        r.poll(90, books(2, 1, 3), lock);
        let t = r.finish();
        assert_eq!((t.on_cpu, t.woken), (2 * MS, MS));
        assert_eq!((sum(&t), t.slices.len()), (90 * MS, 2));
    }

    #[test]
    fn a_queued_thread_is_not_taken_for_blocked() {
        let mut r = Reader::new(0);
        for poll in 1..=3 {
            r.poll(poll * 10, books(0, 0, 1), PolledActivity::Running);
        }
        // Its turn has come: the counter now has its run-queue latency.
        r.poll(40, books(5, 35, 2), PolledActivity::Running);
        let t = r.finish();
        assert_eq!((t.on_cpu, t.woken, sum(&t)), (5 * MS, 35 * MS, 40 * MS));
    }

    #[test]
    fn run_queue_latency_from_before_the_beginning_is_left_out() {
        let mut r = Reader::new(0);
        r.poll(10, books(0, 0, 1), PolledActivity::Running);
        r.poll(20, books(5, 900, 2), PolledActivity::Running);
        r.poll(30, books(15, 900, 2), PolledActivity::Running);
        let t = r.finish();
        assert_eq!((t.on_cpu, t.woken, sum(&t)), (15 * MS, 15 * MS, 30 * MS));
    }

    #[test]
    fn a_thread_queued_to_the_end_is_runnable() {
        let mut r = Reader::new(0);
        for poll in 1..=3 {
            r.poll(poll * 10, books(10, 0, 1), PolledActivity::Running);
        }
        let t = r.finish();
        assert_eq!((t.on_cpu, t.woken, sum(&t)), (10 * MS, 20 * MS, 30 * MS));
        // It began to wait within a stretch in which it ran. When in that stretch is not known.
        let mut r = Reader::new(0);
        for poll in 1..=3 {
            r.poll(poll * 10, books(6, 0, 1), PolledActivity::Running);
        }
        let t = r.finish();
        assert_eq!((t.on_cpu, t.woken, sum(&t)), (6 * MS, 20 * MS, 30 * MS));
    }

    #[test]
    fn counters_ahead_of_the_clock_are_paid_back() {
        let mut r = Reader::new(0);
        r.poll(10, books(12, 0, 1), PolledActivity::Running);
        r.poll(
            20,
            books(12, 0, 2),
            PolledActivity::Blocked(BlockReason::Pipe),
        );
        let t = r.finish();
        assert_eq!((t.on_cpu, sum(&t)), (12 * MS, 20 * MS));
    }

    #[test]
    fn slices_add_up_to_the_totals() {
        let mut r = Reader::new(3 * MS);
        for poll in 1..40u64 {
            let reason = if poll % 3 == 0 {
                BlockReason::Disk
            } else {
                BlockReason::Timer
            };
            let seen = if poll % 4 == 0 {
                PolledActivity::Running
            } else {
                PolledActivity::Blocked(reason)
            };
            r.poll(3 + poll * 7, books(poll * 2, poll, poll), seen);
        }
        let t = r.finish();
        let on: u64 = t.slices.iter().map(|s| s.on_cpu_ns).sum();
        let blocked: u64 = t.slices.iter().flat_map(|s| s.blocked).sum();
        assert_eq!((on, blocked), (t.on_cpu, t.blocked.iter().sum()));
        assert_eq!(sum(&t), 39 * 7 * MS);
    }
}
