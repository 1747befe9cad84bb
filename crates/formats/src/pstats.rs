//! Python's profiles (`cProfile -o`, `profile`, `pstats.Stats.dump_stats`) → recording.
//!
//! The file is a marshalled dictionary: (file, line, function) → (primitive calls, calls, own time,
//! total time, callers). Of Python's marshalling only what such files consist of is read. Call
//! counts are exact; times are those of a program that was slowed by being watched, most where
//! functions are many and short, and the domain says so.

use wallscope_model::Unit;

use super::call_graph::{CallGraph, Node};
use super::import::{About, Import};
use super::source::Source;
use super::{Options, Read, ReadError};

/// A dictionary, and in it first a tuple: what such a file begins with.
pub(super) fn detect(head: &[u8]) -> bool {
    let kind = |i: usize| head.get(i).map(|b| b & 0x7f);
    kind(0) == Some(b'{')
        && matches!(kind(1), Some(b')' | b'('))
        // A JSON text may begin with a brace too, and never goes on like this.
        && (kind(1) == Some(b')') || head.get(2..6).is_some_and(|n| n[1..] == [0, 0, 0]))
}

/// A marshalled value, as far as such files hold any.
#[derive(Clone, Debug)]
enum Value {
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    None,
}

/// Values nest: keys are tuples, values hold dictionaries of tuples.
const DEEPEST: usize = 8;

struct Marshal<'a> {
    rest: &'a [u8],
    refs: Vec<Value>,
    room: u64,
    limit: u64,
}

/// The end of the bytes, or something that is not read.
struct Stop;

impl<'a> Marshal<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        let (own, rest) = self.rest.split_at_checked(n).ok_or(Stop)?;
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
        usize::try_from(self.long()?).map_err(|_| Stop)
    }

    fn text(&mut self, n: usize) -> Result<Value, Stop> {
        let bytes = self.bytes(n)?;
        self.take(bytes.len())?;
        Ok(Value::Text(String::from_utf8_lossy(bytes).into_owned()))
    }

    fn take(&mut self, bytes: usize) -> Result<(), Stop> {
        self.room = self.room.checked_sub(bytes as u64 + 64).ok_or(Stop)?;
        Ok(())
    }

    /// The next value; `None` is the end of a dictionary.
    fn value(&mut self, depth: usize) -> Result<Option<Value>, Stop> {
        if depth > DEEPEST {
            return Err(Stop);
        }
        let code = self.byte()?;
        let referred = code & 0x80 != 0;
        // Its place is taken before its parts take theirs.
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
                let b: [u8; 8] = self.bytes(8)?.try_into().map_err(|_| Stop)?;
                Value::Int(i64::from_le_bytes(b))
            }
            b'l' => {
                // Digits of 15 bits.
                let n = self.long()?;
                let mut v = 0i64;
                for i in 0..n.unsigned_abs() {
                    let d = self.bytes(2)?;
                    let d = i64::from(u16::from_le_bytes([d[0], d[1]]));
                    if i < 4 {
                        v |= d << (15 * i);
                    }
                }
                Value::Int(if n < 0 { -v } else { v })
            }
            b'g' => {
                let b: [u8; 8] = self.bytes(8)?.try_into().map_err(|_| Stop)?;
                Value::Float(f64::from_le_bytes(b))
            }
            b'f' => {
                let n = usize::from(self.byte()?);
                let text = String::from_utf8_lossy(self.bytes(n)?);
                Value::Float(text.parse().map_err(|_| Stop)?)
            }
            b'z' | b'Z' => {
                let n = usize::from(self.byte()?);
                self.text(n)?
            }
            b'a' | b'A' | b'u' | b't' | b's' => {
                let n = self.length()?;
                self.text(n)?
            }
            b'r' => {
                let i = self.length()?;
                let value = self.refs.get(i).cloned().ok_or(Stop)?;
                self.take(size(&value))?;
                value
            }
            kind @ (b')' | b'(') => {
                let n = match kind {
                    b')' => usize::from(self.byte()?),
                    _ => self.length()?,
                };
                let mut items = Vec::new();
                for _ in 0..n {
                    items.push(self.value(depth + 1)?.ok_or(Stop)?);
                }
                Value::Tuple(items)
            }
            b'{' => {
                let mut items = Vec::new();
                while let Some(key) = self.value(depth + 1)? {
                    items.push((key, self.value(depth + 1)?.ok_or(Stop)?));
                }
                Value::Dict(items)
            }
            _ => return Err(Stop),
        };
        if let Some(at) = place {
            self.take(size(&value))?;
            self.refs[at] = value.clone();
        }
        Ok(Some(value))
    }
}

