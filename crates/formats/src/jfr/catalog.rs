//! The events that are read, by name: those of JDK 8 to 25, async-profiler 2 to 4, and Datadog.

use wallscope_model::BlockReason;

/// Samples of running threads: the JDK's (from JDK 8 on) and async-profiler's.
pub(super) const EXECUTION: &str = "jdk.ExecutionSample";
/// Samples by CPU time, JDK 25 on. Each has its own period.
pub(super) const CPU_TIME: &str = "jdk.CPUTimeSample";
/// CPU-time samples that the JDK could not keep.
pub(super) const CPU_TIME_LOST: &str = "jdk.CPUTimeSamplesLost";
/// Bytes of events that the JDK could not keep.
pub(super) const DATA_LOSS: &str = "jdk.DataLoss";
/// Samples of threads in native code. The JDK takes one at a tick, so they have no weight.
const NATIVE: &str = "jdk.NativeMethodSample";
/// async-profiler's wall-clock samples, 4.0 on.
pub(super) const WALL: &str = "profiler.WallClockSample";
/// Datadog's samples by CPU time, and by the clock.
pub(super) const DATADOG_CPU: &str = "datadog.ExecutionSample";
pub(super) const DATADOG_WALL: &str = "datadog.MethodSample";

/// Events of waiting, and for what. Their length is in the event.
pub(super) const WAITS: [(&str, BlockReason); 11] = [
    ("jdk.JavaMonitorEnter", BlockReason::Lock),
    ("jdk.JavaMonitorWait", BlockReason::Lock),
    ("jdk.ThreadPark", BlockReason::Lock),
    ("jdk.ThreadSleep", BlockReason::Timer),
    ("jdk.FileRead", BlockReason::Disk),
    ("jdk.FileWrite", BlockReason::Disk),
    ("jdk.FileForce", BlockReason::Disk),
    ("jdk.SocketConnect", BlockReason::Network),
    ("jdk.SocketRead", BlockReason::Network),
    ("jdk.SocketWrite", BlockReason::Network),
    ("profiler.NativeLock", BlockReason::Lock),
];

/// Events of allocation, and the fields whose product is their weight in bytes.
pub(super) const ALLOCATIONS: [(&str, &[&str]); 4] = [
    ("jdk.ObjectAllocationSample", &["weight"]),
    ("jdk.ObjectAllocationInNewTLAB", &["tlabSize"]),
    ("jdk.ObjectAllocationOutsideTLAB", &["allocationSize"]),
    ("datadog.ObjectSample", &["size", "weight"]),
];

/// The reason of an event of waiting.
pub(super) fn wait(name: &str) -> Option<BlockReason> {
    WAITS.iter().find(|(n, _)| *n == name).map(|(_, r)| *r)
}

/// The fields with the weight of an event of allocation.
pub(super) fn allocation(name: &str) -> Option<&'static [&'static str]> {
    ALLOCATIONS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, f)| *f)
}

/// Whether an event is a sample of threads.
pub(super) fn is_sample(name: &str) -> bool {
    let samples = [EXECUTION, CPU_TIME, NATIVE, WALL, DATADOG_CPU, DATADOG_WALL];
    samples.contains(&name)
}

/// Whether an event says how the recording was made, not what the program did.
pub(super) fn is_setting(name: &str) -> bool {
    let settings = [
        "jdk.ActiveSetting",
        "jdk.ActiveRecording",
        "datadog.ProfilerSetting",
        "datadog.DatadogProfilerConfig",
    ];
    settings.contains(&name)
}
