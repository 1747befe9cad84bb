//! Recording → Perfetto's trace (protobuf), for ui.perfetto.dev: threads by process, and their
//! samples with stacks; where single intervals were kept, each as a slice of its thread.
//!
//! A recording has the number of samples of a stack in each time slice, but not their times. They are spread
//! evenly over the slice, and a note says so.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, Recording, Sample, State};

use super::WriteOptions;
use super::export_model::{RowThread, Rows, WrittenRow, left_out};
use super::intervals::{IntervalKind, Intervals};
use super::wire::Writer;

/// The one sequence of packets that interned names belong to.
const SEQUENCE: u64 = 1;
/// Maximum samples that are written; more are thinned out evenly.
const MAX_SAMPLES: u64 = 2_000_000;

/// Field numbers (`perfetto/trace`).
mod field {
    pub const PACKET: u32 = 1;
    pub mod packet {
        pub const TIMESTAMP: u32 = 8;
        pub const SEQUENCE: u32 = 10;
        pub const TRACK_EVENT: u32 = 11;
        pub const INTERNED: u32 = 12;
        pub const FLAGS: u32 = 13;
        pub const DESCRIPTOR: u32 = 60;
        pub const PERF_SAMPLE: u32 = 66;
    }
    pub mod event {
        pub const TYPE: u32 = 9;
        pub const NAME: u32 = 10;
        pub const TRACK: u32 = 11;
        pub const SLICE_BEGIN: u64 = 1;
        pub const SLICE_END: u64 = 2;
    }
    pub mod interned {
        pub const EVENT_NAMES: u32 = 2;
        pub const FUNCTION_NAMES: u32 = 5;
        pub const FRAMES: u32 = 6;
        pub const CALLSTACKS: u32 = 7;
        pub const MAPPING_PATHS: u32 = 17;
        pub const MAPPINGS: u32 = 19;
    }
}

struct Out<'w> {
    to: &'w mut dyn Write,
}

impl Out<'_> {
    fn packet(&mut self, packet: &Writer) -> io::Result<()> {
        let mut w = Writer::default();
        w.bytes(field::PACKET, &packet.bytes);
        self.to.write_all(&w.bytes)
    }

    /// A slice of a track; `name` is the number of an interned one.
    fn slice(&mut self, track: u64, name: u64, start: u64, end: u64) -> io::Result<()> {
        use field::event as e;
        for (kind, time) in [(e::SLICE_BEGIN, start), (e::SLICE_END, end)] {
            let mut event = Writer::default();
            event.number(e::TYPE, kind);
            if kind == e::SLICE_BEGIN {
                event.number(e::NAME, name);
            }
            event.number(e::TRACK, track);
            let mut p = Writer::default();
            p.number(field::packet::TIMESTAMP, time);
            p.number(field::packet::SEQUENCE, SEQUENCE);
            p.number(field::packet::FLAGS, 2);
            p.bytes(field::packet::TRACK_EVENT, &event.bytes);
            self.packet(&p)?;
        }
        Ok(())
    }
}

/// Writes one view.
pub(super) fn write(
    rec: &Recording,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, options.view);
    let mut out = Out { to: out };
    let intervals = Intervals::of(rec);
    let kinds = intervals.as_ref().map(Intervals::kinds).unwrap_or_default();
    let titles = kinds.keys().map(|what| what.title());
    interned(&rows, titles, &mut out)?;
    threads(rec, &mut out)?;
    let total: u64 = rec.samples.iter().map(|s| s.count).sum();
    let mut samples = Samples {
        thin: total.div_ceil(MAX_SAMPLES).max(1),
        skip: 0,
        written: 0,
        out: &mut out,
    };
    samples.put_all(rec, &rows)?;
    let (thin, written) = (samples.thin, samples.written);
    if let Some(intervals) = &intervals {
        for c in 0..rec.contexts.len() {
            let track = 2 * c as u64 + 2;
            for i in intervals.of_context(ContextId(c as u32)) {
                let kind = kinds.get(&IntervalKind::of(i)).copied().unwrap_or(0);
                out.slice(track, kind + 1, i.start_ns, i.end_ns())?;
            }
        }
    }
    out.to.flush()?;
    let mut lost = left_out(
        rec,
        &[
            "values of samples (each counts as one there) and exact totals",
            match intervals {
                Some(_) => "states and reasons of samples (the slices have them) and wakers",
                None => "states and reasons",
            },
            "moments within a time slice (samples are spread evenly over it)",
        ],
    );
    lost.extend(intervals.and_then(|i| i.note()));
    if thin > 1 {
        lost.push(format!(
            "{written} of {total} samples were written, evenly chosen"
        ));
    }
    Ok(lost)
}

/// Threads and their processes, as tracks.
fn threads(rec: &Recording, out: &mut Out) -> io::Result<()> {
    let names: FxHashMap<u32, &str> = rec.processes.iter().map(|p| (p.pid, &*p.name)).collect();
    for (i, c) in rec.contexts.iter().enumerate() {
        let mut thread = Writer::default();
        thread.number(1, u64::from(c.pid));
        thread.number(2, u64::from(c.tid));
        thread.bytes(5, c.name.as_bytes());
        let mut process = Writer::default();
        process.number(1, u64::from(c.pid));
        process.bytes(6, names.get(&c.pid).unwrap_or(&"").as_bytes());
        for (id, kind, of) in [(2 * i + 1, 3, &process), (2 * i + 2, 4, &thread)] {
            let mut descriptor = Writer::default();
            descriptor.number(1, id as u64);
            descriptor.bytes(kind, &of.bytes);
            let mut p = Writer::default();
            p.number(field::packet::SEQUENCE, SEQUENCE);
            p.bytes(field::packet::DESCRIPTOR, &descriptor.bytes);
            out.packet(&p)?;
        }
    }
    Ok(())
}

