//! Values ↔ bytes: variable-length integers, text with its length, fields in order.
//!
//! A type's encoding is fixed by the log's version: fields and variants are only appended, and the
//! version grows with each change. Decoding takes no more memory than the bytes that are there
//! allow: every element of a list is at least one byte.

use std::sync::Arc;

use thiserror::Error;

/// Bytes that are no encoding of the value that is due.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end within a value.
    #[error("a value is cut short")]
    Short,
    /// A number that does not fit its type.
    #[error("a number is too large")]
    Number,
    /// A choice that this version does not know.
    #[error("an unknown variant")]
    Variant,
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// An observation of a kind that this version does not know.
    #[error("an observation of unknown kind {0}")]
    Kind(u8),
}

/// The bytes that are still to be decoded.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next `n` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(head)
    }

    /// The next byte.
    ///
    /// # Errors
    /// No byte is left.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.0.len()
    }
}

/// A value that has an encoding.
pub trait Wire: Sized {
    /// Appends the encoding, at least one byte.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads a value.
    ///
    /// # Errors
    /// The bytes are no encoding of one.
    fn get(from: &mut Input<'_>) -> Result<Self, Malformed>;
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn get(from: &mut Input<'_>) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = from.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed::Number)
    }
}

macro_rules! narrower {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                u64::from(*self).put(out);
            }

            fn get(from: &mut Input<'_>) -> Result<$type, Malformed> {
                <$type>::try_from(u64::get(from)?).map_err(|_| Malformed::Number)
            }
        }
    )*};
}

narrower!(u8, u16, u32);

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<Box<T>, Malformed> {
        T::get(from).map(Box::new)
    }
}

impl Wire for i32 {
    fn put(&self, out: &mut Vec<u8>) {
        zigzag(i64::from(*self)).put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<i32, Malformed> {
        i32::try_from(unzigzag(u64::get(from)?)).map_err(|_| Malformed::Number)
    }
}

/// Maps numbers near zero, of either sign, to small numbers (zigzag encoding).
pub(crate) fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

impl Wire for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_bits().to_le_bytes());
    }

    fn get(from: &mut Input<'_>) -> Result<f64, Malformed> {
        let bytes = from.take(8)?.try_into().map_err(|_| Malformed::Short)?;
        Ok(f64::from_bits(u64::from_le_bytes(bytes)))
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(from: &mut Input<'_>) -> Result<bool, Malformed> {
        match from.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Variant),
        }
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    (text.len() as u64).put(out);
    out.extend(text.as_bytes());
}

fn get_text<'a>(from: &mut Input<'a>) -> Result<&'a str, Malformed> {
    let length = get_length(from)?;
    std::str::from_utf8(from.take(length)?).map_err(|_| Malformed::Text)
}

/// A number of bytes, or of elements of at least a byte each, that are all there.
pub(crate) fn get_length(from: &mut Input<'_>) -> Result<usize, Malformed> {
    let length = usize::try_from(u64::get(from)?).map_err(|_| Malformed::Number)?;
    if length > from.left() {
        return Err(Malformed::Short);
    }
    Ok(length)
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self, out);
    }

    fn get(from: &mut Input<'_>) -> Result<String, Malformed> {
        get_text(from).map(str::to_owned)
    }
}

impl Wire for Arc<str> {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self, out);
    }

    fn get(from: &mut Input<'_>) -> Result<Arc<str>, Malformed> {
        get_text(from).map(Arc::from)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(from: &mut Input<'_>) -> Result<Option<T>, Malformed> {
        bool::get(from)?.then(|| T::get(from)).transpose()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut Input<'_>) -> Result<Vec<T>, Malformed> {
        // Collected one by one: the length that a list claims is not allocated ahead.
        (0..get_length(from)?).map(|_| T::get(from)).collect()
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut Input<'_>) -> Result<[T; N], Malformed> {
        let all: Vec<T> = (0..N).map(|_| T::get(from)).collect::<Result<_, _>>()?;
        all.try_into().map_err(|_| Malformed::Short)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<(A, B), Malformed> {
        Ok((A::get(from)?, B::get(from)?))
    }
}

/// Encodes structs by their fields in order. A field that is added to a struct and not here does not
/// compile.
macro_rules! fields {
    ($($type:ident { $($field:ident),* $(,)? })*) => {$(
        impl $crate::wire::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let $type { $($field),* } = self;
                $($crate::wire::Wire::put($field, out);)*
            }

            fn get(
                from: &mut $crate::wire::Input<'_>,
            ) -> Result<$type, $crate::wire::Malformed> {
                Ok($type { $($field: $crate::wire::Wire::get(from)?),* })
            }
        }
    )*};
}

/// Encodes enums without values by numbers. A variant that is added to an enum and not here does not
/// compile.
macro_rules! variants {
    ($($type:ident { $($variant:ident = $number:literal),* $(,)? })*) => {$(
        impl $crate::wire::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $($type::$variant => $number,)* });
            }

            fn get(from: &mut $crate::wire::Input<'_>) -> Result<$type, $crate::wire::Malformed> {
                match from.byte()? {
                    $($number => Ok($type::$variant),)*
                    _ => Err($crate::wire::Malformed::Variant),
                }
            }
        }
    )*};
}

pub(crate) use {fields, variants};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn survives<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        let mut input = Input(&bytes);
        assert_eq!(T::get(&mut input).as_ref(), Ok(value));
        assert_eq!(input.left(), 0);
        for cut in 0..bytes.len() {
            assert!(T::get(&mut Input(&bytes[..cut])).is_err(), "cut to {cut}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn values_survive(
            numbers: Vec<u64>,
            text: String,
            pair: (u32, i32),
            option: Option<u16>,
            three: [u64; 3],
            flag: bool,
        ) {
            survives(&numbers);
            survives(&text);
            survives(&Arc::<str>::from(text));
            survives(&pair);
            survives(&option);
            survives(&three);
            survives(&flag);
        }

        #[test]
        fn floats_survive_bit_by_bit(bits: u64) {
            let mut bytes = Vec::new();
            f64::from_bits(bits).put(&mut bytes);
            let back = f64::get(&mut Input(&bytes)).unwrap();
            prop_assert_eq!(back.to_bits(), bits);
        }

        #[test]
        fn hostile_bytes_do_no_harm(bytes: Vec<u8>) {
            let _ = Vec::<Vec<String>>::get(&mut Input(&bytes));
            let _ = Vec::<Option<(u64, i32)>>::get(&mut Input(&bytes));
        }
    }

    #[test]
    fn a_length_beyond_the_bytes_is_refused() {
        let mut bytes = Vec::new();
        u64::MAX.put(&mut bytes);
        assert_eq!(String::get(&mut Input(&bytes)), Err(Malformed::Short));
        assert_eq!(Vec::<u64>::get(&mut Input(&bytes)), Err(Malformed::Short));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(u64::get(&mut Input(&[0xff; 10])), Err(Malformed::Number));
        let mut bytes = Vec::new();
        300u64.put(&mut bytes);
        assert_eq!(u8::get(&mut Input(&bytes)), Err(Malformed::Number));
        assert_eq!(bool::get(&mut Input(&[2])), Err(Malformed::Variant));
    }
}
