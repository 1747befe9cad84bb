//! One poll of one thread: its activity, and the stack if it waits.
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
use wallscope_unwind::native::StackStart;

use super::{
    call_site_check::SOON,
    counters::PolledActivity,
    poller::ProcPoller,
    samples::Polled,
    wait_observation::PartialObservation,
    waiting::{self, Call, KernelWait, Pages, Read, Reasons, SyscallState, WaitingThread},
};
use crate::{
    backend::perf::{WaitSite, told_apart},
    clock,
    session::{descriptors, resources::Locks as _, unwound::ManagedStack},
};

/// A blocked thread as its `syscall` file showed it.
#[derive(Clone, Copy)]
struct BlockedThread<'a> {
    /// Index of the thread.
    index: usize,
    /// When it is polled, ns on the recording's clock.
    now: u64,
    /// The line of the file: if it reads so again, the thread has not moved.
    text: &'a str,
    /// When that line had been read, ns.
    read_ns: u64,
    /// The system call; `None`: it got there by an exception or signal.
    call: Option<Call>,
    /// Stack pointer.
    sp: u64,
    /// Program counter.
    pc: u64,
}

/// The stack of a blocked thread, and the time until which it is known to have been that.
struct BlockedStack {
    /// Native frames.
    native: Read,
    /// Frames of an interpreter.
    managed: Option<ManagedStack>,
    /// Whether the innermost caller proves to have called the innermost function.
    called: bool,
    /// When the last of it was copied, ns.
    copied_ns: u64,
    /// When all that has to be of one moment had been read, ns.
    all_ns: u64,
}

impl BlockedStack {
    /// The program that had a stack is gone.
    fn none() -> BlockedStack {
        BlockedStack {
            native: Read {
                frames: Vec::new(),
                end: StackEnd::Gone,
                again: false,
            },
            managed: None,
            called: false,
            copied_ns: 0,
            all_ns: 0,
        }
    }
}

impl ProcPoller {
    /// Activity of a thread that has moved. `stood_ns` is set to the time until which the activity is known to last,
    /// provided that the thread was not on a CPU by then, which its switch records show. `None`: the thread is gone.
    pub fn see(&mut self, index: usize, now: u64) -> Option<PolledActivity> {
        let t = &mut self.watch.threads[index];
        let pid = t.pid;
        (t.probe.stack, t.probe.begin, t.probe.glimpse) = (None, None, None);
        (t.probe.seen, t.probe.ring) = (WaitSeen::default(), None);
        if !self.watch.processes.get(&pid)?.readable {
            return Some(self.doing_by_letter(index));
        }
        let mut glimpse: Option<PartialObservation> = None;
        // Twice: it may move while it is read, and then mostly stays.
        for _ in 0..2 {
            let mut buffer = [0u8; 256];
            let text = match self.watch.threads[index].place(&mut buffer) {
                Ok(text) => text,
                Err(e) if is_gone(&e) => return None,
                Err(_) => return Some(self.doing_by_letter(index)),
            };
            let read_ns = clock::now();
            let (call, sp, pc) = match SyscallState::parse(text)? {
                SyscallState::Running if glimpse.is_some() => break,
                SyscallState::Running => return Some(self.running_or_woken_with_us(index)),
                SyscallState::Blocked { call, sp, pc } => (call, sp, pc),
            };
            if (sp, pc) == (0, 0) {
                return self.ending(index);
            }
            // What the thread does next says nothing about the moment of the poll.
            if glimpse.as_ref().is_some_and(|g| (g.sp, g.pc) != (sp, pc)) {
                break;
            }
            let thread = BlockedThread {
                index,
                now,
                text,
                read_ns,
                call,
                sp,
                pc,
            };
            if let Some(reason) = self.see_blocked(&thread, &mut glimpse) {
                return Some(PolledActivity::Blocked(reason));
            }
            self.tally.raced += 1;
        }
        Some(self.alternates(index, glimpse))
    }

