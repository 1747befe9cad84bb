//! The VM's own counters of pauses, and causes and numbers of collections.
//!
//! The counters that `jstat` shows lie in the VM's memory, as pairs of name and value. A VM started
//! with `-XX:-UsePerfData` has none.

use super::vm::Vm;
use crate::runtime::memory::Memory;

/// Maximum bytes of the list of counters.
const MAX_LIST_BYTES: usize = 1 << 18;
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
const NAMES: [&str; 4] = [
    "sun.os.hrt.frequency",
    "sun.rt.safepoints",
    "sun.rt.safepointTime",
    "sun.rt.safepointSyncTime",
];

/// Texts and numbers that tell of collections: causes of the present and the last one, then numbers of young,
/// full, and concurrent ones.
const COLLECTIONS: [&str; 5] = [
    "sun.gc.cause",
    "sun.gc.lastCause",
    "sun.gc.collector.0.invocations",
    "sun.gc.collector.1.invocations",
    "sun.gc.collector.2.invocations",
];

/// Pauses of the Java threads since the VM started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Number of pauses.
    pub times: u64,
    /// Total duration of the pauses, ns.
    pub stopped_ns: u64,
    /// Total time until all threads had stopped, ns; not part of `stopped_ns`.
    pub reaching_ns: u64,
}

impl Pauses {
    /// The difference to `earlier`.
    pub fn since(self, earlier: Pauses) -> Pauses {
        Pauses {
            times: self.times.saturating_sub(earlier.times),
            stopped_ns: self.stopped_ns.saturating_sub(earlier.stopped_ns),
            reaching_ns: self.reaching_ns.saturating_sub(earlier.reaching_ns),
        }
    }
}

impl Vm {
    /// Reads the pauses so far; `None` if the VM does not count them, or not yet.
    pub fn pauses(&mut self, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Option<Pauses> {
        let mut memory = Memory(read);
        if self.counters.is_none() {
            let start = memory.word(self.counters_at?)?;
            let found = find(start, NAMES, &mut memory);
            self.counters = found.filter(|found| found.iter().all(|at| *at != 0));
        }
        let at = self.counters?;
        let mut values = [0u64; NAMES.len()];
        for (value, at) in values.iter_mut().zip(at) {
            *value = memory.word(at)?;
        }
        let [frequency, times, stopped, reaching] = values;
        let ns = |ticks: u64| {
            let ns = u128::from(ticks) * 1_000_000_000 / u128::from(frequency.max(1));
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        Some(Pauses {
            times,
            stopped_ns: ns(stopped),
            reaching_ns: ns(reaching),
        })
    }

    /// Returns the addresses of the causes and numbers of collections; 0: the VM has none.
    pub(super) fn collection_counters(
        &self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<([u64; 2], [u64; 3])> {
        let mut memory = Memory(read);
        let start = memory.word(self.counters_at?)?;
        let [cause, last, young, full, pauses] = find(start, COLLECTIONS, &mut memory)?;
        Some(([cause, last], [young, full, pauses]))
    }
}

/// Finds the addresses of the values of `names`; 0: there is none. `None`: there is no list of counters.
fn find<const N: usize>(start: u64, names: [&str; N], memory: &mut Memory<'_>) -> Option<[u64; N]> {
    let mut head = [0u8; 32];
    memory.bytes(start, &mut head)?;
    let half = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    if head[..4] != MAGIC {
        return None;
    }
    let (used, first) = (half(&head, 8)?, half(&head, 24)?);
    let mut bytes = vec![0u8; used.min(MAX_LIST_BYTES)];
    memory.bytes(start, &mut bytes)?;
    let mut found = [0u64; N];
    let mut at = first;
    while let Some(length) = half(&bytes, at).filter(|n| *n >= 20) {
        let entry = bytes.get(at..at.checked_add(length)?)?;
        let name = entry.get(half(entry, 4)?..)?;
        let name = name.split(|b| *b == 0).next()?;
        if let Some(i) = names.iter().position(|n| n.as_bytes() == name) {
            found[i] = start + (at + half(entry, 16)?) as u64;
        }
        at += length;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(values: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = vec![0u8; 32];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[24..28].copy_from_slice(&32u32.to_le_bytes());
        for (name, value) in values {
            let data = 20 + (name.len() + 8) / 8 * 8;
            let mut entry = vec![0u8; data];
            entry[..4].copy_from_slice(&(data as u32 + 8).to_le_bytes());
            entry[4..8].copy_from_slice(&20u32.to_le_bytes());
            entry[16..20].copy_from_slice(&(data as u32).to_le_bytes());
            entry[20..20 + name.len()].copy_from_slice(name.as_bytes());
            entry.extend(value.to_le_bytes());
            bytes.extend(entry);
        }
        let used = (bytes.len() as u32).to_le_bytes();
        bytes[8..12].copy_from_slice(&used);
        bytes
    }

    fn found(bytes: &[u8]) -> Option<Vec<u64>> {
        let mut read = |at: u64, to: &mut [u8]| {
            let from = (at - 0x1000) as usize;
            bytes.get(from..from + to.len()).is_some_and(|b| {
                to.copy_from_slice(b);
                true
            })
        };
        let mut memory = Memory(&mut read);
        let at = find(0x1000, NAMES, &mut memory)?;
        let value = |at: &u64| if *at == 0 { Some(0) } else { memory.word(*at) };
        at.iter().map(value).collect()
    }

    #[test]
    fn counters_are_found_by_name() {
        let all = [
            ("sun.rt.safepointTime", 3),
            ("java.threads.live", 9),
            ("sun.rt.safepointSyncTime", 4),
            ("sun.os.hrt.frequency", 1),
            ("sun.rt.safepoints", 2),
        ];
        assert_eq!(found(&entries(&all)), Some(vec![1, 2, 3, 4]));
        assert_eq!(found(&entries(&all[1..])), Some(vec![1, 2, 0, 4]));
        let mut damaged = entries(&all);
        damaged[32] = 1;
        assert_eq!(found(&damaged), Some(vec![0; 4]));
        damaged[0] = 0;
        assert_eq!(found(&damaged), None);
        assert_eq!(found(&damaged[..16]), None);
    }

    #[test]
    fn what_came_since() {
        let of = |times, stopped_ns, reaching_ns| Pauses {
            times,
            stopped_ns,
            reaching_ns,
        };
        assert_eq!(of(5, 50, 9).since(of(2, 20, 4)), of(3, 30, 5));
    }
}
