//! Ending and beginning the turns of threads that switch very often (see [`super::switch_throttle`]).

use wallscope_observe::{FirstState, RecordsEndCause};

use super::{
    SwitchThrottle,
    switch_throttle::{JUDGED, TURN},
};
use crate::{
    backend::proc::{facts::LaterRecords, poller::ProcPoller},
    clock,
};

impl ProcPoller {
    /// Ends and begins the turns of threads that switch very often. Where single intervals are kept,
    /// or births must not be missed because counts are inherited, every switch is recorded.
    pub fn ration(&mut self, since: u64) {
        if self.clock.is_none() || self.hits.is_some() {
            return;
        }
        let turn = TURN * self.rounds.spacing_ns;
        let (mut ended, mut due) = (Vec::new(), Vec::new());
        let now = clock::now();
        // A thread that rests does not switch.
        for index in self.watch.awake.iter().copied() {
            let t = &mut self.watch.threads[index];
            let account = &self.intake.estimator.accounts[index];
            if !t.alive || account.book.spans.is_some() {
                continue;
            }
            match (&account.course, &mut t.records.ration) {
                (Some(course), ration) => {
                    let switches = course.untold.voluntary + course.untold.involuntary;
                    let ration = ration.get_or_insert_with(|| SwitchThrottle::new(now, switches));
                    let judged = if ration.share < 1.0 { turn } else { JUDGED };
                    if now < ration.since + judged {
                        continue;
                    }
                    ration.judge(now, switches);
                    if ration.share < 1.0 {
                        ended.push(index);
                    }
                }
                (None, Some(ration)) if ration.share < 1.0 => {
                    if now >= ration.since + ration.pause_ns() {
                        ration.unrecorded_ns += now.saturating_sub(ration.since);
                        ration.since = now;
                        due.push(index);
                    }
                }
                (None, _) => {}
            }
        }
        if !ended.is_empty() {
            self.end_turns(&ended, since, now);
        }
        for index in due {
            let t = &mut self.watch.threads[index];
            t.duty.skip = 0;
            self.join_one(index);
        }
    }

    /// From here on the counters tell of these threads.
    fn end_turns(&mut self, threads: &[usize], since: u64, now: u64) {
        let mut closed = Vec::new();
        for index in threads.iter().copied() {
            let root = self.watch.threads[index].records.heir_of.unwrap_or(index);
            let live = self.watch.live.iter().copied();
            let family: Vec<usize> = live
                .filter(|i| {
                    let t = &self.watch.threads[*i];
                    (*i == root || t.records.heir_of == Some(root)) && t.records.open
                })
                .collect();
            // Records count up to the time of the counters' figures; later ones are left out.
            for member in family {
                let t = &mut self.watch.threads[member];
                t.records.heir_of = None;
                // Two of one family may switch too often.
                if closed.contains(&member) {
                    continue;
                }
                if let Ok(books) = t.schedstat() {
                    self.tell_counters(member, clock::now(), books, LaterRecords::LeftOut);
                    closed.push(member);
                }
            }
            if let Some(clock) = &mut self.clock {
                clock.leave(self.watch.threads[root].tid);
            }
        }
        // A child of one of them is found by listing from now on.
        self.records.relist = true;
        self.drain(since, now);
        for index in closed {
            self.watch.wake(index);
            self.tell_end_of_wait(index, None);
            self.end_records(index, RecordsEndCause::Closed);
            // The other threads of a family have not switched too often.
            if !threads.contains(&index) {
                self.join_one(index);
            }
        }
    }

    /// Opens the events of one thread. The counters tell its time so far.
    fn join_one(&mut self, index: usize) {
        let Some(clock) = &mut self.clock else { return };
        let t = &mut self.watch.threads[index];
        let share = t.records.ration.map_or(1.0, |r| r.share);
        if clock.join(t.tid, share).is_err() {
            // It goes on by its counters.
            clock.left_out += 1;
            if let Some(ration) = &mut t.records.ration {
                ration.share = 1.0;
            }
            return;
        }
        let now = clock::now();
        let Ok(books) = t.schedstat() else { return };
        if let Some(ration) = t.records.ration.as_mut().filter(|r| r.share < 1.0) {
            (ration.since, ration.switches) = (now, 0);
        }
        self.begin_records(index, now, books, FirstState::Unknown);
    }
}