/// Samples of a row within a stretch of time.
struct Stretch {
    start: u64,
    width: u64,
    count: u64,
}

/// Samples while they are written.
struct Samples<'o, 'w> {
    /// One in this many samples is written.
    thin: u64,
    /// Samples so far.
    skip: u64,
    /// Samples written so far.
    written: u64,
    out: &'o mut Out<'w>,
}

impl Samples<'_, '_> {
    fn put_all(&mut self, rec: &Recording, rows: &Rows) -> io::Result<()> {
        for (thread, rows) in rows.by_context() {
            for r in rows {
                let Some(sample) = r.sample.and_then(|s| rec.samples.get(s as usize)) else {
                    continue;
                };
                if r.count == 0 {
                    continue;
                }
                let packet = packet_of(&thread, &r, sample);
                if sample.slices.is_empty() {
                    let w = &rec.window;
                    let whole = Stretch {
                        start: w.start_ns,
                        width: w.end_ns.saturating_sub(w.start_ns),
                        count: sample.count,
                    };
                    self.put(&packet, &whole)?;
                }
                let slices = &rec.slices;
                for v in &sample.slices {
                    let slice = Stretch {
                        start: slices.start_ns + u64::from(v.slice) * slices.width_ns,
                        width: slices.width_ns,
                        count: v.count,
                    };
                    self.put(&packet, &slice)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the samples of a stretch, evenly spread over it.
    fn put(&mut self, sample: &Writer, s: &Stretch) -> io::Result<()> {
        for i in 0..s.count {
            self.skip += 1;
            if !self.skip.is_multiple_of(self.thin) {
                continue;
            }
            let at = u128::from(s.width) * u128::from(2 * i + 1) / u128::from(2 * s.count);
            let mut p = Writer::default();
            p.number(field::packet::TIMESTAMP, s.start + at as u64);
            p.number(field::packet::SEQUENCE, SEQUENCE);
            // Needs the interned names.
            p.number(field::packet::FLAGS, 2);
            p.bytes(field::packet::PERF_SAMPLE, &sample.bytes);
            self.out.packet(&p)?;
            self.written += 1;
        }
        Ok(())
    }
}

/// The part of a sample's packet that does not depend on its time.
fn packet_of(thread: &RowThread<'_>, r: &WrittenRow<'_>, sample: &Sample) -> Writer {
    let mut s = Writer::default();
    if let Some(cpu) = sample.cpu {
        s.number(1, u64::from(cpu));
    }
    s.number(2, u64::from(thread.context.pid));
    s.number(3, u64::from(thread.context.tid));
    s.number(4, u64::from(r.path_id) + 1);
    // CPU mode: from the reason if it names one. A thread off the CPU is in the kernel.
    let mode = match r.reason {
        Some("kernel") => 1,
        Some("user") => 2,
        _ if r.state == State::OnCpu => 0,
        _ => 1,
    };
    s.number(5, mode);
    s
}

/// Names, frames and stacks, by number from 1.
fn interned(rows: &Rows, titles: impl Iterator<Item = String>, out: &mut Out) -> io::Result<()> {
    use field::interned as f;
    let named = |id: u64, name: &str| {
        let mut w = Writer::default();
        w.number(1, id);
        w.bytes(2, name.as_bytes());
        w.bytes
    };
    let mut data = Writer::default();
    for (id, title) in (1..).zip(titles) {
        data.bytes(f::EVENT_NAMES, &named(id, &title));
    }
    let mut modules: FxHashMap<String, u64> = FxHashMap::default();
    for (id, info) in (1..).zip(rows.functions()) {
        let name = format!("{}{}", info.name, info.suffix);
        data.bytes(f::FUNCTION_NAMES, &named(id, &name));
        let next = modules.len() as u64 + 1;
        let module = *modules.entry(info.module.to_string()).or_insert(next);
        if module == next {
            data.bytes(f::MAPPING_PATHS, &named(module, &info.module));
            let mut w = Writer::default();
            w.number(1, module);
            w.number(7, module);
            data.bytes(f::MAPPINGS, &w.bytes);
        }
        let mut frame = Writer::default();
        frame.number(1, id);
        frame.number(2, id);
        frame.number(3, module);
        data.bytes(f::FRAMES, &frame.bytes);
    }
    for (id, path) in (1..).zip(rows.paths()) {
        let mut w = Writer::default();
        w.number(1, id);
        // Root first, and one field each: readers of this message expect no packing.
        for step in path {
            w.number(2, u64::from(step.function) + 1);
        }
        data.bytes(f::CALLSTACKS, &w.bytes);
    }
    let mut p = Writer::default();
    p.number(field::packet::SEQUENCE, SEQUENCE);
    // Names that were interned before do not hold from here on.
    p.number(field::packet::FLAGS, 1);
    p.bytes(field::packet::INTERNED, &data.bytes);
    out.packet(&p)
}
