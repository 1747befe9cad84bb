//! callgrind's files ↔ recording.
//!
//! Known is version 1 of the format as Valgrind's manual defines it (callgrind, cachegrind, Xdebug,
//! pprof and others write it): `version:` and `creator:` are optional, `events:` is not; costs are
//! decimal or hexadecimal; parts add up. Another version is refused.
//!
//! The format has functions and calls between them, but no stacks: the cost of a function is split
//! over its callers in proportion to the cost of each call, level by level from the entry points
//! ([`super::call_graph`]). Own costs of functions are those of `callgrind_annotate`, totals nearly
//! so; the cost of a caller's caller is an estimate, and the domain says so.
//!
//! One event of the file is read: the requested one, else the first.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use wallscope_model::{FrameKind, Limit, Recording, Unit};

use super::call_graph::{CallGraph, Node};
use super::export_model::{FunctionInfo, Rows, WrittenRow, left_out};
use super::import::{About, Import, number};
use super::pprof::columns;
use super::source::{Source, lines, pieces};
use super::{Options, Read, ReadError, WriteOptions};

/// Creator of files that we write. They never mark levels of recursion.
const OWN: &str = "wallscope";

/// Whether the file is callgrind's: it has the one header that is not optional, and a function.
pub(super) fn detect(head: &[u8]) -> bool {
    let mut lines = head.split(|c| *c == b'\n');
    head.starts_with(b"# callgrind format")
        || lines.any(|l| l.starts_with(b"events:")) && (has(head, b"\nfn=") || has(head, b"\nfl="))
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
    /// The name; `None` for a number that was not defined.
    fn get(&mut self, text: &str) -> Option<String> {
        let numbered = text
            .strip_prefix('(')
            .and_then(|t| t.split_once(')'))
            .and_then(|(n, name)| Some((n.parse().ok()?, name.trim())));
        match numbered {
            Some((n, "")) => self.of.get(&n).cloned(),
            Some((n, name)) => {
                self.of.insert(n, name.to_string());
                Some(name.to_string())
            }
            None => Some(text.trim().to_string()),
        }
    }
}

/// The function that is called: the parts of its name that lines have given so far.
#[derive(Default)]
struct Called {
    object: Option<String>,
    file: Option<String>,
    function: Option<u32>,
    /// Number of calls, if the next line of cost is that of a call.
    calls: Option<u64>,
}

#[derive(Default)]
struct Reader {
    graph: CallGraph,
    names: [Names; 3],
    /// Object, file and function that costs belong to.
    object: String,
    file: String,
    function: Option<u32>,
    called: Called,
    /// Names of the events of the part that is being read.
    events: Vec<String>,
    positions: usize,
    /// The event that is read: the requested one, or the file's first.
    event: Option<String>,
    /// The event's column in this part; `None`: the part does not have it.
    column: Option<usize>,
    creator: String,
    command: String,
    junk: u64,
    /// Lines of cost in parts without the event.
    without_event: u64,
    /// References to names that were not defined.
    unnamed: u64,
}

/// Reads a file of callgrind.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let mut r = Reader {
        graph: CallGraph::new(memory),
        positions: 1,
        event: options.value.clone(),
        ..Reader::default()
    };
    pieces(source, 1 << 20, lines, |piece| {
        piece.split(|c| *c == b'\n').try_for_each(|l| r.line(l))
    })?;
    let warnings = r.warnings(source.cut());
    let mut to = Import::new(memory);
    let mut notes = r.graph.stacks(&mut to)?;
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    if r.events.len() > 1 {
        notes.push(format!(
            "the file holds {}: choose with --value EVENT",
            r.events.join(", ")
        ));
    }
    if !r.command.is_empty() {
        notes.push(format!("command: {}", r.command));
    }
    let event = r.event.unwrap_or_default();
    let (unit, factor) = unit(&event);
    if factor != 1 {
        to.multiply(factor)?;
    }
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

/// The unit of an event, and the number of units that a value of 1 is. Some tools put the unit behind the name:
/// Xdebug `Time_(10ns)`, pprof `cpu(ms)`. A name alone gives a unit only in our own files.
fn unit(event: &str) -> (Unit, u64) {
    let behind = event.strip_suffix(')').and_then(|e| e.rsplit_once('('));
    let (name, unit) = match behind {
        Some((name, unit)) => (name.trim_end_matches('_'), unit),
        None => match event {
            "" => return (Unit::Count("cost".to_string()), 1),
            "ns" | "nanoseconds" | "wall_ns" => return (Unit::Nanoseconds, 1),
            "bytes" => return (Unit::Bytes, 1),
            _ => return (Unit::Count(event.to_string()), 1),
        },
    };
    let digits = unit.bytes().take_while(u8::is_ascii_digit).count();
    let times = unit[..digits].parse().unwrap_or(1);
    match columns::unit(name, &unit[digits..]) {
        // A suffix that is no unit is a part of the event's name.
        (Unit::Count(_), _) => (Unit::Count(event.to_string()), 1),
        (unit, factor) => (unit, factor.saturating_mul(times)),
    }
}

