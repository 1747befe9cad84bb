//! Stacks of running threads by short stops, where these are permitted.

use wallscope_model::{BlockReason, Part, State, WaitSeen};

use super::{
    book::Kind,
    looker::Looker,
    samples::{Look, Weight},
    stop::{Glance, Halted},
};
use crate::backend::perf::Running;

impl Looker {
    /// Stops a running thread for a moment to see its stack, if that was permitted. One that halts
    /// at once had a CPU; any other one waited for it.
    pub fn halt(&mut self, index: usize, begin: u64, end: u64) {
        let t = &self.watch.threads[index];
        let tid = t.tid;
        let Some(stopper) = &mut self.stopper else {
            return;
        };
        let glance = stopper.look(t.pid, tid);
        let late = std::mem::take(&mut stopper.late);
        match glance {
            Glance::Running(halted) => {
                let waited = halted.call.and_then(|call| self.waits_in(call));
                let state = waited.map_or(State::OnCpu, |_| State::Blocked);
                self.halted(index, halted, (state, waited), begin, end);
            }
            Glance::Later => {
                let owed = self.owed.entry(tid).or_insert((index, begin, end));
                owed.2 = end;
            }
            Glance::None => {}
        }
        for (tid, halted) in late {
            if let Some((index, begin, end)) = self.owed.remove(&tid) {
                self.halted(index, halted, (State::Runnable, None), begin, end);
            }
        }
    }

    /// What a system call waits for, if it is one to wait in. A thread that is seen to run at the end of
    /// such a one has mostly been woken by the very interrupt that woke us, as the kernel lets timers go
    /// off together: it waited until we looked.
    fn waits_in(&self, call: usize) -> Option<BlockReason> {
        const WAITS: [BlockReason; 4] = [
            BlockReason::Lock,
            BlockReason::Timer,
            BlockReason::Poll,
            BlockReason::Child,
        ];
        let reason = self.table.get(call).copied()?;
        WAITS.into_iter().find(|wait| *wait as u8 == reason)
    }

    /// The stack of a thread that was stopped stands for `begin..end`.
    fn halted(
        &mut self,
        index: usize,
        halted: Halted,
        (state, reason): (State, Option<BlockReason>),
        begin: u64,
        end: u64,
    ) {
        let t = &self.watch.threads[index];
        let running = Running {
            pid: t.pid,
            tid: t.tid,
            period_ns: 0,
            user_mode: true,
            registers: halted.registers,
            stack: halted.stack,
        };
        let pid = t.pid;
        let (frames, how) = self.stack_of(&running, end);
        let whose = self.processes.whose(pid, end, &frames);
        let stack = self.samples.stack(whose, frames, Box::default(), how);
        // A thread halts on its way back to user mode, wherever it was.
        let part = match state {
            State::OnCpu => Some(Part::User),
            State::Runnable => Some(Part::Woken),
            _ => None,
        };
        if let Some(reason) = reason {
            let book = &mut self.watch.threads[index].book;
            book.add(self.grid, begin, end, Kind::Seen(reason), end - begin);
        }
        self.samples.add(
            self.grid,
            &Look {
                thread: index as u32,
                stack,
                state,
                reason,
                part,
                begin,
                end,
                ns: end - begin,
                weight: Weight::Own,
                seen: WaitSeen::default(),
            },
        );
    }
}
