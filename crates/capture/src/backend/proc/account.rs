//! One thread's account: the observations of it, added up.

use wallscope_observe::{AccountBegin, PolledThread, SchedCounters, StackBegin, ThreadStatus};
use wallscope_procfs::process::SchedStat;

use super::{
    counters::{Counters, PolledActivity},
    spans::Spans,
    thread_ledger::ThreadLedger,
    wait_observation::SeenDoing,
};
use crate::backend::perf::{PendingWait, Preemption, SwitchTimeline, wait_strata::WaitStrata};

/// Longest time of one thread that its counters may tell, ns: 104 days.
const MAX_NS: u64 = 1 << 53;

/// Figures of switch records that have ended, for now or for good.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndedRecords {
    /// Voluntary and involuntary switches; `None`: there were no records.
    pub switches: Option<(u64, u64)>,
    /// Time that was replaced by the counters, ns.
    pub repaired_ns: u64,
    /// On-CPU time that the counters leave out, ns.
    beyond_ns: u64,
}

/// Time of one thread, as far as it is known.
pub struct Account {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name, as last seen.
    pub name: String,
    /// Its time.
    pub book: ThreadLedger,
    /// Its time by the scheduler's counters.
    pub counters: Counters,
    /// Its time by its switches, where these are recorded: then the counters are only the witness.
    pub course: Option<SwitchTimeline>,
    /// Recorded intervals off the CPU.
    pub waits: WaitStrata,
    /// Polls of its present wait, where switches are recorded.
    pub wait: PendingWait,
    /// Site of its next preemption, or of one just now.
    pub preemption: Preemption,
    /// Time that its samples stand for, where switches are recorded, ns.
    pub claimed_ns: u64,
    /// Figures of records that have ended.
    pub records: EndedRecords,
    /// Time without records, while its switches were too many for a record of each, ns.
    pub unrecorded_ns: u64,
    /// User and kernel ticks at the beginning and now.
    pub ticks: [(u64, u64); 2],
    /// Voluntary and involuntary switches at the beginning and now, by the kernel's count.
    pub switches: [(u64, u64); 2],
    /// The scheduler's counters at the beginning, and as they were read last.
    pub audit: [SchedStat; 2],
    /// On-CPU time that was shown in snapshots so far, ns.
    pub on_cpu_ns: u64,
    /// What the last poll saw.
    pub seen: SeenDoing,
    /// The stretch that the last poll stands for: begin and end, ns.
    pub stretch: (u64, u64),
    /// Still there.
    pub alive: bool,
}

/// The scheduler's counters as observed.
pub fn schedstat(c: SchedCounters) -> SchedStat {
    SchedStat {
        on_cpu_ns: c.on_cpu_ns,
        run_delay_ns: c.run_delay_ns,
        timeslices: c.timeslices,
    }
}

/// The scheduler's counters as an observation.
pub fn observed(s: SchedStat) -> SchedCounters {
    SchedCounters {
        on_cpu_ns: s.on_cpu_ns,
        run_delay_ns: s.run_delay_ns,
        timeslices: s.timeslices,
    }
}

impl Account {
    /// The account of a thread that comes under watch.
    pub fn new(t: &PolledThread) -> Account {
        let mut account = Account {
            pid: t.pid,
            tid: t.tid,
            name: t.name.as_ref().to_owned(),
            book: ThreadLedger::new(t.begin.time),
            counters: Counters::new(SchedStat::default()),
            course: None,
            waits: WaitStrata::default(),
            wait: PendingWait::default(),
            preemption: Preemption::default(),
            claimed_ns: 0,
            records: EndedRecords::default(),
            unrecorded_ns: 0,
            ticks: [(0, 0); 2],
            switches: [(0, 0); 2],
            audit: [SchedStat::default(); 2],
            on_cpu_ns: 0,
            seen: SeenDoing::default(),
            stretch: (t.begin.time, t.begin.time),
            alive: true,
        };
        account.begin(&t.begin);
        account
    }

