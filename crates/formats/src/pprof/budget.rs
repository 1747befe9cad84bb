//! Bounds memory before it is taken: a few bytes on the wire may ask for a hundred in memory, so a
//! hostile file of a megabyte could otherwise ask for many gigabytes.

use super::super::wire::Fields;
use super::super::{Bounds, ReadError};
use super::tables::Tables;

/// Bytes that a context, a process or a moment of the host takes, generously.
const RECORD: u64 = 1024;
/// Bytes that any nested message or string takes at least.
const NESTED: u64 = 128;
/// Bytes that one byte of packed numbers can become.
const PACKED: u64 = 8;

/// Checks the memory of a recording made from the profile's own tables.
pub(super) fn tables(t: &Tables, bounds: Bounds) -> Result<(), ReadError> {
    let entries = [
        (t.samples.len(), 256),
        (t.locations.len(), 256),
        (t.functions.len(), 256),
        (t.mappings.len(), 128),
        (t.strings.len(), 64),
    ];
    let sum = entries.iter().map(|(n, size)| *n as u64 * size).sum();
    check(sum, bounds)
}

/// Checks the memory of the extension's message.
pub(super) fn extension(bytes: &[u8], bounds: Bounds) -> Result<(), ReadError> {
    let mut sum = 0u64;
    for item in Fields::new(bytes) {
        let (_, value) = item?;
        let bytes = value.bytes();
        sum += RECORD + bytes.len() as u64 * PACKED;
        // One level down. Bytes that are no message do not parse as one, and are skipped.
        sum += Fields::new(bytes)
            .map_while(Result::ok)
            .map(|(_, v)| NESTED + nested(v.bytes()))
            .sum::<u64>();
        check(sum, bounds)?;
    }
    Ok(())
}

/// Two levels down: disks and limits of a moment, entries of a ledger.
fn nested(bytes: &[u8]) -> u64 {
    if bytes.len() > 4096 {
        // A column of packed numbers: paid for by its length.
        return 0;
    }
    Fields::new(bytes).map_while(Result::ok).count() as u64 * NESTED / 4
}

fn check(sum: u64, bounds: Bounds) -> Result<(), ReadError> {
    if sum > bounds.memory {
        return Err(ReadError::TooLarge {
            what: "what it describes needs more memory",
            limit_mib: bounds.memory >> 20,
        });
    }
    Ok(())
}
