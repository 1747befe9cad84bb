//! A sample's lists, and the thread, state and labels that its attributes give.

use wallscope_model::{BlockReason, LabelValue, Part, State};

use super::super::ReadError;
use super::super::import::SampleTime;
use super::super::wire::{Fields, Value};
use super::attributes::Attribute;
use super::damaged;
use super::layout::SampleFields;

/// A sample's lists.
pub(super) struct Sample {
    pub stack: u64,
    pub attributes: Vec<u64>,
    pub values: Vec<u64>,
    /// Times: one for each value, or none.
    pub times: Vec<u64>,
}

impl Sample {
    pub(super) fn of(bytes: &[u8], f: SampleFields) -> Result<Sample, ReadError> {
        let mut s = Sample {
            stack: 0,
            attributes: Vec::new(),
            values: Vec::new(),
            times: Vec::new(),
        };
        for item in Fields::new(bytes) {
            match item? {
                (n, v) if n == f.stack => s.stack = v.number(),
                (n, v) if n == f.attributes => v.numbers(&mut s.attributes)?,
                (n, v) if n == f.values => v.numbers(&mut s.values)?,
                (n, Value::Bytes(b)) if n == f.times => {
                    let whole = b.chunks_exact(8);
                    let time = |c: &[u8]| u64::from_le_bytes(c.try_into().unwrap_or_default());
                    s.times.extend(whole.map(time));
                }
                (n, v) if n == f.times => s.times.push(v.number()),
                _ => {}
            }
        }
        if s.values.is_empty() {
            // A time without a value counts as one.
            s.values = vec![1; s.times.len()];
        } else if s.times.len() != s.values.len() {
            if !s.times.is_empty() {
                return Err(damaged("a sample has not as many values as times"));
            }
            s.times.clear();
        }
        Ok(s)
    }
}

/// Thread, state and labels of a sample, from its attributes.
#[derive(Clone)]
pub(super) struct Identity {
    pub kind: SampleTime,
    /// Process, thread, and their names.
    pub thread: (u32, u32, String, String),
    pub cpu: Option<u32>,
    /// Number of samples that it represents.
    pub count: Option<u64>,
    /// All other attributes; a later one of the same name replaces an earlier one.
    pub labels: Vec<Attribute>,
}

impl Identity {
    pub(super) fn of(state: State) -> Identity {
        Identity {
            kind: SampleTime::of(state),
            thread: (0, 0, String::new(), String::new()),
            cpu: None,
            count: None,
            labels: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, a: &Attribute) {
        let small = || match &a.value {
            LabelValue::Number(n, _) => u32::try_from(*n).unwrap_or(0),
            LabelValue::Text(t) => t.parse().unwrap_or(0),
        };
        match a.key.as_str() {
            "process.pid" => self.thread.0 = small(),
            "thread.id" => self.thread.1 = small(),
            "thread.name" => self.thread.2 = a.value.to_string(),
            "process.executable.name" => self.thread.3 = a.value.to_string(),
            "cpu.logical_number" => self.cpu = Some(small()),
            "wallscope.samples" => self.count = Some(u64::from(small())),
            "wallscope.reason" => {
                let name = a.value.to_string();
                self.kind.reason = BlockReason::from_name(&name);
                self.kind.part = Part::from_name(&name);
            }
            "wallscope.idle" => self.kind.idle = true,
            key => {
                self.labels.retain(|l| l.key != key);
                self.labels.push(a.clone());
            }
        }
    }
}
