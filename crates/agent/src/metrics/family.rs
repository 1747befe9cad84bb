//! Metric families, as values.

use std::collections::BTreeMap;

/// Kind of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets, sum and count.
    Histogram,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nanoseconds, written as seconds.
    Ns(u64),
    /// A whole number.
    Whole(u64),
    /// Any number.
    Number(f64),
    /// Lengths of intervals.
    Lengths(Box<Lengths>),
}

/// Lengths of intervals, classic and native.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lengths {
    /// Upper bounds of classic buckets, ns, with the number of intervals up to there.
    pub classic: Vec<(u64, f64)>,
    /// Number of intervals.
    pub count: f64,
    /// Their sum, ns.
    pub sum_ns: u64,
    /// Native buckets have a factor of 2 to the power of 2^-schema between their bounds.
    pub schema: i32,
    /// Number of intervals by native bucket. Bucket i holds the seconds above factor^(i-1), up to factor^i.
    pub native: BTreeMap<i32, f64>,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels.
    pub labels: Vec<(&'static str, String)>,
    /// Its value.
    pub value: Value,
}

/// A metric family.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its help.
    pub help: &'static str,
    /// Its samples.
    pub samples: Vec<Sample>,
}

impl Family {
    /// Suffix of the family's name in the names of its series.
    pub(super) fn ending(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        }
    }
}

/// A label's value without characters that a terminal or a page may obey.
pub(super) fn printable(value: &str) -> String {
    let safe = |c: char| match c {
        '\n' => c,
        c if wallscope_model::printable::is_obeyed(c) => '\u{fffd}',
        c => c,
    };
    value.chars().map(safe).collect()
}
