//! The difference as a pprof file, as `go tool pprof -base` computes it: one sample a stack, values
//! `new − base`, negative where less; `go tool pprof` shows the rest.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;
use wallscope_model::{Recording, State, Unit};

use wallscope_analysis::diff::STATES;
use wallscope_analysis::diff::Stacks;
use wallscope_analysis::diff::{Comparison, Normal};

/// A message of Protocol Buffers under way.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    fn number(&mut self, field: u32, v: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(v);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn packed(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        let mut inner = Message::default();
        values.for_each(|v| inner.varint(v));
        self.bytes(field, &inner.0);
    }
}

#[derive(Default)]
struct Strings {
    all: Vec<String>,
    ids: FxHashMap<String, u64>,
}

impl Strings {
    fn id(&mut self, text: &str) -> u64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.all.len() as u64;
        self.all.push(text.to_string());
        self.ids.insert(text.to_string(), id);
        id
    }
}

/// The states with a value of their own. As in a recording's file, time in no known state is in `wall`
/// only.
fn told() -> impl Iterator<Item = &'static State> {
    STATES.iter().filter(|s| **s != State::Unknown)
}

fn put_samples(stacks: &Stacks, profile: &mut Message) {
    let mut paths: Vec<_> = stacks.paths.iter().collect();
    paths.sort_unstable_by_key(|(path, _)| path.as_slice());
    for (path, [base, new]) in paths {
        let by_state: Vec<f64> = new.iter().zip(base).map(|(n, b)| n - b).collect();
        let wall = by_state.iter().sum::<f64>();
        let values: Vec<i64> = (by_state[..told().count()].iter().chain([&wall]))
            .map(|v| v.round() as i64)
            .collect();
        if values.iter().all(|v| *v == 0) {
            continue;
        }
        let mut sample = Message::default();
        sample.packed(1, path.iter().rev().map(|f| u64::from(*f) + 1));
        sample.packed(2, values.iter().map(|v| *v as u64));
        profile.bytes(2, &sample.0);
    }
}

/// Puts locations and functions, one each a frame, and mappings.
fn put_frames(stacks: &Stacks, strings: &mut Strings, profile: &mut Message) {
    let mut modules: FxHashMap<&str, u64> = FxHashMap::default();
    let mut mappings = Message::default();
    for (id, f) in (1u64..).zip(&stacks.frames) {
        let mapping = if f.module.is_empty() {
            0
        } else {
            let next = modules.len() as u64 + 1;
            *modules.entry(&f.module).or_insert_with(|| {
                let mut m = Message::default();
                m.number(1, next);
                m.number(5, strings.id(&f.module));
                m.number(7, 1);
                mappings.bytes(3, &m.0);
                next
            })
        };
        let mut line = Message::default();
        line.number(1, id);
        let mut location = Message::default();
        location.number(1, id);
        location.number(2, mapping);
        location.bytes(4, &line.0);
        profile.bytes(4, &location.0);
        let name = strings.id(&f.name);
        let mut function = Message::default();
        function.number(1, id);
        function.number(2, name);
        function.number(3, name);
        profile.bytes(5, &function.0);
    }
    profile.0.extend_from_slice(&mappings.0);
}

/// Writes the difference of the recordings that `comparison` was made from.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    comparison: &Comparison,
    base: &[Recording],
    new: &[Recording],
    out: impl Write,
) -> io::Result<()> {
    let stacks = Stacks::of(comparison, base, new);
    let mut strings = Strings::default();
    strings.id("");
    let mut profile = Message::default();
    let unit = match (comparison.options.normal, &comparison.measured) {
        (Normal::Total, _) => "ppb",
        (_, Unit::Nanoseconds) => "nanoseconds",
        (_, Unit::Bytes) => "bytes",
        (_, Unit::Count(_)) => "count",
    };
    let types = told().map(|s| s.name()).chain(["wall"]);
    for name in types {
        let mut kind = Message::default();
        kind.number(1, strings.id(name));
        kind.number(2, strings.id(unit));
        profile.bytes(1, &kind.0);
    }
    put_samples(&stacks, &mut profile);
    put_frames(&stacks, &mut strings, &mut profile);
    let comment = strings.id(&format!(
        "difference new − base, {}, mean of {} and {} runs",
        comparison.about(),
        comparison.runs.1,
        comparison.runs.0
    ));
    profile.number(13, comment);
    let wall = strings.id("wall");
    profile.number(14, wall);
    for text in &strings.all {
        profile.bytes(6, text.as_bytes());
    }
    let mut gzip = GzEncoder::new(out, Compression::new(6));
    gzip.write_all(&profile.0)?;
    gzip.finish()?.flush()
}
