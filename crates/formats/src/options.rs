//! Choices of reading and writing, and a file that was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use wallscope_model::{Limit, Recording, StackEnd, View};

use crate::error::Bounds;
use crate::folded;

/// Choices for a recording that is written.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The view that is written, for formats that hold one view.
    pub view: View,
    /// Options for folded stacks.
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
    /// A number that changes when the process's mappings change. No other process has the same number, except
    /// its parent.
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
    /// Address of the kernel's `_text` during the recording. The present kernel symbols fit only if `_text`
    /// is at this address now.
    pub kernel_text: Option<u64>,
}

/// The limit of profiles by instrumentation.
pub(crate) fn instrumented(tool: &str, times: &str) -> Limit {
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
#[non_exhaustive]
pub struct Read {
    /// The recording.
    pub recording: Recording,
    /// Sentences about the parts that the reader had to leave out.
    pub warnings: Vec<String>,
    /// Set if the file lacks names that are to be found.
    pub unnamed: Option<Unnamed>,
    /// The file ends in the middle or is damaged: a part of it is missing, and a warning says so.
    pub cut: bool,
}

impl Read {
    /// A file with all its names.
    pub(crate) fn named(recording: Recording, warnings: Vec<String>) -> Read {
        Read {
            recording,
            warnings,
            unnamed: None,
            cut: false,
        }
    }
}
