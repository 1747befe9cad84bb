//! Records of perf events → threads, their courses, samples.

use wallscope_observe::{
    FirstState, Mark, Observation, OpenWait, PreemptedStack, PreemptedStackTaken, ProbedReason,
    Rebased, RunningSample, Switch, SwitchStep,
};
use wallscope_procfs::process::{self, SchedStat};

use super::{
    EventSampler, Record, Running, SwitchTimeline,
    record::{Birth, Renaming},
};
use crate::{
    backend::{
        ebpf::sideband::Change,
        proc::{
            poller::{ProcPoller, REMAP, REMAP_TIMES},
            thread::TrackedThread,
        },
    },
    clock,
    event::{Head, ThreadEvent, how, kind},
    period_jitter,
    session::cost::thread_cpu_ns,
};

impl ProcPoller {
    /// Opens events for every watched thread that has none. `all`: for threads that were
    /// refused them before, too.
    pub fn join(&mut self, first: usize) {
        for index in first..self.watch.threads.len() {
            let Some(clock) = &mut self.clock else { return };
            let t = &mut self.watch.threads[index];
            if !t.alive || t.records.open {
                continue;
            }
            // Threads with events write records while others get theirs.
            clock.keep_up();
            match clock.join(t.tid, 1.0) {
                Ok(()) => {
                    if let Some(hits) = &mut self.hits {
                        hits.join(index, t.tid);
                    }
                    let now = clock::now();
                    let Ok(books) = t.schedstat() else { continue };
                    let book = &self.intake.estimator.accounts[index].book;
                    // Of time that is known already, its counters tell the rest.
                    if book.seen_ns <= book.start_ns && !t.ran {
                        let (thread, begin) = (index as u32, t.begins(now, books));
                        (self.intake).observe(&Observation::Rebased(Rebased { thread, begin }));
                    }
                    self.begin_records(index, now, books, FirstState::Unknown);
                }
                Err(_) => clock.left_out += 1,
            }
        }
    }

    /// Takes the records of the events. `since`: when threads were listed last.
    pub fn drain(&mut self, since: u64, now: u64) {
        let Some(clock) = &mut self.clock else { return };
        self.processes.jit_mut().follow();
        self.records.drained_ns = clock::now();
        let hits = self.hits.as_mut().map_or_else(Vec::new, EventSampler::take);
        let mut records = clock.drain(hits, self.records.drained_ns);
        self.read_running(&mut records);
        self.take(records, since, now);
        let time = self.records.drained_ns;
        (self.intake).observe(&Observation::Mark(Mark::Drained { time }));
    }

    /// Takes the rest.
    pub fn last_drain(&mut self, since: u64, now: u64) {
        let Some(clock) = &mut self.clock else { return };
        let hits = self.hits.as_mut().map_or_else(Vec::new, EventSampler::take);
        let records = clock.drain_all(hits);
        self.take(records, since, now);
        let time = clock::now();
        (self.intake).observe(&Observation::Mark(Mark::Drained { time }));
        for index in self.watch.live.clone() {
            if let Some(begin) = self.intake.estimator.accounts[index].off_since() {
                self.waits_on(index, begin);
            }
        }
    }

    /// Books all time up to now, and the time of open waits since `last` by the reasons that polls saw.
    pub fn book_open(&mut self, followed: u64, last: u64) {
        if self.clock.is_none() {
            return;
        }
        self.drain(followed, clock::now());
        for index in self.watch.live.clone() {
            let account = &self.intake.estimator.accounts[index];
            let (open, end) = (account.off_since(), account.book.seen_ns);
            // Short waits are distinguished only at their ends.
            if let Some(begin) =
                open.filter(|b| end.saturating_sub(*b) > 2 * self.rounds.spacing_ns)
            {
                self.waits_on(index, begin.max(last));
                // The part of the wait that was seen has been reported: the rest must be seen anew.
                self.watch.wake(index);
            }
        }
    }

