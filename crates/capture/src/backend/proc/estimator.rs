//! The estimator of counters: observations of polls → threads, ledgers, samples.
//!
//! It decides how much time goes where, and never reads the machine: no clock, no file, no process.
//! So the observations of a log in their order give the recording that was made live
//! (`session/replay.rs`). Names come as answers (`session/naming.rs`).
//!
//! If switches are recorded (`backend/perf`), `backend/perf/estimate.rs` adds them to these accounts.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::{Slices, StackEnd, State, WaitSeen};
use wallscope_observe::{
    Begin, EndedThread, Mark, Observation, PolledStack, ProcessClocks, StackBegin, StoppedThread,
    ThreadPoll,
};
use zerocopy::FromBytes;

use super::{
    account::{Account, schedstat},
    counters::PolledActivity,
    samples::{PollSample, Polled, Samples, Weight, WeightScope},
    spans::Spans,
    stop_judgement,
    time_kind::{ANY, TimeKind},
    wait_observation::SeenDoing,
};
use crate::{
    backend::perf::{EventFamilies, RecordedSwitches},
    event::{PauseEvent, SocketRecord, kind},
    session::{address_scope::AddressScope, estimator::Facts, pauses::PauseGroups},
    slices,
};

/// Time between two checks of the memory of single intervals, ns.
const BOUND_SPANS: u64 = 1_000_000_000;
/// Most rows of threads and stacks by slice, some 100 MB. Beyond it two slices become one, however long.
const MAX_ROWS: u64 = 4_000_000;
/// Most successive stacks that a log may lack because they were too large for it.
const MAX_GAP: u32 = 1024;

/// Limit for the single intervals of all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimelineLimit {
    /// Memory for them, bytes; `None`: they were not asked for.
    pub bytes: Option<u64>,
    /// They are kept.
    pub is_kept: bool,
    /// Time of the last check against `bytes`, ns.
    bounded_ns: u64,
}

/// Limit for the rows by slice.
#[derive(Clone, Copy, Debug)]
struct RowLimit {
    /// Rows that there may be by now.
    present: u64,
    /// Rows at which they are counted, and slices become wider.
    max: u64,
}

/// Estimator of a recording by polls: accounts of threads, and samples.
pub struct PollEstimator {
    /// Time slices.
    pub grid: Slices,
    /// Threads in the order of their numbers.
    pub accounts: Vec<Account>,
    /// Stacks, and the time that they stand for.
    pub samples: Samples,
    /// Switch records beside the polls.
    pub switches: RecordedSwitches,
    /// Events by name at which stacks were taken.
    pub(super) events: EventFamilies,
    /// Single intervals, where they are wanted.
    pub(in crate::backend) timeline: TimelineLimit,
    /// Frames of interpreters are kept beside those of their programs.
    pub(super) interpreter_frames: bool,
    /// Facts that the collector states once measuring is over.
    pub(super) facts: Facts,
    /// Clocks of processes by pid, as they were last.
    pub(super) processes: BTreeMap<u32, ProcessClocks>,
    /// Names that runtimes gave their threads, by process and thread.
    pub(super) thread_names: FxHashMap<(u32, u32), Arc<str>>,
    /// Connections as they were last, by cookie.
    pub(super) sockets: BTreeMap<u64, SocketRecord>,
    /// The processes at the other ends of connections at the start, by cookie.
    pub(super) others: FxHashMap<u64, (u32, String)>,
    /// Pauses of runtimes.
    pub(super) pauses: PauseGroups,
    /// Number of impossible observations: collector and estimator disagree, which is never expected.
    pub(super) malformed: u64,
    /// Rows by slice.
    rows: RowLimit,
}

impl TimelineLimit {
    /// Memory for the intervals, bytes; `None`: they are not kept.
    pub fn kept_bytes(&self) -> Option<u64> {
        self.bytes.filter(|_| self.is_kept)
    }
}

