//! Python's profiles (`cProfile -o`, `profile`, `pstats.Stats.dump_stats`; `profiling.sampling
//! --pstats` of Python 3.15) → recording.
//!
//! The file is a marshalled dictionary: (file, line, function) → (primitive calls, calls, own time,
//! total time, callers), times in seconds. The parts of Python 2's and 3's marshalling that such files use
//! are known; a file with any other part is refused. Callers have calls and times with cProfile, only calls
//! with `profile`, and numbers of samples if the key `("__sampled__",)` marks a sampled profile.
//!
//! Call counts are exact. The profiler slows the program, most where functions are many and short, so times
//! are too long there; the domain says so.

use wallscope_model::{FrameKind, Unit};

use super::call_graph::{CallGraph, Node};
use super::import::{About, Import};
use super::source::Source;
use super::{Options, Read, ReadError};

/// Whether it begins with a dictionary that begins with a tuple, as such files do.
pub(super) fn detect(head: &[u8]) -> bool {
    let kind = |i: usize| head.get(i).map(|b| b & 0x7f);
    kind(0) == Some(b'{')
        && matches!(kind(1), Some(b')' | b'('))
        // A JSON text may begin with a brace too, but never continues like this.
        && (kind(1) == Some(b')') || head.get(2..6).is_some_and(|n| n[1..] == [0, 0, 0]))
}

/// A marshalled value of the kinds that such files hold.
#[derive(Clone, Debug)]
enum Value {
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    None,
}

/// Maximum depth of nested values: keys are tuples, values hold dictionaries of tuples.
const DEEPEST: usize = 8;

struct Marshal<'a> {
    rest: &'a [u8],
    refs: Vec<Value>,
    /// Interned texts of Python 2, in their order.
    interned: Vec<Value>,
    room: u64,
}

/// Reason for which a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The bytes end.
    End,
    /// A kind of value that such files do not hold, by its code.
    Unknown(u8),
    /// More memory than allowed.
    Room,
    /// A value that is impossible.
    Broken,
}

