//! pprof bytes → tables, and from them a recording: wallscope's own, or another tool's.

use prost::Message;
use wallscope_model as model;

use super::super::source::Source;
use super::super::wire::{Fields, Value};
use super::super::{Options, Read, ReadError};
use super::checks::damaged;
use super::tables::{Tables, value_type};
use super::{budget, extension, field, foreign, restore};

/// Whether a file with this beginning seems to be a pprof profile.
pub(in super::super) fn detect(head: &[u8]) -> bool {
    use field::profile as f;
    // Lengths and numbers of fields are small bytes, which text does not contain.
    if !head.iter().any(|b| *b < 9) {
        return false;
    }
    // Every field before the first that ends beyond the head is of a kind that profiles have.
    let mut fields = Fields::new(head);
    let mut seen = 0;
    for item in fields.by_ref() {
        let Ok((number, value)) = item else { break };
        let message = matches!(value, Value::Bytes(_));
        let fits = match number {
            f::SAMPLE_TYPE => message && value_type(value).is_ok(),
            f::SAMPLE..=f::STRING | f::PERIOD_TYPE | f::RECORDING => message,
            7..=10 | f::PERIOD | f::DEFAULT_SAMPLE_TYPE | 15 => !message,
            f::COMMENT => true,
            _ => false,
        };
        if !fits {
            return false;
        }
        seen += 1;
    }
    seen > 0
}

/// Reads pprof: wallscope's own, or another tool's.
pub(in super::super) fn read(
    source: &mut Source,
    options: &mut Options,
) -> Result<Read, ReadError> {
    let bytes = source.bytes()?;
    let bounds = source.bounds();
    let (mut tables, whole) = Tables::new(&bytes);
    tables.cut = !whole || source.cut();
    // Every profile has a string table with an empty first entry.
    if !tables.strings.first().is_some_and(|s| s.is_empty()) {
        return Err(if source.cut() {
            ReadError::Truncated
        } else {
            damaged(
                "it looks like pprof, and its table of names is missing or cut off (a Perfetto trace \
                 looks so too, and cannot be read)",
            )
        });
    }
    let mut warnings = Vec::new();
    if tables.cut {
        warnings.push(
            "the file ends in the middle or is damaged: what came before is used".to_string(),
        );
    }
    budget::tables(&tables, bounds)?;
    if tables.recording.is_empty() {
        return foreign::read(&tables, options, bounds, warnings);
    }
    let version = extension::Header::decode(tables.recording).map_or(0, |h| h.version);
    if version != extension::VERSION {
        warnings.push(format!(
            "the file's wallscope part has version {version}, and this wallscope reads version {}: \
             only its pprof part is used, without ledger, slices and losses; update wallscope to \
             see all of it",
            extension::VERSION
        ));
        return foreign::read(&tables, options, bounds, warnings);
    }
    budget::extension(tables.recording, bounds)?;
    let message = extension::Recording::decode(tables.recording)
        .map_err(|e| damaged(format!("its wallscope part: {e}")))?;
    let mut read = restore::recording(&tables, message)?;
    if let Some(asked) = &options.value {
        read.recording = chosen(read.recording, asked)?;
    }
    warnings.append(&mut read.warnings);
    read.warnings = warnings;
    read.cut = tables.cut;
    Ok(read)
}

/// The recording by the value `asked` for: its time, or one of its events.
fn chosen(rec: model::Recording, asked: &str) -> Result<model::Recording, ReadError> {
    if super::SAMPLE_TYPES.iter().any(|(name, _)| *name == asked) {
        return Ok(rec);
    }
    rec.of_event(asked).ok_or_else(|| {
        let events = rec.events.iter().map(|e| e.name.as_str());
        ReadError::NoSuchValue {
            asked: asked.to_string(),
            have: std::iter::once("wall")
                .chain(events)
                .collect::<Vec<_>>()
                .join(", "),
        }
    })
}