    /// Reads the wait of a blocked thread. `None`: it moved before its stack was copied, and `glimpse` has all that
    /// is known of the wait.
    fn see_blocked(
        &mut self,
        thread: &BlockedThread<'_>,
        glimpse: &mut Option<PartialObservation>,
    ) -> Option<BlockReason> {
        let BlockedThread { call, sp, pc, .. } = *thread;
        let t = &mut self.watch.threads[thread.index];
        let (pid, recorded) = (t.pid, t.records.open);
        // Readings that must be of one moment come first, slow ones later.
        let pages = Pages::copy(WaitingThread {
            pid,
            tid: t.tid,
            sp,
            pc,
            call,
        });
        let copied_ns = clock::now();
        let stood = recorded || t.still(thread.text);
        let mut wchan = [0u8; 96];
        let wchan = if stood { t.wchan(&mut wchan) } else { "" };
        let mut all_ns = clock::now();
        let wait = KernelWait {
            wchan,
            call,
            previous: t.probe.reason,
            stopped: call.is_none()
                && waiting::is_unknown(wchan)
                && matches!(t.letter(), 'T' | 't'),
        };
        let mut reasons = waiting::reasons(&self.table, pid, wait);
        if !recorded && reasons.by_place != reasons.by_call && !t.still(thread.text) {
            reasons.by_place = reasons.by_call;
        }
        self.tell_purpose(thread, &mut reasons);
        let less = *glimpse.get_or_insert(PartialObservation {
            reason: reasons.by_call,
            sp,
            pc,
            until: thread.read_ns,
        });
        if !recorded {
            all_ns = clock::now();
        }
        self.watch.threads[thread.index].probe.seen = match &mut self.connections {
            Some(connections) => connections.seen(pid, call, thread.now),
            None => WaitSeen::default(),
        };
        let mut stack = self.unwind_blocked(thread, pages);
        let later = stack.native.again || stack.managed.is_some();
        stack.copied_ns = if later { clock::now() } else { copied_ns };
        stack.all_ns = all_ns;
        let t = &mut self.watch.threads[thread.index];
        let stays = recorded || stood && (!later || t.still(thread.text));
        let proven = stack.called && stack.copied_ns <= thread.read_ns + SOON;
        if !stays && !proven {
            return None;
        }
        self.keep_wait(thread, &mut reasons, stack);
        self.watch.threads[thread.index].probe.glimpse = Some(PartialObservation {
            reason: reasons.by_call,
            ..less
        });
        Some(reasons.by_place)
    }

    /// Corrects the reasons of a wait for purposes that the kernel cannot know: that of a lock of a runtime, and that
    /// of a poll of a ring.
    fn tell_purpose(&mut self, thread: &BlockedThread<'_>, reasons: &mut Reasons) {
        let Some(call) = thread.call else {
            return;
        };
        let pid = self.watch.threads[thread.index].pid;
        let lock = call.arguments[0];
        if reasons.by_call == BlockReason::Lock && self.processes.managed().is_gil(pid, lock) {
            reasons.replace(BlockReason::Lock, BlockReason::Gil);
        }
        if reasons.by_call == BlockReason::Lock
            && (self.processes.managed_mut().java).collector_stops(pid, lock)
        {
            reasons.replace(BlockReason::Lock, BlockReason::Gc);
        }
        if reasons.by_place == BlockReason::Poll
            && let Some((reason, wait)) = self.rings.wait(pid, call, thread.now)
        {
            reasons.replace(BlockReason::Poll, reason);
            self.watch.threads[thread.index].probe.ring = Some(wait);
        }
    }

    /// The stack of a blocked thread from the memory that was copied, and more where it is deeper. Its times are not
    /// set.
    fn unwind_blocked(&mut self, thread: &BlockedThread<'_>, mut pages: Pages) -> BlockedStack {
        let t = &self.watch.threads[thread.index];
        let (pid, tid) = (t.pid, t.tid);
        if self.is_before_exec(pid) {
            return BlockedStack::none();
        }
        self.intake.keep_memory(|| pages.memory(thread.now));
        let mut native = pages.unwind(&mut self.reader.unwinder, self.processes.files().tables());
        if matches!(native.end, StackEnd::NoMapping | StackEnd::TableNotLoaded)
            && self.remap(pid, thread.now)
        {
            native = pages.unwind(&mut self.reader.unwinder, self.processes.files().tables());
        }
        let interprets = (self.processes.managed()).interprets(pid, &native.frames);
        // A truncated stack was overwritten further up: the caller is gone, if not the callee.
        let called = !interprets && native.end.is_whole() && {
            let tables = self.processes.files().tables();
            let by = |start: StackStart<'_>| self.reader.unwinder.unwind(tables, start, |_, _| 0);
            self.reader.calls.proves(&pages, &native.frames, by)
        };
        let managed = self.processes.managed();
        let managed = managed.read(&mut self.reader.managed, pid, tid, &native.frames);
        BlockedStack {
            native,
            managed,
            called,
            copied_ns: 0,
            all_ns: 0,
        }
    }

