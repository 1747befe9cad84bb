//! The ledger's rows: whole, by process, by thread, by reason.

use std::collections::BTreeMap;

use wallscope_model::{
    BlockReason, ContextId, Domain, Ledger, Part, Recording, State, UnknownCause,
};

/// A line of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerRow {
    /// Thread or process name.
    pub name: String,
    /// Process id; 0 for a sum over processes.
    pub pid: u32,
    /// Thread id; `None` for a sum over threads.
    pub tid: Option<u32>,
    /// The thread's context; `None` for a sum over threads.
    pub context: Option<ContextId>,
    /// Threads behind it.
    pub threads: u32,
    /// The sum.
    pub ledger: Ledger,
    /// On-CPU time of threads that were never seen, ns; not in the ledger.
    pub unattributed_on_cpu_ns: u64,
}

impl LedgerRow {
    fn add(&mut self, ledger: &Ledger) {
        if self.threads == 0 {
            self.ledger.audit.valid = true;
        }
        self.threads += 1;
        self.ledger.add(ledger);
    }

    /// Adds another row of sums to this one.
    pub fn merge(&mut self, other: &LedgerRow) {
        if self.threads == 0 {
            self.ledger.audit.valid = true;
        }
        self.threads += other.threads;
        self.ledger.add(&other.ledger);
        self.unattributed_on_cpu_ns += other.unattributed_on_cpu_ns;
    }
}

/// A part of a state, over all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonRow {
    /// The state.
    pub state: State,
    /// Block reason, part, or cause of not being seen.
    pub reason: &'static str,
    /// Time, ns.
    pub ns: u64,
}

/// The sum over everything.
pub fn total_row(rec: &Recording) -> LedgerRow {
    let mut row = LedgerRow::default();
    for c in &rec.contexts {
        row.add(&c.ledger);
    }
    row.unattributed_on_cpu_ns = rec.processes.iter().map(|p| p.unattributed_on_cpu_ns).sum();
    row
}

/// A row for each process, in the order of [`ledger_rows`].
pub fn process_rows(rec: &Recording) -> Vec<LedgerRow> {
    let mut rows: BTreeMap<u32, LedgerRow> = BTreeMap::new();
    for p in &rec.processes {
        let row = rows.entry(p.pid).or_default();
        row.pid = p.pid;
        row.name = p.name.to_string();
        row.unattributed_on_cpu_ns += p.unattributed_on_cpu_ns;
    }
    for c in &rec.contexts {
        let row = rows.entry(c.pid).or_default();
        row.pid = c.pid;
        if row.name.is_empty() {
            row.name = c.name.to_string();
        }
        row.add(&c.ledger);
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    sort(&mut rows, &rec.domain);
    rows
}

/// A row for each thread: the busiest first, and in a recording of the whole machine those that
/// computed or queued most.
pub fn ledger_rows(rec: &Recording) -> Vec<LedgerRow> {
    let mut rows: Vec<LedgerRow> = rec
        .contexts
        .iter()
        .zip(0u32..)
        .map(|(c, index)| LedgerRow {
            context: Some(ContextId(index)),
            name: c.name.to_string(),
            pid: c.pid,
            tid: Some(c.tid),
            threads: 1,
            ledger: c.ledger.clone(),
            unattributed_on_cpu_ns: 0,
        })
        .collect();
    sort(&mut rows, &rec.domain);
    rows
}

/// Sorts by [`busyness`]. In a recording of the whole machine, threads that computed or queued
/// lead: most of its threads wait all the time, for nothing that matters.
fn sort(rows: &mut [LedgerRow], domain: &Domain) {
    let ran = |r: &LedgerRow| match domain.is_whole_machine() {
        true => r.ledger.state_ns(State::OnCpu) + r.ledger.state_ns(State::Runnable),
        false => 0,
    };
    rows.sort_by_key(|r| std::cmp::Reverse((ran(r), busyness(r))));
}

/// Time that is certainly no idling first, then the rest.
fn busyness(row: &LedgerRow) -> (u64, u64) {
    let l = &row.ledger;
    let waits_for_work = [
        BlockReason::Timer,
        BlockReason::Poll,
        BlockReason::Stopped,
        BlockReason::Child,
    ];
    let parked: u64 = waits_for_work.iter().map(|r| l.blocked[*r as usize]).sum();
    let known = l.state_ns(State::OnCpu) + l.state_ns(State::Runnable) + l.blocked_ns();
    (known.saturating_sub(parked.max(l.idle_ns)), l.wall_ns)
}

/// Every part of every state of `ledger` that has time, by state, most time first.
pub fn reason_rows(ledger: &Ledger) -> Vec<ReasonRow> {
    let parts = [
        (State::OnCpu, Part::User, ledger.on_cpu.user),
        (State::OnCpu, Part::Kernel, ledger.on_cpu.kernel),
        (State::OnCpu, Part::Irq, ledger.on_cpu.irq),
        (State::OnCpu, Part::Stolen, ledger.on_cpu.stolen),
        (State::Runnable, Part::Woken, ledger.runnable.woken),
        (State::Runnable, Part::Preempted, ledger.runnable.preempted),
        (State::Runnable, Part::Throttled, ledger.runnable.throttled),
    ];
    let parts = parts.iter().map(|(s, p, ns)| (*s, p.name(), *ns));
    let reasons = BlockReason::ALL.iter().zip(ledger.blocked);
    let causes = UnknownCause::ALL.iter().zip(ledger.unknown);
    let mut rows: Vec<ReasonRow> = parts
        .chain(reasons.map(|(r, ns)| (State::Blocked, r.name(), ns)))
        .chain(causes.map(|(c, ns)| (State::Unknown, c.name(), ns)))
        .filter(|(_, _, ns)| *ns > 0)
        .map(|(state, reason, ns)| ReasonRow { state, reason, ns })
        .collect();
    rows.sort_by_key(|r| (r.state, std::cmp::Reverse(r.ns)));
    rows
}
