//! Labels of a sample beyond the model's own fields: a request's endpoint, a trace id. Each
//! distinct set is in [`crate::Recording::label_sets`] once.

use std::fmt;
use std::sync::Arc;

/// Label key of on-CPU samples that collect garbage; the value is the collector's name (`V8`).
pub const GC_KEY: &str = "gc";

/// Label key of waits during which a request of their thread was in flight.
pub const REQUEST_KEY: &str = "request";
/// Value of [`REQUEST_KEY`] where the thread awaited an answer.
pub const REQUEST_AWAITED: &str = "in flight";

/// Index into [`crate::Recording::label_sets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelsId(pub u32);

/// A label. A set may hold several with one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// The key; none of the contract's own (`thread`, `pid`, `state`…).
    pub key: Arc<str>,
    /// The value.
    pub value: LabelValue,
}

/// A label's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LabelValue {
    /// Text.
    Text(Arc<str>),
    /// A number in a unit; an empty unit is a plain count.
    Number(i64, Arc<str>),
}

impl fmt::Display for LabelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelValue::Text(text) => f.write_str(text),
            LabelValue::Number(n, unit) if unit.is_empty() => write!(f, "{n}"),
            LabelValue::Number(n, unit) => write!(f, "{n} {unit}"),
        }
    }
}
