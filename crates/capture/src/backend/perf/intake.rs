//! Records of perf events → threads, their courses, samples.

use wallscope_model::Part;
use wallscope_procfs::process;

use super::{
    EventSampler, Record, Running, SwitchTimeline,
    estimate::{RunningSample, SeenWait},
    switch_timeline::Step,
};
use crate::{
    backend::{
        ebpf::sideband::Change,
        proc::{
            poller::{ProcPoller, REMAP, REMAP_TIMES},
            thread::Thread,
            wait_observation::PutOff,
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
                    let estimator = &mut self.intake.estimator;
                    let account = &mut estimator.accounts[index];
                    if account.book.seen_ns > account.book.start_ns || t.ran {
                        // Its time up to here is the counters' to tell.
                        estimator.settle_counters(index, now, books, t.probe.doing);
                    } else {
                        account.begin(&t.begins(now, books));
                    }
                    self.begin_records(index, SwitchTimeline::joined(now, books));
                }
                Err(_) => clock.left_out += 1,
            }
        }
    }

    /// Takes what the events have written. `since`: when threads were listed last.
    pub fn drain(&mut self, since: u64, now: u64) {
        let Some(clock) = &mut self.clock else { return };
        self.processes.jit_mut().follow();
        self.records.drained_ns = clock::now();
        let hits = self.hits.as_mut().map_or_else(Vec::new, EventSampler::take);
        let mut records = clock.drain(hits, self.records.drained_ns);
        self.read_running(&mut records);
        self.take(records, since, now);
    }

    /// Takes the rest.
    pub fn last_drain(&mut self, since: u64, now: u64) {
        let Some(clock) = &mut self.clock else { return };
        let hits = self.hits.as_mut().map_or_else(Vec::new, EventSampler::take);
        let records = clock.drain_all(hits);
        self.take(records, since, now);
        let alive = self.watch.threads.iter().enumerate();
        for (index, _) in alive.filter(|(_, t)| t.alive) {
            self.intake.estimator.settle_records(index, u64::MAX);
        }
        for index in self.watch.live.clone() {
            let account = &self.intake.estimator.accounts[index];
            if let Some(begin) = account.off_since() {
                self.waited(index, begin, account.book.seen_ns);
            }
        }
    }

    /// Books all time up to now, and what open waits since `last` have been seen to be.
    pub fn book_open(&mut self, followed: u64, last: u64) {
        if self.clock.is_none() {
            return;
        }
        self.drain(followed, clock::now());
        let until = self.records.drained_ns;
        for index in self.watch.live.clone() {
            let estimator = &mut self.intake.estimator;
            if estimator.settle_records(index, until).is_none() {
                continue;
            }
            let account = &estimator.accounts[index];
            let (open, end) = (account.off_since(), account.book.seen_ns);
            // Short ones are told from each other at their ends only.
            if let Some(begin) =
                open.filter(|b| end.saturating_sub(*b) > 2 * self.rounds.spacing_ns)
            {
                self.waited(index, begin.max(last), end);
                // What was seen of it has been told: the rest of the wait is to be seen anew.
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
                Record::In { pid, tid } => self.step(pid, tid, time, Step::In),
                Record::Out {
                    pid,
                    tid,
                    preempted,
                } => self.step(pid, tid, time, Step::Out { preempted }),
                Record::Born {
                    pid,
                    tid,
                    parent,
                    parent_tid,
                } => self.born(pid, tid, parent, parent_tid, time),
                Record::Ended { pid, tid } if pid == tid && goes_on(pid) => {
                    let index = self.watch.find(pid, tid);
                    if let Some(index) = index {
                        let account = &mut self.intake.estimator.accounts[index];
                        if let Some(course) = &mut account.course {
                            course.deafen();
                        }
                        self.watch.wake(index);
                    }
                }
                Record::Ended { pid, tid } => {
                    self.step(pid, tid, time, Step::End);
                    if let Some(index) = self.watch.find(pid, tid) {
                        self.ended(index);
                    }
                }
                Record::Name {
                    pid,
                    tid,
                    name,
                    exec,
                } => self.named(pid, tid, name, exec, time),
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

    fn step(&mut self, pid: u32, tid: u32, time: u64, step: Step) {
        let Some(index) = self.watch.find(pid, tid) else {
            return;
        };
        self.watch.wake(index);
        let t = &mut self.watch.threads[index];
        let tells_leaving = match (step, t.records.heir_of, &self.clock) {
            (Step::Out { preempted: true }, None, Some(clock)) => clock.tells_leaving_of(tid),
            _ => t.records.inherits_leaving,
        };
        let estimator = &mut self.intake.estimator;
        let Some(course) = &estimator.accounts[index].course else {
            return;
        };
        let on_since = course.on_since();
        t.ran = true;
        let sampled = match step {
            Step::In => None,
            Step::Out { .. } | Step::End => t.records.sampled.take(),
        };
        let leaves = t.records.leaves.take();
        let interpreted = self.processes.managed().is_interpreted(pid);
        if let (Step::Out { preempted: true }, Some((stack, switches))) = (step, leaves) {
            t.records.put_off = Some(PutOff {
                since: time,
                stack,
                chance: 1.0 / switches as f64,
            });
        } else if let (Step::Out { preempted: true }, Some(stack), Some(begin), Some(clock)) =
            (step, sampled, on_since, &self.clock)
            && (interpreted || t.records.ration.is_some_and(|r| r.share < 1.0) || !tells_leaving)
        {
            // Where the end of its time on the CPU is not seen, the sampled time stands for that.
            let period = clock.period_ns as f64 * t.records.ration.map_or(1.0, |r| r.share);
            t.records.put_off = Some(PutOff {
                since: time,
                stack,
                chance: (time.saturating_sub(begin) as f64 / period).clamp(1e-4, 1.0),
            });
        } else if let (Step::In, Some(put_off)) = (step, t.records.put_off.take()) {
            estimator.was_put_off(index, put_off, time);
        }
        let ended = estimator.switched(index, time, step);
        let Some(course) = &estimator.accounts[index].course else {
            return;
        };
        if let (Step::End, Some(clock)) = (step, &mut self.clock) {
            (clock.newborns).ended(tid, course.computed_ns, clock.period_ns);
        }
        if let (Step::Out { .. }, true, false, Some(clock)) = (
            step,
            course.is_known(),
            course.is_put_off_often(),
            &mut self.clock,
        ) {
            clock.stays(tid);
        }
        if let Some((begin, end)) = ended {
            self.waited(index, begin, end);
        }
    }

    /// A thread was off the CPU by its own will from `begin` to `end`: what looks saw, if it was then,
    /// stands for that.
    pub fn waited(&mut self, index: usize, begin: u64, end: u64) {
        let seen = self.was_blocked(index, begin, end);
        self.was_queued(index, begin, end, seen);
    }

    /// What the last look saw of a wait from `begin` to `end`, if it was then. Returns the stack, if that is
    /// whole.
    fn was_blocked(&mut self, index: usize, begin: u64, end: u64) -> Option<u32> {
        let t = &mut self.watch.threads[index];
        let length = end.saturating_sub(begin);
        let sight = t.records.sight.take_if(|s| s.at < end);
        let sight = sight.filter(|s| s.at >= begin);
        self.intake.estimator.accounts[index].waits.add(length);
        let s = sight?;
        let ring = t.probe.ring.take();
        let Some((reason, whole)) = s.of_wait(end) else {
            self.tally.raced += 1;
            return None;
        };
        let reason = ring.and_then(|r| r.ended_by()).unwrap_or(reason);
        let stack = match whole {
            true => s.stack,
            false => self.innermost(index, s.less),
        };
        let duty = &mut self.watch.threads[index].duty;
        duty.in_time += u32::from(!s.is_late_for(length));
        self.intake.estimator.was_seen(&SeenWait {
            thread: index,
            begin,
            end,
            sight: s,
            reason,
            stack,
            whole,
            spacing_ns: self.rounds.spacing_ns,
            in_time: duty.in_time,
        });
        whole.then_some(stack)
    }

    /// A thread was born, and inherited its parent's events.
    fn born(&mut self, pid: u32, tid: u32, parent: u32, parent_tid: u32, time: u64) {
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
            // It was listed before its birth was told, and given events beside those it inherited.
            if let (Some(hits), true) = (&mut self.hits, root.is_some()) {
                hits.leave(known);
                let t = &mut self.watch.threads[known];
                (t.records.heir_of, t.records.inherits_leaving) = (root, inherits_leaving);
            }
            return;
        }
        let name = maker.map_or_else(String::new, |m| self.watch.threads[m].name.clone());
        if pid != parent {
            // It may be gone in a moment.
            self.records.attention.needed(clock::now());
            self.processes
                .news(&event(how::BORN, pid, tid, parent, &name, time));
        }
        let mut thread = Thread::new(pid, tid, name, time);
        if self.watch.has_room() {
            thread.keep_files();
        }
        (thread.records.heir_of, thread.records.inherits_leaving) = (root, inherits_leaving);
        thread.records.covered_ns = covered_ns;
        let begin = thread.is_born(time);
        let index = self.watch.insert(thread, begin);
        self.open_accounts();
        self.begin_records(index, SwitchTimeline::born(time));
    }

    /// A thread has a new name, perhaps because it runs a new program: then it is alone from now on,
    /// and has its process's id.
    fn named(&mut self, pid: u32, tid: u32, name: String, exec: bool, time: u64) {
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
                self.step(pid, t.tid, time, Step::End);
                self.ended(index);
            }
            if self.watch.find(pid, tid).is_none() {
                let mut thread = Thread::new(pid, tid, name.clone(), time);
                if self.watch.has_room() {
                    thread.keep_files();
                }
                let begin = thread.is_born(time);
                let index = self.watch.insert(thread, begin);
                self.open_accounts();
                self.begin_records(index, SwitchTimeline::running(time));
            }
            self.records.attention.needed(clock::now());
            self.processes.change(time, Change::Exec { pid });
            let parent = wallscope_procfs::process::stat(pid).map_or(0, |s| s.parent);
            self.processes
                .news(&event(how::EXEC, pid, tid, parent, &name, time));
        }
        if let Some(index) = self.watch.find(pid, tid) {
            self.watch.threads[index].name = name;
        }
    }

    /// Records of unknown threads did not fit.
    fn lost(&mut self, time: u64) {
        for index in &self.watch.live {
            if let Some(course) = &mut self.intake.estimator.accounts[*index].course {
                course.mistrust();
            }
        }
        self.watch.wake_all();
        self.processes.change(time, Change::Lost(0));
        self.records.relist = true;
    }

    /// A thread was sampled on its CPU. Whether that counts, and is not too early.
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
                self.computed(index, r, stack, first.stands_for_ns, time);
            }
            return counts;
        }
        let interpreted = self.processes.managed().is_interpreted(r.pid);
        let t = &mut self.watch.threads[index];
        // A thread that inherited its event before the rate was lowered still has the old one; that distances
        // differ a little is no reason to leave one out.
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
        self.computed(index, r, stack, ns, time);
        true
    }

    /// A thread computed with `stack` at `time`, which stands for `ns`.
    fn computed(&mut self, index: usize, r: &Running, stack: u32, ns: u64, time: u64) {
        self.records.sampled_ns += ns;
        self.intake.estimator.computed(&RunningSample {
            thread: index,
            stack,
            time,
            ns,
            part: match r.user_mode {
                true => Part::User,
                false => Part::Kernel,
            },
        });
    }

    /// A thread is about to be put off its CPU, which stands for so many `switches`. An interpreter's frames
    /// change as soon as it runs on, and are not read.
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

/// Whether a process of which the kernel records an end goes on: one that begins a program with rights that
/// its user has not (setuid) has its events taken away, which looks the same.
fn goes_on(pid: u32) -> bool {
    const EXITING: u32 = 4;
    process::stat(pid).is_ok_and(|s| !matches!(s.state, 'Z' | 'X') && s.flags & EXITING == 0)
}

/// The news as the kernel programs would tell them.
fn event(how: u32, pid: u32, tid: u32, parent: u32, name: &str, time: u64) -> ThreadEvent {
    let mut comm = [0u8; 16];
    let len = name.len().min(15);
    comm[..len].copy_from_slice(&name.as_bytes()[..len]);
    ThreadEvent {
        head: Head {
            kind: kind::THREAD,
            size: size_of::<ThreadEvent>() as u32,
        },
        id: 0,
        time,
        pid,
        tid,
        parent,
        how,
        comm,
    }
}
