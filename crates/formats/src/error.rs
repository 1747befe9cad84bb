//! Reasons why a file cannot be read, and the limits on reading it.

/// Reason for which a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
        /// The impossible part.
        what: String,
    },
    /// Reading it would take more memory than allowed.
    #[error("it is too large: {what}, and at most {limit_mib} MiB are allowed")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// The limit, MiB.
        limit_mib: u64,
    },
    /// A format that is known by name and has no reader.
    #[error("it is {what}, which wallscope does not read")]
    NotRead {
        /// Name of the format.
        what: &'static str,
        /// The command or step that turns it into a format with a reader.
        convert: &'static str,
    },
    /// A known format in an unknown version or layout on which stacks or weights depend.
    #[error("its layout is unknown to this wallscope: {what}")]
    UnknownLayout {
        /// The version or the part that is unknown.
        what: String,
    },
    /// Several profiles in one file, none of which is the obvious one.
    #[error("it holds more than one profile: {have}")]
    Ambiguous {
        /// The profiles.
        have: String,
        /// The option that chooses one, for the command line.
        choose: String,
    },
    /// A valid file without any sample.
    #[error("it holds no samples")]
    NoValues,
    /// The file does not have the requested value.
    #[error("it has no value \"{asked}\": it has {have}")]
    NoSuchValue {
        /// The requested value.
        asked: String,
        /// The values of the file.
        have: String,
    },
}

impl ReadError {
    /// The file contradicts itself.
    pub(crate) fn damaged(what: impl Into<String>) -> ReadError {
        ReadError::Damaged { what: what.into() }
    }
}

/// Limits on the memory of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum bytes after decompression that are held at once.
    pub decompressed: u64,
    /// Maximum bytes of memory for the recording.
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
