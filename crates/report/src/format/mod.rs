//! Recording ↔ bytes: one file per foreign format, one row each in [`FORMATS`].
//!
//! Readers trust nothing: their errors are typed, their memory is bounded, they do not panic.

pub mod folded;
pub mod off_wake;
pub mod pprof;
pub mod svg;
mod wire;

use wallscope_model::Recording;

/// A format and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Whether it is binary (and not to be written to a terminal).
    pub binary: bool,
}

/// Every format that can be written.
pub const FORMATS: &[Format] = &[
    Format {
        name: "folded",
        about: "one line a stack: for flame graph scripts, grep and diff",
        binary: false,
    },
    Format {
        name: "pprof",
        about: "gzip pprof with everything wallscope knows: for go tool pprof, speedscope, Pyroscope",
        binary: true,
    },
    Format {
        name: "svg",
        about: "a still flame graph of one view: for a README, a ticket, a slide",
        binary: false,
    },
];

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// What it holds.
    pub recording: Recording,
    /// What the reader had to leave out, in sentences for people.
    pub warnings: Vec<String>,
}

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There are no bytes.
    #[error("it is empty")]
    Empty,
    /// No format that is known here.
    #[error("it is in no format that wallscope reads: it starts with {start}")]
    Unrecognised {
        /// Its first bytes.
        start: String,
    },
    /// The file ends in the middle.
    #[error("it is cut short: its compressed data ends in the middle")]
    Truncated,
    /// The file says something impossible.
    #[error("it is damaged: {what}")]
    Damaged {
        /// What.
        what: String,
    },
    /// Reading it would take more memory than allowed.
    #[error("it is too large: {what}, and at most {limit_mib} MiB are allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit, MiB.
        limit_mib: u64,
    },
    /// A valid file without what is needed.
    #[error("it holds no time: its values are {values}")]
    NoTime {
        /// The names and units of its values.
        values: String,
    },
}

/// Limits on what reading a file may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes after decompression.
    pub decompressed: u64,
    /// Most bytes of memory for what the file says.
    pub memory: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            decompressed: 1 << 30,
            memory: 4 << 30,
        }
    }
}

/// Reads a file of any known format.
///
/// # Errors
/// See [`ReadError`].
pub fn read(bytes: &[u8], bounds: Bounds) -> Result<Read, ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    pprof::read(bytes, bounds)
}
