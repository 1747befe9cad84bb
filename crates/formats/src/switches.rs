//! Context switches → time off the CPU.
//!
//! If a file holds every switch of a CPU (`sched:sched_switch`, or perf's context-switch records), the
//! time between a thread's switch out and its next switch in is known. It is blocked after a voluntary
//! switch, runnable after a preemption. Such files do not contain when a thread was woken, so run-queue
//! latency after a wake-up is part of the blocked time. They do not contain the block reason either.

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, Part, StackId, State};

use super::ReadError;
use super::import::{Amount, Import, SampleTime};

/// A thread that left its CPU.
struct Out {
    time: u64,
    context: ContextId,
    stack: StackId,
    left: Left,
}

/// Manner in which a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It gave the CPU up, to wait.
    Blocked,
    /// It was preempted and still wants a CPU.
    Preempted,
}

/// Threads that are off the CPU, with the times at which they left it.
#[derive(Default)]
pub(super) struct Switches {
    out: FxHashMap<u32, Out>,
    /// Times that went backwards: events of different CPUs out of order.
    pub disorder: u64,
}

impl Switches {
    /// `tid` leaves its CPU at `time` with this stack.
    pub(super) fn leaves(
        &mut self,
        tid: u32,
        time: u64,
        (context, stack): (ContextId, StackId),
        left: Left,
    ) {
        // The idle task of each CPU has the same id, and waits for nothing.
        if tid != 0 {
            let out = Out {
                time,
                context,
                stack,
                left,
            };
            self.out.insert(tid, out);
        }
    }

    /// `tid` gets a CPU at `time`.
    pub(super) fn gets(&mut self, tid: u32, time: u64, to: &mut Import) -> Result<(), ReadError> {
        let Some(out) = self.out.remove(&tid) else {
            return Ok(());
        };
        let Some(away) = time.checked_sub(out.time) else {
            self.disorder += 1;
            return Ok(());
        };
        let kind = match out.left {
            Left::Preempted => SampleTime {
                part: Some(Part::Preempted),
                ..SampleTime::of(State::Runnable)
            },
            Left::Blocked => SampleTime::of(State::Blocked),
        };
        to.sample(
            out.context,
            out.stack,
            kind,
            Amount::new((1, away), Some(time)),
        )
    }

    /// Accounts threads that are still off the CPU at the end of the file, up to that time.
    pub(super) fn end(mut self, time: u64, to: &mut Import) -> Result<(), ReadError> {
        let mut left: Vec<u32> = self.out.keys().copied().collect();
        left.sort_unstable();
        for tid in left {
            self.gets(tid, time, to)?;
        }
        Ok(())
    }
}