impl<'a> Marshal<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        let (own, rest) = self.rest.split_at_checked(n).ok_or(Stop::End)?;
        self.rest = rest;
        Ok(own)
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        Ok(self.bytes(1)?[0])
    }

    fn long(&mut self) -> Result<i32, Stop> {
        let b = self.bytes(4)?;
        Ok(i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn length(&mut self) -> Result<usize, Stop> {
        usize::try_from(self.long()?).map_err(|_| Stop::Broken)
    }

    fn text(&mut self, n: usize) -> Result<Value, Stop> {
        let bytes = self.bytes(n)?;
        self.take(bytes.len())?;
        Ok(Value::Text(String::from_utf8_lossy(bytes).into_owned()))
    }

    fn take(&mut self, bytes: usize) -> Result<(), Stop> {
        self.room = self.room.checked_sub(bytes as u64 + 64).ok_or(Stop::Room)?;
        Ok(())
    }

    /// An integer in digits of 15 bits.
    fn long_integer(&mut self) -> Result<i64, Stop> {
        let n = self.long()?;
        let mut v = 0i64;
        for i in 0..n.unsigned_abs() {
            let d = self.bytes(2)?;
            let d = i64::from(u16::from_le_bytes([d[0], d[1]]));
            if i < 4 {
                v |= d << (15 * i);
            }
        }
        Ok(if n < 0 { -v } else { v })
    }

    fn tuple(&mut self, n: usize, depth: usize) -> Result<Value, Stop> {
        let mut items = Vec::new();
        for _ in 0..n {
            items.push(self.value(depth + 1)?.ok_or(Stop::Broken)?);
        }
        Ok(Value::Tuple(items))
    }

    /// The next value; `None` is the end of a dictionary.
    fn value(&mut self, depth: usize) -> Result<Option<Value>, Stop> {
        if depth > DEEPEST {
            return Err(Stop::Broken);
        }
        let code = self.byte()?;
        let referred = code & 0x80 != 0;
        // A value gets its number before its parts get theirs.
        let place = referred.then(|| {
            self.refs.push(Value::None);
            self.refs.len() - 1
        });
        self.take(0)?;
        let value = match code & 0x7f {
            b'0' => return Ok(None),
            b'N' => Value::None,
            b'T' => Value::Int(1),
            b'F' => Value::Int(0),
            b'i' => Value::Int(i64::from(self.long()?)),
            b'I' => {
                let b: [u8; 8] = self.bytes(8)?.try_into().map_err(|_| Stop::End)?;
                Value::Int(i64::from_le_bytes(b))
            }
            b'l' => Value::Int(self.long_integer()?),
            b'g' => {
                let b: [u8; 8] = self.bytes(8)?.try_into().map_err(|_| Stop::End)?;
                Value::Float(f64::from_le_bytes(b))
            }
            b'f' => {
                let n = usize::from(self.byte()?);
                let text = String::from_utf8_lossy(self.bytes(n)?);
                Value::Float(text.parse().map_err(|_| Stop::Broken)?)
            }
            b'z' | b'Z' => {
                let n = usize::from(self.byte()?);
                self.text(n)?
            }
            kind @ (b'a' | b'A' | b'u' | b't' | b's') => {
                let n = self.length()?;
                let text = self.text(n)?;
                // Only Python 2 refers to interned texts, in files that have no other references.
                if kind == b't' && !referred {
                    self.take(size(&text))?;
                    self.interned.push(text.clone());
                }
                text
            }
            kind @ (b'r' | b'R') => {
                let i = self.length()?;
                let list = if kind == b'r' {
                    &self.refs
                } else {
                    &self.interned
                };
                let value = list.get(i).cloned().ok_or(Stop::Broken)?;
                self.take(size(&value))?;
                value
            }
            b')' => {
                let n = usize::from(self.byte()?);
                self.tuple(n, depth)?
            }
            b'(' => {
                let n = self.length()?;
                self.tuple(n, depth)?
            }
            b'{' => {
                let mut items = Vec::new();
                while let Some(key) = self.value(depth + 1)? {
                    items.push((key, self.value(depth + 1)?.ok_or(Stop::Broken)?));
                }
                Value::Dict(items)
            }
            other => return Err(Stop::Unknown(other)),
        };
        if let Some(at) = place {
            self.take(size(&value))?;
            self.refs[at] = value.clone();
        }
        Ok(Some(value))
    }
}

/// Approximate memory of a copy of the value, bytes.
fn size(value: &Value) -> usize {
    match value {
        Value::Text(t) => 32 + t.len(),
        Value::Tuple(items) => 32 + items.iter().map(size).sum::<usize>(),
        Value::Dict(items) => 32 + items.iter().map(|(k, v)| size(k) + size(v)).sum::<usize>(),
        _ => 32,
    }
}

impl Value {
    fn float(&self) -> f64 {
        match self {
            Value::Float(v) => *v,
            Value::Int(v) => *v as f64,
            _ => 0.0,
        }
    }

    fn tuple(&self) -> &[Value] {
        match self {
            Value::Tuple(items) => items,
            _ => &[],
        }
    }
}

fn ns(v: &Value) -> u64 {
    seconds(v.float())
}

/// Seconds → ns. Casts saturate; a negative value and one that is no number are 0.
fn seconds(v: f64) -> u64 {
    (v * 1e9).round().clamp(0.0, 1e18) as u64
}

/// The function that a key names.
fn function(key: &Value) -> Option<Node> {
    let [Value::Text(file), line, Value::Text(name)] = key.tuple() else {
        return None;
    };
    Some(Node {
        name: name.clone(),
        kind: match file.as_str() {
            "~" => FrameKind::Native,
            _ => FrameKind::Python,
        },
        // Built-in functions have the file `~`.
        file: if file == "~" {
            String::new()
        } else {
            file.clone()
        },
        line: line.float() as u32,
        module: String::new(),
    })
}

/// Counts that are kept while entries are read.
#[derive(Default)]
struct Reader {
    functions: u64,
    /// The profile was sampled, and its callers have numbers of samples.
    sampled: bool,
    /// Functions with a time below zero, as a calibrated `profile` writes at times.
    negative: u64,
    /// Number of pairs of caller and callee for which only the number of calls is known.
    untimed: u64,
}

/// Reads a profile of Python.
pub(super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let (entries, cut) = entries(&bytes, memory)?;
    let mut reader = Reader {
        sampled: entries.iter().any(|(key, _)| is_mark(key)),
        ..Reader::default()
    };
    let mut graph = CallGraph::new(memory);
    for (key, value) in entries.iter().filter(|(key, _)| !is_mark(key)) {
        reader.entry(key, value, &mut graph)?;
    }
    if reader.functions == 0 {
        return Err(if cut {
            ReadError::Truncated
        } else {
            ReadError::NoValues
        });
    }
    let mut warnings = Vec::new();
    if cut {
        source.set_cut();
        warnings.push("the file ends in the middle: what came before is used".to_string());
    }
    if reader.negative > 0 {
        warnings.push(format!(
            "{} functions have a time below zero (a calibrated profiler?): it is taken as 0",
            reader.negative
        ));
    }
    let mut to = Import::new(memory);
    let mut notes = graph.stacks(&mut to)?;
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    if reader.untimed > 0 {
        notes.push(format!(
            "{} calls between pairs of functions have no times in the file: the functions called \
             stand without those callers",
            reader.untimed
        ));
    }
    Ok(Read::named(to.finish(about(&reader, notes)), warnings))
}

fn about(reader: &Reader, notes: Vec<String>) -> About {
    let mut limits = vec![wallscope_model::Limit {
        what: "stacks are made from calls between pairs of functions: own times are measured, the \
               shares of longer paths are estimates"
            .to_string(),
        remedy: String::new(),
    }];
    if !reader.sampled {
        let times = super::instrumented("Python's profiler", "times between its own probes");
        limits.insert(0, times);
    }
    About {
        tool: "Python's profiler".to_string(),
        format: "a profile of Python (pstats)".to_string(),
        values: match reader.sampled {
            true => "samples, each the sampling interval",
            false => "time between entering and leaving each function",
        }
        .to_string(),
        unit: Unit::Nanoseconds,
        exact: !reader.sampled,
        limits,
        notes,
        ..About::default()
    }
}

/// The key that marks a sampled profile.
fn is_mark(key: &Value) -> bool {
    matches!(key.tuple(), [Value::Text(mark)] if mark == "__sampled__")
}

/// Keys and values of a dictionary.
type Entries = Vec<(Value, Value)>;

/// The entries of the outermost dictionary, and whether it is truncated: then only the whole ones.
fn entries(bytes: &[u8], memory: u64) -> Result<(Entries, bool), ReadError> {
    let mut m = Marshal {
        rest: bytes,
        refs: Vec::new(),
        interned: Vec::new(),
        room: memory,
    };
    if m.byte().is_ok_and(|code| code & 0x80 != 0) {
        m.refs.push(Value::None);
    }
    let mut out = Vec::new();
    loop {
        let item = m.value(1).and_then(|key| match key {
            None => Ok(None),
            Some(key) => Ok(Some((key, m.value(1)?.ok_or(Stop::Broken)?))),
        });
        match item {
            Ok(Some(item)) => out.push(item),
            Ok(None) => return Ok((out, false)),
            Err(Stop::End) => return Ok((out, true)),
            Err(Stop::Room) => {
                return Err(ReadError::TooLarge {
                    what: "what it describes needs more memory",
                    limit_mib: memory >> 20,
                });
            }
            Err(Stop::Unknown(code)) => {
                return Err(ReadError::UnknownLayout {
                    what: format!(
                        "a marshalled value of kind \"{}\", which profiles of Python 2 and 3 do not hold",
                        code.escape_ascii()
                    ),
                });
            }
            Err(Stop::Broken) => return Err(damaged("its marshalled values do not fit together")),
        }
    }
}

fn damaged(what: &str) -> ReadError {
    ReadError::Damaged {
        what: what.to_string(),
    }
}

impl Reader {
    fn entry(
        &mut self,
        key: &Value,
        value: &Value,
        graph: &mut CallGraph,
    ) -> Result<(), ReadError> {
        let Some(node) = function(key) else {
            return Err(damaged("a key is no function: is it a profile of Python?"));
        };
        let [_, calls, own, total, Value::Dict(callers)] = value.tuple() else {
            return Err(damaged("a function's figures are not those of a profile"));
        };
        let id = graph.node(node)?;
        self.functions += 1;
        self.negative += u64::from(own.float() < 0.0);
        graph.own(id, ns(own));
        graph.called(id, calls.float() as u64);
        // In a sampled profile each call is a sample.
        let sample = total.float() / calls.float().max(1.0);
        for (caller, figures) in callers {
            let Some(node) = function(caller) else {
                return Err(damaged("a caller is no function"));
            };
            let from = graph.node(node)?;
            let (calls, cost) = match (figures.tuple(), figures) {
                ([_, calls, _, total], _) => (calls.float() as u64, ns(total)),
                (_, Value::Int(samples)) if self.sampled => {
                    (*samples as u64, seconds(*samples as f64 * sample))
                }
                (_, Value::Int(calls)) => {
                    self.untimed += 1;
                    (*calls as u64, 0)
                }
                _ => return Err(damaged("a caller's figures are not those of a profile")),
            };
            graph.call(from, id, calls, cost);
        }
        Ok(())
    }
}
