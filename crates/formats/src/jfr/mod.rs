//! Java Flight Recorder's files → recording.
//!
//! Known are versions 2.0 and 2.1 of the format: the JDK's from 8u262 and 11 on, async-profiler's from
//! 2.0 on, Datadog's. Files of any other version are refused.
//!
//! A file is a row of chunks, each with its own types, constants, settings and events; chunks may be
//! of different recorders. Read as time are
//! - CPU samples: `jdk.ExecutionSample`, `jdk.CPUTimeSample`, `datadog.ExecutionSample`;
//! - wall-clock samples: `profiler.WallClockSample`, async-profiler's `jdk.ExecutionSample` of
//!   `event=wall`, `datadog.MethodSample`;
//! - events of waiting, each with its length ([`catalog::WAITS`]).
//!
//! The weight of a sample is in the event, in a setting of its chunk, or it is the recorder's documented
//! default ([`settings`]). Samples without a weight are counted. If two recorders have the same time, it
//! is read once ([`plan`]). Allocations are bytes, read on request (`--value allocation`). Any one event
//! can be requested by its name and is counted.

mod catalog;
mod chunk;
mod cursor;
mod event;
mod plan;
mod samples;
mod settings;
mod summary;
mod value;

use super::source::Source;
use super::{Options, Read, ReadError};
use chunk::{Chunk, Header};
use plan::Outline;
use samples::Samples;

/// Maximum chunks of a recording: the JDK begins one every 12 MB.
const MAX_CHUNKS: usize = 8192;

/// Whether it is a flight recording.
pub(super) fn detect(head: &[u8]) -> bool {
    head.starts_with(b"FLR\0")
}

/// Reads a flight recording.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let mut warnings = Vec::new();
    let chunks = split(&bytes, &mut warnings)?;
    let mut outlines = Vec::new();
    let mut whole = Vec::new();
    for (header, own) in chunks {
        match Chunk::outline(&header, own, memory) {
            Ok(chunk) => {
                outlines.push(Outline::new(&chunk));
                whole.push((header, own));
            }
            Err(e) if whole.is_empty() && own.len() == bytes.len() => return Err(e),
            Err(e) => warnings.push(format!("a chunk was left out: {e}")),
        }
    }
    let mut samples = Samples::new(memory, options.value.as_deref());
    for (header, _) in whole.iter().filter(|(h, _)| h.duration_ns > 0) {
        samples.to.reaches(header.start_ns);
        let end = header.start_ns.saturating_add(header.duration_ns);
        samples.to.reaches(end);
    }
    let mut read = 0;
    for ((header, own), plan) in whole.iter().zip(plan::plans(&outlines)) {
        match Chunk::new(header, own, memory) {
            Ok(chunk) => {
                samples.chunk(&chunk, plan)?;
                read += 1;
            }
            Err(e @ ReadError::TooLarge { .. }) => return Err(e),
            Err(e) if read == 0 && own.len() == bytes.len() => return Err(e),
            Err(e) => warnings.push(format!("a chunk was left out: {e}")),
        }
    }
    samples.finish(warnings)
}

/// The chunks of a file.
///
/// # Errors
/// [`ReadError::UnknownLayout`] where one is of an unknown version, [`ReadError::TooLarge`].
fn split<'a>(
    bytes: &'a [u8],
    warnings: &mut Vec<String>,
) -> Result<Vec<(Header, &'a [u8])>, ReadError> {
    let mut rest = bytes;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let Some(header) = Header::parse(rest) else {
            warnings.push(
                "the bytes behind its last whole chunk are damaged, and were left out".to_string(),
            );
            break;
        };
        let (major, minor) = header.version;
        if !matches!((major, minor), (2, 0 | 1)) {
            return Err(ReadError::UnknownLayout {
                what: format!(
                    "a chunk of version {major}.{minor}, and versions 2.0 and 2.1 are known"
                ),
            });
        }
        let size = usize::try_from(header.size).unwrap_or(usize::MAX);
        if size > rest.len() {
            warnings.push(
                "its last chunk is cut off: the events that came before the cut are used where \
                 their types are known"
                    .to_string(),
            );
        }
        let (own, after) = rest.split_at(size.min(rest.len()));
        chunks.push((header, own));
        if chunks.len() > MAX_CHUNKS {
            return Err(ReadError::TooLarge {
                what: "it has more than 8192 chunks",
                limit_mib: (bytes.len() >> 20) as u64,
            });
        }
        rest = after;
    }
    Ok(chunks)
}
