//! callgrind's files ↔ recording.
//!
//! The format has functions and calls between them, but no stacks: the cost of a function is split
//! over its callers in proportion to what each call cost, level by level from the entry points
//! ([`super::call_graph`]). Own costs of functions come out as `callgrind_annotate` says them, totals
//! nearly so; which caller's caller had how much is an estimate, and the domain says so.
//!
//! One event of the file is read: the one asked for, else the first.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use wallscope_model::{Limit, Recording, Unit};

use super::call_graph::{CallGraph, Node};
use super::import::{About, Import, number};
use super::source::{Source, lines, pieces};
use super::written::{Rows, left_out};
use super::{Options, Read, ReadError, WriteOptions};

/// Whether it is callgrind's.
pub(super) fn detect(head: &[u8]) -> bool {
    if head.starts_with(b"# callgrind format") {
        return true;
    }
    let mut lines = head.split(|c| *c == b'\n').take(40);
    lines.any(|l| l.starts_with(b"events:")) && has(head, b"\nfn=(")
        || head.starts_with(b"version:") && has(head, b"\ncreator:")
        || head.starts_with(b"creator:") && has(head, b"\nfn=")
}

fn has(head: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(head, text).is_some()
}

/// Names by their numbers: `(12) name` defines, `(12)` refers.
#[derive(Default)]
struct Names {
    of: FxHashMap<u64, String>,
}

impl Names {
    fn get(&mut self, text: &str) -> String {
        let numbered = text
            .strip_prefix('(')
            .and_then(|t| t.split_once(')'))
            .and_then(|(n, name)| Some((n.parse().ok()?, name.trim())));
        match numbered {
            Some((n, "")) => self.of.get(&n).cloned().unwrap_or_default(),
            Some((n, name)) => {
                self.of.insert(n, name.to_string());
                name.to_string()
            }
            None => text.trim().to_string(),
        }
    }
}

#[derive(Default)]
struct Reader {
    graph: CallGraph,
    names: [Names; 3],
    /// Object, file and function that costs belong to.
    object: String,
    file: String,
    function: Option<u32>,
    /// The same of the function that is called.
    called_object: Option<String>,
    called_file: Option<String>,
    called: Option<u32>,
    /// How often it is called, if the next line of cost is a call's.
    calls: Option<u64>,
    events: Vec<String>,
    positions: usize,
    chosen: usize,
    asked: Option<String>,
    creator: String,
    command: String,
    junk: u64,
}

/// Reads a file of callgrind.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let mut r = Reader {
        graph: CallGraph::new(memory),
        positions: 1,
        asked: options.value.clone(),
        ..Reader::default()
    };
    pieces(source, 1 << 20, lines, |piece| {
        piece.split(|c| *c == b'\n').try_for_each(|l| r.line(l))
    })?;
    let mut warnings = Vec::new();
    if source.cut() {
        warnings.push("its compressed data ends in the middle: what came before is used".into());
    }
    if r.junk > 0 {
        warnings.push(format!(
            "{} lines could not be read, and were left out",
            r.junk
        ));
    }
    let mut to = Import::new(memory);
    let notes = r.graph.stacks(&mut to)?;
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let event = r.events.get(r.chosen).cloned().unwrap_or_default();
    let mut notes: Vec<String> = notes;
    if r.events.len() > 1 {
        notes.push(format!(
            "the file holds {}: choose with --value EVENT",
            r.events.join(", ")
        ));
    }
    if !r.command.is_empty() {
        notes.push(format!("command: {}", r.command));
    }
    let unit = match event.as_str() {
        "ns" | "nanoseconds" | "wall_ns" => Unit::Nanoseconds,
        "" => Unit::Count("cost".to_string()),
        _ => Unit::Count(event.clone()),
    };
    let about = About {
        tool: r.creator,
        format: "callgrind's".to_string(),
        values: format!("{event}, counted at each function"),
        unit,
        exact: true,
        limits: vec![Limit {
            what:
                "stacks are made from calls between pairs of functions: own costs are the file's, \
                   totals and the shares of longer paths are estimates"
                    .to_string(),
            remedy: String::new(),
        }],
        notes,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), ReadError> {
        let line = line.trim_ascii();
        let Some(first) = line.first() else {
            return Ok(());
        };
        if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'*') {
            return self.cost(line);
        }
        let text = String::from_utf8_lossy(line);
        if let Some((key, value)) = text.split_once('=') {
            return self.set(key, value);
        }
        match text.split_once(':') {
            Some(("events", value)) => {
                self.events = value.split_whitespace().map(str::to_string).collect();
                if let Some(asked) = &self.asked {
                    self.chosen = self.events.iter().position(|e| e == asked).ok_or_else(|| {
                        ReadError::NoSuchValue {
                            asked: asked.clone(),
                            have: self.events.join(", "),
                        }
                    })?;
                }
            }
            Some(("positions", value)) => {
                self.positions = value.split_whitespace().count().clamp(1, 4);
            }
            Some(("creator", value)) => self.creator = value.trim().to_string(),
            Some(("cmd", value)) => self.command = value.trim().to_string(),
            Some(_) => {}
            None if text.starts_with('#') => {}
            None => self.junk += 1,
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ReadError> {
        match key {
            "ob" => self.object = self.names[0].get(value),
            "fl" | "fi" | "fe" => self.file = self.names[1].get(value),
            "fn" => {
                let name = self.names[2].get(value);
                self.function = Some(self.node(&name, &self.object.clone(), &self.file.clone())?);
            }
            "cob" => self.called_object = Some(self.names[0].get(value)),
            "cfi" | "cfl" => self.called_file = Some(self.names[1].get(value)),
            "cfn" => {
                let name = self.names[2].get(value);
                let object = self
                    .called_object
                    .take()
                    .unwrap_or_else(|| self.object.clone());
                let file = self.called_file.take().unwrap_or_else(|| self.file.clone());
                self.called = Some(self.node(&name, &object, &file)?);
            }
            "calls" => {
                let n = value.split_whitespace().next().unwrap_or("0");
                self.calls = Some(n.parse().unwrap_or(0));
            }
            // Jumps cost nothing of their own.
            "jump" | "jcnd" | "jfi" | "jfn" => {}
            _ => self.junk += 1,
        }
        Ok(())
    }

    fn node(&mut self, name: &str, object: &str, file: &str) -> Result<u32, ReadError> {
        let known = |t: &str| {
            if t == "???" {
                String::new()
            } else {
                t.to_string()
            }
        };
        // Some tools mark levels of recursion as functions of their own.
        let name = name
            .split('\'')
            .next()
            .filter(|n| !n.is_empty())
            .unwrap_or(name);
        self.graph.node(Node {
            name: name.to_string(),
            module: known(object),
            file: known(file),
            line: 0,
            python: false,
        })
    }

    /// A line of cost: positions, then the events' values, of which the last may be missing.
    fn cost(&mut self, line: &[u8]) -> Result<(), ReadError> {
        let mut words = line
            .split(|c| *c == b' ')
            .filter(|w| !w.is_empty())
            .skip(self.positions);
        let value = match words.nth(self.chosen) {
            Some(word) => number(word),
            None => Some(0),
        };
        let (Some(value), Some(function)) = (value, self.function) else {
            self.junk += 1;
            self.calls = None;
            return Ok(());
        };
        match (self.calls.take(), self.called.take()) {
            (Some(calls), Some(called)) => self.graph.call(function, called, calls, value),
            _ => self.graph.own(function, value),
        }
        Ok(())
    }
}

