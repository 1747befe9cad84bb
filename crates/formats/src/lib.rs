//! Profile ↔ bytes: one file or folder per format, one row each in [`FORMATS`] (`table`).
//!
//! [`open`] is the front door: whatever the file is, it is told from its first bytes and read as a
//! recording. Readers trust nothing: their errors are typed, their memory is bounded, they do not
//! panic, and the whole part of a file that was cut off is read with a warning. A version or layout
//! that stacks or weights depend on and that a reader does not know is refused; a part that can be left
//! out is left out, counted and said. Writers name the parts that their format has no place for.

mod call_graph;
mod callgrind;
mod firefox;
pub mod folded;
mod gprof;
mod import;
mod intervals;
mod jfr;
mod json;
mod kernel_text;
mod otlp;
mod perf_data;
mod perf_event;
mod perf_script;
mod perfetto;
pub mod pprof;
mod pstats;
mod refused;
mod source;
mod speedscope;
mod switches;
mod table;
mod trace_event;
mod v8;
mod wire;
mod written;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use wallscope_model::{Limit, Recording, StackEnd, UNTOLD, View};

use source::Source;

pub use table::FORMATS;

/// A format: its purpose, and how it is recognised, read and written.
#[derive(Clone, Copy)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help about writing it; empty where it cannot be written.
    pub about: &'static str,
    /// One line of help about the files that are read; empty where it cannot be read.
    pub reads: &'static str,
    /// Whether it is binary (and not to be written to a terminal).
    pub binary: bool,
    /// Whether it holds one view of the recording's time, and not all.
    pub one_view: bool,
    read: Option<Reader>,
    write: Option<Writer>,
}

/// How a format is recognised by its first bytes, and read.
#[derive(Clone, Copy)]
struct Reader {
    detect: fn(&[u8]) -> bool,
    read: fn(&mut Source, &mut Options) -> Result<Read, ReadError>,
}

/// Writes a recording; returns sentences about the parts that the format has no place for.
type Writer = fn(&Recording, &WriteOptions, &mut dyn Write) -> io::Result<Vec<String>>;

impl Format {
    /// The format of that name.
    pub fn named(name: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|f| f.name == name)
    }

    /// The formats that can be written.
    pub fn written() -> impl Iterator<Item = &'static Format> {
        FORMATS.iter().filter(|f| f.write.is_some())
    }

    /// The formats that can be read.
    pub fn read() -> impl Iterator<Item = &'static Format> {
        FORMATS.iter().filter(|f| f.read.is_some())
    }

    /// Writes `recording`; returns sentences about the parts that the format has no place for.
    ///
    /// # Errors
    /// Errors of `out`, or [`io::ErrorKind::Unsupported`] where the format is only read.
    pub fn write(
        &self,
        recording: &Recording,
        options: &WriteOptions,
        out: &mut dyn Write,
    ) -> io::Result<Vec<String>> {
        match self.write {
            Some(write) => write(recording, options, out),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Choices for a recording that is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Which time, for formats of one view.
    pub view: View,
    /// For folded stacks.
    pub folded: folded::Options,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            view: View::Wall,
            folded: folded::Options::default(),
        }
    }
}

/// Choices for a file that is read.
#[derive(Default)]
pub struct Options<'u> {
    /// Limits on the memory of reading.
    pub bounds: Bounds,
    /// One of the file's values, by the file's own name for it. For formats without units: the unit of
    /// the numbers.
    pub value: Option<String>,
    /// Unwinds stacks that a file holds as raw memory.
    pub unwind: Option<&'u mut (dyn Unwind + 'u)>,
}

/// A mapping of a file into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// One past its last address.
    pub end: u64,
    /// Offset in the file of its first byte.
    pub offset: u64,
    /// The file's path, or its stand-in such as `[vdso]`.
    pub path: Arc<str>,
    /// Its build id in hex, empty where unknown.
    pub build_id: Arc<str>,
}

