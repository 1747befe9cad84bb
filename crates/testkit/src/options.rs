//! How a recording is made, and how long that took.

use std::time::Duration;

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-F`, Hz.
    pub hz: u32,
    /// Further arguments of `record`.
    pub more: Vec<String>,
}

impl Options {
    /// Samples at `hz`, and the tool's defaults.
    pub fn at(hz: u32) -> Options {
        Options {
            hz,
            more: Vec::new(),
        }
    }

    /// Adds arguments of `record`.
    pub fn with(mut self, more: &[&str]) -> Options {
        self.more.extend(more.iter().map(|m| (*m).to_owned()));
        self
    }
}

/// Delays of the tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// From its start to the line that says `recording`.
    pub to_live: Duration,
    /// From SIGINT to its end, the file written.
    pub to_file: Duration,
}