    fn take(&mut self, records: Vec<(u64, Record)>, since: u64, now: u64) {
        for (time, record) in records {
            if let Some(clock) = &mut self.clock {
                clock.keep_up();
            }
            match record {
                Record::Sample(running) => {
                    self.settle();
                    let cpu = thread_cpu_ns();
                    let counts = self.ran(&running, time, since, now);
                    self.tally.came += 1;
                    // What is left out comes anyway, however seldom samples are to be.
                    if counts {
                        self.tally.counted += 1;
                        self.records.cost_ns += thread_cpu_ns() - cpu;
                    }
                }
                Record::Leaving { of, thread } => {
                    self.settle();
                    let cpu = thread_cpu_ns();
                    self.leaves(&thread, of, time, now);
                    self.records.cost_ns += thread_cpu_ns() - cpu;
                }
                Record::Hit(hit) => {
                    self.settle();
                    let cpu = thread_cpu_ns();
                    self.hit(&hit, time, since, now);
                    self.records.cost_ns += thread_cpu_ns() - cpu;
                }
                Record::Counted(counted) => self.counted(&counted, time),
                Record::In { pid, tid } => self.step(pid, tid, time, SwitchStep::In),
                Record::Out {
                    pid,
                    tid,
                    preempted,
                } => self.step(pid, tid, time, SwitchStep::Out { preempted }),
                Record::Born(birth) => self.born(birth, time),
                Record::Ended { pid, tid } if pid == tid && goes_on(pid) => {
                    let index = self.watch.find(pid, tid);
                    if let Some(index) = index {
                        self.watch.threads[index].records.silenced = true;
                        self.watch.wake(index);
                    }
                }
                Record::Ended { pid, tid } => {
                    self.step(pid, tid, time, SwitchStep::End);
                    if let Some(index) = self.watch.find(pid, tid) {
                        self.ended(index);
                    }
                }
                Record::Name(renaming) => self.named(renaming, time),
                Record::Change(change) => self.processes.change(time, *change),
                Record::Lost(_) => self.lost(time),
            }
        }
        self.settle();
    }

    /// Brings processes up to date with their mappings.
    fn settle(&mut self) {
        let ProcPoller {
            processes, clock, ..
        } = self;
        processes.settle(&mut || {
            if let Some(clock) = clock {
                clock.keep_up();
            }
        });
    }

    fn step(&mut self, pid: u32, tid: u32, time: u64, step: SwitchStep) {
        let Some(index) = self.watch.find(pid, tid) else {
            return;
        };
        self.watch.wake(index);
        if self.intake.estimator.accounts[index].course.is_some() {
            self.watch.threads[index].ran = true;
            self.tell_preempted(index, step);
            if !matches!(step, SwitchStep::Out { .. }) {
                self.tell_end_of_wait(index, Some(time));
            }
        }
        let thread = index as u32;
        (self.intake).observe(&Observation::Switch(Switch { thread, time, step }));
        let Some(course) = &self.intake.estimator.accounts[index].course else {
            return;
        };
        let Some(clock) = &mut self.clock else { return };
        match step {
            SwitchStep::End => {
                let period_ns = clock.period_ns;
                clock.newborns.ended(tid, course.computed_ns, period_ns);
            }
            SwitchStep::Out { .. } if course.is_known() && !course.is_put_off_often() => {
                clock.stays(tid);
            }
            _ => {}
        }
    }

    /// Observes, before a switch of a thread, the stack at which it is preempted, if that is known.
    fn tell_preempted(&mut self, index: usize, step: SwitchStep) {
        let t = &mut self.watch.threads[index];
        let sampled = match step {
            SwitchStep::In => None,
            SwitchStep::Out { .. } | SwitchStep::End => t.records.sampled.take(),
        };
        let leaves = t.records.leaves.take();
        let (SwitchStep::Out { preempted: true }, Some(clock)) = (step, &self.clock) else {
            return;
        };
        let course = self.intake.estimator.accounts[index].course.as_ref();
        let on_since = course.and_then(SwitchTimeline::on_since);
        let share = t.records.ration.map_or(1.0, |r| r.share);
        let (stack, taken) = match (leaves, sampled, on_since) {
            (Some((stack, switches)), ..) => (stack, PreemptedStackTaken::AtSwitch(switches)),
            // If the end of its time on the CPU is not seen, the sampled time stands for it.
            (None, Some(stack), Some(_)) => {
                let tells_leaving = match t.records.heir_of {
                    None => clock.tells_leaving_of(t.tid),
                    Some(_) => t.records.inherits_leaving,
                };
                let interpreted = self.processes.managed().is_interpreted(t.pid);
                if !interpreted && share >= 1.0 && tells_leaving {
                    return;
                }
                let period_ns = clock.period_ns as f64 * share;
                (stack, PreemptedStackTaken::Before(period_ns as u64))
            }
            _ => return,
        };
        self.intake
            .observe(&Observation::PreemptedStack(PreemptedStack {
                thread: index as u32,
                stack,
                taken,
            }));
    }

