//! Labels of a goroutine, in the layout of `runtime/pprof`: a map up to Go 1.23, a list since.
//! Neither changes once a goroutine has it.

use crate::runtime::tasks::{Label, Memory};

/// Maximum labels, and maximum bytes of a text.
const MOST: u64 = 64;
const LONGEST: u64 = 1024;
/// Maximum chunks of a map.
const MOST_CHUNKS: u64 = 64;

/// Reads the labels at `address`, sorted; empty if the data there cannot be labels.
pub(super) fn read(memory: &mut dyn Memory, address: u64) -> Vec<Label> {
    let mut labels = list(memory, address)
        .or_else(|| map(memory, address))
        .unwrap_or_default();
    labels.sort();
    labels
}

fn words<const N: usize>(memory: &mut dyn Memory, address: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0u8; 8 * N];
    let readable = address != 0 && address.is_multiple_of(8) && memory.read(address, &mut bytes);
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    readable.then_some(words)
}

fn text(memory: &mut dyn Memory, address: u64, length: u64) -> Option<String> {
    if length > LONGEST {
        return None;
    }
    let mut bytes = vec![0u8; length as usize];
    if !bytes.is_empty() && !memory.read(address, &mut bytes) {
        return None;
    }
    String::from_utf8(bytes).ok()
}

/// Reads a slice of string pairs.
fn list(memory: &mut dyn Memory, address: u64) -> Option<Vec<Label>> {
    let [first, length, capacity] = words(memory, address)?;
    if length == 0 || length > capacity || capacity > MOST {
        return None;
    }
    (0..length)
        .map(|i| {
            let [key, key_length, value, value_length] = words(memory, first + 32 * i)?;
            let key = text(memory, key, key_length).filter(|k| !k.is_empty())?;
            Some((key, text(memory, value, value_length)?))
        })
        .collect()
}

/// Reads a map of strings to strings, with buckets of eight.
fn map(memory: &mut dyn Memory, address: u64) -> Option<Vec<Label>> {
    /// Slot marks below this mean that a slot is free.
    const LEAST_USED: u8 = 5;
    let [map] = words(memory, address)?;
    let [count, flags, buckets, old] = words(memory, map)?;
    // A growing map is in two places; label maps are built in one step.
    let shift = flags >> 8 & 0xff;
    if count == 0 || count > MOST || old != 0 || shift > 6 {
        return None;
    }
    let mut labels = Vec::new();
    let mut chunks = 0..MOST_CHUNKS;
    for bucket in 0..1u64 << shift {
        let mut at = buckets.checked_add(272 * bucket)?;
        while at != 0 {
            chunks.next()?;
            let chunk: [u64; 34] = words(memory, at)?;
            for (i, mark) in chunk[0].to_le_bytes().into_iter().enumerate() {
                if mark < LEAST_USED {
                    continue;
                }
                let (key, value) = (1 + 2 * i, 17 + 2 * i);
                labels.push((
                    text(memory, chunk[key], chunk[key + 1])?,
                    text(memory, chunk[value], chunk[value + 1])?,
                ));
            }
            at = chunk[33];
        }
    }
    (labels.len() as u64 == count).then_some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Made(Vec<u8>);

    impl Memory for Made {
        fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
            let from = at as usize;
            let found = self.0.get(from..from + to.len());
            found.map(|bytes| to.copy_from_slice(bytes)).is_some()
        }
    }

    fn made(words: &[(usize, u64)]) -> Made {
        let mut bytes = vec![0u8; 4096];
        for (at, word) in words {
            bytes[*at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[2048..2056].copy_from_slice(b"kindfast");
        Made(bytes)
    }

    #[test]
    fn both_ways_of_keeping_labels_are_read() {
        let expected = [("kind".to_owned(), "fast".to_owned())];
        let list = [
            (8, 64),
            (16, 1),
            (24, 1),
            (64, 2048),
            (72, 4),
            (80, 2052),
            (88, 4),
        ];
        assert_eq!(read(&mut made(&list), 8), expected);
        let map = [
            (8, 128),
            (128, 1),
            (144, 512),
            (512, 0x77),
            (520, 2048),
            (528, 4),
            (648, 2052),
            (656, 4),
        ];
        assert_eq!(read(&mut made(&map), 8), expected);
    }

    #[test]
    fn garbage_has_no_labels() {
        assert!(read(&mut made(&[]), 8).is_empty());
        assert!(read(&mut made(&[(8, u64::MAX), (16, 3), (24, 9)]), 8).is_empty());
        let circle = [(8, 128), (128, 60), (144, 512), (512 + 264, 512)];
        assert!(read(&mut made(&circle), 8).is_empty());
        assert!(read(&mut made(&[(8, 8)]), 1 << 40).is_empty());
    }
}
