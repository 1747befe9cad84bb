//! A thread as seen so far, and its ledger.

use std::sync::Arc;

use wallscope_model::{Audit, BlockReason, Context, Ledger, OnCpu, Runnable, UnknownCause};

use super::{groups::Role, ticks::Ticks};
use crate::event::{self, Dump, state};

/// Time in each state up to some moment, open interval included.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) on_cpu: u64,
    pub(super) runnable: u64,
    pub(super) blocked: [u64; BlockReason::COUNT],
}

impl Sums {
    /// The sums of `thread` by its figures in `dump`, as they stand at `now`.
    pub(super) fn of(thread: &ThreadAccount, dump: &Dump, now: u64) -> Sums {
        let mut sums = Sums::at(dump, now);
        let queued = sums.queued_while_held(thread);
        sums.blocked[BlockReason::Pipe as usize] -= thread.held - queued;
        sums.runnable = sums.runnable.saturating_sub(queued);
        sums
    }

    /// Part of `thread`'s time held at our pipe that a repair counted as runnable. The thread slept for all
    /// of that time. The kernel's figure, which pauses by the hypervisor disturb, may date its wake-up before
    /// its release.
    fn queued_while_held(&self, thread: &ThreadAccount) -> u64 {
        let asleep = self.blocked[BlockReason::Pipe as usize];
        thread.held.saturating_sub(asleep)
    }

    /// The sums of `dump` as they stand at `now` (not before `dump.since`).
    fn at(dump: &Dump, now: u64) -> Sums {
        let mut sums = Sums {
            on_cpu: dump.acc.on_cpu,
            runnable: dump.acc.runnable.iter().sum(),
            blocked: dump.acc.blocked,
        };
        let open = now.saturating_sub(dump.since);
        match dump.state {
            state::ON_CPU => sums.on_cpu += open,
            state::RUNNABLE => sums.runnable += open,
            state::BLOCKED => {
                if let Some(slot) = sums.blocked.get_mut(dump.detail as usize) {
                    *slot += open;
                }
            }
            _ => {}
        }
        sums
    }
}

/// A thread as seen so far.
pub(super) struct ThreadAccount {
    /// Its record.
    pub(super) id: u64,
    pub(super) role: Role,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) name: Arc<str>,
    /// The name that it was met with.
    pub(super) first_name: Arc<str>,
    /// The name that its runtime gave it.
    pub(super) runtime_name: Option<Arc<str>>,
    pub(super) birth: u64,
    /// Time at the beginning that is not its own: it was held, blocked on our pipe.
    pub(super) held: u64,
    /// The last figures, if any came.
    pub(super) last: Option<Dump>,
    /// Sums that have been given to slices so far, and their end time.
    pub(super) given: Sums,
    pub(super) given_until: u64,
    pub(super) done: bool,
    /// Ledger that snapshots have shown so far, and its end time; `None`: there was no snapshot.
    pub(super) shown: Option<Box<(Ledger, u64)>>,
    /// Whether it has ended and a snapshot has shown all of it.
    pub(super) told: bool,
}

/// The thread with its ledger.
pub(super) fn context(t: &ThreadAccount, ticks: &Ticks) -> Context {
    if let Role::Group(group) = &t.role {
        return group.ledger(ticks).of(t.pid, t.tid, t.name.clone());
    }
    let Some(d) = t.last else {
        // No figures came after its birth: they were lost with the ring.
        return Context {
            pid: t.pid,
            tid: t.tid,
            name: t.name.clone(),
            start_ns: t.birth,
            end_ns: t.birth,
            ledger: Ledger::default(),
        };
    };
    let sums = Sums::of(t, &d, d.now);
    let mut ledger = Ledger {
        wall_ns: d.now.saturating_sub(d.birth + t.held),
        blocked: sums.blocked,
        repaired_ns: d.acc.repaired,
        voluntary_switches: d.acc.voluntary,
        involuntary_switches: d.acc.involuntary,
        ..Ledger::default()
    };
    ledger.unknown[UnknownCause::LostEvents as usize] = d.acc.limbo;
    let open = d.now.saturating_sub(d.since);
    let queued_while_held = Sums::at(&d, d.now).queued_while_held(t);
    let mut runnable = d.acc.runnable;
    if d.state == state::RUNNABLE
        && let Some(part) = runnable.get_mut(d.detail as usize)
    {
        *part += open;
    }
    ledger.runnable = Runnable {
        woken: runnable[0].saturating_sub(queued_while_held),
        preempted: runnable[1],
        throttled: runnable[2],
    };
    ledger.on_cpu = divide_on_cpu(&d, sums.on_cpu, ticks);
    ledger.audit = Audit {
        // The kernel counts the time that this counter leaves out by design; it is added here.
        on_cpu_ns: d.kernel_exec
            + d.acc.stolen
            + if d.flags & event::FLAG_IRQ_OUT != 0 {
                d.acc.irq
            } else {
                0
            },
        run_delay_ns: d.kernel_run_delay.saturating_sub(queued_while_held),
        switches: d.kernel_switches,
        valid: true,
    };
    Context {
        pid: t.pid,
        tid: t.tid,
        name: t.name.clone(),
        start_ns: d.birth + t.held,
        end_ns: d.now,
        ledger,
    }
}

/// User against kernel by the kernel's own tick counters, which are samples; the sum is exact. Most threads
/// that live for a moment meet no tick: they are divided as `all` ticks of the recording say, so that
/// thousands of them together come out right.
pub(super) fn divide_on_cpu(d: &Dump, total: u64, all: &Ticks) -> OnCpu {
    let irq = d.acc.irq.min(total);
    let stolen = d.acc.stolen.min(total - irq);
    let own = total - irq - stolen;
    let mut ticks = Ticks::default();
    ticks.add(d);
    let kernel = if d.flags & event::FLAG_KERNEL_THREAD != 0 {
        own
    } else if d.utime == 0 && d.stime == 0 {
        all.kernel_part(own)
    } else {
        ticks.kernel_part(own)
    };
    OnCpu {
        user: own - kernel,
        kernel,
        irq,
        stolen,
    }
}
