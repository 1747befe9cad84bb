//! Calls of single functions, laid out: [`text`] for people, [`json`] for scripts, [`hlog`] for
//! HdrHistogram's tools; [`heat`] is lengths over time in letters.

mod heat;
mod hlog;
mod json;
mod text;

use wallscope_model::calls::{Band, FunctionCalls, Lengths};

pub use hlog::hlog;
pub use json::json;
pub use text::{live, text};

/// The quantiles that are shown.
pub const QUANTILES: &[(&str, f64)] = &[
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// Bands of calls: name, words, and the quantiles between which the calls lie.
const BANDS: &[(&str, &str, f64, f64)] = &[
    ("p50", "p40 to p60", 0.4, 0.6),
    ("p90", "p90 to p99", 0.9, 0.99),
    ("p99", "p99 and longer", 0.99, 1.0),
    ("p99.9", "p99.9 and longer", 0.999, 1.0),
];

/// Options of the output of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsDisplay {
    /// The interval at which calls were due, ns: lengths are shown corrected for coordinated omission
    /// too.
    pub expected_interval: Option<u64>,
    /// Lengths over time.
    pub heat_map: bool,
}

/// The bands with enough calls of their own: if there are a hundred calls, a band of the slowest thousandth
/// says nothing.
fn bands(calls: &FunctionCalls) -> Vec<(&'static str, &'static str, Band)> {
    let total = calls.total().count as f64;
    BANDS
        .iter()
        .filter(|(_, _, from, to)| *from <= 0.5 || total * (to - from) >= 2.0)
        .map(|(name, words, from, to)| (*name, *words, calls.between(*from, *to)))
        .filter(|(.., band)| band.count > 0)
        .collect()
}

/// Quantiles as far as there are calls enough that more than one is beyond.
fn quantiles(lengths: &Lengths, longest: u64) -> Vec<(&'static str, f64, u64)> {
    let count = lengths.count() as f64;
    QUANTILES
        .iter()
        .filter(|(_, q)| *q <= 0.5 || count * (1.0 - q) >= 1.0)
        .filter_map(|(name, q)| Some((*name, *q, lengths.quantile(*q)?.min(longest.max(1)))))
        .collect()
}
