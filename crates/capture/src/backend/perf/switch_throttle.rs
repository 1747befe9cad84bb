//! Threads that switch so often that telling of each switch would slow them down have records for a
//! part of the time only.
//!
//! A recorded switch costs the thread three to four microseconds: the record, the clock that is started
//! and stopped with it, and the work of perf events at every switch, even of switched-off ones. Up to
//! [`FEW`] switches a second that is a few per cent. Beyond, the events of the thread are closed and
//! opened again in turn, for a part of the time ([`LEAST`] at least). Its totals stay exact: between its
//! turns they are the scheduler's counters', as in the `proc` backend. What only records tell (preempted
//! apart from woken, what runs on the CPU) is then a sample, by as many stacks a second as of any
//! other thread: in its turns they come more often.
//!
//! Events that were inherited cannot be closed one by one: a family is given events of its own first.

use super::Course;
use crate::{
    backend::proc::{counters::Counters, poller::Looker},
    session,
};

/// Switches a second whose records a thread can bear.
const FEW: f64 = 15_000.0;
/// The least part of the time that is recorded.
const LEAST: f64 = 0.05;
/// For how long switches are counted before that is judged, ns.
const JUDGED: u64 = 100_000_000;
/// Length of a turn, in looks.
const TURN: u64 = 2;
/// A turn that was longer, as no look came, is not made up for beyond this, ns: there would be no other for long.
const LONGEST_NS: u64 = 200_000_000;

/// How a thread's records are rationed.
#[derive(Clone, Copy, Debug)]
pub struct Ration {
    /// The part of the time that is recorded; 1: all of it.
    pub share: f64,
    /// Time without records so far, ns.
    pub unrecorded_ns: u64,
    /// When the present turn, or the time between two, began.
    since: u64,
    /// How long the last turn was, ns: looks may come late, and turns end with them.
    turn_ns: u64,
    /// Switches that were counted when the turn began.
    switches: u64,
}

impl Ration {
    fn new(now: u64, switches: u64) -> Ration {
        Ration {
            share: 1.0,
            unrecorded_ns: 0,
            since: now,
            turn_ns: 0,
            switches,
        }
    }

    /// `switches` in all were counted by `now`: how much of the time to record.
    fn judge(&mut self, now: u64, switches: u64) {
        let seconds = now.saturating_sub(self.since).max(1) as f64 / 1e9;
        let rate = switches.saturating_sub(self.switches) as f64 / seconds;
        self.share = (FEW / rate.max(1.0)).clamp(LEAST, 1.0);
        self.turn_ns = now.saturating_sub(self.since).min(LONGEST_NS);
        (self.since, self.switches) = (now, switches);
    }

    /// Whether it has never been needed.
    pub fn is_idle(&self) -> bool {
        self.share >= 1.0 && self.unrecorded_ns == 0
    }

    /// How long to record nothing after the last turn, ns.
    fn pause_ns(&self) -> u64 {
        (self.turn_ns as f64 * (1.0 / self.share - 1.0)) as u64
    }
}

impl Looker {
    /// Ends and begins the turns of threads that switch very often. Where single intervals are kept,
    /// or births must not be missed because counts are inherited, every switch is recorded.
    pub fn ration(&mut self, since: u64) {
        if self.clock.is_none() || self.hits.is_some() {
            return;
        }
        let turn = TURN * self.spacing_ns;
        let (mut ended, mut due) = (Vec::new(), Vec::new());
        let now = session::now();
        // Who rests does not switch.
        for index in self.watch.awake.iter().copied() {
            let t = &mut self.watch.threads[index];
            if !t.alive || t.book.spans.is_some() {
                continue;
            }
            match (&t.course, &mut t.ration) {
                (Some(course), ration) => {
                    let switches = course.voluntary + course.involuntary;
                    let ration = ration.get_or_insert_with(|| Ration::new(now, switches));
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
            (t.skip, t.sight) = (0, None);
            self.join_one(index);
        }
    }

    /// From here on the counters tell of these threads.
    fn end_turns(&mut self, threads: &[usize], since: u64, now: u64) {
        let mut closed = Vec::new();
        for index in threads.iter().copied() {
            let root = self.watch.threads[index].heir_of.unwrap_or(index);
            let live = self.watch.live.iter().copied();
            let family: Vec<usize> = live
                .filter(|i| {
                    let t = &self.watch.threads[*i];
                    (*i == root || t.heir_of == Some(root)) && t.course.is_some()
                })
                .collect();
            // Up to the counters' figures, records tell; what they tell of later is left out.
            for member in family {
                let t = &mut self.watch.threads[member];
                let books = t.schedstat();
                if let (Ok(books), Some(course)) = (books, &mut t.course) {
                    course.read(session::now(), books, true);
                    closed.push(member);
                }
                t.heir_of = None;
            }
            if let Some(clock) = &mut self.clock {
                clock.leave(self.watch.threads[root].tid);
            }
        }
        // Who is born to one of them from now on is found by listing.
        self.relist = true;
        self.drain(since, now);
        for index in closed {
            self.watch.wake(index);
            let t = &mut self.watch.threads[index];
            let Some(mut course) = t.course.take() else {
                continue;
            };
            course.settle(&mut t.book, self.grid, &mut self.lag, u64::MAX);
            t.counters = Counters::new(course.books());
            t.told_by(&course);
            if let Some(begin) = course.off_since() {
                let end = t.book.seen_ns;
                self.waited(index, begin, end);
            }
            // The others of a family are at no fault.
            if !threads.contains(&index) {
                self.join_one(index);
            }
        }
    }

    /// Opens the events of one thread, whose time so far is the counters' to tell.
    fn join_one(&mut self, index: usize) {
        let Some(clock) = &mut self.clock else { return };
        let t = &mut self.watch.threads[index];
        let share = t.ration.map_or(1.0, |r| r.share);
        if clock.join(t.tid, share).is_err() {
            // It goes on by its counters.
            clock.left_out += 1;
            if let Some(ration) = &mut t.ration {
                ration.share = 1.0;
            }
            return;
        }
        let now = session::now();
        let Ok(books) = t.schedstat() else { return };
        t.counters.look(&mut t.book, now, books, t.doing, self.grid);
        t.counters.settle(&mut t.book, self.grid);
        let course = Course::joined(now, books);
        t.course = Some(match &mut t.ration {
            Some(ration) if ration.share < 1.0 => {
                (ration.since, ration.switches) = (now, 0);
                course.by_counters()
            }
            _ => course,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_switch_very_often_are_rationed() {
        let second = 1_000_000_000;
        let share = |rate: u64| {
            let mut r = Ration::new(0, 0);
            r.judge(second, rate);
            r.share
        };
        assert_eq!(share(0), 1.0);
        assert_eq!(share(15_000), 1.0);
        assert_eq!(share(60_000), 0.25);
        assert_eq!(share(1_000_000), LEAST);
    }

    #[test]
    fn a_turn_that_ended_late_is_made_up_for() {
        let mut r = Ration::new(1_000, 50);
        // 60,000 a second for 30 ms, whatever the turn was to be.
        r.judge(1_000 + 30_000_000, 50 + 1_800);
        assert_eq!(
            (r.share, r.pause_ns(), r.since),
            (0.25, 90_000_000, 30_001_000)
        );
        // The next turn is judged from its own beginning on.
        (r.since, r.switches) = (200_000_000, 0);
        r.judge(210_000_000, 600);
        assert_eq!((r.share, r.pause_ns()), (0.25, 30_000_000));
    }
}
