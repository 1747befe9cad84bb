//! The measurement domain: the events and methods of a recording, its limits, losses and cost.

use crate::State;

/// A source of samples or events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSource {
    /// Its purpose: `on-cpu stacks`, `blocked stacks`, `ledger`…
    pub what: String,
    /// The event: `cpu-clock (software)`, `cycles (hardware)`, `sched_switch`…
    pub event: String,
    /// Its rate or period in words: `99 Hz`, `every 1 ms of blocked time`, `each event`.
    pub rate: String,
}

/// Method behind the figures of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The state.
    pub state: State,
    /// True: totals are counted. False: they are estimated from samples.
    pub exact: bool,
    /// The method, in words.
    pub how: String,
}

/// A blind spot of this recording, and its remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The blind spot.
    pub what: String,
    /// The remedy; empty if there is none.
    pub remedy: String,
}

/// Data that was lost, truncated or left unnamed, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Cause, in the words that key the troubleshooting page.
    pub cause: String,
    /// Number of cases.
    pub count: u64,
}

/// Cost of the recording for the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Run time of the kernel programs, ns.
    pub bpf_ns: u64,
    /// CPU time that other programs lost because the kernel programs displaced their lines in caches, ns.
    /// Estimated.
    pub displaced_ns: u64,
    /// CPU time of wallscope itself while recording, ns.
    pub own_cpu_ns: u64,
    /// Largest resident size of wallscope while recording, bytes; without mapped kernel maps.
    pub rss_bytes: u64,
    /// Memory held by kernel maps and buffers, bytes.
    pub kernel_bytes: u64,
    /// Time for which the target was stopped, ns.
    pub target_stopped_ns: u64,
}

/// Name of the counted things in files that do not name them.
pub const UNTOLD: &str = "counts";

/// Unit of a recording's values. Measured values are times; files of other tools may hold others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Time. Only with this unit, states, shares of wall time and intervals of time have a meaning.
    #[default]
    Nanoseconds,
    /// Memory.
    Bytes,
    /// Counted things, by their name: `samples`, `cycles`, `alloc_objects`.
    Count(String),
}

impl Unit {
    /// Whether values are nanoseconds.
    pub fn is_time(&self) -> bool {
        *self == Unit::Nanoseconds
    }

    /// The unit's name: `nanoseconds`, `bytes`, or that of the counted things.
    pub fn name(&self) -> &str {
        match self {
            Unit::Nanoseconds => "nanoseconds",
            Unit::Bytes => "bytes",
            Unit::Count(name) => name,
        }
    }

    /// The unit with the given name; an empty name is time.
    pub fn from_name(name: &str) -> Unit {
        match name {
            "nanoseconds" | "" => Unit::Nanoseconds,
            "bytes" => Unit::Bytes,
            name => Unit::Count(name.to_string()),
        }
    }
}

/// The domain of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// `wallscope 0.1.0`.
    pub tool: String,
    /// `ebpf`, `perf`, `proc`, or `import`.
    pub backend: String,
    /// Reason for this backend, in words.
    pub backend_reason: String,
    /// Privilege in words: `root`, `CAP_BPF+CAP_PERFMON`, `uid 1000`.
    pub privilege: String,
    /// Kernel release and architecture.
    pub kernel: String,
    /// CPUs online.
    pub cpus: u32,
    /// The requested target: `pid 1234`, `command: sleep 5`.
    pub target: String,
    /// Events, with rates and periods.
    pub events: Vec<EventSource>,
    /// Exact or sampled, by state.
    pub columns: Vec<Column>,
    /// Blind spots.
    pub limits: Vec<Limit>,
    /// Further notes, in words.
    pub notes: Vec<String>,
    /// Unit of all values (fields named `…_ns` throughout).
    pub unit: Unit,
}

impl Domain {
    /// The backend of recordings made from another tool's file.
    pub const IMPORT: &'static str = "import";
    /// The target of a recording of every process.
    pub const WHOLE_MACHINE: &'static str = "all processes of the machine";

    /// Whether every process of the machine was measured.
    pub fn is_whole_machine(&self) -> bool {
        self.target == Domain::WHOLE_MACHINE
    }

    /// Whether another tool measured this, so that totals are sums of samples.
    pub fn is_import(&self) -> bool {
        self.backend == Domain::IMPORT
    }
}
