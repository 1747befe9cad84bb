//! What the poller tells the estimator beside its polls: threads as they come, and facts.

use std::collections::BTreeMap;

use wallscope_observe::{
    CountedLoss, Counter, CounterReading, FirstState, Observation, RecordsBegin, RecordsEnd,
    RecordsEndCause, ThreadStatus,
};
use wallscope_procfs::process::SchedStat;

use super::{account::observed, poller::ProcPoller, tracked_process::TrackedProcess};
use crate::session::tasks;

/// Whether records that are later than a reading of counters are booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterRecords {
    /// They are.
    Booked,
    /// They are not: the reading is the last of these records.
    LeftOut,
}

impl ProcPoller {
    /// Opens the accounts of threads that have come under watch.
    pub fn open_accounts(&mut self) {
        for thread in self.watch.take_opened() {
            self.intake.observe(&Observation::PolledThread(thread));
        }
    }

    /// Takes a process in. `since`: it was not there at that time; `None`: it was there before the start.
    /// Whether it is new to us.
    pub fn process(&mut self, pid: u32, since: Option<u64>, now: u64) -> bool {
        let is_new = self.watch.process(pid, since, now);
        self.open_accounts();
        is_new
    }

    /// The thread with these ids, which may be new since `since`.
    pub fn heard_of(&mut self, pid: u32, tid: u32, since: u64, now: u64) -> Option<usize> {
        let found = self.watch.heard_of(pid, tid, since, now);
        self.open_accounts();
        found
    }

    /// The switches of a thread are recorded from `time` on, when it was in this state and its counters stood at
    /// `books`.
    pub fn begin_records(&mut self, index: usize, time: u64, books: SchedStat, state: FirstState) {
        let records = &mut self.watch.threads[index].records;
        (records.open, records.silenced) = (true, false);
        self.intake
            .observe(&Observation::RecordsBegin(RecordsBegin {
                thread: index as u32,
                time,
                counters: observed(books),
                state,
                by_counters: records.ration.is_some_and(|r| r.share < 1.0),
                unrecorded_ns: records.ration.map_or(0, |r| r.unrecorded_ns),
            }));
    }

    /// They are not any more.
    pub fn end_records(&mut self, index: usize, cause: RecordsEndCause) {
        self.watch.threads[index].records.open = false;
        let thread = index as u32;
        (self.intake).observe(&Observation::RecordsEnd(RecordsEnd { thread, cause }));
    }

    /// The counters of a thread with recorded switches stand at `books` at `time`.
    pub fn tell_counters(
        &mut self,
        index: usize,
        time: u64,
        books: SchedStat,
        later: LaterRecords,
    ) {
        self.intake
            .observe(&Observation::CounterReading(CounterReading {
                thread: index as u32,
                time,
                counters: observed(books),
                last: later == LaterRecords::LeftOut,
            }));
    }

    /// Observes what changes slowly of threads and processes, as far as it has changed since the last time.
    pub fn tell_facts(&mut self) {
        for index in 0..self.watch.threads.len() {
            self.tell_status(index);
        }
        let intake = &mut self.intake;
        let clocks = |(pid, p): (&u32, &TrackedProcess)| p.clocks(*pid);
        for clocks in self.watch.processes.iter().map(clocks) {
            intake.observe(&Observation::ProcessClocks(clocks));
        }
        for module in self.processes.take_modules() {
            intake.observe(&Observation::Module(module));
        }
        for file in self.processes.take_unwinder_files() {
            intake.observe(&Observation::UnwinderFile(file));
        }
        for process in self.processes.take_facts() {
            intake.observe(&Observation::Process(process));
        }
        for named in self.processes.managed_mut().thread_names.take_news() {
            intake.observe(&Observation::ThreadName(named));
        }
    }

    fn tell_status(&mut self, index: usize) {
        let t = &self.watch.threads[index];
        let account = &self.intake.estimator.accounts[index];
        let told = (account.ticks[1], account.switches[1], account.audit[1]);
        if told == (t.ticks, t.switches, t.books) && account.name == t.name {
            return;
        }
        self.intake
            .observe(&Observation::ThreadStatus(ThreadStatus {
                thread: index as u32,
                name: t.name.as_str().into(),
                ticks: t.ticks,
                switches: t.switches,
                counters: observed(t.books),
            }));
    }

    /// What was told was shown: what is shown next begins here.
    pub fn shown(&mut self) {
        for p in self.watch.processes.values_mut() {
            p.shown();
        }
        for t in &mut self.watch.threads {
            let SchedStat { on_cpu_ns, .. } = t.books;
            t.told_on_cpu_ns = on_cpu_ns;
        }
    }

    /// Observes tasks, and all losses so far. `window_ns`: length of the recording.
    pub fn tell_tasks_and_losses(&mut self, window_ns: u64) {
        let seen = self.processes.managed_mut().finish_tasks();
        let (facts, lost) = tasks::observe::observe(seen, window_ns, &self.processes);
        facts.tell(&mut |observation| self.intake.observe(&observation));
        let tally = &self.tally;
        let losses = self.processes.losses().into_iter();
        let own = [
            (
                "stack changed while it was read",
                tally.raced + self.intake.estimator.switches.raced,
            ),
            (
                "perf record lost (ring full)",
                self.clock.as_ref().map_or(0, |c| c.lost),
            ),
            (
                "stack at an event lost (ring full)",
                self.hits.as_ref().map_or(0, |h| h.lost),
            ),
            (
                "sample of a thread that was gone before it was listed",
                tally.strangers,
            ),
            (
                "switch records of a thread stopped coming (permission lost): its counters are used",
                tally.deaf,
            ),
            (
                "Python frames of a running thread not read in time",
                tally.unread,
            ),
        ];
        let own = own.map(|(cause, count)| (cause.to_owned(), count));
        let all = losses.map(|l| (Counter::Collector, l));
        let all = all.chain(lost.into_iter().map(|l| (Counter::Tasks, l)));
        let all = all.chain(own.into_iter().map(|l| (Counter::Collector, l)));
        // Several of one cause are one, in the place of the first.
        let mut places = BTreeMap::new();
        let mut sums: Vec<CountedLoss> = Vec::new();
        for (by, (cause, count)) in all.filter(|(_, (_, count))| *count > 0) {
            let place = *places.entry(cause.clone()).or_insert(sums.len());
            match sums.get_mut(place) {
                Some(loss) => loss.count += count,
                None => sums.push(CountedLoss { by, cause, count }),
            }
        }
        for loss in sums {
            self.intake.observe(&Observation::Loss(loss));
        }
    }
}
