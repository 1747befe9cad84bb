//! UTF-16 → UTF-8 on the way.
//!
//! Windows shells write redirected output in UTF-16 with a byte order mark. A surrogate without its
//! partner and an odd last byte become U+FFFD.

use std::io::{self, Read};

/// Byte order of UTF-16 text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// The byte order that the mark at the start of `head` names; `None` without a mark of UTF-16.
pub(super) fn order(head: &[u8]) -> Option<Order> {
    match head {
        // UTF-32 begins with the same two bytes, and is no text that a tool writes.
        [0xff, 0xfe, 0, 0, ..] => None,
        [0xff, 0xfe, ..] => Some(Order::Little),
        [0xfe, 0xff, ..] => Some(Order::Big),
        _ => None,
    }
}

/// A reader of UTF-8 over one of UTF-16.
pub(super) struct Utf16<R> {
    inner: R,
    order: Order,
    /// First byte of a unit that the last read split.
    half: Option<u8>,
    /// High surrogate that waits for its partner.
    high: Option<u16>,
    /// Decoded text, given out up to `at`.
    out: String,
    at: usize,
}

/// Bytes of UTF-16 that are decoded at once.
const CHUNK: usize = 32 << 10;

impl<R: Read> Utf16<R> {
    pub(super) fn new(inner: R, order: Order) -> Utf16<R> {
        Utf16 {
            inner,
            order,
            half: None,
            high: None,
            out: String::new(),
            at: 0,
        }
    }

    fn unit(&mut self, unit: u16) {
        let high = self.high.take();
        if (0xd800..0xdc00).contains(&unit) {
            if high.is_some() {
                self.out.push(char::REPLACEMENT_CHARACTER);
            }
            self.high = Some(unit);
            return;
        }
        let chars = char::decode_utf16(high.into_iter().chain([unit]));
        let marked = chars.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        self.out.extend(marked);
    }

    fn decode(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let Some(first) = self.half.take() else {
                self.half = Some(*byte);
                continue;
            };
            self.unit(match self.order {
                Order::Little => u16::from_le_bytes([first, *byte]),
                Order::Big => u16::from_be_bytes([first, *byte]),
            });
        }
    }

    fn end(&mut self) {
        if self.half.take().is_some() || self.high.take().is_some() {
            self.out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
            let mut raw = [0; CHUNK];
            match self.inner.read(&mut raw)? {
                0 => {
                    self.end();
                    if self.out.is_empty() {
                        return Ok(0);
                    }
                }
                n => self.decode(&raw[..n]),
            }
        }
        let rest = &self.out.as_bytes()[self.at..];
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u16], order: Order, piece: usize) -> String {
        let bytes: Vec<u8> = (text.iter())
            .flat_map(|u| match order {
                Order::Little => u.to_le_bytes(),
                Order::Big => u.to_be_bytes(),
            })
            .collect();
        let mut reader = Utf16::new(&bytes[..], order);
        let (mut out, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match reader.read(&mut buffer).unwrap() {
                0 => return String::from_utf8(out).unwrap(),
                n => out.extend_from_slice(&buffer[..n]),
            }
        }
    }

    #[test]
    fn both_orders_and_surrogates_become_utf8() {
        let text = "main;café;𝛼 12\n".repeat(5000);
        let units: Vec<u16> = text.encode_utf16().collect();
        for piece in [1, 7, 4096] {
            assert_eq!(decoded(&units, Order::Little, piece), text);
        }
        assert_eq!(decoded(&units, Order::Big, 4096), text);
    }

    #[test]
    fn lone_surrogates_and_a_last_byte_are_marked() {
        assert_eq!(decoded(&[0xd83d, 0x61], Order::Big, 9), "\u{fffd}a");
        assert_eq!(decoded(&[0x61, 0xd83d], Order::Big, 9), "a\u{fffd}");
        let twice = decoded(&[0xd83d, 0xd83d, 0x61], Order::Big, 9);
        assert_eq!(twice, "\u{fffd}\u{fffd}a");
        let mut odd = Utf16::new(&b"a\0b"[..], Order::Little);
        let mut out = String::new();
        odd.read_to_string(&mut out).unwrap();
        assert_eq!(out, "a\u{fffd}");
    }
}