    /// Its time begins here; nothing that came before is its own.
    pub fn begin(&mut self, begin: &AccountBegin) {
        let keeps_spans = self.book.spans.is_some();
        self.book = ThreadLedger::new(begin.time);
        self.book.spans = keeps_spans.then(Spans::default);
        let counters = schedstat(begin.counters);
        self.counters = Counters::new(counters);
        (self.audit, self.ticks) = ([counters; 2], [begin.ticks; 2]);
        self.switches = [begin.switches; 2];
    }

    /// Its time begins anew: waits and the stack from before are dropped.
    pub fn rebase(&mut self, begin: &AccountBegin) {
        self.begin(begin);
        self.waits = WaitStrata::default();
        self.wait = PendingWait::default();
        self.seen.stack = None;
    }

    /// Whether these counters are plausible: they do not run back, and no thread computes for years.
    pub fn may_have_computed(&self, counters: SchedCounters) -> bool {
        let told = counters.on_cpu_ns.saturating_sub(self.audit[0].on_cpu_ns);
        counters.on_cpu_ns >= self.counters.last().on_cpu_ns && told <= MAX_NS
    }

    /// Takes the facts that change slowly.
    pub fn status(&mut self, status: &ThreadStatus) {
        if *self.name != *status.name {
            self.name = status.name.as_ref().to_owned();
        }
        self.ticks[1] = status.ticks;
        self.switches[1] = status.switches;
        self.audit[1] = schedstat(status.counters);
    }

    /// Takes the figures of `course`. Its records have ended, for now or for good.
    /// `tick_ns`: the kernel's timer tick.
    pub fn told_by(&mut self, course: &SwitchTimeline, tick_ns: u64) {
        let (voluntary, involuntary) = self.records.switches.unwrap_or_default();
        self.records.switches = Some((
            voluntary + course.untold.voluntary,
            involuntary + course.untold.involuntary,
        ));
        self.records.repaired_ns += course.untold.repaired_ns;
        self.records.beyond_ns += course.beyond_ns(tick_ns);
    }

    /// Time on a CPU by its records that the scheduler's counter leaves out, ns. `tick_ns`: the kernel's timer tick.
    pub fn beyond_counters_ns(&self, tick_ns: u64) -> u64 {
        let now = self.course.as_ref().map(|c| c.beyond_ns(tick_ns));
        self.records.beyond_ns + now.unwrap_or(0)
    }

    /// Whether all of its time was recorded, but for lost records.
    pub fn is_recorded(&self) -> bool {
        self.course.is_some() && self.unrecorded_ns == 0
    }

    /// Time of the voluntary switch since which it is off the CPU, by its records; `None`: it is not.
    pub fn off_since(&self) -> Option<u64> {
        self.course.as_ref().and_then(SwitchTimeline::off_since)
    }

    /// Its figures have been shown in a snapshot: the next one begins here.
    pub fn shown(&mut self) {
        self.ticks[0] = self.ticks[1];
        self.switches[0] = self.switches[1];
        self.audit[0] = self.audit[1];
        self.waits = WaitStrata::default();
        self.records = EndedRecords::default();
        if let Some(course) = &mut self.course {
            course.told();
        }
    }
}

impl SeenDoing {
    /// Block reason and stack of a blocked thread with a stack, and the stack pointer if that stack is only its
    /// innermost frame.
    pub fn blocked(&self) -> Option<(wallscope_model::BlockReason, u32, Option<u64>)> {
        let (PolledActivity::Blocked(reason), Some(stack)) = (self.doing, self.stack) else {
            return None;
        };
        let innermost = match self.begin {
            Some(StackBegin::Innermost(sp)) => Some(sp),
            Some(StackBegin::Whole(_)) | None => None,
        };
        Some((reason, stack, innermost))
    }
}
