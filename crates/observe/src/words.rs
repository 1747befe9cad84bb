//! Records of the kernel programs ↔ bytes: their words as differences.
//!
//! A record is a C struct of `bpf/event.h`. Most of its words are small, or near the words of the
//! record of its kind before, or of the frame before in a stack. Each word has a code of four bits:
//!
//! ```text
//! 0        the word that was expected
//! 1 to 8   this number of low bytes of the word
//! 9 to 15  this number less 8 of bytes of the difference to the expected word (zigzag)
//! ```
//!
//! The expected word is that of the last record of the kind, or, in a stack, the word before. Codes
//! come first, two a byte, then the bytes of all words, then the bytes after the last whole word.

use rustc_hash::FxHashMap;

use crate::{
    kind,
    wire::{Input, Malformed, Wire, unzigzag, zigzag},
};

/// Maximum bytes of a record. The kernel programs send only copies of memory that are longer, and these are
/// not logged.
const MAX_RECORD: usize = 64 << 10;

/// Words of the last record of each kind. Both sides begin anew with each frame of the log.
#[derive(Default)]
pub(crate) struct Words {
    last: FxHashMap<(u8, u32), Vec<u64>>,
}

/// The first word of a record, which tells its kind.
fn kind_of(record: &[u8]) -> u32 {
    let first = record.get(..4).and_then(|b| b.try_into().ok());
    first.map_or(0, u32::from_le_bytes)
}

/// Whether records of this kind are stacks: their words are near each other.
fn is_stack(kind: u32) -> bool {
    kind < kind::FIRST || matches!(kind, kind::KERNEL_STACK | kind::MANAGED_STACK)
}

/// Number of bytes of `word` without leading zeros, at least one.
fn width(word: u64) -> usize {
    (8 - word.leading_zeros() as usize / 8).max(1)
}

/// Code and value of a word.
fn code(word: u64, expected: u64) -> (u8, u64) {
    if word == expected {
        return (0, 0);
    }
    let difference = zigzag(word.wrapping_sub(expected) as i64);
    let (plain, near) = (width(word), width(difference));
    if near < plain {
        (8 + near as u8, difference)
    } else {
        (plain as u8, word)
    }
}

impl Words {
    /// Forgets all records.
    pub(crate) fn clear(&mut self) {
        self.last.clear();
    }

    /// Appends `record`, of the stream `stream`.
    pub(crate) fn put(&mut self, stream: u8, record: &[u8], out: &mut Vec<u8>) {
        let kind = kind_of(record);
        let (words, rest) = record.as_chunks::<8>();
        kind.put(out);
        (record.len() as u64).put(out);
        let last = self.last.entry((stream, kind)).or_default();
        last.resize(words.len().max(last.len()), 0);
        let codes_at = out.len();
        out.resize(codes_at + words.len().div_ceil(2), 0);
        let mut before = 0;
        for (i, bytes) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*bytes);
            let expected = if is_stack(kind) { before } else { last[i] };
            let (code, value) = code(word, expected);
            out[codes_at + i / 2] |= code << (4 * (i % 2));
            let n = usize::from(if code > 8 { code - 8 } else { code });
            // A copy of eight bytes is one store; one of a few bytes is a call.
            let value_at = out.len();
            out.extend_from_slice(&value.to_le_bytes());
            out.truncate(value_at + n);
            (before, last[i]) = (word, word);
        }
        out.extend(rest);
    }

    /// Reads a record of the stream `stream` into `record`.
    ///
    /// # Errors
    /// The bytes are none.
    pub(crate) fn get(
        &mut self,
        stream: u8,
        from: &mut Input<'_>,
        record: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let kind = u32::get(from)?;
        let length = usize::try_from(u64::get(from)?).map_err(|_| Malformed::Number)?;
        if length > MAX_RECORD {
            return Err(Malformed::Number);
        }
        let words = length / 8;
        let codes = from.take(words.div_ceil(2))?;
        let last = self.last.entry((stream, kind)).or_default();
        last.resize(words.max(last.len()), 0);
        record.clear();
        let mut before = 0;
        for i in 0..words {
            let expected = if is_stack(kind) { before } else { last[i] };
            let code = codes[i / 2] >> (4 * (i % 2)) & 15;
            let n = usize::from(if code > 8 { code - 8 } else { code });
            let mut bytes = [0; 8];
            bytes[..n].copy_from_slice(from.take(n)?);
            let value = u64::from_le_bytes(bytes);
            let word = match code {
                0 => expected,
                1..=8 => value,
                _ => expected.wrapping_add(unzigzag(value) as u64),
            };
            record.extend(word.to_le_bytes());
            (before, last[i]) = (word, word);
        }
        record.extend(from.take(length % 8)?);
        // A record of another kind than the one that it is logged as is damaged.
        if kind_of(record) == kind {
            Ok(())
        } else {
            Err(Malformed::Variant)
        }
    }
}

