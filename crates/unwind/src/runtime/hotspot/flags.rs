//! Flags that the VM was started with, or has set itself.

use super::structs::Tables;
use crate::runtime::memory::Memory;

/// Maximum flags of a VM.
const MOST_FLAGS: u64 = 4096;

/// Reads the boolean flags `wanted`; `None` for a flag that the VM does not have.
pub(super) fn are_set<const N: usize>(
    tables: &Tables,
    wanted: [&str; N],
    memory: &mut Memory<'_>,
) -> Option<[Option<bool>; N]> {
    let first = memory.word(tables.get("JVMFlag", "flags")?)?;
    let count = memory.word(tables.get("JVMFlag", "numFlags")?)?;
    let stride = tables.size("JVMFlag")?;
    let (name, value) = (
        tables.get("JVMFlag", "_name")?,
        tables.get("JVMFlag", "_addr")?,
    );
    let bytes = stride.checked_mul(count.min(MOST_FLAGS))?;
    let mut all = vec![0u8; usize::try_from(bytes).ok()?];
    memory.bytes(first, &mut all)?;
    let word = |flag: &[u8], at: u64| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = flag.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let longest = wanted.iter().map(|w| w.len()).max()? + 1;
    let mut found = [None; N];
    let mut text = vec![0u8; longest];
    for flag in all.chunks_exact(usize::try_from(stride).ok().filter(|s| *s > 0)?) {
        let known = word(flag, name).and_then(|at| memory.bytes(at, &mut text));
        let name = text.split(|b| *b == 0).next();
        let Some(i) = wanted
            .iter()
            .position(|w| known.is_some() && Some(w.as_bytes()) == name)
        else {
            continue;
        };
        let mut set = [0u8];
        memory.bytes(word(flag, value)?, &mut set)?;
        found[i] = Some(set[0] != 0);
    }
    Some(found)
}
