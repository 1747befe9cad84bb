//! The text of gprof → recording.
//!
//! Its flat profile says what each function took by itself, in hundredths of a second, sampled;
//! its call graph who called whom and how often, counted. What a call cost is gprof's own guess:
//! it takes each call of a function to cost the same.

use rustc_hash::FxHashMap;
use wallscope_model::{Limit, Unit};

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

/// Seconds with two decimals → nanoseconds.
fn time(text: &str) -> Option<u64> {
    let v: f64 = text.parse().ok()?;
    (v.is_finite() && (0.0..1e9).contains(&v)).then_some((v * 1e9).round() as u64)
}

/// Reads gprof's text.
pub(super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut graph = CallGraph::new(memory);
    let mut ids: FxHashMap<String, u32> = FxHashMap::default();
    let mut node = |name: &str, graph: &mut CallGraph| -> Result<u32, ReadError> {
        // A function's index, and the cycle it is in, follow its name.
        let mut name = name.trim();
        if let Some((before, number)) = name.rsplit_once(" [")
            && number
                .trim_end_matches(']')
                .bytes()
                .all(|c| c.is_ascii_digit())
        {
            name = before.trim();
        }
        if let Some((before, _)) = name.split_once(" <cycle ") {
            name = before.trim();
        }
        if let Some(id) = ids.get(name) {
            return Ok(*id);
        }
        let id = graph.node(Node {
            name: name.to_string(),
            ..Node::default()
        })?;
        ids.insert(name.to_string(), id);
        Ok(id)
    };
    let mut lines = text.lines();
    let mut interval = "";
    // The flat profile: %, cumulative, self, then calls and two more where known, then the name.
    for line in lines.by_ref() {
        if let Some(rest) = line.strip_prefix("Each sample counts as ") {
            interval = rest.trim_end_matches('.').trim();
        }
        if line.contains("Call graph") || line.contains("Index by function name") {
            break;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers = words
            .iter()
            .take_while(|w| w.parse::<f64>().is_ok())
            .count();
        if numbers < 3 || numbers >= words.len() {
            continue;
        }
        let Some(own) = time(words[2]) else { continue };
        let name = words[numbers..].join(" ");
        let id = node(&name, &mut graph)?;
        graph.own(id, own);
        if numbers >= 4 {
            graph.called(id, words[3].parse().unwrap_or(0));
        }
    }
    // The call graph: blocks of callers, the function itself (`[1]` in front), what it calls.
    let mut block: Vec<(Option<u32>, u64, u64)> = Vec::new();
    let mut primary: Option<u32> = None;
    for line in lines {
        if line.starts_with("Index by function name") {
            break;
        }
        if line.starts_with("-----") {
            block.clear();
            primary = None;
            continue;
        }
        if line.starts_with('[') {
            let rest = line.split_whitespace().skip(2);
            let words: Vec<&str> = rest.collect();
            let numbers = words
                .iter()
                .take_while(|w| w.parse::<f64>().is_ok() || w.contains(['/', '+']))
                .count();
            if numbers < 2 || numbers >= words.len() {
                continue;
            }
            let id = node(&words[numbers..].join(" "), &mut graph)?;
            primary = Some(id);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(from), Some(own), Some(below)) = (
            primary,
            words.first().and_then(|w| time(w)),
            words.get(1).and_then(|w| time(w)),
        ) else {
            continue;
        };
        let Some(count) = words.get(2) else { continue };
        if words.len() < 4 || !count.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let calls = count
            .split(['/', '+'])
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let to = node(&words[3..].join(" "), &mut graph)?;
        graph.call(from, to, calls, own + below);
    }
    let mut to = Import::new(memory);
    let notes = graph.stacks(&mut to)?;
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let about = About {
        tool: "gprof".to_string(),
        format: "gprof's text".to_string(),
        values: format!("gprof's samples, each {interval}"),
        unit: Unit::Nanoseconds,
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
