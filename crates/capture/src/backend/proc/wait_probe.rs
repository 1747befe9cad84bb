//! One poll of one thread: what it does, and the stack if it waits.
//!
//! Waits shorter than 0.1 ms end while they are polled. A poller that dropped them would see only the longer
//! waits of the thread. So the call, the stack and the place in the kernel are read first: they must be of
//! one moment. If switches are recorded, the records tell afterwards, to the microsecond, whether the wait
//! lasted until then. Without them the thread's call is read again. A thread that has run on keeps its block
//! reason, which the call alone tells, and the function that it waited in. The callers copied right after are
//! kept if they prove to be those of the wait ([`super::call_site_check`]), else they are lost.

use std::io;

use wallscope_model::{BlockReason, StackEnd, WaitSeen};
use wallscope_observe::StackBegin;

use super::{
    call_site_check::SOON,
    counters::Doing,
    poller::ProcPoller,
    samples::Polled,
    wait_observation::PartialObservation,
    waiting::{self, Pages, Where},
};
use crate::{
    backend::perf::{Place, told_apart},
    clock,
    session::{descriptors, resources::Locks as _},
};

impl ProcPoller {
    /// What a thread that has moved does now, and in `stood_ns` until when it is known to, if it has not been
    /// on a CPU by then: that is for its switch records to say. `None`: it is gone.
    pub fn see(&mut self, index: usize, now: u64) -> Option<Doing> {
        let t = &mut self.watch.threads[index];
        let (pid, recorded) = (t.pid, t.records.open);
        (t.probe.stack, t.probe.begin, t.probe.glimpse) = (None, None, None);
        (t.probe.seen, t.probe.ring) = (WaitSeen::default(), None);
        let mut readable = self.watch.processes.get(&pid)?.readable;
        let mut glimpse: Option<PartialObservation> = None;
        // Twice: it may move while it is read, and then mostly stays.
        for _ in 0..2 {
            if !readable {
                break;
            }
            let t = &mut self.watch.threads[index];
            let mut buffer = [0u8; 256];
            let text = match t.place(&mut buffer) {
                Ok(text) => text,
                Err(e) if is_gone(&e) => return None,
                Err(_) => {
                    readable = false;
                    break;
                }
            };
            let told_ns = clock::now();
            let (call, sp, pc) = match Where::parse(text)? {
                Where::Running if glimpse.is_some() => break,
                Where::Running => {
                    let slept = self.woken_late && !recorded;
                    let waited = slept.then(|| self.slept_until_now(index)).flatten();
                    return Some(waited.unwrap_or(Doing::Running));
                }
                Where::Blocked { call, sp, pc } => (call, sp, pc),
            };
            if (sp, pc) == (0, 0) {
                // It has no user memory any more: it is ending, or has.
                if matches!(t.letter(), 'Z' | 'X' | '?') {
                    return None;
                }
                t.probe.stood_ns = clock::now();
                t.probe.stack = Some(self.intake.stack(Polled::none(pid, StackEnd::Gone)));
                return Some(Doing::Blocked(BlockReason::Other));
            }
            // What the thread does next says nothing about the moment of the poll.
            if glimpse.as_ref().is_some_and(|g| (g.sp, g.pc) != (sp, pc)) {
                break;
            }
            // First everything that must be of one moment, then what takes longer.
            let mut pages = Pages::copy(pid, t.tid, sp, pc, call);
            let mut copied_ns = clock::now();
            let stood = recorded || t.still(text);
            let mut wchan = [0u8; 96];
            let wchan = if stood { t.wchan(&mut wchan) } else { "" };
            let mut all_ns = clock::now();
            let mut reasons = waiting::reasons(&self.table, pid, wchan, call, t.probe.reason);
            if !recorded && reasons.by_place != reasons.by_call && !t.still(text) {
                reasons.by_place = reasons.by_call;
            }
            if let (BlockReason::Lock, Some(call)) = (reasons.by_call, call)
                && self.processes.managed().is_gil(pid, call.arguments[0])
            {
                reasons.replace(BlockReason::Lock, BlockReason::Gil);
            }
            if let (BlockReason::Lock, Some(call)) = (reasons.by_call, call)
                && (self.processes.managed_mut().java).collector_stops(pid, call.arguments[0])
            {
                reasons.replace(BlockReason::Lock, BlockReason::Gc);
            }
            if reasons.by_place == BlockReason::Poll
                && let Some((reason, wait)) = call.and_then(|c| self.rings.wait(pid, c, now))
            {
                reasons.replace(BlockReason::Poll, reason);
                self.watch.threads[index].probe.ring = Some(wait);
            }
            let t = &mut self.watch.threads[index];
            let less = *glimpse.get_or_insert(PartialObservation {
                reason: reasons.by_call,
                sp,
                pc,
                until: told_ns,
            });
            if !recorded {
                all_ns = clock::now();
            }
            t.probe.seen = match &mut self.connections {
                Some(connections) => connections.seen(pid, call, now),
                None => WaitSeen::default(),
            };
            let mut stack = pages.unwind(&mut self.unwinder, self.processes.files().tables());
            if matches!(stack.end, StackEnd::NoMapping | StackEnd::TableNotLoaded)
                && self.remap(pid, now)
            {
                stack = pages.unwind(&mut self.unwinder, self.processes.files().tables());
            }
            let t = &mut self.watch.threads[index];
            let managed = self.processes.managed();
            let interprets = managed.interprets(pid, &stack.frames);
            // A truncated stack was overwritten further up: the caller is gone, if not the callee.
            let called = !interprets && stack.end.is_whole() && {
                let tables = self.processes.files().tables();
                let (calls, unwinder) = (&mut self.calls, &mut self.unwinder);
                calls.proves(pid, &pages, &stack.frames, unwinder, tables)
            };
            let managed = self.processes.managed();
            let managed = managed.read(&mut self.managed, pid, t.tid, &stack.frames);
            let later = stack.again || managed.is_some();
            if later {
                copied_ns = clock::now();
            }
            let stays = recorded || stood && (!later || t.still(text));
            let stays = stays || called && copied_ns <= told_ns + SOON;
            if !stays {
                self.tally.raced += 1;
                continue;
            }
            let words: Vec<u64> = stack.frames.iter().map(|w| w.0).collect();
            self.processes.managed_mut().name_walked(&words, pid);
            let java = &mut self.processes.managed_mut().java;
            if reasons.by_place == BlockReason::Lock && java.sleeps(pid, words) {
                reasons.replace(BlockReason::Lock, BlockReason::Timer);
            }
            let end = (managed.as_ref()).map_or(stack.end, |m| m.end_with(stack.end));
            let words = managed.map_or_else(Box::default, |m| {
                self.processes.managed_mut().name(&m);
                m.words
            });
            if reasons.by_place == BlockReason::Lock
                && self.processes.managed().ruby_sleeps(pid, &words)
            {
                reasons.replace(BlockReason::Lock, BlockReason::Timer);
            }
            let scope = self.processes.scope_of(pid, copied_ns, &stack.frames);
            let frames = told_apart(stack.frames.iter().map(|w| w.0));
            let what = call.and_then(|call| {
                let [first, second, ..] = call.arguments;
                descriptors::awaited(pid, call.number, [first, second], reasons.by_call)
            });
            let what = what.map(Into::into);
            let stack = self.intake.stack(Polled {
                resource: what,
                ..Polled::of(scope, &stack.frames, words, end)
            });
            t.probe.begin = Some(StackBegin::Whole(sp));
            t.places.note(Place {
                sp,
                pc,
                frames,
                call,
                reason: Some(reasons.by_call),
                stack,
            });
            t.probe.stack = Some(stack);
            (t.probe.copied_ns, t.probe.stood_ns, t.probe.called) = (copied_ns, all_ns, called);
            t.probe.glimpse = Some(PartialObservation {
                reason: reasons.by_call,
                ..less
            });
            return Some(Doing::Blocked(reasons.by_place));
        }
        if readable {
            return Some(self.alternates(index, glimpse));
        }
        let t = &mut self.watch.threads[index];
        t.probe.stood_ns = clock::now();
        let letter = t.letter();
        if let Some(process) = self.watch.processes.get_mut(&pid) {
            process.readable = false;
        }
        Some(match letter {
            'R' => Doing::Running,
            'D' => Doing::Blocked(BlockReason::Disk),
            'T' | 't' => Doing::Blocked(BlockReason::Stopped),
            _ => Doing::Blocked(BlockReason::Other),
        })
    }

