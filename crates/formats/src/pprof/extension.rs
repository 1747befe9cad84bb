//! `wallscope.v1.Recording`: the messages of field 1000. `schema/wallscope.proto` describes them;
//! a test decodes written files by it. Tables are stored as columns, one packed list for each value, to
//! save space. The messages of the host are beside their conversion (`host`).

use prost::Message;

use super::host::HostSample;

/// The version written, and the only one read.
pub(super) const VERSION: u32 = 1;

/// Only the version, whatever else there may be.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(uint32, tag = "1")]
    pub version: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Recording {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(message, optional, tag = "2")]
    pub domain: Option<Domain>,
    #[prost(message, optional, tag = "3")]
    pub window: Option<Window>,
    #[prost(message, optional, tag = "4")]
    pub names: Option<Names>,
    #[prost(message, optional, tag = "5")]
    pub modules: Option<Modules>,
    #[prost(message, optional, tag = "6")]
    pub frames: Option<Frames>,
    #[prost(uint32, tag = "7")]
    pub functions: u32,
    #[prost(message, optional, tag = "8")]
    pub stacks: Option<Stacks>,
    #[prost(message, repeated, tag = "9")]
    pub contexts: Vec<Context>,
    #[prost(message, repeated, tag = "10")]
    pub processes: Vec<Process>,
    #[prost(message, optional, tag = "11")]
    pub samples: Option<Samples>,
    #[prost(message, optional, tag = "12")]
    pub slices: Option<Slices>,
    #[prost(message, optional, tag = "13")]
    pub ledger_slices: Option<LedgerSlices>,
    #[prost(message, repeated, tag = "14")]
    pub host: Vec<HostSample>,
    #[prost(message, repeated, tag = "15")]
    pub losses: Vec<Loss>,
    #[prost(message, optional, tag = "16")]
    pub cost: Option<Cost>,
    #[prost(message, optional, tag = "17")]
    pub factors: Option<Factors>,
    #[prost(message, optional, tag = "18")]
    pub label_sets: Option<LabelSets>,
    #[prost(message, optional, tag = "20")]
    pub shapes: Option<Shapes>,
    #[prost(message, repeated, tag = "30")]
    pub actors: Vec<Actor>,
    #[prost(message, optional, tag = "31")]
    pub hops: Option<Hops>,
    #[prost(message, optional, tag = "32")]
    pub locks: Option<LockWaits>,
    #[prost(message, repeated, tag = "21")]
    pub peers: Vec<Peer>,
    #[prost(message, repeated, tag = "22")]
    pub tasks: Vec<TaskGroup>,
    #[prost(message, optional, tag = "33")]
    pub timeline: Option<Timeline>,
    #[prost(message, repeated, tag = "34")]
    pub events: Vec<EventHits>,
    #[prost(uint32, repeated, tag = "35")]
    pub context_labels: Vec<u32>,
    #[prost(message, repeated, tag = "36")]
    pub pauses: Vec<PauseGroup>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PauseGroup {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub operation: String,
    #[prost(string, tag = "3")]
    pub kind: String,
    #[prost(string, tag = "4")]
    pub cause: String,
    #[prost(uint64, tag = "5")]
    pub count: u64,
    #[prost(uint64, tag = "6")]
    pub total: u64,
    #[prost(uint64, repeated, tag = "7")]
    pub start: Vec<u64>,
    #[prost(uint64, repeated, tag = "8")]
    pub length: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventHits {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bool, tag = "2")]
    pub counted: bool,
    #[prost(uint32, repeated, tag = "3")]
    pub context: Vec<u32>,
    #[prost(uint64, repeated, tag = "4")]
    pub hits: Vec<u64>,
    #[prost(message, optional, tag = "5")]
    pub samples: Option<Samples>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Timeline {
    #[prost(uint64, tag = "1")]
    pub limit_bytes: u64,
    #[prost(uint64, tag = "2")]
    pub dropped: u64,
    #[prost(uint64, tag = "3")]
    pub lost: u64,
    #[prost(uint32, repeated, tag = "4")]
    pub context: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub intervals: Vec<u32>,
    #[prost(uint64, repeated, tag = "6")]
    pub gap: Vec<u64>,
    #[prost(uint64, repeated, tag = "7")]
    pub length: Vec<u64>,
    #[prost(uint32, repeated, tag = "8")]
    pub kind: Vec<u32>,
    #[prost(uint32, repeated, tag = "9")]
    pub waker: Vec<u32>,
    #[prost(uint32, repeated, tag = "10")]
    pub mark: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Names {
    #[prost(string, repeated, tag = "1")]
    pub states: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub reasons: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub parts: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub unknown_causes: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub stack_ends: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub frame_kinds: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    pub module_kinds: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventSource {
    #[prost(string, tag = "1")]
    pub what: String,
    #[prost(string, tag = "2")]
    pub event: String,
    #[prost(string, tag = "3")]
    pub rate: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Column {
    #[prost(uint32, tag = "1")]
    pub state: u32,
    #[prost(bool, tag = "2")]
    pub exact: bool,
    #[prost(string, tag = "3")]
    pub how: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Limit {
    #[prost(string, tag = "1")]
    pub what: String,
    #[prost(string, tag = "2")]
    pub remedy: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Domain {
    #[prost(string, tag = "1")]
    pub tool: String,
    #[prost(string, tag = "2")]
    pub backend: String,
    #[prost(string, tag = "3")]
    pub backend_reason: String,
    #[prost(string, tag = "4")]
    pub privilege: String,
    #[prost(string, tag = "5")]
    pub kernel: String,
    #[prost(uint32, tag = "6")]
    pub cpus: u32,
    #[prost(string, tag = "7")]
    pub target: String,
    #[prost(message, repeated, tag = "8")]
    pub events: Vec<EventSource>,
    #[prost(message, repeated, tag = "9")]
    pub columns: Vec<Column>,
    #[prost(message, repeated, tag = "10")]
    pub limits: Vec<Limit>,
    #[prost(string, repeated, tag = "11")]
    pub notes: Vec<String>,
    #[prost(string, tag = "12")]
    pub unit: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Window {
    #[prost(uint64, tag = "1")]
    pub start_ns: u64,
    #[prost(uint64, tag = "2")]
    pub end_ns: u64,
    #[prost(string, tag = "3")]
    pub clock: String,
    #[prost(uint64, tag = "4")]
    pub start_unix_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Modules {
    #[prost(uint32, repeated, tag = "1")]
    pub kind: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub pid: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Frames {
    #[prost(uint32, repeated, tag = "1")]
    pub kind: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Stacks {
    #[prost(uint32, repeated, tag = "1")]
    pub length: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub frame: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub end: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ledger {
    #[prost(uint64, tag = "1")]
    pub wall: u64,
    #[prost(uint64, repeated, tag = "2")]
    pub on_cpu: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    pub runnable: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub blocked: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub unknown: Vec<u64>,
    #[prost(uint64, tag = "6")]
    pub repaired: u64,
    #[prost(uint64, tag = "7")]
    pub idle: u64,
    #[prost(uint64, tag = "8")]
    pub voluntary_switches: u64,
    #[prost(uint64, tag = "9")]
    pub involuntary_switches: u64,
    #[prost(message, optional, tag = "10")]
    pub audit: Option<Audit>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Audit {
    #[prost(uint64, tag = "1")]
    pub on_cpu: u64,
    #[prost(uint64, tag = "2")]
    pub run_delay: u64,
    #[prost(uint64, tag = "3")]
    pub switches: u64,
    #[prost(bool, tag = "4")]
    pub valid: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Context {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(uint32, tag = "2")]
    pub tid: u32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(uint64, tag = "4")]
    pub start_ns: u64,
    #[prost(uint64, tag = "5")]
    pub end_ns: u64,
    #[prost(message, optional, tag = "6")]
    pub ledger: Option<Ledger>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(uint32, tag = "2")]
    pub parent: u32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub exe: String,
    #[prost(string, tag = "5")]
    pub cmdline: String,
    #[prost(uint64, tag = "6")]
    pub unattributed_on_cpu_ns: u64,
    #[prost(uint32, optional, tag = "7")]
    pub uid: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub gid: Option<u32>,
    #[prost(uint64, tag = "9")]
    pub folded_threads: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Samples {
    #[prost(uint32, repeated, tag = "1")]
    pub context: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub stack: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub state: Vec<u32>,
    #[prost(uint32, repeated, tag = "4")]
    pub reason: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub part: Vec<u32>,
    #[prost(bool, repeated, tag = "6")]
    pub idle: Vec<bool>,
    #[prost(uint64, repeated, tag = "7")]
    pub cpu: Vec<u64>,
    #[prost(uint64, repeated, tag = "8")]
    pub count: Vec<u64>,
    #[prost(uint64, repeated, tag = "9")]
    pub ns: Vec<u64>,
    #[prost(uint32, repeated, tag = "10")]
    pub slices: Vec<u32>,
    #[prost(uint32, repeated, tag = "11")]
    pub slice: Vec<u32>,
    #[prost(uint64, repeated, tag = "12")]
    pub slice_count: Vec<u64>,
    #[prost(uint64, repeated, tag = "13")]
    pub slice_ns: Vec<u64>,
    #[prost(uint32, repeated, tag = "14")]
    pub labels: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelSets {
    #[prost(string, repeated, tag = "1")]
    pub text: Vec<String>,
    #[prost(uint32, repeated, tag = "2")]
    pub length: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub key: Vec<u32>,
    #[prost(uint32, repeated, tag = "4")]
    pub value: Vec<u32>,
    #[prost(sint64, repeated, tag = "5")]
    pub number: Vec<i64>,
    #[prost(uint32, repeated, tag = "6")]
    pub unit: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Actor {
    #[prost(uint32, tag = "1")]
    pub context: u32,
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    #[prost(uint32, tag = "3")]
    pub tid: u32,
    #[prost(string, tag = "4")]
    pub name: String,
    #[prost(bool, tag = "5")]
    pub interrupt: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Hops {
    #[prost(string, repeated, tag = "1")]
    pub roles: Vec<String>,
    #[prost(uint32, repeated, tag = "2")]
    pub above: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub role: Vec<u32>,
    #[prost(uint32, repeated, tag = "4")]
    pub actor: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub stack: Vec<u32>,
    #[prost(uint32, repeated, tag = "6")]
    pub reason: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    pub part: Vec<u32>,
    #[prost(uint32, repeated, tag = "8")]
    pub labels: Vec<u32>,
    #[prost(uint64, repeated, tag = "9")]
    pub count: Vec<u64>,
    #[prost(uint64, repeated, tag = "10")]
    pub ns: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LockWaits {
    #[prost(uint32, repeated, tag = "1")]
    pub context: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub labels: Vec<u32>,
    #[prost(uint64, repeated, tag = "3")]
    pub address: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub total: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub longest: Vec<u64>,
    #[prost(uint64, repeated, tag = "6")]
    pub count: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Slices {
    #[prost(uint64, tag = "1")]
    pub start_ns: u64,
    #[prost(uint64, tag = "2")]
    pub width_ns: u64,
    #[prost(uint32, tag = "3")]
    pub count: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LedgerSlices {
    #[prost(uint32, repeated, tag = "1")]
    pub context: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub slice: Vec<u32>,
    #[prost(uint64, repeated, tag = "3")]
    pub on_cpu: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub runnable: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub blocked_mask: Vec<u64>,
    #[prost(uint64, repeated, tag = "6")]
    pub blocked: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Peer {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(bool, tag = "2")]
    pub asks: bool,
    #[prost(string, tag = "3")]
    pub address: String,
    #[prost(uint32, tag = "4")]
    pub peer_pid: u32,
    #[prost(string, tag = "5")]
    pub peer_name: String,
    #[prost(uint32, tag = "6")]
    pub connections: u32,
    #[prost(uint64, tag = "7")]
    pub requests: u64,
    #[prost(uint64, tag = "8")]
    pub in_flight: u64,
    #[prost(uint32, repeated, tag = "9")]
    pub context: Vec<u32>,
    #[prost(uint32, repeated, tag = "10")]
    pub stack: Vec<u32>,
    #[prost(uint64, repeated, tag = "11")]
    pub stack_requests: Vec<u64>,
    #[prost(uint64, repeated, tag = "12")]
    pub stack_ns: Vec<u64>,
    #[prost(bool, tag = "13")]
    pub requests_at_least: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TaskGroup {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(uint64, tag = "4")]
    pub seen: u64,
    #[prost(uint64, tag = "5")]
    pub looks: u64,
    #[prost(uint32, repeated, tag = "6")]
    pub state: Vec<u32>,
    #[prost(string, repeated, tag = "7")]
    pub reason: Vec<String>,
    #[prost(string, repeated, tag = "8")]
    pub detail: Vec<String>,
    #[prost(uint32, repeated, tag = "9")]
    pub stack: Vec<u32>,
    #[prost(uint32, repeated, tag = "10")]
    pub labels: Vec<u32>,
    #[prost(uint64, repeated, tag = "11")]
    pub count: Vec<u64>,
    #[prost(uint64, repeated, tag = "12")]
    pub ns: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Shapes {
    #[prost(uint32, repeated, tag = "1")]
    pub context: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub stack: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub state: Vec<u32>,
    #[prost(uint32, repeated, tag = "4")]
    pub reason: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub part: Vec<u32>,
    #[prost(uint32, repeated, tag = "6")]
    pub bits: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    pub max: Vec<u64>,
    #[prost(uint32, repeated, tag = "8")]
    pub buckets: Vec<u32>,
    #[prost(uint32, repeated, tag = "9")]
    pub bucket: Vec<u32>,
    #[prost(uint64, repeated, tag = "10")]
    pub count: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Factors {
    #[prost(uint32, repeated, tag = "1")]
    pub context: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub state: Vec<u32>,
    #[prost(string, repeated, tag = "3")]
    pub reason: Vec<String>,
    #[prost(uint64, repeated, tag = "4")]
    pub exact: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub sampled: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Loss {
    #[prost(string, tag = "1")]
    pub cause: String,
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Cost {
    #[prost(uint64, tag = "1")]
    pub bpf_ns: u64,
    #[prost(uint64, tag = "2")]
    pub own_cpu_ns: u64,
    #[prost(uint64, tag = "3")]
    pub rss_bytes: u64,
    #[prost(uint64, tag = "4")]
    pub kernel_bytes: u64,
    #[prost(uint64, tag = "5")]
    pub target_stopped_ns: u64,
    #[prost(uint64, tag = "6")]
    pub displaced_ns: u64,
}
