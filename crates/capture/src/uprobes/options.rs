//! Options of counting and timing calls.

use std::time::Duration;

use super::spec::Spec;
use crate::target::Target;

/// Options of a measurement of calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// The target.
    pub target: Target,
    /// Functions and events to measure.
    pub asked: Vec<Spec>,
    /// Lengths and ledgers too, not only counts.
    pub timed: bool,
    /// Length; `None`: until the target ends or a signal comes.
    pub duration: Option<Duration>,
    /// Most of one CPU that probes may cost, percent.
    pub max_overhead: f64,
    /// Number of the longest calls that are kept one by one.
    pub slowest: usize,
    /// Whether each call is kept, as long as calls come no faster than they can be reported.
    pub each: bool,
}

impl Options {
    /// Most that probes may cost, ns a second.
    pub(super) fn limit_ns(&self) -> f64 {
        self.max_overhead / 100.0 * 1e9
    }
}