/// A stack as it was copied: registers and memory.
pub struct RawStack<'a> {
    /// The process it was copied from.
    pub process: u32,
    /// Another number whenever the process's mappings are others; never that of another process
    /// but its parent's.
    pub generation: u64,
    /// Its executable mappings by their first address.
    pub mappings: &'a BTreeMap<u64, Mapped>,
    /// The instruction pointer.
    pub ip: u64,
    /// rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15.
    pub general: [u64; 16],
    /// Memory from the stack pointer on.
    pub memory: &'a [u8],
}

/// Unwinds stacks. The caller brings the unwinder; this crate has none.
pub trait Unwind {
    /// Addresses leaf first, those of callers within the calling instruction; and how it ended.
    fn unwind(&mut self, stack: &RawStack) -> (Vec<u64>, StackEnd);
}

/// Frames of the file have addresses for which names may be found on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unnamed {
    /// Where the kernel's `_text` was while it was recorded: only if it is there now do today's
    /// kernel symbols fit.
    pub kernel_text: Option<u64>,
}

/// The limit of profiles by instrumentation.
fn instrumented(tool: &str, times: &str) -> Limit {
    Limit {
        what: format!(
            "instrumented: {tool} counts calls exactly, but its times are {times}, and functions \
             that are many and short seem dearer than they are"
        ),
        remedy: "compare with a sampled profile of the same program".to_string(),
    }
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The recording.
    pub recording: Recording,
    /// Sentences about the parts that the reader had to leave out.
    pub warnings: Vec<String>,
    /// Set where names were never in the file and remain to be found.
    pub unnamed: Option<Unnamed>,
    /// The file ends in the middle or is damaged: a part of it is missing, and a warning says so.
    pub cut: bool,
}

impl Read {
    /// A file with all its names.
    fn named(recording: Recording, warnings: Vec<String>) -> Read {
        Read {
            recording,
            warnings,
            unnamed: None,
            cut: false,
        }
    }
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
        /// The impossible part.
        what: String,
    },
    /// A layout that this reader does not know: its stacks or weights would be wrong.
    #[error("{what}")]
    Unsupported {
        /// The part that is unknown.
        what: String,
        /// The next command.
        remedy: String,
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
    /// A known format in a version or layout on which stacks or weights depend and that the reader
    /// does not know.
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
        /// How to choose, for the command line.
        choose: String,
    },
    /// A valid file without any sample.
    #[error("it holds no samples")]
    NoValues,
    /// The value that was asked for is not among the file's.
    #[error("it has no value \"{asked}\": it has {have}")]
    NoSuchValue {
        /// The value asked for.
        asked: String,
        /// The values of the file.
        have: String,
    },
}

impl ReadError {
    /// The file contradicts itself.
    fn damaged(what: impl Into<String>) -> ReadError {
        ReadError::Damaged { what: what.into() }
    }
}

/// Limits on the memory of reading a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes after decompression that are held at once.
    pub decompressed: u64,
    /// Most bytes of memory for the recording.
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

/// Reads a file of any known format, told from its content.
///
/// # Errors
/// See [`ReadError`].
pub fn open(input: impl io::Read + Send, mut options: Options) -> Result<Read, ReadError> {
    let mut source = Source::new(input, options.bounds)?;
    refused::check(source.head())?;
    let reader = FORMATS
        .iter()
        .filter_map(|f| f.read)
        .find(|r| (r.detect)(source.head()))
        .ok_or_else(|| {
            let head = &source.head()[..source.head().len().min(16)];
            ReadError::Unrecognised {
                start: format!("\"{}\"", head.escape_ascii()),
            }
        })?;
    let mut read = (reader.read)(&mut source, &mut options)?;
    read.cut |= source.cut();
    if source.followed() {
        let warning = "what follows its compressed data is no more of it, and is left out";
        read.warnings.push(warning.to_string());
    }
    Ok(read)
}

/// Reads bytes of any known format.
///
/// # Errors
/// See [`ReadError`].
pub fn read(bytes: &[u8], bounds: Bounds) -> Result<Read, ReadError> {
    let options = Options {
        bounds,
        ..Options::default()
    };
    open(bytes, options)
}
