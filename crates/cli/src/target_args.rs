//! Arguments of every verb that measures: target, backend, durations, overheads.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use wallscope_capture::{backend, target::Target};

/// The live target of a verb.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    /// Processes to measure, with their threads and children
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        group = "target"
    )]
    pid: Vec<u32>,

    /// A cgroup (v1 or v2) to measure: a directory, or a path below the hierarchy's mount
    #[arg(long, value_name = "PATH", group = "target")]
    cgroup: Option<PathBuf>,

    /// Measure every process of the machine
    #[arg(short, long, group = "target")]
    all: bool,

    /// A command to start and measure
    #[arg(last = true, value_name = "CMD", group = "target")]
    command: Vec<OsString>,
}

impl TargetArgs {
    /// The target that was named, if one was.
    pub fn target(&self) -> Option<Target> {
        if !self.pid.is_empty() {
            let mut pids: Vec<u32> = Vec::new();
            for pid in &self.pid {
                if !pids.contains(pid) {
                    pids.push(*pid);
                }
            }
            Some(Target::Pids(pids))
        } else if let Some(path) = &self.cgroup {
            Some(Target::Cgroup(path.clone()))
        } else if self.all {
            Some(Target::All)
        } else if !self.command.is_empty() {
            Some(Target::Command(self.command.clone()))
        } else {
            None
        }
    }
}

/// Ways to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// Kernel programs: exact totals, all stacks; needs root, or CAP_BPF and CAP_PERFMON
    Ebpf,
    /// Perf events of own processes: stacks of running threads too; needs perf_event_paranoid 2
    Perf,
    /// Looking at /proc: exact computing and queueing times, stacks of waiting threads; for
    /// ordinary users
    Proc,
}

impl Backend {
    /// The backend of the crate `capture`.
    pub fn of_capture(self) -> backend::Backend {
        match self {
            Backend::Ebpf => backend::Backend::Ebpf,
            Backend::Perf => backend::Backend::Perf,
            Backend::Proc => backend::Backend::Proc,
        }
    }
}

/// `10`, `1.5s`, `500ms`, `50us`, `2m`, `1h`.
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

/// `2`, `0.5%`: percent of one CPU.
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
