//! The end of a killed recorder's log: each thread goes on to it as it was last seen.
//!
//! A thread that slept at its last poll sleeps on: it is polled again soon after it has run. One that ran may
//! have done anything since, which is unknown time. Threads with recorded switches stay as their last record
//! says (`backend/perf/estimate.rs`).

use wallscope_observe::ThreadPoll;

use super::{
    account::observed, counters::PolledActivity, estimator::PollEstimator, time_kind::TimeKind,
};

impl PollEstimator {
    /// Ends all threads at `end_ns`, when the recorder was killed. A recording with a logged end stays as it is.
    pub fn ends_early(&mut self, end_ns: u64) {
        if self.facts.end_ns.is_some() {
            return;
        }
        self.facts.end_ns = Some(end_ns);
        for (thread, index) in (0u32..).zip(0..self.accounts.len()) {
            let account = &self.accounts[index];
            if !account.alive || account.book.seen_ns >= end_ns {
                continue;
            }
            let taken = match (&account.course, account.seen.doing) {
                (Some(_), _) => self.records_end_early(thread, end_ns),
                (None, PolledActivity::Blocked(_)) => self.sleeps_on(thread, end_ns),
                (None, PolledActivity::Running) => self.is_unknown_from_here(index, end_ns),
            };
            self.malformed += u64::from(taken.is_none());
        }
    }

    /// A thread has not run since its last poll.
    fn sleeps_on(&mut self, thread: u32, end_ns: u64) -> Option<()> {
        let counters = self.accounts[thread as usize].counters.last();
        self.polled(&ThreadPoll {
            thread,
            time: end_ns,
            counters: observed(counters),
            left_out: 0,
            saw: None,
        })
    }

    fn is_unknown_from_here(&mut self, index: usize, end_ns: u64) -> Option<()> {
        let begin = self.accounts[index].book.seen_ns;
        self.make_room(begin, end_ns);
        let (grid, account) = (self.grid, &mut self.accounts[index]);
        account.counters.settle(account.book.sliced(grid));
        let unknown = end_ns - begin;
        let mut book = account.book.sliced(grid);
        book.add(begin, end_ns, TimeKind::Unknown, unknown);
        account.book.seen_ns = end_ns;
        Some(())
    }
}