impl PollEstimator {
    /// An estimator without observations.
    pub fn new(begin: &Begin) -> PollEstimator {
        PollEstimator {
            grid: Slices {
                start_ns: begin.start_ns,
                width_ns: begin.slice_ns,
                count: 0,
            },
            accounts: Vec::new(),
            samples: Samples::default(),
            switches: RecordedSwitches::default(),
            events: EventFamilies::default(),
            timeline: TimelineLimit {
                bytes: begin.timeline_bytes,
                ..TimelineLimit::default()
            },
            interpreter_frames: begin.interpreter_frames,
            facts: Facts {
                start_unix_ns: begin.start_unix_ns,
                ..Facts::default()
            },
            processes: BTreeMap::new(),
            thread_names: FxHashMap::default(),
            sockets: BTreeMap::new(),
            others: FxHashMap::default(),
            pauses: PauseGroups::default(),
            malformed: 0,
            rows: RowLimit {
                present: 0,
                max: MAX_ROWS,
            },
        }
    }

    /// Takes an observation. Answers to questions are not for it (`session/naming.rs`).
    pub fn observe(&mut self, observation: &Observation<'_>) {
        let taken = match observation {
            Observation::PolledThread(t) => {
                let mut account = Account::new(t);
                account.book.spans = self.timeline.is_kept.then(Spans::default);
                self.accounts.push(account);
                Some(())
            }
            Observation::Rebased(r) => {
                let account = self.accounts.get_mut(r.thread as usize);
                account.map(|account| account.rebase(&r.begin))
            }
            Observation::ThreadPoll(poll) => self.polled(poll),
            Observation::StoppedThread(stop) => self.stopped(stop),
            Observation::EndedThread(end) => self.ended(end),
            Observation::PolledStack(stack) => self.stack(stack),
            Observation::Event(bytes) => self.event(bytes),
            Observation::ThreadStatus(status) => {
                let account = self.accounts.get_mut(status.thread as usize);
                account.map(|account| account.status(status))
            }
            other => match self.recorded(other) {
                Some(taken) => taken,
                None => self.value(other),
            },
        };
        self.malformed += u64::from(taken.is_none());
        if self.rows.present > self.rows.max {
            self.bound_rows();
        }
    }

    /// Takes an observation of perf events; `None`: it is another kind.
    fn recorded(&mut self, observation: &Observation<'_>) -> Option<Option<()>> {
        Some(match observation {
            Observation::Switch(switch) => self.switched(switch),
            Observation::CounterReading(reading) => self.counters_read(reading),
            Observation::RunningSample(sample) => self.computed(sample),
            Observation::PreemptedStack(stack) => self.leaves(stack),
            Observation::WaitProbe(poll) => self.probed(poll),
            Observation::ProbedReason(told) => self.ended_by(told),
            Observation::UnfollowedWait(left) => self.left(*left),
            Observation::QueuedPoll(poll) => self.met_queued(poll),
            Observation::OpenWait(open) => self.waits_on(open),
            Observation::RecordsBegin(begin) => self.begin_records(begin),
            Observation::RecordsEnd(end) => self.end_records(end),
            Observation::SwitchRecording(recording) => self.records_switches(recording),
            other => return self.counted(other),
        })
    }

    /// Takes an observation of events by name; `None`: it is another kind.
    fn counted(&mut self, observation: &Observation<'_>) -> Option<Option<()>> {
        let is_thread = |thread: u32| ((thread as usize) < self.accounts.len()).then_some(());
        Some(match observation {
            Observation::CountedEvent(event) => {
                self.events.begin(event);
                Some(())
            }
            Observation::EventStack(stack) => {
                let is_known = (stack.stack as usize) < self.samples.distinct();
                let taken = is_thread(stack.thread).filter(|()| is_known);
                self.rows.present += 1;
                taken
                    .and_then(|()| self.claim(stack.thread, stack.hits))
                    .and_then(|()| self.events.take(self.grid, stack))
            }
            Observation::HitsOfEnded(ended) => is_thread(ended.thread)
                .and_then(|()| self.events.told(ended.event, ended.thread, ended.hits)),
            Observation::EventHits(hits) => u32::try_from(hits.record)
                .ok()
                .and_then(|thread| self.events.counted(hits.event, thread, hits.hits)),
            Observation::CounterHeir(heir) => {
                self.events.inherits(heir.thread, heir.of);
                Some(())
            }
            _ => return None,
        })
    }

    /// Takes a record in the format of the kernel programs: a pause that its runtime reported.
    fn event(&mut self, bytes: &[u8]) -> Option<()> {
        let pause = PauseEvent::read_from_prefix(bytes).ok()?.0;
        (pause.head.kind == kind::PAUSE).then(|| self.pauses.take(&pause))
    }

