//! A pprof message, taken apart.

use std::borrow::Cow;

use super::super::ReadError;
use super::super::wire::{Fields, Malformed, Value};
use super::checks::damaged;
use super::field;

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
    pub period: Period,
    /// Pattern of functions to drop with all their callees, except functions that `keep_frames` matches.
    pub drop_frames: u64,
    pub keep_frames: u64,
    /// Whether the file ended before its end.
    pub cut: bool,
    /// The bytes of the extension; empty: none.
    pub recording: &'a [u8],
}

/// Distance between two samples.
#[derive(Clone, Copy, Default)]
pub(super) struct Period {
    /// Name and unit.
    pub of: (u64, u64),
    pub value: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Mapping {
    pub id: u64,
    /// First address of the mapping. Its end and its offset in the file follow.
    pub start: u64,
    pub limit: u64,
    pub offset: u64,
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
    /// The tables, and whether all bytes had the form of a profile.
    pub fn new(bytes: &'a [u8]) -> (Tables<'a>, bool) {
        let mut t = Tables::default();
        for item in Fields::new(bytes) {
            if item
                .and_then(|(number, value)| t.add(number, value))
                .is_err()
            {
                return (t, false);
            }
        }
        (t, true)
    }

    fn add(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        use field::profile as f;
        let t = self;
        match number {
            f::SAMPLE_TYPE => t.sample_types.push(value_type(value)?),
            f::SAMPLE => t.samples.push(value.bytes()),
            f::MAPPING => t.mappings.push(mapping(value)?),
            f::LOCATION => t.locations.push(location(value)?),
            f::FUNCTION => t.functions.push(function(value)?),
            f::STRING => t.strings.push(value.bytes()),
            f::DROP_FRAMES => t.drop_frames = value.number(),
            f::KEEP_FRAMES => t.keep_frames = value.number(),
            f::TIME_NANOS => t.time_nanos = value.number(),
            f::DURATION_NANOS => t.duration_nanos = value.number(),
            f::PERIOD_TYPE => t.period.of = value_type(value)?,
            f::PERIOD => t.period.value = value.number(),
            f::COMMENT => value.numbers(&mut t.comments)?,
            f::DEFAULT_SAMPLE_TYPE => t.default_sample_type = value.number(),
            f::RECORDING => t.recording = value.bytes(),
            _ => {}
        }
        Ok(())
    }

    /// Checks that a string is there.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] for one beyond the table, unless the file is truncated.
    pub fn has_string(&self, id: u64) -> Result<(), ReadError> {
        if self.cut || id < self.strings.len() as u64 {
            return Ok(());
        }
        Err(damaged(format!(
            "it refers to string {id} of {}",
            self.strings.len()
        )))
    }

    /// Checks that the strings of its types, mappings and functions are there.
    ///
    /// # Errors
    /// Those of [`Tables::has_string`].
    pub fn check_strings(&self) -> Result<(), ReadError> {
        let types = self.sample_types.iter().chain([&self.period.of]);
        let types = types.flat_map(|(name, unit)| [*name, *unit]);
        let mappings = self.mappings.iter().flat_map(|m| [m.file, m.build_id]);
        let functions = (self.functions.iter()).flat_map(|f| [f.name, f.system_name, f.file]);
        let singles = [self.default_sample_type, self.drop_frames, self.keep_frames];
        types
            .chain(mappings)
            .chain(functions)
            .chain(singles)
            .chain(self.comments.iter().copied())
            .try_for_each(|id| self.has_string(id))
    }

    /// The string with index `id`; empty if there is none, or a placeholder if the file is truncated.
    pub fn string(&self, id: u64) -> Cow<'a, str> {
        let index = usize::try_from(id).unwrap_or(usize::MAX);
        let missing: &[u8] = if self.cut { b"[name cut off]" } else { b"" };
        String::from_utf8_lossy(self.strings.get(index).copied().unwrap_or(missing))
    }
}

pub(super) fn value_type(value: Value) -> Result<(u64, u64), Malformed> {
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
            (field::mapping::START, v) => out.start = v.number(),
            (field::mapping::LIMIT, v) => out.limit = v.number(),
            (field::mapping::OFFSET, v) => out.offset = v.number(),
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
