//! Reading in tests.

use std::collections::BTreeMap;
use std::io::Read as _;

use wallscope_formats::{Options, Read, ReadError, folded, open};
use wallscope_model::{Recording, View};

/// A fixture's bytes, unpacked where they are packed by gzip.
pub fn plain(bytes: &[u8]) -> Vec<u8> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes.to_vec();
    }
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .unwrap();
    out
}

/// Reads with default limits.
pub fn read(bytes: &[u8]) -> Read {
    open(bytes, Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Reads a column by name.
pub fn read_value(bytes: &[u8], value: &str) -> Result<Read, ReadError> {
    let options = Options {
        value: Some(value.to_string()),
        ..Options::default()
    };
    open(bytes, options)
}

/// The folded lines of all time.
pub fn fold(recording: &Recording) -> BTreeMap<String, u64> {
    let mut out = Vec::new();
    let options = folded::Options {
        view: View::Wall,
        ..folded::Options::default()
    };
    folded::write(recording, &options, &mut out).unwrap();
    lines(&String::from_utf8(out).unwrap())
}

/// Stacks and values of folded text, equal stacks summed.
pub fn lines(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        *sums.entry(stack.to_string()).or_default() += value.parse::<u64>().unwrap();
    }
    sums
}

/// Reads a file that may be damaged.
pub fn try_read(bytes: &[u8]) -> Result<Read, ReadError> {
    open(bytes, Options::default())
}

/// Values by leaf, and by anywhere on the stack.
pub fn ends(recording: &Recording) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    ends_of(&fold(recording))
}

/// Values of folded lines by leaf, and by anywhere on the stack.
pub fn ends_of(sums: &BTreeMap<String, u64>) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (mut own, mut total) = (BTreeMap::new(), BTreeMap::new());
    for (stack, value) in sums {
        let mut frames: Vec<&str> = stack.split(';').collect();
        *own.entry(frames[frames.len() - 1].to_string()).or_default() += value;
        frames.sort_unstable();
        frames.dedup();
        for f in frames {
            *total.entry(f.to_string()).or_default() += value;
        }
    }
    (own, total)
}
