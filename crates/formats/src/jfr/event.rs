//! One event: its fields by name, its thread and its stack.

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, FrameKind, StackEnd, StackId};

use super::super::ReadError;
use super::super::import::{Called, Import};
use super::chunk::Chunk;
use super::value::{Type, Value};

/// An event's fields by name.
pub(super) struct Fields<'a> {
    pub chunk: &'a Chunk<'a>,
    pub type_id: u64,
    pub t: &'a Type,
    pub values: &'a [Value],
}

impl<'a> Fields<'a> {
    pub(super) fn get(&self, name: &str) -> &'a Value {
        let at = self.t.field(name);
        at.and_then(|i| self.values.get(i)).unwrap_or(&Value::Null)
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Value::Number(n) => Some(*n),
            _ => None,
        }
    }

    pub(super) fn real(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Value::Number(n) => Some(*n as f64),
            Value::Real(n) => Some(*n),
            _ => None,
        }
    }

    /// A length of time, ns.
    pub(super) fn length(&self, name: &str) -> Option<u64> {
        let at = self.t.field(name)?;
        let Some(Value::Number(n)) = self.values.get(at) else {
            return None;
        };
        self.chunk.length(*n, self.t.fields[at].timespan)
    }

    pub(super) fn text(&self, name: &str) -> &'a str {
        self.chunk.text(self.get(name))
    }
}

/// Threads and stacks of one chunk by their numbers: the next chunk has other numbers.
pub(super) struct Constants<'c, 'b> {
    chunk: &'c Chunk<'b>,
    stacks: FxHashMap<u64, StackId>,
    threads: FxHashMap<u64, ContextId>,
}

impl<'c, 'b> Constants<'c, 'b> {
    pub(super) fn new(chunk: &'c Chunk<'b>) -> Self {
        Constants {
            chunk,
            stacks: FxHashMap::default(),
            threads: FxHashMap::default(),
        }
    }

    pub(super) fn thread(
        &mut self,
        value: &Value,
        to: &mut Import,
    ) -> Result<ContextId, ReadError> {
        let key = match value {
            Value::Constant(_, id) => Some(*id),
            _ => None,
        };
        if let Some(id) = key.and_then(|k| self.threads.get(&k)) {
            return Ok(*id);
        }
        let part = |name: &str| self.chunk.part(value, "java.lang.Thread", name);
        let java = self.chunk.text(part("javaName"));
        let os = self.chunk.text(part("osName"));
        let tid = match part("osThreadId") {
            Value::Number(n) => u32::try_from(*n).unwrap_or(0),
            _ => 0,
        };
        let id = to.context(0, tid, if java.is_empty() { os } else { java }, "")?;
        if let Some(k) = key {
            self.threads.insert(k, id);
        }
        Ok(id)
    }

    pub(super) fn stack(&mut self, value: &Value, to: &mut Import) -> Result<StackId, ReadError> {
        let key = match value {
            Value::Constant(_, id) => *id,
            _ => 0,
        };
        if let Some(id) = self.stacks.get(&key) {
            return Ok(*id);
        }
        let chunk = self.chunk;
        let mut frames = Vec::new();
        const FRAME: &str = "jdk.types.StackFrame";
        const METHOD: &str = "jdk.types.Method";
        if let Value::List(list) = chunk.part(value, "jdk.types.StackTrace", "frames") {
            for f in list {
                let method = chunk.part(f, FRAME, "method");
                let class = chunk.part(method, METHOD, "type");
                let class = chunk.text(chunk.part(class, "java.lang.Class", "name"));
                let name = chunk.text(chunk.part(method, METHOD, "name"));
                let line = match chunk.part(f, FRAME, "lineNumber") {
                    Value::Number(n) => u32::try_from(*n).unwrap_or(0),
                    _ => 0,
                };
                let kind = match chunk.text(chunk.part(f, FRAME, "type")) {
                    "Kernel" => FrameKind::Kernel,
                    "Native" | "C++" => FrameKind::Native,
                    _ => FrameKind::Jit,
                };
                let name = match (class, name) {
                    ("", "") => "[unknown]".to_string(),
                    ("", name) => name.to_string(),
                    (class, name) => format!("{}.{name}", class.replace('/', ".")),
                };
                frames.push(to.named(
                    kind,
                    Called {
                        name: &name,
                        line,
                        ..Called::default()
                    },
                )?);
            }
        }
        let cut = chunk.part(value, "jdk.types.StackTrace", "truncated") == &Value::Number(1);
        let end = if cut {
            StackEnd::MaxFrames
        } else {
            StackEnd::Root
        };
        let id = to.stack(&frames, end)?;
        self.stacks.insert(key, id);
        Ok(id)
    }
}