/// A number, decimal or hexadecimal.
fn cost_number(word: &[u8]) -> Option<u64> {
    match word.strip_prefix(b"0x") {
        Some(hex) => u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok(),
        None => number(word),
    }
}

impl Reader {
    fn warnings(&self, cut: bool) -> Vec<String> {
        let mut out = Vec::new();
        if cut {
            out.push(
                "its compressed data ends in the middle: what came before is used".to_string(),
            );
        }
        let mut say = |n: u64, text: &str| {
            if n > 0 {
                out.push(format!("{n} {text}"));
            }
        };
        say(self.junk, "lines could not be read, and were left out");
        say(
            self.without_event,
            "lines of cost stand in parts without the event that is read, and were left out",
        );
        say(
            self.unnamed,
            "references are to names that the file does not define",
        );
        out
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ReadError> {
        let line = line.trim_ascii();
        let Some(first) = line.first() else {
            return Ok(());
        };
        if first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'*') {
            return self.cost(line);
        }
        let text = String::from_utf8_lossy(line);
        // Keys of headers end with a colon, those of the body with `=`.
        let key = text.find([':', '=']).map(|at| (&text[..at], &text[at..]));
        match key {
            _ if text.starts_with('#') => Ok(()),
            Some((key, rest)) if rest.starts_with('=') => self.set(key, &rest[1..]),
            Some((key, rest)) => self.header(key, &rest[1..]),
            None => {
                self.junk += 1;
                Ok(())
            }
        }
    }

