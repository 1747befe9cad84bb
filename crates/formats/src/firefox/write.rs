//! Recording → a processed profile.

use std::io::{self, Write};
use std::time::Duration;
use wallscope_model::printable::escape_json;

use fxprof_processed_profile as fx;
use rustc_hash::FxHashMap;
use wallscope_model::{Interval, Recording, State, Unit, View};

use super::super::WriteOptions;
use super::super::export_model::{RowThread, Rows, Step, WrittenRow, left_out};
use super::super::intervals::{IntervalKind, Intervals};

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

/// Stacks by number.
type Paths<'r> = FxHashMap<u32, &'r [Step]>;

/// A profile in the making, with the parts that all threads share.
struct Writer<'r> {
    rec: &'r Recording,
    profile: fx::Profile,
    /// Categories by state.
    categories: [fx::CategoryHandle; 4],
    /// Names of functions.
    names: Vec<fx::StringHandle>,
    /// Titles of the kinds of intervals.
    titles: Vec<fx::StringHandle>,
    weights: fx::WeightType,
    /// Value of a weight of one.
    weight_of: u64,
}

impl<'r> Writer<'r> {
    fn new(rec: &'r Recording, rows: &Rows, titles: impl Iterator<Item = String>) -> Self {
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
        let names = (rows.functions())
            .map(|f| profile.intern_string(&format!("{}{}", f.name, f.suffix)))
            .collect();
        let titles = titles.map(|title| profile.intern_string(&title)).collect();
        // Weights are whole numbers, of milliseconds where they are time.
        let (weights, weight_of) = match rec.domain.unit {
            Unit::Nanoseconds => (fx::WeightType::TracingMs, 1_000_000),
            Unit::Bytes => (fx::WeightType::Bytes, 1),
            Unit::Count(_) => (fx::WeightType::Samples, 1),
        };
        Writer {
            rec,
            profile,
            categories,
            names,
            titles,
            weights,
            weight_of,
        }
    }

    fn time(&self, ns: u64) -> fx::Timestamp {
        let since = ns.saturating_sub(self.rec.window.start_ns);
        fx::Timestamp::from_nanos_since_reference(since)
    }

    fn process(&mut self, thread: &RowThread<'_>) -> fx::ProcessHandle {
        let start = self.time(self.rec.window.start_ns);
        self.profile
            .add_process(&thread.process, thread.context.pid, start)
    }

    fn thread(&mut self, process: fx::ProcessHandle, thread: &RowThread<'_>) -> fx::ThreadHandle {
        let c = thread.context;
        let (start, end) = (self.time(c.start_ns), self.time(c.end_ns));
        // The viewer would give a main thread the name of Firefox's.
        let handle = self.profile.add_thread(process, c.tid, start, false);
        self.profile.set_thread_name(handle, &thread.title());
        self.profile.set_thread_end_time(handle, end);
        self.profile
            .set_thread_samples_weight_type(handle, self.weights.clone());
        handle
    }

    /// Adds an interval of a kind.
    fn marker(&mut self, thread: fx::ThreadHandle, kind: u64, i: &Interval) {
        let marker = Stretch {
            name: self.titles[kind as usize],
            category: self.categories[i.state as usize],
        };
        let timing = fx::MarkerTiming::Interval(self.time(i.start_ns), self.time(i.end_ns()));
        self.profile.add_marker(thread, timing, marker);
    }

    /// Adds the samples of a thread, which are in the order of their slices.
    fn samples(&mut self, thread: fx::ThreadHandle, moments: &[Moment], paths: &Paths<'_>) {
        let slices = self.rec.slices;
        let mut stacks: FxHashMap<(u32, State), Option<fx::StackHandle>> = FxHashMap::default();
        let mut carried = 0u64;
        for slice in moments.chunk_by(|a, b| a.slice == b.slice) {
            let (from, width) = match slices.width_ns {
                0 => (self.rec.window.start_ns, self.rec.window.length_ns()),
                width => (slices.start_ns + u64::from(slice[0].slice) * width, width),
            };
            let all: u128 = slice.iter().map(|m| u128::from(m.value)).sum();
            let mut before = 0u128;
            for m in slice {
                let stack = match stacks.get(&(m.path, m.state)) {
                    Some(stack) => *stack,
                    None => {
                        let stack = self.stack(thread, m, paths);
                        stacks.insert((m.path, m.state), stack);
                        stack
                    }
                };
                let at = from + (u128::from(width) * before / all.max(1)) as u64;
                before += u128::from(m.value);
                let cpu = match m.state {
                    State::OnCpu => fx::CpuDelta::from_nanos(m.value),
                    _ => fx::CpuDelta::ZERO,
                };
                // The rest is carried to the next.
                carried += m.value;
                let weight = i32::try_from(carried / self.weight_of).unwrap_or(i32::MAX);
                carried -= weight as u64 * self.weight_of;
                let at = self.time(at);
                self.profile.add_sample(thread, at, stack, cpu, weight);
            }
        }
    }

    fn stack(
        &mut self,
        thread: fx::ThreadHandle,
        m: &Moment,
        paths: &Paths<'_>,
    ) -> Option<fx::StackHandle> {
        let category = self.categories[m.state as usize];
        let steps = paths.get(&m.path).copied().unwrap_or_default();
        let names = &self.names;
        let frames = steps.iter().map(|s| fx::FrameInfo {
            frame: fx::Frame::Label(names[s.function as usize]),
            category_pair: category.into(),
            flags: fx::FrameFlags::empty(),
        });
        self.profile.intern_stack_frames(thread, frames)
    }
}

/// A thread's samples in the order of their slices. A row's value is divided in proportion to the samples of
/// each slice; the sum is exact.
fn moments(rec: &Recording, rows: &[WrittenRow<'_>]) -> Vec<Moment> {
    let mut moments = Vec::new();
    for r in rows {
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
        let (mut before, mut given) = (0u128, 0u64);
        for v in slices {
            before += u128::from(v.ns);
            let upto = (u128::from(r.value) * before / sum) as u64;
            moments.push(moment(v.slice, upto - given));
            given = upto;
        }
    }
    moments.sort_by_key(|m| m.slice);
    moments
}

/// Writes all states.
pub(in super::super) fn write(
    rec: &Recording,
    _: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, View::Wall);
    let intervals = Intervals::of(rec);
    let kinds = intervals.as_ref().map(Intervals::kinds).unwrap_or_default();
    let mut writer = Writer::new(rec, &rows, kinds.keys().map(|what| what.title()));
    let mut processes: FxHashMap<u32, fx::ProcessHandle> = FxHashMap::default();
    for (thread_rows, rows) in rows.by_context() {
        let process = *processes
            .entry(thread_rows.context.pid)
            .or_insert_with(|| writer.process(&thread_rows));
        let thread = writer.thread(process, &thread_rows);
        for i in intervals.iter().flat_map(|i| i.of_context(thread_rows.id)) {
            let kind = kinds.get(&IntervalKind::of(i)).copied().unwrap_or(0);
            writer.marker(thread, kind, i);
        }
        let paths: Paths<'_> = rows.iter().map(|r| (r.path_id, r.path)).collect();
        writer.samples(thread, &moments(rec, &rows), &paths);
    }
    let profile = serde_json::to_string(&writer.profile)?;
    out.write_all(escape_json(&profile).as_bytes())?;
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
