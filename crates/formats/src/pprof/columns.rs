//! State and unit of a profile's columns, by the names that tools give them.

use wallscope_model::{State, Unit};

/// The unit of a column, and the number of units that a value of 1 is.
pub(in super::super) fn unit(name: &str, unit: &str) -> (Unit, u64) {
    match unit {
        "nanoseconds" | "nanosecond" | "ns" => (Unit::Nanoseconds, 1),
        "microseconds" | "microsecond" | "us" | "µs" | "μs" => (Unit::Nanoseconds, 1_000),
        "milliseconds" | "millisecond" | "ms" => (Unit::Nanoseconds, 1_000_000),
        "seconds" | "second" | "s" => (Unit::Nanoseconds, 1_000_000_000),
        "bytes" | "byte" | "B" => (Unit::Bytes, 1),
        "kilobytes" | "kb" | "kB" | "KB" => (Unit::Bytes, 1 << 10),
        "megabytes" | "mb" | "MB" => (Unit::Bytes, 1 << 20),
        "count" | "" => (Unit::Count(name.to_string()), 1),
        other => (Unit::Count(other.to_string()), 1),
    }
}

/// The state that a column's name means; most names mean none.
pub(in super::super) fn state(name: &str, unit: &Unit) -> State {
    match name {
        _ if !unit.is_time() => State::Unknown,
        "cpu" | "on_cpu" | "on-cpu" | "task-clock" | "cpu-clock" => State::OnCpu,
        "delay" | "blocked" | "block" | "off_cpu" | "off-cpu" | "lock_time" => State::Blocked,
        "runnable" => State::Runnable,
        _ => State::Unknown,
    }
}
