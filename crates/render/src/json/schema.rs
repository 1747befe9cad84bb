//! The keys of `wallscope.report/1`. They are added, never changed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::collections::Collections;
use super::timeline;

#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) schema: &'static str,
    pub(super) finding: &'a str,
    pub(super) domain: Domain<'a>,
    pub(super) window: Window<'a>,
    pub(super) total: Times,
    pub(super) threads: Vec<ThreadEntry>,
    pub(super) processes: Vec<Process>,
    pub(super) views: BTreeMap<&'static str, Total>,
    pub(super) functions: Vec<Function>,
    pub(super) reasons: Vec<Reason>,
    pub(super) shapes: Vec<HistogramOf>,
    /// Null where single intervals were not kept.
    pub(super) timeline: Option<timeline::Timeline>,
    pub(super) stacks: Vec<Stack>,
    pub(super) peers: Vec<Peer>,
    pub(super) tasks: Vec<Task>,
    /// Waits beside their roots.
    pub(super) blame: Blame,
    /// Garbage collection, and pauses.
    pub(super) gc: Collections,
    pub(super) losses: Vec<Loss<'a>>,
    pub(super) cost: Cost,
    pub(super) scaling: Scaling,
}

#[derive(Serialize)]
pub(super) struct Domain<'a> {
    pub(super) tool: &'a str,
    pub(super) backend: &'a str,
    pub(super) backend_reason: &'a str,
    pub(super) privilege: &'a str,
    pub(super) kernel: &'a str,
    pub(super) cpus: u32,
    pub(super) target: &'a str,
    /// Unit of every value, also of keys ending in `_ns`: `nanoseconds`, except for files of
    /// other tools.
    pub(super) unit: &'a str,
    pub(super) events: Vec<BTreeMap<&'static str, &'a str>>,
    pub(super) columns: Vec<Column<'a>>,
    pub(super) limits: Vec<BTreeMap<&'static str, &'a str>>,
    pub(super) notes: &'a [String],
}

#[derive(Serialize)]
pub(super) struct Column<'a> {
    pub(super) state: &'static str,
    pub(super) exact: bool,
    pub(super) how: &'a str,
}

#[derive(Serialize)]
pub(super) struct Window<'a> {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) clock: &'a str,
    pub(super) start_unix_ns: u64,
}

#[derive(Serialize)]
pub(super) struct Times {
    pub(super) wall_ns: u64,
    pub(super) on_cpu_ns: u64,
    pub(super) runnable_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) unknown_ns: u64,
    pub(super) residue_ns: i64,
    pub(super) repaired_ns: u64,
    pub(super) on_cpu: BTreeMap<&'static str, u64>,
    pub(super) runnable: BTreeMap<&'static str, u64>,
    pub(super) blocked: BTreeMap<&'static str, u64>,
    pub(super) unknown: BTreeMap<&'static str, u64>,
    pub(super) idle_ns: u64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
    /// The kernel's own counters for the same stretch; null where they could not be read.
    pub(super) kernel: Option<Kernel>,
}

#[derive(Serialize)]
pub(super) struct Kernel {
    pub(super) on_cpu_ns: u64,
    pub(super) run_delay_ns: u64,
    pub(super) switches: u64,
}

#[derive(Serialize)]
pub(super) struct ThreadEntry {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) times: Times,
    /// By state.
    pub(super) shapes: BTreeMap<&'static str, Quantiles>,
    /// Its single intervals in sums; null where they were not kept.
    pub(super) timeline: Option<timeline::Lane>,
}

#[derive(Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) threads: u32,
    #[serde(flatten)]
    pub(super) times: Times,
    pub(super) unattributed_on_cpu_ns: u64,
}

#[derive(Serialize)]
pub(super) struct Total {
    pub(super) total_ns: u64,
    pub(super) not_sampled_ns: u64,
    pub(super) samples: u64,
}

#[derive(Serialize)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) module: String,
    pub(super) views: BTreeMap<&'static str, FunctionView>,
}

/// `low_ns` and `high_ns` are the 95 % interval of `total_ns`; the others of their own. `place_ns`: time
/// in which it was the function that people would name.
#[derive(Serialize)]
pub(super) struct FunctionView {
    pub(super) self_ns: u64,
    pub(super) total_ns: u64,
    pub(super) low_ns: u64,
    pub(super) high_ns: u64,
    pub(super) self_low_ns: u64,
    pub(super) self_high_ns: u64,
    pub(super) place_ns: u64,
}

#[derive(Serialize)]
pub(super) struct Reason {
    pub(super) state: &'static str,
    pub(super) reason: &'static str,
    pub(super) ns: u64,
}