/// Writes one view: costs of functions and of the calls between them.
pub(super) fn write(
    rec: &Recording,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, options.view);
    let functions: Vec<_> = rows.functions().collect();
    let mut own: FxHashMap<(u32, u32), u64> = FxHashMap::default();
    let mut calls: FxHashMap<(u32, u32, u32), (u64, u64)> = FxHashMap::default();
    let mut total = 0u64;
    for (_, rows) in rows.by_context() {
        for r in rows {
            total += r.value;
            let Some(leaf) = r.path.last() else { continue };
            *own.entry((leaf.function, leaf.line)).or_default() += r.value;
            let mut met: Vec<(u32, u32, u32)> = Vec::new();
            for pair in r.path.windows(2) {
                let key = (pair[0].function, pair[0].line, pair[1].function);
                // A recursive pair's inclusive cost counts once a stack.
                if !met.contains(&key) {
                    met.push(key);
                    let c = calls.entry(key).or_default();
                    c.0 += r.count;
                    c.1 += r.value;
                }
            }
        }
    }
    let event = match &rec.domain.unit {
        Unit::Nanoseconds => "ns".to_string(),
        other => other.name().replace(char::is_whitespace, "_"),
    };
    writeln!(out, "# callgrind format\nversion: 1")?;
    writeln!(out, "creator: wallscope {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "positions: line\nevents: {event}\nsummary: {total}\n")?;
    let mut own: Vec<_> = own.into_iter().collect();
    let mut calls: Vec<_> = calls.into_iter().collect();
    own.sort_unstable();
    calls.sort_unstable();
    let (mut own, mut calls) = (own.into_iter().peekable(), calls.into_iter().peekable());
    let clean = |t: &str| t.replace(['\n', '\r'], " ");
    let mut said = vec![false; functions.len()];
    let mut name = |f: u32, prefix: &str, out: &mut dyn Write| -> io::Result<()> {
        let info = functions[f as usize];
        let or = |t: &str| {
            if t.is_empty() {
                "???".to_string()
            } else {
                clean(t)
            }
        };
        writeln!(out, "{prefix}ob={}", or(&info.module))?;
        let file = if prefix.is_empty() { "fl" } else { "cfi" };
        writeln!(out, "{file}={}", or(&info.file))?;
        // A name is said once, then referred to by its number.
        if std::mem::replace(&mut said[f as usize], true) {
            writeln!(out, "{prefix}fn=({})", f + 1)
        } else {
            writeln!(
                out,
                "{prefix}fn=({}) {}{}",
                f + 1,
                clean(&info.name),
                info.suffix
            )
        }
    };
    for f in 0..functions.len() as u32 {
        let mut begun = false;
        while let Some(((_, line), value)) = own.next_if(|((g, _), _)| *g == f) {
            if !std::mem::replace(&mut begun, true) {
                name(f, "", out)?;
            }
            writeln!(out, "{line} {value}")?;
        }
        while let Some(((_, line, to), (count, value))) = calls.next_if(|((g, ..), _)| *g == f) {
            if !std::mem::replace(&mut begun, true) {
                name(f, "", out)?;
            }
            name(to, "c", out)?;
            // How often it was called is not known from samples; the format wants a number.
            writeln!(
                out,
                "calls={} {}\n{line} {value}",
                count.max(1),
                functions[to as usize].line
            )?;
        }
        if begun {
            writeln!(out)?;
        }
    }
    writeln!(out, "totals: {total}")?;
    out.flush()?;
    Ok(left_out(
        rec,
        &[
            "stacks (only pairs of caller and called)",
            "states, reasons and threads",
            "time slices",
            "call counts (what stands there are samples)",
        ],
    ))
}
