//! The ledger of one execution context: the state of every nanosecond.

use crate::{BlockReason, State, UnknownCause};

/// Parts of on-CPU time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnCpu {
    /// In user mode.
    pub user: u64,
    /// In the kernel on its own behalf.
    pub kernel: u64,
    /// Taken by interrupts and softirqs while it was on a CPU.
    pub irq: u64,
    /// Taken by the hypervisor while it was on a CPU.
    pub stolen: u64,
}

impl OnCpu {
    /// Sum of the parts.
    pub fn total(&self) -> u64 {
        self.user + self.kernel + self.irq + self.stolen
    }
}

/// Parts of runnable time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runnable {
    /// From wake-up or creation to the CPU.
    pub woken: u64,
    /// After a preemption.
    pub preempted: u64,
    /// Throttled by a cgroup's CPU quota.
    pub throttled: u64,
}

impl Runnable {
    /// Sum of the parts.
    pub fn total(&self) -> u64 {
        self.woken + self.preempted + self.throttled
    }
}

/// The kernel's own counters for the context and window, against which the ledger is audited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Growth of `se.sum_exec_runtime`, ns, plus the steal time (and, depending on the kernel's
    /// build, the interrupt time) that it leaves out.
    pub on_cpu_ns: u64,
    /// Growth of `sched_info.run_delay`, ns.
    pub run_delay_ns: u64,
    /// Growth of `nvcsw + nivcsw`.
    pub switches: u64,
    /// False if the kernel's counters could not be read.
    pub valid: bool,
}

/// Wall time of one execution context (or of a sum of them) by state, ns.
///
/// ```
/// use wallscope_model::{BlockReason, Ledger, State};
///
/// let mut ledger = Ledger { wall_ns: 1_000, ..Ledger::default() };
/// ledger.on_cpu.user = 600;
/// ledger.runnable.woken = 50;
/// ledger.blocked[BlockReason::Disk as usize] = 340;
/// assert_eq!(ledger.state_ns(State::Blocked), 340);
/// assert_eq!(ledger.residue_ns(), 10);
///
/// let mut both = ledger.clone();
/// both.add(&ledger);
/// assert_eq!(both.since(&ledger).on_cpu.user, 600);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Time for which the context existed within the window, by the clock alone.
    pub wall_ns: u64,
    /// On-CPU time by part.
    pub on_cpu: OnCpu,
    /// Runnable time by part.
    pub runnable: Runnable,
    /// Blocked time by reason, indexed by `BlockReason as usize`.
    pub blocked: [u64; BlockReason::COUNT],
    /// Unseen time by cause, indexed by `UnknownCause as usize`.
    pub unknown: [u64; UnknownCause::COUNT],
    /// The part of the above that was corrected from the kernel's own counters.
    pub repaired_ns: u64,
    /// The part of blocked time without a request in flight; an attribute, not a state.
    pub idle_ns: u64,
    /// Voluntary switches, as counted by the instrument.
    pub voluntary_switches: u64,
    /// Involuntary switches, as counted by the instrument.
    pub involuntary_switches: u64,
    /// The kernel's own figures for the same time.
    pub audit: Audit,
}

impl Ledger {
    /// Blocked time, all reasons, ns.
    pub fn blocked_ns(&self) -> u64 {
        self.blocked.iter().sum()
    }

    /// Unseen time, all causes, ns.
    pub fn unknown_ns(&self) -> u64 {
        self.unknown.iter().sum()
    }

    /// Time in `state`, all parts, ns.
    pub fn state_ns(&self, state: State) -> u64 {
        match state {
            State::OnCpu => self.on_cpu.total(),
            State::Runnable => self.runnable.total(),
            State::Blocked => self.blocked_ns(),
            State::Unknown => self.unknown_ns(),
        }
    }

    /// `wall − (on_cpu + runnable + blocked + unknown)`, ns: never forced to zero.
    pub fn residue_ns(&self) -> i64 {
        let sum: u64 = State::ALL.iter().map(|s| self.state_ns(*s)).sum();
        self.wall_ns as i64 - sum as i64
    }

    /// Adds the ledger of another context with the same kind of clock.
    pub fn add(&mut self, other: &Ledger) {
        self.wall_ns += other.wall_ns;
        self.on_cpu.user += other.on_cpu.user;
        self.on_cpu.kernel += other.on_cpu.kernel;
        self.on_cpu.irq += other.on_cpu.irq;
        self.on_cpu.stolen += other.on_cpu.stolen;
        self.runnable.woken += other.runnable.woken;
        self.runnable.preempted += other.runnable.preempted;
        self.runnable.throttled += other.runnable.throttled;
        for (a, b) in self.blocked.iter_mut().zip(other.blocked) {
            *a += b;
        }
        for (a, b) in self.unknown.iter_mut().zip(other.unknown) {
            *a += b;
        }
        self.repaired_ns += other.repaired_ns;
        self.idle_ns += other.idle_ns;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.audit.on_cpu_ns += other.audit.on_cpu_ns;
        self.audit.run_delay_ns += other.audit.run_delay_ns;
        self.audit.switches += other.audit.switches;
        self.audit.valid &= other.audit.valid;
    }
}