    fn value(&mut self, observation: &Observation<'_>) -> Option<()> {
        match observation {
            Observation::Mark(Mark::Released { .. }) => self.samples.forget(),
            Observation::Mark(Mark::Tick { time }) => self.tick(*time),
            Observation::Mark(Mark::Drained { time }) => self.drained(*time),
            Observation::Mark(Mark::RecordsLost { .. }) => self.lost_records(),
            Observation::Mark(Mark::End { time }) => self.facts.end_ns = Some(*time),
            Observation::ProcessClocks(clocks) => {
                self.processes.insert(clocks.pid, *clocks);
            }
            Observation::ThreadName(named) => {
                let thread = (named.pid, named.tid);
                self.thread_names.insert(thread, named.name.clone());
            }
            Observation::Socket(bytes) => {
                let record = SocketRecord::read_from_prefix(bytes).ok()?.0;
                self.sockets.insert(record.cookie, record);
            }
            Observation::OtherEnd(end) if end.before => {
                self.others
                    .extend(end.process.clone().map(|process| (end.cookie, process)));
            }
            other => self.facts.take(other),
        }
        Some(())
    }

    fn tick(&mut self, time: u64) {
        if slices::is_too_fine(&self.grid, time, 0) {
            self.coarsen();
        }
        let due_ns = self.timeline.bounded_ns.saturating_add(BOUND_SPANS);
        if let Some(limit) = self.timeline.kept_bytes().filter(|_| time >= due_ns) {
            self.timeline.bounded_ns = time;
            self.keep_spans_within(limit);
        }
    }

    /// Makes the slices twice as wide.
    pub(in crate::backend) fn coarsen(&mut self) {
        self.grid.width_ns *= 2;
        self.accounts.iter_mut().for_each(|a| a.book.coarsen());
        self.samples.coarsen();
        self.events.coarsen();
    }

    /// Makes slices wider if there are too many rows: a log may claim more rows than are possible.
    fn bound_rows(&mut self) {
        let books = self.accounts.iter().map(|a| a.book.rows());
        let rows = books.sum::<usize>() + self.samples.rows() + self.events.rows();
        self.rows.present = rows as u64;
        if self.rows.present > self.rows.max / 2 {
            self.coarsen();
            self.rows.max = self.rows.max.max(4 * self.accounts.len() as u64);
        }
    }

    /// Makes room for rows of the slices between two moments.
    pub(in crate::backend) fn make_room(&mut self, begin: u64, end: u64) {
        let passed = end.saturating_sub(begin);
        while passed / self.grid.width_ns.max(1) > MAX_ROWS / 4 {
            self.coarsen();
        }
        // Three kinds of time, a seen block reason, and a stack.
        self.rows.present += 5 * (passed / self.grid.width_ns.max(1) + 1);
    }

    fn stack(&mut self, s: &PolledStack) -> Option<()> {
        let known = self.samples.distinct() as u32;
        // Stacks that were too large for the log: their time has a stack without frames.
        for number in known..known + s.number.checked_sub(known).filter(|n| *n <= MAX_GAP)? {
            self.samples.push(Polled {
                scope: AddressScope {
                    pid: s.pid,
                    code: number.into(),
                },
                frames: Box::default(),
                managed: Box::default(),
                end: StackEnd::Lost,
                resource: None,
            });
        }
        self.samples.push(Polled {
            scope: AddressScope {
                pid: s.pid,
                code: s.code,
            },
            frames: s.native.as_slice().into(),
            managed: s.managed.as_slice().into(),
            end: s.end,
            resource: s.resource.clone(),
        });
        Some(())
    }