    /// Observes the reason of a wait that is about to be over, if its end tells the reason better than the poll
    /// did. The wait ends at `end`, or where the thread's records end.
    pub(super) fn tell_end_of_wait(&mut self, index: usize, end: Option<u64>) {
        let account = &self.intake.estimator.accounts[index];
        let is_over = |at: u64| at < end.unwrap_or(u64::MAX);
        let is_probed = (account.off_since())
            .zip(account.wait.probe)
            .is_some_and(|(begin, p)| p.poll.at >= begin && is_over(p.poll.at));
        if !is_probed {
            return;
        }
        let ring = self.watch.threads[index].probe.ring.take();
        if let Some(reason) = ring.and_then(|r| r.ended_by()) {
            let thread = index as u32;
            (self.intake).observe(&Observation::ProbedReason(ProbedReason { thread, reason }));
        }
    }

    /// The wait of a thread counts from `begin` up to now, though it goes on.
    fn waits_on(&mut self, index: usize, begin: u64) {
        self.tell_end_of_wait(index, None);
        let thread = index as u32;
        (self.intake).observe(&Observation::OpenWait(OpenWait { thread, begin }));
    }

    /// A thread was born, and inherited its parent's events.
    fn born(&mut self, birth: Birth, time: u64) {
        let Birth {
            pid,
            tid,
            parent,
            parent_tid,
        } = birth;
        let maker = self.watch.find(parent, parent_tid);
        let root = maker.map(|m| self.watch.threads[m].records.heir_of.unwrap_or(m));
        let of_root = root.map(|root| self.watch.threads[root].tid);
        let inherits_leaving = match (of_root, &mut self.clock) {
            (Some(tid), Some(clock)) => {
                clock.was_inherited(tid);
                clock.tells_leaving_of(tid)
            }
            _ => false,
        };
        let covered_ns = self.clock.as_mut().map_or(0, |clock| {
            clock.newborns.made(parent_tid, time);
            clock.newborns.range_ns(clock.period_ns)
        });
        if let Some(known) = self.watch.find(pid, tid) {
            // The thread was listed before its birth was recorded: it has opened events beside inherited ones.
            if let (Some(hits), true) = (&mut self.hits, root.is_some()) {
                hits.close_thread(known);
                let t = &mut self.watch.threads[known];
                (t.records.heir_of, t.records.inherits_leaving) = (root, inherits_leaving);
            }
            return;
        }
        let name = maker.map_or_else(String::new, |m| self.watch.threads[m].name.clone());
        if pid != parent {
            // It may be gone in a moment.
            self.records.ring_wakeups.needed(clock::now());
            self.processes.news(&ThreadEvent {
                time,
                pid,
                tid,
                parent,
                ..news(how::BORN, &name)
            });
        }
        let mut thread = TrackedThread::new(pid, tid, name, time);
        if self.watch.may_keep_files() {
            thread.keep_files();
        }
        (thread.records.heir_of, thread.records.inherits_leaving) = (root, inherits_leaving);
        thread.records.covered_ns = covered_ns;
        let begin = thread.is_born(time);
        let index = self.watch.insert(thread, begin);
        self.open_accounts();
        self.begin_records(index, time, SchedStat::default(), FirstState::Born);
    }

    /// A thread has a new name, perhaps because it runs a new program: then it is alone from now on,
    /// and has its process's id.
    fn named(&mut self, renaming: Renaming, time: u64) {
        let Renaming {
            pid,
            tid,
            name,
            exec,
        } = renaming;
        if exec {
            let others: Vec<usize> = self
                .watch
                .live
                .iter()
                .copied()
                .filter(|i| {
                    let t = &self.watch.threads[*i];
                    t.alive && t.pid == pid && t.tid != tid
                })
                .collect();
            for index in others {
                let t = &self.watch.threads[index];
                self.step(pid, t.tid, time, SwitchStep::End);
                self.ended(index);
            }
            if self.watch.find(pid, tid).is_none() {
                let mut thread = TrackedThread::new(pid, tid, name.clone(), time);
                if self.watch.may_keep_files() {
                    thread.keep_files();
                }
                let begin = thread.is_born(time);
                let index = self.watch.insert(thread, begin);
                self.open_accounts();
                self.begin_records(index, time, SchedStat::default(), FirstState::OnCpu);
            }
            self.records.ring_wakeups.needed(clock::now());
            self.watch.executed(pid);
            self.processes.change(time, Change::Exec { pid });
            let parent = wallscope_procfs::process::stat(pid).map_or(0, |s| s.parent);
            self.processes.news(&ThreadEvent {
                time,
                pid,
                tid,
                parent,
                ..news(how::EXEC, &name)
            });
        }
        if let Some(index) = self.watch.find(pid, tid) {
            self.watch.threads[index].name = name;
        }
    }

