//! Prometheus' protobuf form: messages `io.prometheus.client.MetricFamily`, each after its length.
//!
//! Field numbers: `io/prometheus/client/metrics.proto` of `prometheus/client_model`. Histograms are written
//! with classic and native buckets; the scraper takes those that it is configured for.

use prost::Message as _;

use super::family::{Family, Lengths, MetricKind, Sample, Value, printable};

/// Lengths in seconds of this and less count as zero: client libraries' default, far below a nanosecond.
const ZERO: f64 = 2.938_735_877_055_719e-39; // 2^-128

#[derive(Clone, PartialEq, prost::Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// The messages `Gauge` and `Counter`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
}

/// Buckets without a gap.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct BucketSpan {
    /// Buckets between the last span's end and this one; of the first span, its first bucket.
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

/// The families, each after its length; those without samples are left out.
pub(super) fn bytes(families: &[Family]) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families.iter().filter(|f| !f.samples.is_empty()) {
        out.extend(message(family).encode_length_delimited_to_vec());
    }
    out
}

fn message(family: &Family) -> MetricFamily {
    let kind = match family.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    };
    MetricFamily {
        name: format!("{}{}", family.name, family.ending()),
        help: family.help.to_owned(),
        kind: Some(kind.into()),
        metric: family.samples.iter().map(|s| metric(kind, s)).collect(),
    }
}

fn metric(kind: MetricType, sample: &Sample) -> Metric {
    let label = |(name, value): &(&str, String)| LabelPair {
        name: (*name).to_owned(),
        value: printable(value),
    };
    let mut metric = Metric {
        label: sample.labels.iter().map(label).collect(),
        ..Metric::default()
    };
    let value = match &sample.value {
        Value::Ns(ns) => *ns as f64 / 1e9,
        Value::Whole(n) => *n as f64,
        Value::Number(n) => *n,
        Value::Lengths(lengths) => {
            metric.histogram = Some(histogram(lengths));
            return metric;
        }
    };
    let number = Some(Number { value: Some(value) });
    match kind {
        MetricType::Counter => metric.counter = number,
        MetricType::Gauge | MetricType::Histogram => metric.gauge = number,
    }
    metric
}

fn histogram(lengths: &Lengths) -> Histogram {
    let classic = |(le, n): &(u64, f64)| Bucket {
        cumulative_count: Some(whole(*n)),
        upper_bound: Some(*le as f64 / 1e9),
    };
    let (positive_span, positive_delta) = spans(lengths);
    Histogram {
        // Native buckets have to sum to it.
        sample_count: Some(lengths.native.values().copied().map(whole).sum()),
        sample_sum: Some(lengths.sum_ns as f64 / 1e9),
        bucket: lengths.classic.iter().map(classic).collect(),
        schema: Some(lengths.schema),
        zero_threshold: Some(ZERO),
        zero_count: Some(0),
        positive_span,
        positive_delta,
    }
}

/// Native buckets: runs without a gap, and the growth of each count over the one before it.
fn spans(lengths: &Lengths) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<(i32, u32)>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (index, count) in &lengths.native {
        match spans.last_mut() {
            Some((_, length)) if *index == next => *length += 1,
            _ => spans.push((index - next, 1)),
        }
        let count = whole(*count) as i64;
        deltas.push(count - before);
        (next, before) = (index + 1, count);
    }
    let span = |(offset, length): (i32, u32)| BucketSpan {
        offset: Some(offset),
        length: Some(length),
    };
    (spans.into_iter().map(span).collect(), deltas)
}

/// A number of intervals.
fn whole(n: f64) -> u64 {
    n.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_buckets_are_runs_of_differences() {
        let lengths = Lengths {
            native: [(-3, 2.0), (-2, 5.0), (1, 1.0)].into(),
            ..Lengths::default()
        };
        let (spans, deltas) = spans(&lengths);
        let spans: Vec<_> = spans.iter().map(|s| (s.offset(), s.length())).collect();
        assert_eq!(spans, [(-3, 2), (2, 1)]);
        assert_eq!(deltas, [2, 3, -4]);
        assert_eq!(histogram(&lengths).sample_count, Some(8));
    }
}
