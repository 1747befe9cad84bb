//! The scheduler's counters beside the records.
//!
//! Records are taken later than the counters are read. A reading is therefore kept until all records
//! up to its moment have been taken, and compared with the records of that very moment.

use wallscope_procfs::process::SchedStat;

use super::{At, SwitchRecordLatency, SwitchTimeline};
use crate::backend::proc::{thread_ledger::SlicedLedger, time_kind::TimeKind};

impl SwitchTimeline {
    /// The counters stand at `books` at `now`.
    pub fn read(&mut self, now: u64, books: SchedStat) {
        self.counters.next = Some((now, books));
        self.moved = false;
    }

    /// The counters stand at `books` at `now`, and nothing later is to be booked.
    pub fn read_last(&mut self, now: u64, books: SchedStat) {
        self.read(now, books);
        self.counters.closing = true;
    }

    /// No record after `until` has been taken: a later reading has nothing to be compared with.
    pub fn forget_reading_after(&mut self, until: u64) {
        self.counters.next.take_if(|(at, _)| *at > until);
    }

    /// All records up to `until` have been taken: compares the last reading, if it is no later.
    pub fn settle(
        &mut self,
        book: &mut SlicedLedger<'_>,
        lag: &mut SwitchRecordLatency,
        until: u64,
    ) {
        if let Some((now, books)) = self.counters.next.take_if(|(now, _)| *now <= until) {
            self.compare(book, lag, now, books);
        }
    }

    /// When the reading was made that is compared once all records up to `until` have been taken.
    pub fn settles_at(&self, until: u64) -> Option<u64> {
        let reading = self.counters.next.map(|(at, _)| at);
        reading.filter(|at| *at <= until)
    }

    /// Time on a CPU by the records that the scheduler's counter leaves out: steal, and on some kernels interrupts.
    /// `tick`: time for which the counter of a running thread may stand still, which does not count.
    pub fn beyond_ns(&self, tick: u64) -> u64 {
        let late = match self.at {
            At::Unknown | At::OnCpu => tick,
            At::PutOff | At::Queued | At::Off => 0,
        };
        u64::try_from(self.untold.beyond).map_or(0, |ns| ns.saturating_sub(late))
    }

    /// Gives each switch-in of the stretch `ns` more on the CPU, from the time just before it.
    pub(super) fn date_back(&mut self, book: &mut SlicedLedger<'_>, ns: u64) {
        let s = &mut self.stretch;
        let mut back = |from, ins: u64| {
            let moved = book.shift(self.counters.checked_ns, from, TimeKind::OnCpu, ins * ns);
            s.on_cpu += moved;
            moved
        };
        let off = back(TimeKind::Off, s.ins);
        let waiting = back(TimeKind::PutOff, s.ins_waited);
        s.off = s.off.saturating_sub(off);
        s.waiting = s.waiting.saturating_sub(waiting);
    }

    /// Gives the thread the time that its counter has beyond all its records: its switches in were recorded later
    /// than their mean.
    fn make_up(&mut self, book: &mut SlicedLedger<'_>) {
        let Ok(short) = u64::try_from(-self.untold.beyond) else {
            return;
        };
        let since = self.counters.checked_ns;
        self.untold.beyond += book.shift(since, TimeKind::Off, TimeKind::OnCpu, short) as i64;
    }

    /// Books all time up to `now` and compares with the counters, which then stood at `books`.
    fn compare(
        &mut self,
        book: &mut SlicedLedger<'_>,
        lag: &mut SwitchRecordLatency,
        now: u64,
        books: SchedStat,
    ) {
        let ran = books.on_cpu_ns.saturating_sub(self.counters.last.on_cpu_ns);
        let waited = books
            .run_delay_ns
            .saturating_sub(self.counters.last.run_delay_ns);
        let turns = books
            .timeslices
            .saturating_sub(self.counters.last.timeslices);
        if self.at == At::Unknown {
            // No record has come: its state was the same all the time.
            let all = now.saturating_sub(self.booked);
            self.at = if ran.saturating_mul(2) > all {
                At::OnCpu
            } else {
                At::Off
            };
        }
        self.advance(book, now);
        let ins = self.stretch.ins + self.stretch.ins_waited;
        self.gap.missing =
            (self.gap.missing).saturating_add((turns as i64).saturating_sub(ins as i64));
        let whole = !self.gap.lossy && self.gap.missing <= 1;
        // The counter of a thread that was on a CPU when it was joined has up to a tick from before that.
        let has_older = std::mem::take(&mut self.gap.ran_when_joined);
        if whole && !has_older {
            let late_ns = (ran as i64).saturating_sub(self.stretch.on_cpu as i64);
            self.lag.add(late_ns, ins);
            lag.add(late_ns, ins);
        }
        self.date_back(book, self.lag.or(lag));
        let s = std::mem::take(&mut self.stretch);
        self.gap.silent = match (ins, turns) {
            (0, 0) => self.gap.silent,
            _ if self.is_deaf() => self.gap.silent,
            (0, _) => self.gap.silent + 1,
            _ => 0,
        };
        if let Some(off) = &mut self.before_turn {
            // A thread that was runnable as the records began has the whole wait in the counter, once it runs.
            *off += s.off + s.waiting;
            if turns > 0 {
                self.untold.waited_before_ns = waited.saturating_sub(*off);
                self.gap.owed = self
                    .gap
                    .owed
                    .saturating_sub(self.untold.waited_before_ns as i64);
                self.before_turn = None;
            }
        }
        if whole && !self.by_counters {
            let beyond = (s.on_cpu as i64).saturating_sub(ran as i64);
            self.untold.beyond = self.untold.beyond.saturating_add(beyond);
            if has_older {
                self.untold.beyond = self.untold.beyond.max(0);
            }
            self.make_up(book);
        }
        if !whole || self.by_counters {
            let (from, to, off) = if ran > s.on_cpu {
                (TimeKind::Off, TimeKind::OnCpu, ran - s.on_cpu)
            } else {
                (TimeKind::OnCpu, TimeKind::Off, s.on_cpu - ran)
            };
            let moved = book.shift(self.counters.checked_ns, from, to, off);
            if !self.by_counters {
                self.untold.repaired_ns += moved;
            }
        }
        if !whole {
            (self.gap.missing, self.gap.lossy) = (0, false);
            // A thread that waited and has not had a CPU since has lost nothing.
            if self.at != At::Off || (ran, turns, ins) != (0, 0, 0) {
                // The next record tells its state. A reading soon after could not: the counter of a thread that
                // runs stands still for a tick.
                (self.at, self.begun) = (At::Unknown, now);
            }
        }
        let owed = (waited as i64).saturating_sub(s.waiting as i64);
        self.gap.owed = self.gap.owed.saturating_add(owed);
        if self.gap.owed > 0 {
            // It may have begun to wait before the last check, in the slice before this one's.
            let since = self.counters.checked_ns.saturating_sub(book.grid.width_ns);
            let waited = book.shift(since, TimeKind::Off, TimeKind::Woken, self.gap.owed as u64);
            self.gap.owed -= waited as i64;
        }
        (self.counters.last, self.counters.checked_ns) = (books, now);
    }
}
