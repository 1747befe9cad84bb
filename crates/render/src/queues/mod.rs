//! `wallscope queues`: queues, what-if and scaling, for the terminal and as JSON.

mod json;
mod scaling;
mod text;
mod what_if;

use wallscope_analysis::queueing::Estimate;
use wallscope_analysis::queueing::usl::{Error, Fit, Point};
use wallscope_analysis::queues::Queues;
use wallscope_analysis::queues::what_if::Answer;

pub use json::json;
pub use text::text;

/// Throughput over load.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// Source of each point (a file, or `--at`), and the point.
    pub points: Vec<(String, Point)>,
    /// The fitted law, or the reason why there is none.
    pub fit: Result<Fit, Error>,
    /// Files without a point, and the reason.
    pub without: Vec<(String, String)>,
}

/// Everything that the verb shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The recording of queues and what-if; empty if there is only one.
    pub file: String,
    /// Its queues; `None`: no recording was named.
    pub queues: Option<Queues>,
    /// Answers to what-if.
    pub what_if: Vec<Answer>,
    /// Scaling over several loads, if there are several.
    pub scaling: Option<Scaling>,
}

/// A length of time given in seconds; unbounded times have no number.
fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "no bound".into(),
        s => wallscope_model::units::ns((s * 1e9).round() as u64),
    }
}

/// A number with three digits.
fn number(v: f64) -> String {
    match v {
        v if !v.is_finite() => "no bound".into(),
        v if v >= 99.95 => wallscope_model::units::count(v.round() as u64),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.0995 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

/// A relative change: `+23 %`, `−31 %`.
fn change(v: f64) -> String {
    match v {
        v if !v.is_finite() => "no bound".into(),
        v if v < 0.0 => format!("−{:.0} %", -v * 100.0),
        v => format!("+{:.0} %", v * 100.0),
    }
}

/// The ends of an interval in words: `(a to b)`.
fn ends(e: &Estimate, show: impl Fn(f64) -> String) -> String {
    format!("({} to {})", show(e.low), show(e.high))
}
