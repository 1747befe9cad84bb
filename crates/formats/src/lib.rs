//! Profile ↔ bytes: one file or folder per format, one row each in [`FORMATS`] (`table`).
//!
//! [`open`] recognises the format of any file from its first bytes and reads the file as a recording.
//! Files are untrusted: errors are typed, memory is bounded, readers do not panic, and the whole part of
//! a truncated file is read with a warning. A reader refuses an unknown version or layout if stacks or
//! weights depend on it. Any other unknown part is left out and counted, and a warning names it. Writers
//! name the parts of a recording that their format has no place for.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod call_graph;
mod callgrind;
mod error;
mod export_model;
mod firefox;
pub mod folded;
mod format;
mod gprof;
mod import;
mod intervals;
mod jfr;
mod json;
mod kernel_text;
mod options;
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

use std::io;

use source::Source;
use wallscope_model::UNTOLD;

pub use error::{Bounds, ReadError};
pub use format::Format;
pub use options::{Mapped, Options, RawStack, Read, Unnamed, Unwind, WriteOptions};
pub use table::FORMATS;

use options::instrumented;

/// Reads a file of any known format, recognised by its content.
///
/// ```
/// use wallscope_formats::{Options, open};
///
/// let file = open("main;work 3\nmain;wait 1\n".as_bytes(), Options::default())?;
/// assert_eq!(file.recording.functions.len(), 3);
/// assert!(!file.cut);
/// # Ok::<(), wallscope_formats::ReadError>(())
/// ```
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
/// ```
/// use wallscope_formats::{Bounds, Format, ReadError, WriteOptions, read};
///
/// let folded = b"shop;handle;reserve 700\nshop;handle;render 300\n";
/// let file = read(folded, Bounds::default())?;
/// assert_eq!(file.recording.stacks.len(), 2);
/// assert_eq!(file.recording.samples.iter().map(|s| s.count).sum::<u64>(), 1_000);
///
/// let pprof = Format::named("pprof").expect("a row of the table");
/// let mut bytes = Vec::new();
/// pprof.write(&file.recording, &WriteOptions::default(), &mut bytes)?;
/// assert!(bytes.starts_with(&[0x1f, 0x8b]));
///
/// let unknown = read(b"<html>", Bounds::default());
/// assert!(matches!(unknown, Err(ReadError::Unrecognised { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
