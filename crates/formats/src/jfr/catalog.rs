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

/// Events of waiting, and the reason. Their length is in the event.
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

/// Recorders of allocations, the most exact first. Each one covers all allocations of a process, so two
/// of them are never added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AllocationSource {
    /// Every buffer that a thread fills, and every object outside of one.
    Buffers,
    Datadog,
    /// The JDK's samples, 16 on.
    Samples,
}

/// Events of allocation, and the fields that multiply to their weight in bytes.
pub(super) const ALLOCATIONS: [(&str, AllocationSource, &[&str]); 4] = [
    (
        "jdk.ObjectAllocationSample",
        AllocationSource::Samples,
        &["weight"],
    ),
    (
        "jdk.ObjectAllocationInNewTLAB",
        AllocationSource::Buffers,
        &["tlabSize"],
    ),
    (
        "jdk.ObjectAllocationOutsideTLAB",
        AllocationSource::Buffers,
        &["allocationSize"],
    ),
    (
        "datadog.ObjectSample",
        AllocationSource::Datadog,
        &["size", "weight"],
    ),
];

/// The reason of an event of waiting.
pub(super) fn wait(name: &str) -> Option<BlockReason> {
    WAITS.iter().find(|(n, _)| *n == name).map(|(_, r)| *r)
}

/// The recorder of an event of allocation, and the fields with its weight.
pub(super) fn allocation(name: &str) -> Option<(AllocationSource, &'static [&'static str])> {
    let found = ALLOCATIONS.iter().find(|(n, ..)| *n == name);
    found.map(|(_, source, fields)| (*source, *fields))
}

/// Whether an event is a sample of threads.
pub(super) fn is_sample(name: &str) -> bool {
    let samples = [EXECUTION, CPU_TIME, NATIVE, WALL, DATADOG_CPU, DATADOG_WALL];
    samples.contains(&name)
}

/// Whether an event is about the recording and not about the program.
pub(super) fn is_setting(name: &str) -> bool {
    let settings = [
        "jdk.ActiveSetting",
        "jdk.ActiveRecording",
        "datadog.ProfilerSetting",
        "datadog.DatadogProfilerConfig",
    ];
    settings.contains(&name)
}
