//! The measurement domain: what a recording measured, how, what it could not see, what it lost,
//! and what it cost.

use crate::State;

/// A source of samples or events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSource {
    /// What it serves: `on-cpu stacks`, `blocked stacks`, `ledger`…
    pub what: String,
    /// The event: `cpu-clock (software)`, `cycles (hardware)`, `sched_switch`…
    pub event: String,
    /// Its rate or period in words: `99 Hz`, `every 1 ms of blocked time`, `each event`.
    pub rate: String,
}

/// How the figures of one state were come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The state.
    pub state: State,
    /// True where totals are counted; false where they are estimated from samples.
    pub exact: bool,
    /// How, in words.
    pub how: String,
}

/// Something this recording could not see, and what would change that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// What is not seen.
    pub what: String,
    /// The remedy; empty where there is none.
    pub remedy: String,
}

/// Something that was lost, truncated or left unnamed, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Cause in words that the troubleshooting page is keyed by.
    pub cause: String,
    /// How often.
    pub count: u64,
}

/// What the recording cost the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Run time of the kernel programs, ns.
    pub bpf_ns: u64,
    /// CPU time of wallscope itself while recording, ns.
    pub own_cpu_ns: u64,
    /// Largest resident size of wallscope while recording, bytes; without kernel maps that it has mapped.
    pub rss_bytes: u64,
    /// Memory held by kernel maps and buffers, bytes.
    pub kernel_bytes: u64,
    /// Time for which the target was stopped, ns.
    pub target_stopped_ns: u64,
}

/// Name of the things counted in files that do not name them.
pub const UNTOLD: &str = "counts";

/// What the values of a recording are in. Everything measured here is time; files of other tools
/// may hold anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Time. Only then do states, shares of wall time and intervals of time mean anything.
    #[default]
    Nanoseconds,
    /// Memory.
    Bytes,
    /// Things counted, by their name: `samples`, `cycles`, `alloc_objects`.
    Count(String),
}

impl Unit {
    /// Whether values are nanoseconds.
    pub fn is_time(&self) -> bool {
        *self == Unit::Nanoseconds
    }

    /// Its name: `nanoseconds`, `bytes`, or that of the things counted.
    pub fn name(&self) -> &str {
        match self {
            Unit::Nanoseconds => "nanoseconds",
            Unit::Bytes => "bytes",
            Unit::Count(name) => name,
        }
    }

    /// The unit of the given name; an empty one is time.
    pub fn from_name(name: &str) -> Unit {
        match name {
            "nanoseconds" | "" => Unit::Nanoseconds,
            "bytes" => Unit::Bytes,
            name => Unit::Count(name.to_string()),
        }
    }
}

/// What was measured and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// `wallscope 0.1.0`.
    pub tool: String,
    /// `ebpf`, `perf`, `proc`, or `import`.
    pub backend: String,
    /// Why this backend, in words.
    pub backend_reason: String,
    /// Privilege in words: `root`, `CAP_BPF+CAP_PERFMON`, `uid 1000`.
    pub privilege: String,
    /// Kernel release and architecture.
    pub kernel: String,
    /// CPUs online.
    pub cpus: u32,
    /// What was asked for: `pid 1234`, `command: sleep 5`.
    pub target: String,
    /// Events, rates, periods.
    pub events: Vec<EventSource>,
    /// Exact or sampled, by state.
    pub columns: Vec<Column>,
    /// What could not be seen.
    pub limits: Vec<Limit>,
    /// Everything else worth knowing, in words.
    pub notes: Vec<String>,
    /// What all values (those named `…_ns` throughout) are in.
    pub unit: Unit,
}

impl Domain {
    /// The backend of recordings that were made from another tool's file.
    pub const IMPORT: &'static str = "import";

    /// Whether this was measured by another tool, so that totals are sums of samples.
    pub fn is_import(&self) -> bool {
        self.backend == Domain::IMPORT
    }
}