    /// What a thread does that alternates between running and waiting faster than it can be read.
    fn alternates(&mut self, index: usize, glimpse: Option<PartialObservation>) -> Doing {
        let pid = self.watch.threads[index].pid;
        let t = &mut self.watch.threads[index];
        let Some(g) = glimpse else {
            t.probe.stood_ns = clock::now();
            t.probe.stack = Some(self.intake.stack(Polled::none(pid, StackEnd::Lost)));
            return Doing::Blocked(t.probe.reason);
        };
        (t.probe.copied_ns, t.probe.stood_ns, t.probe.called) = (g.until, g.until, false);
        t.probe.glimpse = Some(g);
        let stack = self.innermost(index, g);
        let t = &mut self.watch.threads[index];
        (t.probe.stack, t.probe.begin) = (Some(stack), Some(StackBegin::Innermost(g.sp)));
        Doing::Blocked(g.reason)
    }

    /// What a thread that is on a CPU's queue slept in until it was woken with us, on a CPU that had nothing else to
    /// do: a thread that waits behind us there has not run since.
    fn slept_until_now(&mut self, index: usize) -> Option<Doing> {
        let t = &mut self.watch.threads[index];
        if t.places.is_empty() || !t.shares_our_cpu() {
            return None;
        }
        let (_, stack) = self.stack_of_queued(index);
        let t = &mut self.watch.threads[index];
        let place = t.places.with(stack?)?;
        let reason = place.reason?;
        (t.probe.stood_ns, t.probe.stack) = (clock::now(), Some(place.stack));
        Some(Doing::Blocked(reason))
    }

    /// The stack of a wait that ended before its stack was read: the innermost frame. Counted.
    pub fn innermost(&mut self, index: usize, g: PartialObservation) -> u32 {
        let t = &self.watch.threads[index];
        let mut pages = Pages::none(t.pid, t.tid, g.sp, g.pc);
        let stack = pages.unwind(&mut self.unwinder, self.processes.files().tables());
        let scope = self.processes.scope_of(t.pid, g.until, &stack.frames);
        self.tally.glimpsed += 1;
        let lost = StackEnd::Lost;
        (self.intake).stack(Polled::of(scope, &stack.frames, Box::default(), lost))
    }
}

/// Whether a thread's file says that there is no such thread any more.
fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH) || e.kind() == io::ErrorKind::NotFound
}
