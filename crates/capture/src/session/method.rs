//! How to record: the options that people choose. Each is declared here alone. With the feature `clap` each field
//! is a flag of `wallscope record`, and the comment above it is the flag's help.

use std::time::Duration;

use crate::backend::{Backend, ebpf::Mechanism};

/// How to record.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Method {
    /// How long: seconds, or with a unit (500ms, 10s, 2m); default: until the target ends or Ctrl-C
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "TIME", value_parser = parse_duration))]
    pub duration: Option<Duration>,

    /// On-CPU samples a second on each CPU
    #[cfg_attr(feature = "clap", arg(short = 'F', long = "frequency", value_name = "HZ",
        default_value_t = Method::HZ, value_parser = clap::value_parser!(u32).range(1..=10_000)))]
    pub hz: u32,

    /// Blocked or runnable time for each stack that is taken
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", default_value = "1ms",
        value_parser = parse_duration))]
    pub off_cpu_period: Duration,

    /// The most of one CPU that stacks may cost, in percent; samplers slow down to keep it
    #[cfg_attr(feature = "clap", arg(long, value_name = "PERCENT", default_value_t = Method::MAX_OVERHEAD,
        value_parser = parse_overhead))]
    pub max_overhead: f64,

    /// The most of one CPU that all of it may cost, the exact ledger too, in percent. Above it these are given
    /// up, in this order, and taken back when there is room: request tracking; stacks; block reasons of threads
    /// that switch very often; all scheduler hooks, which leaves the kernel's counters. The recording says
    /// which and when. Default: no limit. By the ebpf backend only
    #[cfg_attr(feature = "clap", arg(long, value_name = "PERCENT", value_parser = parse_overhead))]
    pub max_total_overhead: Option<f64>,

    /// How to measure; default: the best that is allowed here
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "HOW"))]
    pub backend: Option<Backend>,

    /// Let the proc backend stop running threads for some 50 µs each time to see their stacks
    #[cfg_attr(feature = "clap", arg(long))]
    pub allow_stop: bool,

    /// How stacks of blocked threads are read; default: the better one that the kernel has
    #[cfg_attr(
        feature = "clap",
        arg(long = "off-cpu-stacks", value_enum, value_name = "HOW")
    )]
    pub mechanism: Option<Mechanism>,

    /// Keep every single interval, for a timeline of threads (`view`, `export --format perfetto`)
    #[cfg_attr(feature = "clap", arg(long))]
    pub timeline: bool,

    /// Memory for the timeline, 32 bytes an interval; beyond it the oldest are dropped
    #[cfg_attr(feature = "clap", arg(long, value_name = "MIB", default_value_t = Method::TIMELINE_MIB,
        value_parser = clap::value_parser!(u64).range(1..=65_536)))]
    pub timeline_memory: u64,

    /// Hits of the events of -e a stack [default: as many stacks as --max-overhead allows]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", requires = "events",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000)))]
    pub event_period: Option<u64>,

    /// Keep the native frames of interpreters (CPython) beside the functions that they run
    #[cfg_attr(feature = "clap", arg(long))]
    pub interpreter_frames: bool,
}

impl Method {
    /// On-CPU samples a second and CPU, unless something else is asked for.
    pub const HZ: u32 = 99;
    /// Blocked or runnable time per stack, unless something else is asked for.
    pub const OFF_CPU_PERIOD: Duration = Duration::from_millis(1);
    /// Limit for the overhead, in percent of one CPU, unless something else is asked for.
    pub const MAX_OVERHEAD: f64 = 1.0;
    /// Memory for a timeline, MiB, unless something else is asked for.
    pub const TIMELINE_MIB: u64 = 128;

    /// Memory for single intervals, bytes; `None`: they are not kept.
    pub(crate) fn timeline_bytes(&self) -> Option<u64> {
        self.timeline.then_some(self.timeline_memory << 20)
    }
}

impl Default for Method {
    fn default() -> Method {
        Method {
            duration: None,
            hz: Method::HZ,
            off_cpu_period: Method::OFF_CPU_PERIOD,
            max_overhead: Method::MAX_OVERHEAD,
            max_total_overhead: None,
            backend: None,
            allow_stop: false,
            mechanism: None,
            timeline: false,
            timeline_memory: Method::TIMELINE_MIB,
            event_period: None,
            interpreter_frames: false,
        }
    }
}

/// Parses `10`, `1.5s`, `500ms`, `50us`, `2m`, `1h`.
///
/// # Errors
/// What is wrong with it, for people.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("unknown unit `{other}`; use us, ms, s, m or h")),
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| "a number is needed, as in 10, 500ms, 2m".to_owned())?;
    match Duration::try_from_secs_f64(seconds * factor) {
        Ok(d) if d.is_zero() => Err("it must be longer than nothing".into()),
        Ok(d) => Ok(d),
        Err(e) => Err(e.to_string()),
    }
}

/// Parses a percentage of one CPU, with or without its sign.
///
/// # Errors
/// What is wrong with it, for people.
pub fn parse_overhead(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').trim().parse();
    value
        .ok()
        .filter(|v: &f64| *v > 0.0 && v.is_finite())
        .ok_or_else(|| "it must be a percentage of one CPU, above 0, as in 2 or 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "x", "0", "5 parsecs", "-1", "1e400"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn overheads() {
        assert_eq!(parse_overhead("0.5%"), Ok(0.5));
        assert_eq!(parse_overhead("150"), Ok(150.0));
        for bad in ["0", "-1", "nan", "inf", "much"] {
            assert!(parse_overhead(bad).is_err(), "{bad}");
        }
    }
}
