//! Observations that the poller makes beside its polls: threads as they come, and facts.

use std::collections::BTreeMap;

use wallscope_observe::{
    Counter, CounterReading, FirstState, Observation, OtherEnd, RecordsBegin, RecordsEnd,
    RecordsEndCause, ThreadStatus,
};
use wallscope_procfs::process::SchedStat;

use super::{account::observed, poller::ProcPoller};
use crate::session::{process_news::observe_processes, tasks};

/// Whether records that are later than a reading of counters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterRecords {
    /// They count.
    Booked,
    /// They do not: the reading is the last of these records.
    LeftOut,
}

impl ProcPoller {
    /// Opens the accounts of threads that have come under watch.
    pub fn open_accounts(&mut self) {
        for thread in self.watch.take_opened() {
            self.intake.observe(&Observation::PolledThread(thread));
        }
    }

    /// Adds a process. `since`: it did not exist at that time; `None`: it existed before the start.
    /// Returns whether it is new to us.
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

    /// Observes that the switches of a thread are recorded from `time` on. At that time it was in `state`, and its
    /// counters stood at `books`.
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

    /// Observes that the switches of a thread are no longer recorded.
    pub fn end_records(&mut self, index: usize, cause: RecordsEndCause) {
        self.watch.threads[index].records.open = false;
        let thread = index as u32;
        (self.intake).observe(&Observation::RecordsEnd(RecordsEnd { thread, cause }));
    }

    /// Observes that the counters of a thread with recorded switches stood at `books` at `time`.
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

    /// Observes the slowly changing facts of threads and processes, if they have changed since the last time.
    pub fn tell_facts(&mut self) {
        self.tell_figures();
        self.tell_news();
    }

    /// Observes the counters of threads and processes that have changed since the last time.
    pub fn tell_figures(&mut self) {
        for index in 0..self.watch.threads.len() {
            self.tell_status(index);
        }
        for (pid, process) in &self.watch.processes {
            self.last_values
                .clocks(process.clocks(*pid), &mut self.intake);
        }
    }

    /// Observes files, processes and names of threads that are new, or known better than before.
    pub fn tell_news(&mut self) {
        observe_processes(&mut self.processes, &mut self.intake);
        for named in self.processes.managed_mut().thread_names.take_news() {
            self.intake.observe(&Observation::ThreadName(named));
        }
    }

    /// Observes the connections that have changed since the last time.
    pub fn tell_connections(&mut self) {
        let Some(connections) = &self.connections else {
            return;
        };
        let found = connections.so_far();
        self.last_values.sockets(&found.all, &mut self.intake);
        for (cookie, process) in found.others {
            self.intake.observe(&Observation::OtherEnd(OtherEnd {
                cookie,
                process: Some(process),
                before: true,
            }));
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

    /// The facts so far have been shown in a snapshot: the next one begins here.
    pub fn shown(&mut self) {
        for p in self.watch.processes.values_mut() {
            p.shown();
        }
        for t in &mut self.watch.threads {
            let SchedStat { on_cpu_ns, .. } = t.books;
            t.told_on_cpu_ns = on_cpu_ns;
        }
    }

    /// Observes tasks, and all losses. `window_ns`: length of the recording.
    pub fn tell_tasks_and_losses(&mut self, window_ns: u64) {
        let seen = self.processes.managed_mut().finish_tasks();
        let (facts, lost) = tasks::observe::observe(seen, window_ns, &self.processes);
        facts.tell(&mut |observation| self.intake.observe(&observation));
        self.tell_losses(lost);
    }

    /// Observes all losses so far, those of `tasks` too.
    pub fn tell_losses(&mut self, tasks: Vec<(String, u64)>) {
        let of_collector = |(cause, count)| (Counter::Collector, cause, count);
        let mut all: Vec<_> = (self.processes.losses().into_iter())
            .map(of_collector)
            .collect();
        let of_tasks = tasks.into_iter();
        all.extend(of_tasks.map(|(cause, count)| (Counter::Tasks, cause, count)));
        all.extend(self.own_losses().into_iter().map(of_collector));
        // Losses of one cause are added up, in the place of the first.
        let mut places = BTreeMap::new();
        let mut sums: Vec<(Counter, (String, u64))> = Vec::new();
        for (by, cause, count) in all.into_iter().filter(|(.., count)| *count > 0) {
            let place = *places.entry(cause.clone()).or_insert(sums.len());
            match sums.get_mut(place) {
                Some((_, (_, sum))) => *sum += count,
                None => sums.push((by, (cause, count))),
            }
        }
        for (by, loss) in sums {
            self.last_values.losses(by, [loss], &mut self.intake);
        }
    }

    /// Losses of the poller itself.
    fn own_losses(&self) -> [(String, u64); 6] {
        let tally = &self.tally;
        [
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
        ]
        .map(|(cause, count)| (cause.to_owned(), count))
    }
}
