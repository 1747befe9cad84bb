//! One row of the table of formats.

use std::io::{self, Write};

use wallscope_model::Recording;

use crate::error::ReadError;
use crate::options::{Options, Read, WriteOptions};
use crate::source::Source;

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
    pub(crate) read: Option<Reader>,
    pub(crate) write: Option<Writer>,
}

/// How a format is recognised by its first bytes, and read.
#[derive(Clone, Copy)]
pub(crate) struct Reader {
    pub detect: fn(&[u8]) -> bool,
    pub read: fn(&mut Source, &mut Options) -> Result<Read, ReadError>,
}

/// Writes a recording; returns sentences about the parts that the format has no place for.
pub(crate) type Writer = fn(&Recording, &WriteOptions, &mut dyn Write) -> io::Result<Vec<String>>;

impl Format {
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