    /// Names the stack of a wait, corrects the reasons by it, and keeps both as the result of the poll.
    fn keep_wait(
        &mut self,
        thread: &BlockedThread<'_>,
        reasons: &mut Reasons,
        stack: BlockedStack,
    ) {
        let pid = self.watch.threads[thread.index].pid;
        let BlockedStack {
            native, managed, ..
        } = stack;
        let words: Vec<u64> = native.frames.iter().map(|w| w.0).collect();
        self.processes.managed_mut().name_walked(&words, pid);
        let java = &mut self.processes.managed_mut().java;
        if reasons.by_place == BlockReason::Lock && java.sleeps(pid, words) {
            reasons.replace(BlockReason::Lock, BlockReason::Timer);
        }
        let end = (managed.as_ref()).map_or(native.end, |m| m.end_with(native.end));
        let words = managed.map_or_else(Box::default, |m| {
            self.processes.managed_mut().name(&m);
            m.words
        });
        if reasons.by_place == BlockReason::Lock
            && self.processes.managed().ruby_sleeps(pid, &words)
        {
            reasons.replace(BlockReason::Lock, BlockReason::Timer);
        }
        let scope = self
            .processes
            .scope_of(pid, stack.copied_ns, &native.frames);
        let frames = told_apart(native.frames.iter().map(|w| w.0));
        let resource = thread.call.and_then(|call| {
            let [first, second, ..] = call.arguments;
            descriptors::awaited(pid, call.number, [first, second], reasons.by_call)
        });
        let index = self.intake.stack(Polled {
            resource: resource.map(Into::into),
            ..Polled::of(scope, &native.frames, words, end)
        });
        let t = &mut self.watch.threads[thread.index];
        t.probe.begin = Some(StackBegin::Whole(thread.sp));
        t.wait_sites.note(WaitSite {
            sp: thread.sp,
            pc: thread.pc,
            frames,
            call: thread.call,
            reason: Some(reasons.by_call),
            stack: index,
        });
        t.probe.stack = Some(index);
        (t.probe.copied_ns, t.probe.stood_ns) = (stack.copied_ns, stack.all_ns);
        t.probe.called = stack.called;
    }

    /// Activity of a thread that runs by its `syscall` file.
    fn running_or_woken_with_us(&mut self, index: usize) -> PolledActivity {
        let slept = self.rounds.woken_late && !self.watch.threads[index].records.open;
        let waited = slept.then(|| self.slept_until_now(index)).flatten();
        waited.unwrap_or(PolledActivity::Running)
    }

    /// Activity of a thread without user memory, which is ending. `None`: it has ended.
    fn ending(&mut self, index: usize) -> Option<PolledActivity> {
        let t = &mut self.watch.threads[index];
        if matches!(t.letter(), 'Z' | 'X' | '?') {
            return None;
        }
        t.probe.stood_ns = clock::now();
        t.probe.stack = Some(self.intake.stack(Polled::none(t.pid, StackEnd::Gone)));
        Some(PolledActivity::Blocked(BlockReason::Other))
    }

    /// Activity of a thread by its state letter alone: its `syscall` file may not be read. The files of its process
    /// are not tried again.
    fn doing_by_letter(&mut self, index: usize) -> PolledActivity {
        let t = &mut self.watch.threads[index];
        t.probe.stood_ns = clock::now();
        let letter = t.letter();
        if let Some(process) = self.watch.processes.get_mut(&t.pid) {
            process.readable = false;
        }
        match letter {
            'R' => PolledActivity::Running,
            'D' => PolledActivity::Blocked(BlockReason::Disk),
            'T' | 't' => PolledActivity::Blocked(BlockReason::Stopped),
            _ => PolledActivity::Blocked(BlockReason::Other),
        }
    }

    /// Activity of a thread that alternates between running and waiting faster than it can be read.
    fn alternates(&mut self, index: usize, glimpse: Option<PartialObservation>) -> PolledActivity {
        let pid = self.watch.threads[index].pid;
        let t = &mut self.watch.threads[index];
        let Some(g) = glimpse else {
            t.probe.stood_ns = clock::now();
            t.probe.stack = Some(self.intake.stack(Polled::none(pid, StackEnd::Lost)));
            return PolledActivity::Blocked(t.probe.reason);
        };
        (t.probe.copied_ns, t.probe.stood_ns, t.probe.called) = (g.until, g.until, false);
        t.probe.glimpse = Some(g);
        let stack = self.innermost(index, g);
        let t = &mut self.watch.threads[index];
        (t.probe.stack, t.probe.begin) = (Some(stack), Some(StackBegin::Innermost(g.sp)));
        PolledActivity::Blocked(g.reason)
    }

    /// The wait of a runnable thread until it was woken together with us, on a CPU that had nothing else to do. A
    /// thread that waits behind us there has not run since.
    fn slept_until_now(&mut self, index: usize) -> Option<PolledActivity> {
        let t = &mut self.watch.threads[index];
        if t.wait_sites.is_empty() || !t.shares_our_cpu() {
            return None;
        }
        let (_, stack) = self.stack_of_queued(index);
        let t = &mut self.watch.threads[index];
        let place = t.wait_sites.with(stack?)?;
        let reason = place.reason?;
        (t.probe.stood_ns, t.probe.stack) = (clock::now(), Some(place.stack));
        Some(PolledActivity::Blocked(reason))
    }

    /// The stack of a wait that ended before its stack was read: the innermost frame alone. Counts the wait.
    pub fn innermost(&mut self, index: usize, g: PartialObservation) -> u32 {
        let t = &self.watch.threads[index];
        let mut pages = Pages::none(WaitingThread {
            pid: t.pid,
            tid: t.tid,
            sp: g.sp,
            pc: g.pc,
            call: None,
        });
        let stack = pages.unwind(&mut self.reader.unwinder, self.processes.files().tables());
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
