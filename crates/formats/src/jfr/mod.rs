//! Java Flight Recorder's files, the JDK's and async-profiler's → recording.
//!
//! A file is a row of chunks, each with its own types (`chunk`), constants and events. Read as time
//! are execution samples (on a CPU, each worth the sampling period that the file states) and the
//! events of waiting, each with its length: locks, waits, parking, sleeping, files, sockets; or,
//! where async-profiler wrote them, its wall-clock samples instead. Allocations are bytes, and read
//! where asked for (`--value allocation`); so is any one event by its name, counted.

mod chunk;
mod samples;

use super::source::Source;
use super::{Options, Read, ReadError};
use chunk::{Chunk, Header};

/// Whether it is a flight recording.
pub(super) fn detect(head: &[u8]) -> bool {
    head.starts_with(b"FLR\0")
}

/// Reads a flight recording.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let mut rest = &bytes[..];
    let mut reader = samples::Samples::new(memory, options.value.clone());
    let mut warnings = Vec::new();
    let mut whole = 0;
    while !rest.is_empty() {
        let Some(header) = Header::parse(rest) else {
            warnings
                .push("what follows its last whole chunk is damaged, and was left out".to_string());
            break;
        };
        let size = usize::try_from(header.size).unwrap_or(usize::MAX);
        if size > rest.len() {
            warnings.push(
                "its last chunk is cut off: the events that came before the cut are used where \
                 their types are known"
                    .to_string(),
            );
        }
        let (own, after) = rest.split_at(size.min(rest.len()));
        match Chunk::new(&header, own, memory) {
            Ok(chunk) => {
                reader.chunk(&chunk)?;
                whole += 1;
            }
            Err(e) if whole == 0 && after.is_empty() => return Err(e),
            Err(ReadError::TooLarge { what, limit_mib }) => {
                return Err(ReadError::TooLarge { what, limit_mib });
            }
            Err(e) => warnings.push(format!("a chunk was left out: {e}")),
        }
        rest = after;
    }
    reader.finish(warnings)
}
