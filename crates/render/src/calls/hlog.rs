//! HdrHistogram's interval log, version 1.3, which its own tools and many others read: an interval for
//! each stretch of time and function, tagged with the function's name. Lengths are in ns.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use wallscope_model::calls::{Calls, Lengths};

/// Lengths are written in this unit of 'Max', ns: the log's columns are milliseconds by convention.
const MAX_UNIT: f64 = 1e6;

/// The log.
///
/// # Errors
/// Errors of `to`.
pub fn hlog(calls: &Calls, to: &mut dyn Write) -> io::Result<()> {
    let mut to = to;
    let mut serializer = V2DeflateSerializer::new();
    let start = UNIX_EPOCH + Duration::from_nanos(calls.start_unix_ns);
    let tool = format!("[Logged by {}; values are nanoseconds]", calls.domain.tool);
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&tool)
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(MAX_UNIT)
        .begin_log_with(&mut to, &mut serializer)?;
    for function in &calls.functions {
        // A tag must not contain separators of the log's fields.
        let name: String = function
            .name
            .chars()
            .map(|c| match c {
                ',' | '\r' | '\n' | ' ' => '_',
                c => c,
            })
            .collect();
        let tag = Tag::new(&name);
        for slice in &function.slices {
            let begin = Duration::from_nanos(slice.start_ns.saturating_sub(calls.start_ns));
            let length = Duration::from_nanos(slice.end_ns.saturating_sub(slice.start_ns));
            let histogram = histogram(&slice.lengths).map_err(io::Error::other)?;
            log.write_histogram(&histogram, begin, length, tag)
                .map_err(|e| io::Error::other(format!("{e:?}")))?;
        }
    }
    Ok(())
}

/// The counts of `lengths` with three significant digits, each at the middle of its bucket.
fn histogram(lengths: &Lengths) -> Result<Histogram<u64>, String> {
    let mut out = Histogram::new(3).map_err(|e| e.to_string())?;
    for (from, to, n) in lengths.parts() {
        let middle = (from + (to - from) / 2).max(1);
        out.record_n(middle, n).map_err(|e| e.to_string())?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use wallscope_model::calls::{CallSlice, FunctionCalls};

    #[test]
    fn what_is_written_is_read_back() {
        let mut slice = CallSlice {
            start_ns: 5_000_000_000,
            end_ns: 6_000_000_000,
            ..CallSlice::default()
        };
        slice.lengths.add(1_000_000, 99);
        slice.lengths.add(50_000_000, 1);
        let calls = Calls {
            start_ns: 4_000_000_000,
            end_ns: 6_000_000_000,
            functions: vec![FunctionCalls {
                name: "f(int, char)".into(),
                slices: vec![slice],
                ..FunctionCalls::default()
            }],
            ..Calls::default()
        };
        let mut bytes = Vec::new();
        hlog(&calls, &mut bytes).unwrap();
        let mut intervals = 0;
        for entry in IntervalLogIterator::new(&bytes) {
            let LogEntry::Interval(interval) = entry.unwrap() else {
                continue;
            };
            intervals += 1;
            assert_eq!(interval.tag().unwrap().as_str(), "f(int__char)");
            assert_eq!(interval.start_timestamp(), Duration::from_secs(1));
            use base64::Engine as _;
            let raw = base64::engine::general_purpose::STANDARD
                .decode(interval.encoded_histogram())
                .unwrap();
            let h: Histogram<u64> = Deserializer::new().deserialize(&mut &raw[..]).unwrap();
            assert_eq!(h.len(), 100);
            let p50 = h.value_at_quantile(0.5) as f64;
            assert!((p50 / 1e6 - 1.0).abs() < 0.01, "{p50}");
            assert!((h.max() as f64 / 5e7 - 1.0).abs() < 0.01);
        }
        assert_eq!(intervals, 1);
    }
}