    /// Takes a poll: it stands for the time since the poll before.
    pub(super) fn polled(&mut self, p: &ThreadPoll) -> Option<()> {
        let distinct = self.samples.distinct();
        let account = self.accounts.get_mut(p.thread as usize)?;
        let counters = schedstat(p.counters);
        let begin = account.book.seen_ns;
        let is_plausible = p.time >= begin && account.may_have_computed(p.counters);
        let stack = p.saw.and_then(|saw| saw.stack);
        let is_known = stack.is_none_or(|s| (s as usize) < distinct);
        if account.course.is_some() || !is_plausible || !is_known {
            return None;
        }
        self.make_room(begin, p.time);
        let (grid, account) = (self.grid, &mut self.accounts[p.thread as usize]);
        let same = account.counters.unchanged(counters);
        let before = account.seen;
        if let Some(saw) = p.saw {
            account.seen = SeenDoing {
                doing: saw
                    .blocked
                    .map_or(PolledActivity::Running, PolledActivity::Blocked),
                stack: saw.stack,
                begin: saw.begin,
                seen: saw.seen,
            };
            if let (Some(stack), Some(StackBegin::Whole(sp))) = (saw.stack, saw.begin) {
                self.samples.stands_at(p.thread as usize, stack, sp);
            }
        }
        let present = account.seen;
        let doing = present.doing;
        let book = account.book.sliced(grid);
        account.counters.book_poll(book, p.time, counters, doing);
        // Whether it ran is known, but not when. If polls were left out because it slept, it slept for half of
        // their time on average. For the rest it was in its present state.
        let left_out = u128::from(p.left_out);
        let unseen = match same {
            true => (u128::from(p.time - begin) * left_out / (left_out + 1) / 2) as u64,
            false => 0,
        };
        let edge = begin + unseen;
        account.stretch = (edge, p.time);
        if unseen > 0 {
            self.stands_for(p.thread, before, begin, edge);
        }
        self.stands_for(p.thread, present, edge, p.time);
        Some(())
    }

    /// Adds the time `begin..end` to the wait in which the thread was seen, if it was blocked.
    fn stands_for(&mut self, thread: u32, seen: SeenDoing, begin: u64, end: u64) {
        let Some((reason, stack, innermost)) = seen.blocked() else {
            return;
        };
        let poll = PollSample {
            thread,
            stack,
            state: State::Blocked,
            reason: Some(reason),
            part: None,
            begin,
            end,
            ns: end - begin,
            weight: match innermost {
                Some(sp) => Weight::Innermost {
                    sp,
                    of: WeightScope::Own,
                },
                None => Weight::Own,
            },
            seen: seen.seen,
        };
        self.add(&poll);
    }

    /// Adds a stretch of a thread's time with the stack that it was seen with.
    fn add(&mut self, poll: &PollSample) {
        if let Some(reason) = poll.reason {
            let book = &mut self.accounts[poll.thread as usize].book;
            let kind = TimeKind::Seen(reason, ANY);
            (book.sliced(self.grid)).add(poll.begin, poll.end, kind, poll.ns);
        }
        self.samples.add(self.grid, poll);
    }

    /// Attributes the stretch of a poll to the thread's activity at that poll, as the counters show it.
    fn stopped(&mut self, stop: &StoppedThread) -> Option<()> {
        let poll = &stop.poll;
        let account = self.accounts.get(poll.thread as usize)?;
        let Some(judged) = stop_judgement::judge(stop) else {
            return Some(());
        };
        let within = poll.begin <= poll.end && poll.end <= account.book.seen_ns;
        if !within || judged.stack as usize >= self.samples.distinct() {
            return None;
        }
        self.make_room(poll.begin, poll.end);
        self.add(&PollSample {
            thread: poll.thread,
            stack: judged.stack,
            state: judged.state,
            reason: judged.reason,
            part: judged.part,
            begin: poll.begin,
            end: poll.end,
            ns: poll.end - poll.begin,
            weight: Weight::Own,
            seen: WaitSeen::default(),
        });
        Some(())
    }

    /// Takes the end of a thread. If it slept at its last poll, which may be a while ago, it slept until its end. The
    /// time of the end is not known. It is taken to be in the middle of the time since that poll, as for births, or now
    /// if the thread ended with the target.
    fn ended(&mut self, e: &EndedThread) -> Option<()> {
        let account = self.accounts.get_mut(e.thread as usize)?;
        account.alive = false;
        let (begin, before) = (account.book.seen_ns, account.seen);
        let sleeps = matches!(before.doing, PolledActivity::Blocked(_));
        if account.course.is_some() || !sleeps || e.time < begin {
            return Some(());
        }
        let part = if e.with_target { 1 } else { 2 };
        let end = begin + (e.time - begin) / part;
        let counters = schedstat(e.counters);
        if !account.may_have_computed(e.counters) {
            return None;
        }
        self.make_room(begin, end);
        let account = &mut self.accounts[e.thread as usize];
        let book = account.book.sliced(self.grid);
        account
            .counters
            .book_poll(book, end, counters, before.doing);
        self.stands_for(e.thread, before, begin, end);
        Some(())
    }
}

#[cfg(test)]
#[path = "estimator_tests.rs"]
mod tests;
