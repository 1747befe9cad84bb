//! What is asked of counting and timing calls.

use std::time::Duration;

use super::spec::Spec;
use crate::target::Target;

/// What to count or time, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The target.
    pub target: Target,
    /// What.
    pub asked: Vec<Spec>,
    /// Lengths and ledgers too, not only counts.
    pub timed: bool,
    /// How long; `None`: until the target ends or a signal comes.
    pub duration: Option<Duration>,
    /// Most of one CPU that probes may cost, percent.
    pub max_overhead: f64,
    /// How many of the longest calls are kept one by one.
    pub slowest: usize,
    /// Each call is kept, as long as they come no faster than can be told.
    pub each: bool,
}

impl Options {
    /// Most that probes may cost, ns a second.
    pub(super) fn limit_ns(&self) -> f64 {
        self.max_overhead / 100.0 * 1e9
    }
}