/// Lengths of intervals. Within 2 % over all threads and by stack, within 12 % by thread.
#[derive(Serialize)]
pub(super) struct Quantiles {
    pub(super) count: u64,
    pub(super) p50_ns: u64,
    pub(super) p90_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
}

/// The intervals of a state and reason over all threads, counted.
#[derive(Serialize)]
pub(super) struct HistogramOf {
    pub(super) state: &'static str,
    pub(super) reason: Option<&'static str>,
    #[serde(flatten)]
    pub(super) quantiles: Quantiles,
    /// From, to before (both ns), how many.
    pub(super) histogram: Vec<(u64, u64, u64)>,
}

/// One of the stacks with most time, leaf first. Its intervals are estimated from samples.
#[derive(Serialize)]
pub(super) struct Stack {
    pub(super) state: &'static str,
    pub(super) reason: Option<&'static str>,
    pub(super) ns: u64,
    pub(super) samples: u64,
    pub(super) threads: u32,
    pub(super) frames: Vec<String>,
    pub(super) intervals: Option<Quantiles>,
}

/// A peer of a process.
#[derive(Serialize)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) process: String,
    /// Whether the process sends requests to this peer; else it answers the peer's.
    pub(super) asks: bool,
    pub(super) address: String,
    /// 0 and empty where not known.
    pub(super) peer_pid: u32,
    pub(super) peer_name: String,
    pub(super) connections: u32,
    pub(super) requests: u64,
    /// There may have been more.
    pub(super) requests_at_least: bool,
    pub(super) in_flight_ns: u64,
    /// Share of the time with requests to the process in flight; null if the process was asked nothing.
    pub(super) share_of_request_time: Option<f64>,
    pub(super) stacks: Vec<PeerStack>,
}

/// Where requests are sent, leaf first, by a sample of them.
#[derive(Serialize)]
pub(super) struct PeerStack {
    pub(super) frames: Vec<String>,
    pub(super) requests: u64,
    pub(super) ns: u64,
}

/// Tasks of a runtime (goroutines, asyncio's, virtual threads) that began with the same function. A clock of their own, sampled:
/// never to be added to threads.
#[derive(Serialize)]
pub(super) struct Task {
    pub(super) kind: String,
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) seen: u64,
    pub(super) looks: u64,
    pub(super) wall_ns: u64,
    /// On a thread, whether that had a CPU or not.
    pub(super) on_cpu_ns: u64,
    pub(super) runnable_ns: u64,
    pub(super) blocked_ns: u64,
    /// Blocked with nothing to do.
    pub(super) idle_ns: u64,
    pub(super) blocked: BTreeMap<String, u64>,
    pub(super) waits: Vec<TaskWait>,
}

/// Where tasks waited, leaf first.
#[derive(Serialize)]
pub(super) struct TaskWait {
    pub(super) state: &'static str,
    pub(super) reason: String,
    /// The runtime's own word.
    pub(super) detail: String,
    pub(super) ns: u64,
    pub(super) count: u64,
    pub(super) labels: Vec<String>,
    pub(super) frames: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Loss<'a> {
    pub(super) cause: &'a str,
    pub(super) count: u64,
}

#[derive(Serialize)]
pub(super) struct Cost {
    pub(super) bpf_ns: u64,
    pub(super) displaced_ns: u64,
    pub(super) own_cpu_ns: u64,
    pub(super) rss_bytes: u64,
    pub(super) kernel_bytes: u64,
    pub(super) target_stopped_ns: u64,
}

#[derive(Serialize)]
pub(super) struct Scaling {
    pub(super) borrowed_ns: u64,
    pub(super) unplaced_ns: u64,
}

#[derive(Serialize)]
pub(super) struct Blame {
    /// The data: sampled waits, with intervals.
    pub(super) sampled: Vec<BlamePart>,
    /// The data: every wait of the timeline; null without one.
    pub(super) every_wait: Option<Vec<ExactBlame>>,
}

#[derive(Serialize)]
pub(super) struct BlamePart {
    pub(super) waited_at: String,
    pub(super) reason: Option<&'static str>,
    pub(super) waiters: usize,
    pub(super) because_of: String,
    pub(super) root: String,
    pub(super) root_state: &'static str,
    pub(super) not_followed: Option<&'static str>,
    pub(super) ns: u64,
    pub(super) low_ns: u64,
    pub(super) high_ns: u64,
}

#[derive(Serialize)]
pub(super) struct ExactBlame {
    pub(super) thread: String,
    pub(super) reason: Option<&'static str>,
    pub(super) because_of: String,
    pub(super) root: String,
    pub(super) root_state: &'static str,
    pub(super) not_followed: Option<&'static str>,
    pub(super) ns: u64,
}
