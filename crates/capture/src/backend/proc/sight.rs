//! One look at one thread: what it does, and the stack of one that waits.

use std::io;

use wallscope_model::{BlockReason, StackEnd, WaitSeen};

use super::{
    counters::Doing,
    looker::Looker,
    waiting::{self, Pages, Where},
};
use crate::session::{self, resources::Locks as _};

impl Looker {
    /// What a thread that has moved does now, and in `stood_ns` until when it is known to. `None`:
    /// it is gone.
    pub fn see(&mut self, index: usize, now: u64) -> Option<Doing> {
        let t = &mut self.watch.threads[index];
        let pid = t.pid;
        (t.stack, t.seen) = (None, WaitSeen::default());
        let mut readable = self.watch.processes.get(&pid)?.readable;
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
            let (call, sp, pc) = match Where::parse(text)? {
                Where::Running => return Some(Doing::Running),
                Where::Blocked { call, sp, pc } => (call, sp, pc),
            };
            if (sp, pc) == (0, 0) {
                // It has no user memory any more: it is ending, or has.
                if matches!(t.letter(), 'Z' | 'X' | '?') {
                    return None;
                }
                t.stood_ns = session::now();
                t.stack = Some(self.samples.none(pid, StackEnd::Gone));
                return Some(Doing::Blocked(BlockReason::Other));
            }
            // First everything that must be of one moment, then what takes longer.
            let mut pages = Pages::copy(pid, t.tid, sp, pc, call);
            let mut wchan = [0u8; 96];
            let wchan = t.wchan(&mut wchan);
            let mut reason = waiting::reason(&self.table, pid, wchan, call, t.reason);
            if let (BlockReason::Lock, Some(call)) = (reason, call)
                && self.processes.managed().is_gil(pid, call.arguments[0])
            {
                reason = BlockReason::Gil;
            }
            if !t.still(text) {
                self.tally.raced += 1;
                continue;
            }
            t.stood_ns = session::now();
            t.seen = match &mut self.connections {
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
            let managed = managed.read(&mut self.managed, pid, t.tid, &stack.frames);
            if (stack.again || managed.is_some()) && !t.still(text) {
                self.tally.raced += 1;
                continue;
            }
            let words: Vec<u64> = stack.frames.iter().map(|w| w.0).collect();
            self.processes.managed_mut().name_walked(&words, pid);
            let java = &mut self.processes.managed_mut().java;
            if reason == BlockReason::Lock && java.sleeps(pid, words) {
                reason = BlockReason::Timer;
            }
            let end = (managed.as_ref()).map_or(stack.end, |m| m.end_with(stack.end));
            let words = managed.map_or_else(Box::default, |m| {
                self.processes.managed_mut().name(&m);
                m.words
            });
            let whose = self.processes.whose(pid, t.stood_ns, &stack.frames);
            t.stack = Some(self.samples.stack(whose, stack.frames, words, end));
            return Some(Doing::Blocked(reason));
        }
        let t = &mut self.watch.threads[index];
        t.stood_ns = session::now();
        if readable {
            // It runs and waits in turn, faster than it can be read.
            t.stack = Some(self.samples.none(pid, StackEnd::Lost));
            return Some(Doing::Blocked(t.reason));
        }
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
}

/// Whether a thread's file says that there is no such thread any more.
fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH) || e.kind() == io::ErrorKind::NotFound
}