    /// Records of unknown threads did not fit.
    fn lost(&mut self, time: u64) {
        (self.intake).observe(&Observation::Mark(Mark::RecordsLost { time }));
        self.watch.wake_all();
        self.processes.change(time, Change::Lost(0));
        self.records.relist = true;
    }

    /// A thread was sampled on its CPU. Returns whether the sample counts and does not come too early.
    fn ran(&mut self, r: &Running, time: u64, since: u64, now: u64) -> bool {
        let Some(period) = self.clock.as_ref().map(|c| c.period_ns) else {
            return false;
        };
        if self.process(r.pid, Some(since), now) {
            self.processes.found(r.pid);
        }
        let Some(index) = self.heard_of(r.pid, r.tid, since, now) else {
            self.tally.strangers += 1;
            return false;
        };
        if let Some(first) = &r.first {
            let born_ns = self.intake.estimator.accounts[index].book.start_ns;
            let counts = first.born_ns.contains(&born_ns);
            if counts {
                let stack = self.running(r, time, now);
                self.computed(RunningSample {
                    thread: index as u32,
                    stack,
                    time,
                    ns: first.stands_for_ns,
                    user_mode: r.user_mode,
                });
            }
            return counts;
        }
        let interpreted = self.processes.managed().is_interpreted(r.pid);
        let t = &mut self.watch.threads[index];
        // A thread that inherited its event before the rate was lowered still has the old rate. Small differences
        // of the distance are no reason to leave out a sample.
        t.records.credit_ns +=
            (r.period_ns as f64 / t.records.ration.map_or(1.0, |ration| ration.share)) as u64;
        if t.records.credit_ns < period - period / period_jitter::SAMPLE_JITTER_DIVISOR {
            return false;
        }
        let ns = std::mem::take(&mut t.records.credit_ns);
        let ns = ns.saturating_sub(std::mem::take(&mut t.records.covered_ns));
        let course = self.intake.estimator.accounts[index].course.as_ref();
        let put_off = course.is_some_and(SwitchTimeline::is_put_off_often);
        if let Some(clock) = self.clock.as_mut().filter(|_| put_off && !interpreted) {
            clock.is_put_off(r.tid);
        }
        let stack = self.running(r, time, now);
        self.watch.threads[index].records.sampled = Some(stack);
        self.computed(RunningSample {
            thread: index as u32,
            stack,
            time,
            ns,
            user_mode: r.user_mode,
        });
        true
    }

    /// A thread computed.
    fn computed(&mut self, sample: RunningSample) {
        self.records.sampled_ns += sample.ns;
        self.intake.observe(&Observation::RunningSample(sample));
    }

    /// A thread is about to be preempted; the copy of it stands for so many `switches`. An interpreter's frames
    /// change as soon as the thread runs on, and are not read.
    fn leaves(&mut self, r: &Running, switches: u64, time: u64, now: u64) {
        if self.processes.managed().is_interpreted(r.pid) {
            return;
        }
        if let Some(index) = self.watch.find(r.pid, r.tid) {
            let stack = self.running(r, time, now);
            self.watch.threads[index].records.leaves = Some((stack, switches));
        }
    }

    /// Reads a process's mappings again, unless that was done a moment ago.
    pub fn remap(&mut self, pid: u32, now: u64) -> bool {
        let Some(process) = self.watch.processes.get_mut(&pid) else {
            return false;
        };
        if now < process.mapped_until_ns {
            return false;
        }
        let begun = clock::now();
        self.processes.found(pid);
        let read = clock::now();
        process.mapped_until_ns = read + (REMAP_TIMES * (read - begun)).min(REMAP);
        true
    }
}

/// Whether a process goes on although the kernel records its end. A process that begins a program with rights that
/// its user lacks (setuid) loses its events, and the kernel writes the same record for that.
fn goes_on(pid: u32) -> bool {
    const EXITING: u32 = 4;
    process::stat(pid).is_ok_and(|s| !matches!(s.state, 'Z' | 'X') && s.flags & EXITING == 0)
}

/// News of a thread as the kernel programs would tell them, still without the thread.
fn news(how: u32, name: &str) -> ThreadEvent {
    let mut comm = [0u8; 16];
    let len = name.len().min(15);
    comm[..len].copy_from_slice(&name.as_bytes()[..len]);
    ThreadEvent {
        head: Head {
            kind: kind::THREAD,
            size: size_of::<ThreadEvent>() as u32,
        },
        id: 0,
        time: 0,
        pid: 0,
        tid: 0,
        parent: 0,
        how,
        comm,
    }
}
