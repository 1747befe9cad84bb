//! Stacks of threads that were woken and wait for a CPU (see [`super::known_wait_sites`]).

use wallscope_model::StackEnd;
use wallscope_observe::{Observation, QueuedPoll, UnfollowedWait};
use wallscope_unwind::native::FrameWord;

use super::known_wait_sites::{FOLLOWED, WaitSite, told_apart};
use crate::{
    backend::proc::{
        poll_round::Round,
        poller::ProcPoller,
        samples::Polled,
        waiting::{Pages, SyscallState, WaitingThread},
    },
    clock,
};

impl ProcPoller {
    /// Polls at `at`, in a round, a thread in a wait that a poll has seen already: it may have been woken since.
    pub(in crate::backend) fn see_again(&mut self, index: usize, round: &Round, at: u64) {
        let account = &self.intake.estimator.accounts[index];
        let Some(begin) = account.off_since() else {
            return;
        };
        let woken = account.wait.is_queued(begin);
        let followed = at.saturating_sub(begin) <= FOLLOWED * self.rounds.spacing_ns;
        if account.wait.probe.is_none_or(|p| p.left) {
            return;
        }
        if !woken && !followed {
            let thread = index as u32;
            (self.intake).observe(&Observation::UnfollowedWait(UnfollowedWait { thread }));
            return;
        }
        let t = &mut self.watch.threads[index];
        let mut buffer = [0u8; 256];
        let runs = (t.place(&mut buffer))
            .is_ok_and(|text| SyscallState::parse(text) == Some(SyscallState::Running));
        if runs && !t.shares_our_cpu() {
            self.intake.observe(&Observation::QueuedPoll(QueuedPoll {
                thread: index as u32,
                begin,
                at,
                read: at,
                stack: None,
                ns: self.rounds.spacing_ns,
                late: round.is_late(),
            }));
        }
    }

    /// Polls at `at`, in a round, a thread that is on a CPU or waits for one, after a wait that no poll has seen.
    pub(in crate::backend) fn see_queued(&mut self, index: usize, round: &Round, at: u64) {
        let t = &self.watch.threads[index];
        let account = &self.intake.estimator.accounts[index];
        let Some(course) = &account.course else {
            return;
        };
        if course.is_put_off() || t.wait_sites.is_empty() {
            return;
        }
        // By its records it may not even have begun to wait.
        let begin = course.off_since().unwrap_or(at);
        let mut queued = QueuedPoll {
            thread: index as u32,
            begin,
            at,
            read: at,
            stack: None,
            ns: self.rounds.spacing_ns,
            late: round.is_late(),
        };
        if !account.wait.is_queued(begin) {
            let Some(times) = self.records.runnable.meet() else {
                return;
            };
            queued.ns *= times;
            (queued.read, queued.stack) = self.stack_of_queued(index);
        }
        if !self.watch.threads[index].shares_our_cpu() {
            self.intake.observe(&Observation::QueuedPoll(queued));
        }
    }

    /// The time when the stack of a thread had been read, and that stack, if the thread still is where it was seen
    /// to wait.
    pub(in crate::backend) fn stack_of_queued(&mut self, index: usize) -> (u64, Option<u32>) {
        let t = &self.watch.threads[index];
        let (pid, tid) = (t.pid, t.tid);
        // Data that must be of one moment is read first.
        let copy = |p: &WaitSite| {
            let WaitSite { sp, pc, call, .. } = *p;
            let waiting_thread = WaitingThread {
                pid,
                tid,
                sp,
                pc,
                call,
            };
            (*p, Pages::copy(waiting_thread))
        };
        let copies: Vec<(WaitSite, Pages)> = t.wait_sites.stands().iter().map(copy).collect();
        let mut read = clock::now();
        let tables = self.processes.files().tables();
        let mut found: Option<(WaitSite, Vec<FrameWord>, StackEnd)> = None;
        for (stands, mut pages) in copies {
            let stack = pages.unwind(&mut self.reader.unwinder, tables);
            if stack.again {
                read = clock::now();
            }
            let t = &self.watch.threads[index];
            let Some(place) = t
                .wait_sites
                .like(&stands, told_apart(stack.frames.iter().map(|w| w.0)))
            else {
                continue;
            };
            if (found.as_ref()).is_some_and(|(known, ..)| known.stack != place.stack) {
                return (read, None);
            }
            found = Some((place, stack.frames, stack.end));
        }
        let Some((place, frames, end)) = found else {
            return (read, None);
        };
        let managed = self.processes.managed();
        if !managed.interprets(pid, &frames) {
            return (read, Some(place.stack));
        }
        // The interpreter may run something else now.
        let managed = managed.read(&mut self.reader.managed, pid, tid, &frames);
        read = clock::now();
        let stack = managed.map(|m| {
            self.processes.managed_mut().name(&m);
            let scope = self.processes.scope_of(pid, read, &frames);
            let end = m.end_with(end);
            self.intake.stack(Polled::of(scope, &frames, m.words, end))
        });
        (read, stack)
    }
}
