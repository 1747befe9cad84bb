//! Workloads under several tools: results, and how they are written.

use std::fmt;

use serde::{Deserialize, Serialize};

use wallscope_testkit::report::Report;
use wallscope_testkit::{Error, Program};

/// A workload under several tools.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// The workload's name.
    pub workload: &'static str,
    /// The compared figure, with its unit.
    pub about: String,
    /// One per tool, after the one without a tool.
    pub standings: Vec<Standing>,
}

/// Result of a workload under one tool.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Standing {
    /// The tool.
    pub peer: String,
    /// The figure, median of the rounds.
    pub figure: f64,
    /// Its ratio to the unmeasured stretches before and after, median of the rounds.
    pub ratio: f64,
    /// The lowest and the highest of these ratios.
    pub range: (f64, f64),
    /// wallscope's own cost: kernel programs and own CPU, percent of a CPU, median.
    pub cost_percent: Option<f64>,
}

pub(super) type Start = Box<dyn Fn() -> Result<Program, Error>>;

/// The lowest and the highest.
pub(super) fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(0.0, f64::max))
}

/// Cost of a recording: kernel programs and own CPU, percent of a CPU.
pub(super) fn cost_percent(report: &Report) -> f64 {
    let window = (report.window.end_ns - report.window.start_ns) as f64;
    100.0 * (report.cost.bpf_ns + report.cost.own_cpu_ns) as f64 / window
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.workload, self.about)?;
        let width = self.standings.iter().map(|s| s.peer.len()).max();
        let width = width.unwrap_or(0);
        for s in &self.standings {
            if s.figure.is_nan() {
                let why = "no round counts: the machine was not steady around any";
                writeln!(f, "  {:width$}  {why}", s.peer)?;
                continue;
            }
            write!(
                f,
                "  {:width$}  {:>9.1}  {:>6.3} × ({:.3} – {:.3})",
                s.peer, s.figure, s.ratio, s.range.0, s.range.1
            )?;
            match s.cost_percent {
                Some(cost) => writeln!(f, "  own cost {cost:.3} % of a CPU")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
