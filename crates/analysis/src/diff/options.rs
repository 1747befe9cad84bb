//! Options of a comparison.

use wallscope_model::View;

use crate::view::Idle;

/// Divisor of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normal {
    /// Seconds of recording.
    #[default]
    Second,
    /// Seconds of on-CPU time.
    CpuSecond,
    /// All time of the view: values are shares.
    Total,
    /// Requests, by [`Options::base_requests`] and [`Options::new_requests`].
    Request,
    /// Nothing: time of a run.
    Raw,
}

/// Attribution of a stack's time to functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The innermost function of the program. Time in the kernel, the C library and the language's
    /// runtime counts for the program's function that called them. Each nanosecond counts once.
    #[default]
    Program,
    /// The innermost function, whatever it is. Each nanosecond counts once.
    Own,
    /// Every function on the stack; recursion counts once.
    Total,
}

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The time to compare.
    pub view: View,
    /// Treatment of idle time.
    pub idle: Idle,
    /// Divisor of the values.
    pub normal: Normal,
    /// Attribution of time to functions.
    pub metric: Metric,
    /// Requests of each base run, for [`Normal::Request`].
    pub base_requests: Vec<f64>,
    /// Requests of each new run.
    pub new_requests: Vec<f64>,
    /// Whether these were counted while recording ([`served`]), and not by the user.
    pub requests_served: bool,
    /// The false discovery rate: the accepted share of reported functions that did not change.
    pub fdr: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            view: View::Wall,
            idle: Idle::default(),
            normal: Normal::default(),
            metric: Metric::default(),
            base_requests: Vec::new(),
            new_requests: Vec::new(),
            requests_served: false,
            fdr: 0.01,
        }
    }
}