/// About how much memory a copy of the value takes.
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
    // Casts saturate; what is negative or no number is nothing.
    (v.float() * 1e9).round().clamp(0.0, 1e18) as u64
}

/// The function that a key names.
fn function(key: &Value) -> Option<Node> {
    let [Value::Text(file), line, Value::Text(name)] = key.tuple() else {
        return None;
    };
    Some(Node {
        name: name.clone(),
        python: file != "~",
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

/// Reads a profile of Python.
pub(super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let mut m = Marshal {
        rest: &bytes,
        refs: Vec::new(),
        room: memory,
        limit: memory,
    };
    let damaged = |what: &str| ReadError::Damaged {
        what: what.to_string(),
    };
    // The outermost dictionary is read item by item, so that a cut file gives what was whole.
    if m.byte().is_ok_and(|code| code & 0x80 != 0) {
        m.refs.push(Value::None);
    }
    let mut graph = CallGraph::new(memory);
    let mut cut = false;
    let mut functions = 0;
    loop {
        let item = m.value(1).and_then(|key| match key {
            None => Ok(None),
            Some(key) => Ok(Some((key, m.value(1)?.ok_or(Stop)?))),
        });
        let (key, value) = match item {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(Stop) if m.room < 1024 => {
                return Err(ReadError::TooLarge {
                    what: "what it describes needs more memory",
                    limit_mib: m.limit >> 20,
                });
            }
            Err(Stop) => {
                cut = true;
                break;
            }
        };
        let Some(node) = function(&key) else {
            return Err(damaged("a key is no function: is it a profile of Python?"));
        };
        let [_, calls, own, _, Value::Dict(callers)] = value.tuple() else {
            return Err(damaged("a function's figures are not those of a profile"));
        };
        let id = graph.node(node)?;
        functions += 1;
        graph.own(id, ns(own));
        graph.called(id, calls.float() as u64);
        for (caller, figures) in callers {
            let Some(node) = function(caller) else {
                continue;
            };
            let from = graph.node(node)?;
            // cProfile gives calls and times of each pair, profile only how many calls.
            let (calls, cost) = match figures.tuple() {
                [_, calls, _, total] => (calls.float() as u64, ns(total)),
                _ => (figures.float() as u64, 0),
            };
            graph.call(from, id, calls, cost);
        }
    }
    if functions == 0 {
        return Err(if cut {
            ReadError::Truncated
        } else {
            ReadError::NoValues
        });
    }
    let mut warnings = Vec::new();
    if cut {
        warnings.push("the file ends in the middle: what came before is used".to_string());
    }
    let mut to = Import::new(memory);
    let notes = graph.stacks(&mut to)?;
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let about = About {
        tool: "Python's profiler".to_string(),
        format: "a profile of Python (pstats)".to_string(),
        values: "time between entering and leaving each function".to_string(),
        unit: Unit::Nanoseconds,
        exact: true,
        limits: vec![
            super::instrumented("Python's profiler", "times between its own probes"),
            wallscope_model::Limit {
                what: "stacks are made from calls between pairs of functions: own times are \
                       measured, the shares of longer paths are estimates"
                    .to_string(),
                remedy: String::new(),
            },
        ],
        notes,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}