/// Whether a record is short enough to be logged.
pub(crate) fn fits(record: &[u8]) -> bool {
    record.len() <= MAX_RECORD
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A record of `kind` with these words and bytes after it.
    fn record(kind: u32, words: &[u64], rest: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([8, 0, 0, 0]);
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        bytes.extend(rest);
        bytes
    }

    /// Words as records have them: small, near each other, or arbitrary.
    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..300u64,
            (0..5000u64).prop_map(|n| 1 << 45 | n),
            any::<u64>(),
        ]
    }

    fn kind() -> impl Strategy<Value = u32> {
        prop_oneof![
            Just(27),
            Just(kind::SAMPLE),
            Just(kind::KERNEL_STACK),
            any::<u32>(),
        ]
    }

    proptest! {
        #[test]
        fn records_survive(
            all in prop::collection::vec(
                (0..3u8, kind(), prop::collection::vec(word(), 0..40), prop::collection::vec(any::<u8>(), 0..8)),
                0..40,
            ),
        ) {
            let all: Vec<(u8, Vec<u8>)> = (all.iter())
                .map(|(stream, kind, words, rest)| (*stream, record(*kind, words, rest)))
                .collect();
            let (mut bytes, mut writer) = (Vec::new(), Words::default());
            for (stream, record) in &all {
                writer.put(*stream, record, &mut bytes);
            }
            let (mut input, mut reader, mut back) = (Input(&bytes), Words::default(), Vec::new());
            for (stream, record) in &all {
                reader.get(*stream, &mut input, &mut back).unwrap();
                prop_assert_eq!(&back, record);
            }
            prop_assert_eq!(input.left(), 0);
        }

        #[test]
        fn short_records_survive(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            let mut out = Vec::new();
            Words::default().put(0, &bytes, &mut out);
            let mut back = Vec::new();
            Words::default().get(0, &mut Input(&out), &mut back).unwrap();
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn hostile_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let (mut words, mut input, mut back) = (Words::default(), Input(&bytes), Vec::new());
            while words.get(0, &mut input, &mut back).is_ok() {
                prop_assert!(back.len() <= MAX_RECORD);
            }
        }
    }

    #[test]
    fn a_sample_takes_half_of_its_size() {
        let mut words = Words::default();
        let sample = |i: u64| {
            let hash = (i % 7 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            record(
                kind::SAMPLE,
                &[
                    77 + i % 3,
                    (1 << 46) + i * 1_000_000,
                    (1 << 46) + i * 1_000_700,
                    1_000_000,
                    hash,
                    hash >> 1,
                    0,
                    4242 | (4243 + i % 3) << 32,
                    1 | 3 << 32,
                    0,
                ],
                &[],
            )
        };
        let mut out = Vec::new();
        for i in 0..100 {
            words.put(0, &sample(i), &mut out);
        }
        assert!(out.len() < 100 * 46, "{} bytes a sample", out.len() / 100);
    }
}