    fn header(&mut self, key: &str, value: &str) -> Result<(), ReadError> {
        match key {
            "version" if value.trim() != "1" => Err(ReadError::UnknownLayout {
                what: format!(
                    "version {} of callgrind's format (1 is known)",
                    value.trim()
                ),
            }),
            "events" => {
                self.events = value.split_whitespace().map(str::to_string).collect();
                self.choose()
            }
            "positions" => {
                self.positions = value.split_whitespace().count().clamp(1, 4);
                Ok(())
            }
            "creator" => {
                self.creator = value.trim().to_string();
                Ok(())
            }
            "cmd" => {
                self.command = value.trim().to_string();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Finds the event that is read among those of this part.
    fn choose(&mut self) -> Result<(), ReadError> {
        let known = self.column.is_some() || self.without_event > 0;
        let Some(event) = &self.event else {
            self.event = self.events.first().cloned();
            self.column = Some(0);
            return Ok(());
        };
        self.column = self.events.iter().position(|e| e == event);
        match self.column {
            None if !known => Err(ReadError::NoSuchValue {
                asked: event.clone(),
                have: self.events.join(", "),
            }),
            _ => Ok(()),
        }
    }

    fn name(&mut self, table: usize, text: &str) -> String {
        self.names[table].get(text).unwrap_or_else(|| {
            self.unnamed += 1;
            format!("[name {}]", text.trim())
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ReadError> {
        match key {
            "ob" => self.object = self.name(0, value),
            "fl" | "fi" | "fe" => self.file = self.name(1, value),
            "fn" => {
                let name = self.name(2, value);
                self.function = Some(self.node(&name, &self.object.clone(), &self.file.clone())?);
            }
            "cob" => self.called.object = Some(self.name(0, value)),
            "cfi" | "cfl" => self.called.file = Some(self.name(1, value)),
            "cfn" => {
                let name = self.name(2, value);
                let object = self.called.object.take();
                let object = object.unwrap_or_else(|| self.object.clone());
                let file = self.called.file.take();
                let file = file.unwrap_or_else(|| self.file.clone());
                self.called.function = Some(self.node(&name, &object, &file)?);
            }
            "calls" => {
                let n = value.split_whitespace().next().unwrap_or("0");
                self.called.calls = Some(cost_number(n.as_bytes()).unwrap_or(0));
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
        let name = if self.creator.starts_with(OWN) {
            name
        } else {
            without_recursion(name)
        };
        // Suffixes for the kind of code, from our own files and from files made of folded stacks.
        let (name, kind) = match name.strip_suffix("_[k]") {
            Some(name) => (name, FrameKind::Kernel),
            None => match name.strip_suffix("_[j]") {
                Some(name) => (name, FrameKind::Jit),
                None => (name, FrameKind::Native),
            },
        };
        self.graph.node(Node {
            name: name.to_string(),
            module: known(object),
            file: known(file),
            line: 0,
            kind,
        })
    }

    /// A line of cost: positions, then the events' values, of which the last may be missing.
    fn cost(&mut self, line: &[u8]) -> Result<(), ReadError> {
        let calls = (self.called.calls.take(), self.called.function.take());
        let Some(column) = self.column else {
            self.without_event += 1;
            return Ok(());
        };
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|w| !w.is_empty())
            .skip(self.positions);
        let value = match words.nth(column) {
            Some(word) => cost_number(word),
            None => Some(0),
        };
        match (value, self.function, calls) {
            (Some(value), Some(function), (Some(calls), Some(called))) => {
                self.graph.call(function, called, calls, value);
            }
            (Some(value), Some(function), _) => self.graph.own(function, value),
            _ => self.junk += 1,
        }
        Ok(())
    }
}

/// A name without the level of recursion that callgrind puts behind it: `'` and digits.
fn without_recursion(name: &str) -> &str {
    match name.rsplit_once('\'') {
        Some((function, level))
            if !function.is_empty()
                && !level.is_empty()
                && level.bytes().all(|c| c.is_ascii_digit()) =>
        {
            function
        }
        _ => name,
    }
}

/// Costs of functions and of the calls between them.
#[derive(Default)]
struct Costs {
    /// Value of each function's own lines: function, line.
    own: FxHashMap<(u32, u32), u64>,
    /// Samples and value of calls: caller, its line, called function.
    calls: FxHashMap<(u32, u32, u32), (u64, u64)>,
    total: u64,
}

impl Costs {
    fn of(rows: &Rows) -> Costs {
        let mut costs = Costs::default();
        for (_, rows) in rows.by_context() {
            for r in &rows {
                costs.add(r);
            }
        }
        costs
    }

    fn add(&mut self, r: &WrittenRow<'_>) {
        self.total += r.value;
        let Some(leaf) = r.path.last() else { return };
        *self.own.entry((leaf.function, leaf.line)).or_default() += r.value;
        let mut met: Vec<(u32, u32, u32)> = Vec::new();
        for pair in r.path.windows(2) {
            let key = (pair[0].function, pair[0].line, pair[1].function);
            // The inclusive cost of a recursive pair counts once per stack.
            if !met.contains(&key) {
                met.push(key);
                let c = self.calls.entry(key).or_default();
                c.0 += r.count;
                c.1 += r.value;
            }
        }
    }
}

/// Functions by number. A name is written once, and then referred to by its number.
struct FunctionNames<'a> {
    functions: Vec<&'a FunctionInfo>,
    said: Vec<bool>,
}

impl FunctionNames<'_> {
    /// Names the function; `prefix`: `c` for one that is called.
    fn put(&mut self, f: u32, prefix: &str, out: &mut dyn Write) -> io::Result<()> {
        let clean = |t: &str| t.replace(wallscope_model::printable::is_obeyed, " ");
        let info = self.functions[f as usize];
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
        if std::mem::replace(&mut self.said[f as usize], true) {
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
    }
}

/// Writes one view: costs of functions and of the calls between them.
pub(super) fn write(
    rec: &Recording,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, options.view);
    let costs = Costs::of(&rows);
    let event = match &rec.domain.unit {
        Unit::Nanoseconds => "ns".to_string(),
        other => other.name().replace(char::is_whitespace, "_"),
    };
    let total = costs.total;
    writeln!(out, "# callgrind format\nversion: 1")?;
    writeln!(out, "creator: wallscope {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "positions: line\nevents: {event}\nsummary: {total}\n")?;
    write_functions(&rows, costs, out)?;
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

/// Writes each function with costs: its lines, then its calls.
fn write_functions(rows: &Rows, costs: Costs, out: &mut dyn Write) -> io::Result<()> {
    let functions: Vec<_> = rows.functions().collect();
    let mut names = FunctionNames {
        said: vec![false; functions.len()],
        functions,
    };
    let mut own: Vec<_> = costs.own.into_iter().collect();
    let mut calls: Vec<_> = costs.calls.into_iter().collect();
    own.sort_unstable();
    calls.sort_unstable();
    let (mut own, mut calls) = (own.into_iter().peekable(), calls.into_iter().peekable());
    for f in 0..names.functions.len() as u32 {
        let mut begun = false;
        while let Some(((_, line), value)) = own.next_if(|((g, _), _)| *g == f) {
            if !std::mem::replace(&mut begun, true) {
                names.put(f, "", out)?;
            }
            writeln!(out, "{line} {value}")?;
        }
        while let Some(((_, line, to), (count, value))) = calls.next_if(|((g, ..), _)| *g == f) {
            if !std::mem::replace(&mut begun, true) {
                names.put(f, "", out)?;
            }
            names.put(to, "c", out)?;
            // Samples do not give the number of calls, but the format requires one.
            let declared = names.functions[to as usize].line;
            writeln!(out, "calls={} {declared}\n{line} {value}", count.max(1))?;
        }
        if begun {
            writeln!(out)?;
        }
    }
    Ok(())
}
