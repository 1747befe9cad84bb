//! Columns of integers as variable-length bytes. Most numbers are small and take one byte, and deflate
//! compresses the rest well.

use serde_json::{Map, Value, json};
use wallscope_model::printable::printable;

/// Columns one after another, and where each lies.
#[derive(Default)]
pub(super) struct Columns {
    bytes: Vec<u8>,
    index: Map<String, Value>,
}

impl Columns {
    /// Appends one column.
    pub fn put(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        let start = self.bytes.len();
        let mut count = 0u64;
        for value in values {
            self.varint(value);
            count += 1;
        }
        self.index.insert(name.into(), json!([start, count]));
    }

    /// Appends one column as differences from one value to the next (zigzag), the first from 0.
    pub fn put_deltas(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        let mut last = 0i64;
        let deltas = values.map(|v| {
            let d = (v as i64).wrapping_sub(last);
            last = v as i64;
            ((d << 1) ^ (d >> 63)) as u64
        });
        self.put(name, deltas);
    }

    /// Appends strings, made printable: a column of byte lengths, `NAME.len`, and their UTF-8 bytes,
    /// `NAME`.
    pub fn put_strings<'a>(&mut self, name: &str, strings: impl Iterator<Item = &'a str> + Clone) {
        let strings = strings.map(printable);
        self.put(
            &format!("{name}.len"),
            strings.clone().map(|s| s.len() as u64),
        );
        let start = self.bytes.len();
        for s in strings {
            self.bytes.extend_from_slice(s.as_bytes());
        }
        self.index
            .insert(name.into(), json!([start, self.bytes.len() - start]));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Place of each column (`name: [byte offset, values]`), and the bytes.
    pub fn finish(self) -> (Value, Vec<u8>) {
        (Value::Object(self.index), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_take_one_byte_and_large_ones_survive() {
        let mut c = Columns::default();
        c.put("a", [0, 127, 128, u64::MAX].into_iter());
        c.put_deltas("b", [5, 3, 3].into_iter());
        c.put_strings("s", ["x", "", "äö"].into_iter());
        let (index, bytes) = c.finish();
        assert_eq!(index["a"], json!([0, 4]));
        assert_eq!(bytes[..4], [0, 127, 0x80, 1]);
        assert_eq!(
            bytes[4..14],
            [255, 255, 255, 255, 255, 255, 255, 255, 255, 1]
        );
        assert_eq!(index["b"], json!([14, 3]));
        assert_eq!(bytes[14..17], [10, 3, 0]);
        assert_eq!(index["s.len"], json!([17, 3]));
        assert_eq!(index["s"], json!([20, 5]));
    }
}
