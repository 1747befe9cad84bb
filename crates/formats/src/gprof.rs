//! The text of GNU gprof → recording.
//!
//! Known is its default form, with or without explanations, in UTF-8 or UTF-16: a flat profile under
//! "Flat profile:" and a call graph. BSD's form (`-T`) and the raw `gmon.out` are refused by name.
//!
//! The flat profile has each function's own time, sampled; the call graph has callers, counted. The
//! cost of a call is gprof's own estimate: it assumes that all calls of a function cost the same. gprof joins
//! functions that call each other (`<cycle 1 as a whole>`): calls from outside lead to the cycle, and the cycle
//! calls its functions. A histogram in another unit than seconds is read as counts of that unit.

use rustc_hash::FxHashMap;
use wallscope_model::{FrameKind, Limit, Unit};

use super::call_graph::{CallGraph, Node};
use super::import::{About, Import};
use super::source::Source;
use super::{Options, Read, ReadError};

/// Whether it is gprof's text.
pub(super) fn detect(head: &[u8]) -> bool {
    let start = &head[..head.len().min(4096)];
    let has = |t: &[u8]| memchr::memmem::find(start, t).is_some();
    has(b"Flat profile:") && has(b"Each sample counts as")
}

/// A figure of seconds → nanoseconds; of another unit, billionths of it.
fn time(text: &str) -> Option<u64> {
    text.starts_with(|c: char| c.is_ascii_digit())
        .then_some(())?;
    let v: f64 = text.parse().ok()?;
    (v.is_finite() && (0.0..1e9).contains(&v)).then_some((v * 1e9).round() as u64)
}

/// The unit of the histogram, from `Each sample counts as 0.01 seconds.`.
fn unit(interval: &str) -> Unit {
    match interval.split_whitespace().nth(1) {
        Some("seconds" | "second" | "s") => Unit::Nanoseconds,
        Some(other) => Unit::Count(format!("1e-9 {other}")),
        None => Unit::Count("1e-9 units".to_string()),
    }
}

/// Whether a word is a figure; functions may be called `inf` or `nan`.
fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.parse::<f64>().is_ok()
}

fn function(name: &str) -> Node {
    Node {
        name: name.to_string(),
        module: String::new(),
        file: String::new(),
        line: 0,
        kind: FrameKind::Native,
    }
}

/// Functions by their names, and the costs of calls.
struct Reader<'t> {
    graph: CallGraph,
    ids: FxHashMap<&'t str, u32>,
    /// The sentence about the sampling interval: `0.01 seconds`.
    interval: &'t str,
}

/// Reads gprof's text.
pub(super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut reader = Reader {
        graph: CallGraph::new(memory),
        ids: FxHashMap::default(),
        interval: "",
    };
    let mut lines = text.lines();
    reader.flat(&mut lines)?;
    reader.calls(&mut lines)?;
    let mut to = Import::new(memory);
    let notes = reader.graph.stacks(&mut to)?;
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let about = About {
        tool: "gprof".to_string(),
        format: "gprof's text".to_string(),
        values: format!("gprof's samples, each {}", reader.interval),
        unit: unit(reader.interval),
        limits: vec![
            super::instrumented(
                "gprof",
                "its own samples of the program as slowed by counting",
            ),
            Limit {
                what: "stacks are made from calls between pairs of functions, each call taken to \
                       cost the same: only own times are measured"
                    .to_string(),
                remedy: String::new(),
            },
        ],
        notes,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), Vec::new()))
}

/// The function's name without its index and the cycle it is in.
fn bare(name: &str) -> &str {
    let mut name = name.trim();
    if let Some((before, number)) = name.rsplit_once(" [")
        && number
            .trim_end_matches(']')
            .bytes()
            .all(|c| c.is_ascii_digit())
    {
        name = before.trim();
    }
    match name.split_once(" <cycle ") {
        Some((before, _)) => before.trim(),
        None => name,
    }
}

/// The cycle that a function is in, or that the name denotes: `1` of `ping <cycle 1>` and of
/// `<cycle 1 as a whole>`.
fn cycle(name: &str) -> Option<&str> {
    let (_, rest) = name.rsplit_once("<cycle ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(&rest[..digits])
}

/// The rest of a line from its word number `from` on.
fn rest<'t>(line: &'t str, words: &[&'t str], from: usize) -> &'t str {
    let at = words[from].as_ptr() as usize - line.as_ptr() as usize;
    &line[at..]
}

impl<'t> Reader<'t> {
    fn node(&mut self, name: &'t str) -> Result<u32, ReadError> {
        let name = bare(name);
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        let id = self.graph.node(function(name))?;
        self.ids.insert(name, id);
        Ok(id)
    }

    /// The flat profile: %, cumulative, self, then calls and two more where known, then the name.
    fn flat(&mut self, lines: &mut std::str::Lines<'t>) -> Result<(), ReadError> {
        for line in lines {
            if let Some(rest) = line.strip_prefix("Each sample counts as ") {
                self.interval = rest.trim().trim_end_matches('.').trim();
            }
            if line.contains("Call graph") || line.contains("Index by function name") {
                break;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers = words.iter().take_while(|w| is_number(w)).count();
            if numbers < 3 || numbers >= words.len() {
                continue;
            }
            let Some(own) = time(words[2]) else { continue };
            let id = self.node(rest(line, &words, numbers))?;
            self.graph.own(id, own);
            if numbers >= 4 {
                self.graph.called(id, words[3].parse().unwrap_or(0));
            }
        }
        Ok(())
    }

    /// The call graph: blocks of callers, the function itself (`[1]` in front), its callees.
    fn calls(&mut self, lines: &mut std::str::Lines<'t>) -> Result<(), ReadError> {
        let mut primary: Option<(u32, Option<&str>)> = None;
        for line in lines {
            if line.starts_with("Index by function name") {
                break;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            if line.starts_with("-----") {
                primary = None;
            } else if line.starts_with('[') {
                // Index and share stand before the times.
                let numbers = words.iter().skip(2);
                let numbers = numbers.take_while(|w| is_number(w) || w.contains(['/', '+']));
                let name = 2 + numbers.count();
                if (4..words.len()).contains(&name) {
                    let name = rest(line, &words, name);
                    primary = Some((self.node(name)?, cycle(name)));
                }
            } else if let Some(from) = primary {
                self.callee(from, line, &words)?;
            }
        }
        Ok(())
    }

    /// A line of a callee: self, children, calls of how many, name.
    fn callee(
        &mut self,
        (from, own_cycle): (u32, Option<&str>),
        line: &'t str,
        words: &[&'t str],
    ) -> Result<(), ReadError> {
        let [own, below, count, _, ..] = words else {
            return Ok(());
        };
        let (Some(own), Some(below)) = (time(own), time(below)) else {
            return Ok(());
        };
        if !count.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(());
        }
        let calls = count.split(['/', '+']).next();
        let calls = calls.and_then(|n| n.parse().ok()).unwrap_or(0);
        let name = rest(line, words, 3);
        // The times of a call into a cycle belong to the cycle.
        let to = match cycle(name).filter(|n| own_cycle != Some(*n)) {
            Some(n) => self
                .graph
                .node(function(&format!("<cycle {n} as a whole>")))?,
            None => self.node(name)?,
        };
        self.graph.call(from, to, calls, own + below);
        Ok(())
    }
}
