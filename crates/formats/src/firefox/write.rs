//! Recording → a processed profile.

use std::io::{self, Write};
use std::time::Duration;
use wallscope_model::printable::escape_json;

use fxprof_processed_profile as fx;
use rustc_hash::FxHashMap;
use wallscope_model::{Recording, State, Unit, View};

use super::super::WriteOptions;
use super::super::intervals::{Intervals, What};
use super::super::written::{Rows, Step, left_out};

/// A sample to be written.
struct Moment {
    slice: u32,
    path: u32,
    state: State,
    value: u64,
}

/// An interval of a timeline. Its name and category tell everything.
struct Stretch {
    name: fx::StringHandle,
    category: fx::CategoryHandle,
}

impl fx::StaticSchemaMarker for Stretch {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "state";
    const DESCRIPTION: Option<&'static str> =
        Some("What the thread did, as counted at each switch");
    const FIELDS: &'static [fx::StaticSchemaMarkerField] = &[];

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.name
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> fx::StringHandle {
        self.name
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// Writes all states.
pub(in super::super) fn write(
    rec: &Recording,
    _: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, View::Wall);
    let start = Duration::from_nanos(rec.window.start_unix_ns);
    let reference = fx::ReferenceTimestamp::from_duration_since_unix_epoch(start);
    let interval = fx::SamplingInterval::from_millis(1);
    let mut profile = fx::Profile::new("wallscope", reference, interval);
    profile.set_symbolicated(true);
    let colours = [
        ("on-CPU", fx::CategoryColor::Yellow),
        ("runnable", fx::CategoryColor::Red),
        ("blocked", fx::CategoryColor::Purple),
        ("unknown", fx::CategoryColor::Gray),
    ];
    let categories = colours.map(|(name, colour)| profile.add_category(name, colour));
    let names: Vec<fx::StringHandle> = (rows.functions())
        .map(|f| profile.intern_string(&format!("{}{}", f.name, f.suffix)))
        .collect();
    let time = |ns: u64| {
        let since = ns.saturating_sub(rec.window.start_ns);
        fx::Timestamp::from_nanos_since_reference(since)
    };
    // Weights are whole numbers, of milliseconds where they are time.
    let (weights, weight_of) = match rec.domain.unit {
        Unit::Nanoseconds => (fx::WeightType::TracingMs, 1_000_000),
        Unit::Bytes => (fx::WeightType::Bytes, 1),
        Unit::Count(_) => (fx::WeightType::Samples, 1),
    };
    let length = rec.window.length_ns();
    let intervals = Intervals::of(rec);
    let kinds = intervals.as_ref().map(Intervals::kinds).unwrap_or_default();
    let titles: Vec<fx::StringHandle> = (kinds.keys())
        .map(|what| profile.intern_string(&what.title()))
        .collect();
    let mut processes: FxHashMap<u32, fx::ProcessHandle> = FxHashMap::default();
    for (thread_rows, rows) in rows.by_context() {
        let c = thread_rows.context;
        let process = *processes.entry(c.pid).or_insert_with(|| {
            profile.add_process(&thread_rows.process, c.pid, time(rec.window.start_ns))
        });
        // A main thread would be called after Firefox's.
        let thread = profile.add_thread(process, c.tid, time(c.start_ns), false);
        profile.set_thread_name(thread, &thread_rows.title());
        profile.set_thread_end_time(thread, time(c.end_ns));
        profile.set_thread_samples_weight_type(thread, weights.clone());
        for i in intervals.iter().flat_map(|i| i.of_context(thread_rows.id)) {
            let kind = kinds.get(&What::of(i)).copied().unwrap_or(0);
            let marker = Stretch {
                name: titles[kind as usize],
                category: categories[i.state as usize],
            };
            let timing = fx::MarkerTiming::Interval(time(i.start_ns), time(i.end_ns()));
            profile.add_marker(thread, timing, marker);
        }
        let mut moments = Vec::new();
        let mut paths: FxHashMap<u32, &[Step]> = FxHashMap::default();
        for r in &rows {
            paths.insert(r.path_id, r.path);
            let slices = r.sample.and_then(|s| rec.samples.get(s as usize));
            let slices = slices.map_or(&[][..], |s| &s.slices);
            let sum: u128 = slices.iter().map(|v| u128::from(v.ns)).sum();
            let moment = |slice: u32, value: u64| Moment {
                slice,
                path: r.path_id,
                state: r.state,
                value,
            };
            if sum == 0 {
                moments.push(moment(0, r.value));
                continue;
            }
            // In proportion to the samples of each slice; the sum is exact.
            let (mut before, mut given) = (0u128, 0u64);
            for v in slices {
                before += u128::from(v.ns);
                let upto = (u128::from(r.value) * before / sum) as u64;
                moments.push(moment(v.slice, upto - given));
                given = upto;
            }
        }
        moments.sort_by_key(|m| m.slice);
        let mut stacks: FxHashMap<(u32, State), Option<fx::StackHandle>> = FxHashMap::default();
        let mut carried = 0u64;
        for slice in moments.chunk_by(|a, b| a.slice == b.slice) {
            let (from, width) = match rec.slices.width_ns {
                0 => (rec.window.start_ns, length),
                width => (
                    rec.slices.start_ns + u64::from(slice[0].slice) * width,
                    width,
                ),
            };
            let all: u128 = slice.iter().map(|m| u128::from(m.value)).sum();
            let mut before = 0u128;
            for m in slice {
                let stack = *stacks.entry((m.path, m.state)).or_insert_with(|| {
                    let category = categories[m.state as usize];
                    let steps = paths.get(&m.path).copied().unwrap_or_default();
                    let frames = steps.iter().map(|s| fx::FrameInfo {
                        frame: fx::Frame::Label(names[s.function as usize]),
                        category_pair: category.into(),
                        flags: fx::FrameFlags::empty(),
                    });
                    profile.intern_stack_frames(thread, frames)
                });
                let at = from + (u128::from(width) * before / all.max(1)) as u64;
                before += u128::from(m.value);
                let cpu = match m.state {
                    State::OnCpu => fx::CpuDelta::from_nanos(m.value),
                    _ => fx::CpuDelta::ZERO,
                };
                // The rest is carried to the next.
                carried += m.value;
                let weight = i32::try_from(carried / weight_of).unwrap_or(i32::MAX);
                carried -= weight as u64 * weight_of;
                profile.add_sample(thread, time(at), stack, cpu, weight);
            }
        }
    }
    out.write_all(escape_json(&serde_json::to_string(&profile)?).as_bytes())?;
    out.flush()?;
    let mut lost = left_out(
        rec,
        &[
            match intervals {
                Some(_) => "reasons of samples (the markers have them) and wakers",
                None => "reasons",
            },
            "the order of stacks within a time slice",
            "files, lines and addresses",
            match rec.domain.unit {
                Unit::Nanoseconds => "times below 1 ms (carried over to the next sample)",
                _ => "what the values are called",
            },
        ],
    );
    lost.extend(intervals.and_then(|i| i.note()));
    Ok(lost)
}
