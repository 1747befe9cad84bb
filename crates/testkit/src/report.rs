//! `report --json`, as the contract promises it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The JSON of one recording. Keys that the experiments do not use are left out.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// `wallscope.report/1`.
    pub schema: String,
    /// How it was measured.
    #[serde(default)]
    pub domain: Domain,
    /// When.
    pub window: Window,
    /// Ledgers by thread.
    pub threads: Vec<Thread>,
    /// Time and samples by view.
    #[serde(default)]
    pub views: BTreeMap<String, ViewTotal>,
    /// Functions by view.
    pub functions: Vec<Function>,
    /// How long intervals were, over all threads, by state and reason.
    #[serde(default)]
    pub shapes: Vec<Shape>,
    /// The stacks with most wall time.
    #[serde(default)]
    pub stacks: Vec<Stack>,
    /// Peers of the processes.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// What it cost.
    pub cost: Cost,
}

/// How it was measured.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Domain {
    /// Tier by its name: `ebpf`, `perf` or `proc`.
    #[serde(default)]
    pub backend: String,
    /// Notes for readers.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Time and samples of one view.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct ViewTotal {
    /// Time, ns.
    pub total_ns: u64,
    /// Part of it that no sample fell into, ns.
    pub not_sampled_ns: u64,
    /// Number of samples.
    pub samples: u64,
}

/// The window of the recording.
#[derive(Clone, Debug, Deserialize)]
pub struct Window {
    /// Start, ns on `clock`.
    pub start_ns: u64,
    /// End, ns on `clock`.
    pub end_ns: u64,
    /// The clock's name.
    pub clock: String,
}

/// One thread's ledger, ns.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Thread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// Wall time within the window.
    pub wall_ns: u64,
    /// On a CPU.
    pub on_cpu_ns: u64,
    /// Waiting for one.
    pub runnable_ns: u64,
    /// Waiting for something else.
    pub blocked_ns: u64,
    /// Blocked with no request in flight.
    #[serde(default)]
    pub idle_ns: u64,
    /// Not seen.
    pub unknown_ns: u64,
    /// Wall minus all of these.
    pub residue_ns: i64,
    /// Corrected from the kernel's counters.
    pub repaired_ns: u64,
    /// Parts of on-CPU time by name.
    pub on_cpu: BTreeMap<String, u64>,
    /// Parts of runnable time by name.
    pub runnable: BTreeMap<String, u64>,
    /// Blocked time by reason.
    pub blocked: BTreeMap<String, u64>,
    /// Times it left the CPU by its own will.
    pub voluntary_switches: u64,
    /// Times it was put off the CPU.
    pub involuntary_switches: u64,
    /// How long its intervals were, by state.
    #[serde(default)]
    pub shapes: BTreeMap<String, Shape>,
    /// Its single intervals in sums, where they were kept.
    #[serde(default)]
    pub timeline: Option<Lane>,
}

/// The single intervals of a thread, in sums.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Lane {
    /// On a CPU, ns.
    pub on_cpu_ns: u64,
    /// Waiting for one, ns.
    pub runnable_ns: u64,
    /// Blocked, ns.
    pub blocked_ns: u64,
    /// Blocked intervals by reason.
    pub blocks: BTreeMap<String, u64>,
    /// Blocked intervals with a known waker.
    pub woken: u64,
    /// Time in no interval, ns.
    pub gaps_ns: u64,
}

/// A peer of a process.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Peer {
    /// It asks there; otherwise it is asked there.
    pub asks: bool,
    /// Where.
    pub address: String,
    /// The other end's process, 0 where not known.
    pub peer_pid: u32,
    /// Requests.
    pub requests: u64,
    /// Time with a request in flight, ns.
    pub in_flight_ns: u64,
    /// Where they were sent from.
    pub stacks: Vec<PeerStack>,
}

/// A stack that sends requests.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PeerStack {
    /// Functions, innermost first.
    pub frames: Vec<String>,
    /// Time until sampled requests were answered, ns.
    pub ns: u64,
}

/// How long intervals were.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Shape {
    /// Block reason or part, where it is of one.
    #[serde(default)]
    pub reason: Option<String>,
    /// How many.
    pub count: u64,
    /// Half are no longer, ns.
    pub p50_ns: u64,
    /// Nine in ten are no longer, ns.
    pub p90_ns: u64,
    /// 99 % are no longer, ns.
    pub p99_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
}

/// One of the stacks with most time.
#[derive(Clone, Debug, Deserialize)]
pub struct Stack {
    /// State by the contract's name.
    pub state: String,
    /// Block reason or part.
    pub reason: Option<String>,
    /// Its time, ns.
    pub ns: u64,
    /// Functions, innermost first.
    pub frames: Vec<String>,
    /// How long its intervals were.
    pub intervals: Option<Shape>,
}

/// One function.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// Name.
    pub name: String,
    /// Its times by view.
    pub views: BTreeMap<String, FunctionTimes>,
}

/// A function's times in one view, ns.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct FunctionTimes {
    /// With it innermost.
    pub self_ns: u64,
    /// With it anywhere on the stack.
    pub total_ns: u64,
    /// Lower end of the interval of `total_ns`.
    pub low_ns: u64,
    /// Upper end of the interval of `total_ns`.
    pub high_ns: u64,
}

/// Something lost.
#[derive(Clone, Debug, Deserialize)]
pub struct Loss {
    /// Why.
    pub cause: String,
    /// How often.
    pub count: u64,
}

/// What the recording cost.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Cost {
    /// Run time of the kernel programs, ns.
    pub bpf_ns: u64,
    /// What others lost by caches that these displaced, as estimated, ns.
    #[serde(default)]
    pub displaced_ns: u64,
    /// Own CPU time, ns.
    pub own_cpu_ns: u64,
    /// Largest own resident size, bytes.
    pub rss_bytes: u64,
    /// Memory held in the kernel, bytes.
    pub kernel_bytes: u64,
}

impl Cost {
    /// CPU time that measuring took and that others lost by it, ns.
    pub fn total_ns(&self) -> u64 {
        self.bpf_ns + self.displaced_ns + self.own_cpu_ns
    }
}

impl Report {
    /// The ledger of a thread, if it was seen.
    pub fn thread(&self, pid: u32, tid: u32) -> Option<&Thread> {
        self.threads.iter().find(|t| t.pid == pid && t.tid == tid)
    }

    /// A function's times in a view, all modules of that name taken together.
    pub fn function(&self, name: &str, view: &str) -> Option<FunctionTimes> {
        let mut found = self
            .functions
            .iter()
            .filter(|function| function.name == name)
            .filter_map(|function| function.views.get(view).copied());
        let first = found.next()?;
        Some(found.fold(first, |sum, next| FunctionTimes {
            self_ns: sum.self_ns + next.self_ns,
            total_ns: sum.total_ns + next.total_ns,
            low_ns: sum.low_ns + next.low_ns,
            high_ns: sum.high_ns + next.high_ns,
        }))
    }
}