impl Ledger {
    /// The growth since `earlier`, an older state of this ledger. The split of on-CPU time into
    /// user and kernel is an estimate that may be revised: their sum is kept, and no part is
    /// negative.
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        let grown = u64::saturating_sub;
        let mut l = Ledger {
            wall_ns: grown(self.wall_ns, earlier.wall_ns),
            repaired_ns: grown(self.repaired_ns, earlier.repaired_ns),
            idle_ns: grown(self.idle_ns, earlier.idle_ns),
            voluntary_switches: grown(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: grown(self.involuntary_switches, earlier.involuntary_switches),
            audit: Audit {
                on_cpu_ns: grown(self.audit.on_cpu_ns, earlier.audit.on_cpu_ns),
                run_delay_ns: grown(self.audit.run_delay_ns, earlier.audit.run_delay_ns),
                switches: grown(self.audit.switches, earlier.audit.switches),
                valid: self.audit.valid,
            },
            runnable: Runnable {
                woken: grown(self.runnable.woken, earlier.runnable.woken),
                preempted: grown(self.runnable.preempted, earlier.runnable.preempted),
                throttled: grown(self.runnable.throttled, earlier.runnable.throttled),
            },
            ..Ledger::default()
        };
        let on_cpu = grown(self.on_cpu.total(), earlier.on_cpu.total());
        let irq = grown(self.on_cpu.irq, earlier.on_cpu.irq).min(on_cpu);
        let stolen = grown(self.on_cpu.stolen, earlier.on_cpu.stolen).min(on_cpu - irq);
        let kernel = grown(self.on_cpu.kernel, earlier.on_cpu.kernel).min(on_cpu - irq - stolen);
        l.on_cpu = OnCpu {
            user: on_cpu - irq - stolen - kernel,
            kernel,
            irq,
            stolen,
        };
        for (i, part) in l.blocked.iter_mut().enumerate() {
            *part = grown(self.blocked[i], earlier.blocked[i]);
        }
        for (i, part) in l.unknown.iter_mut().enumerate() {
            *part = grown(self.unknown[i], earlier.unknown[i]);
        }
        l
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residue_is_signed_and_never_forced() {
        let mut l = Ledger {
            wall_ns: 100,
            ..Ledger::default()
        };
        l.on_cpu.user = 60;
        l.blocked[BlockReason::Disk as usize] = 50;
        assert_eq!(l.residue_ns(), -10);
        l.wall_ns = 115;
        assert_eq!(l.residue_ns(), 5);
    }

    #[test]
    fn adding_keeps_every_part() {
        let mut a = Ledger {
            wall_ns: 10,
            repaired_ns: 1,
            ..Ledger::default()
        };
        a.runnable.throttled = 4;
        a.unknown[UnknownCause::NoRecord as usize] = 6;
        let mut sum = a.clone();
        sum.add(&a);
        assert_eq!(sum.wall_ns, 20);
        assert_eq!(sum.state_ns(State::Runnable), 8);
        assert_eq!(sum.state_ns(State::Unknown), 12);
        assert_eq!(sum.residue_ns(), 0);
        assert_eq!(sum.repaired_ns, 2);
    }

    #[test]
    fn what_was_added_is_what_is_new() {
        let mut before = Ledger {
            wall_ns: 100,
            ..Ledger::default()
        };
        (before.on_cpu.user, before.on_cpu.kernel) = (30, 30);
        before.blocked[BlockReason::Lock as usize] = 40;
        let mut more = Ledger {
            wall_ns: 50,
            ..Ledger::default()
        };
        more.on_cpu.user = 20;
        more.blocked[BlockReason::Lock as usize] = 30;
        let mut now = before.clone();
        now.add(&more);
        now.audit = Audit::default();
        more.audit = Audit::default();
        assert_eq!(now.since(&before), more);
        // The tick revised the split between user and kernel.
        (now.on_cpu.user, now.on_cpu.kernel) = (60, 20);
        let l = now.since(&before);
        assert_eq!((l.on_cpu.user, l.on_cpu.kernel), (20, 0));
        assert_eq!(l.residue_ns(), 0);
    }
}
