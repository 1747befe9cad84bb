//! pprof bytes → tables, and from them a recording: wallscope's own, or another tool's.

use std::borrow::Cow;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use prost::Message;

use super::super::wire::{Fields, Malformed, Value};
use super::super::{Bounds, Read, ReadError};
use super::{budget, extension, field, foreign, restore};

impl From<Malformed> for ReadError {
    fn from(_: Malformed) -> ReadError {
        damaged("a message does not have the form of one")
    }
}

pub(super) fn damaged(what: impl Into<String>) -> ReadError {
    ReadError::Damaged { what: what.into() }
}

/// Reads pprof, compressed or not.
pub(in super::super) fn read(bytes: &[u8], bounds: Bounds) -> Result<Read, ReadError> {
    let compressed = bytes.starts_with(&[0x1f, 0x8b]);
    let bytes = if compressed {
        Cow::Owned(decompress(bytes, bounds)?)
    } else {
        Cow::Borrowed(bytes)
    };
    let tables = match Tables::new(&bytes) {
        // Every profile has a string table, whose first entry is empty.
        Ok(t) if t.strings.first().is_some_and(|s| s.is_empty()) => t,
        Err(e) if compressed => return Err(e),
        _ => return Err(unrecognised(&bytes)),
    };
    budget::tables(&tables, bounds)?;
    if tables.recording.is_empty() {
        let recording = foreign::recording(&tables)?;
        return Ok(Read {
            recording,
            warnings: Vec::new(),
        });
    }
    let version = extension::Header::decode(tables.recording).map_or(0, |h| h.version);
    if version != extension::VERSION {
        let warning = format!(
            "the file's wallscope part has version {version}, and this wallscope reads version {}: \
             only its pprof part is used, without ledger, slices and losses; update wallscope to \
             see all of it",
            extension::VERSION
        );
        return Ok(Read {
            recording: foreign::recording(&tables)?,
            warnings: vec![warning],
        });
    }
    budget::extension(tables.recording, bounds)?;
    let message = extension::Recording::decode(tables.recording)
        .map_err(|e| damaged(format!("its wallscope part: {e}")))?;
    restore::recording(&tables, message)
}

fn decompress(bytes: &[u8], bounds: Bounds) -> Result<Vec<u8>, ReadError> {
    let mut out = Vec::new();
    let limit = bounds.decompressed;
    let mut reader = MultiGzDecoder::new(bytes).take(limit.saturating_add(1));
    match reader.read_to_end(&mut out) {
        Ok(_) if out.len() as u64 > limit => Err(ReadError::TooLarge {
            what: "it decompresses to more",
            limit_mib: limit >> 20,
        }),
        Ok(_) if out.is_empty() => Err(ReadError::Empty),
        Ok(_) => Ok(out),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(ReadError::Truncated),
        Err(e) => Err(damaged(format!("its compressed data: {e}"))),
    }
}

fn unrecognised(bytes: &[u8]) -> ReadError {
    let head = &bytes[..bytes.len().min(16)];
    ReadError::Unrecognised {
        start: format!("\"{}\"", head.escape_ascii()),
    }
}

/// A profile taken apart, nothing copied.
#[derive(Default)]
pub(super) struct Tables<'a> {
    pub strings: Vec<&'a [u8]>,
    pub sample_types: Vec<(u64, u64)>,
    pub samples: Vec<&'a [u8]>,
    pub mappings: Vec<Mapping>,
    pub locations: Vec<Location>,
    pub functions: Vec<Function>,
    pub comments: Vec<u64>,
    pub default_sample_type: u64,
    pub time_nanos: u64,
    pub duration_nanos: u64,
    /// The bytes of the extension; empty: none.
    pub recording: &'a [u8],
}

#[derive(Clone, Copy, Default)]
pub(super) struct Mapping {
    pub id: u64,
    pub file: u64,
    pub build_id: u64,
}

#[derive(Clone, Default)]
pub(super) struct Location {
    pub id: u64,
    pub mapping: u64,
    pub address: u64,
    /// Function id and line, innermost first.
    pub lines: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Function {
    pub id: u64,
    pub name: u64,
    pub system_name: u64,
    pub file: u64,
    pub start_line: u64,
}

impl<'a> Tables<'a> {
    fn new(bytes: &'a [u8]) -> Result<Tables<'a>, ReadError> {
        use field::profile as f;
        let mut t = Tables::default();
        for item in Fields::new(bytes) {
            let (number, value) = item?;
            match number {
                f::SAMPLE_TYPE => t.sample_types.push(value_type(value)?),
                f::SAMPLE => t.samples.push(value.bytes()),
                f::MAPPING => t.mappings.push(mapping(value)?),
                f::LOCATION => t.locations.push(location(value)?),
                f::FUNCTION => t.functions.push(function(value)?),
                f::STRING => t.strings.push(value.bytes()),
                f::TIME_NANOS => t.time_nanos = value.number(),
                f::DURATION_NANOS => t.duration_nanos = value.number(),
                f::COMMENT => value.numbers(&mut t.comments)?,
                f::DEFAULT_SAMPLE_TYPE => t.default_sample_type = value.number(),
                f::RECORDING => t.recording = value.bytes(),
                _ => {}
            }
        }
        Ok(t)
    }

    /// The string with index `id`, empty where there is none.
    pub fn string(&self, id: u64) -> Cow<'a, str> {
        let index = usize::try_from(id).unwrap_or(usize::MAX);
        String::from_utf8_lossy(self.strings.get(index).copied().unwrap_or_default())
    }
}

fn value_type(value: Value) -> Result<(u64, u64), Malformed> {
    let mut out = (0, 0);
    for item in Fields::new(value.bytes()) {
        match item? {
            (field::value_type::TYPE, v) => out.0 = v.number(),
            (field::value_type::UNIT, v) => out.1 = v.number(),
            _ => {}
        }
    }
    Ok(out)
}

fn mapping(value: Value) -> Result<Mapping, Malformed> {
    let mut out = Mapping::default();
    for item in Fields::new(value.bytes()) {
        match item? {
            (field::mapping::ID, v) => out.id = v.number(),
            (field::mapping::FILE, v) => out.file = v.number(),
            (field::mapping::BUILD_ID, v) => out.build_id = v.number(),
            _ => {}
        }
    }
    Ok(out)
}

fn location(value: Value) -> Result<Location, Malformed> {
    let mut out = Location::default();
    for item in Fields::new(value.bytes()) {
        match item? {
            (field::location::ID, v) => out.id = v.number(),
            (field::location::MAPPING, v) => out.mapping = v.number(),
            (field::location::ADDRESS, v) => out.address = v.number(),
            (field::location::LINE, v) => {
                let mut line = (0, 0);
                for item in Fields::new(v.bytes()) {
                    match item? {
                        (field::line::FUNCTION, v) => line.0 = v.number(),
                        (field::line::LINE, v) => line.1 = v.number(),
                        _ => {}
                    }
                }
                out.lines.push(line);
            }
            _ => {}
        }
    }
    Ok(out)
}

fn function(value: Value) -> Result<Function, Malformed> {
    let mut out = Function::default();
    for item in Fields::new(value.bytes()) {
        match item? {
            (field::function::ID, v) => out.id = v.number(),
            (field::function::NAME, v) => out.name = v.number(),
            (field::function::SYSTEM_NAME, v) => out.system_name = v.number(),
            (field::function::FILE, v) => out.file = v.number(),
            (field::function::START_LINE, v) => out.start_line = v.number(),
            _ => {}
        }
    }
    Ok(out)
}
