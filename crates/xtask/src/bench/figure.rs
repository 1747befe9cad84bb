//! A figure of wallscope's own, and how it is written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Figure {
    /// Key of the figure in the table of promises.
    pub key: &'static str,
    /// The figure in words.
    pub what: &'static str,
    /// The figure, in `unit`.
    pub value: f64,
    /// s, MiB, KiB, % or ×.
    pub unit: &'static str,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure {
            what, value, unit, ..
        } = self;
        write!(f, "{what:<52} {value:>8.3} {unit}")
    }
}
