//! Protocol Buffers on the wire: fields of a message one after the other, without copying, and the
//! few writers that streaming a profile needs.

/// The bytes are no Protocol Buffers message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A varint or a fixed-width number, raw.
    Number(u64),
    /// A string, bytes, message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number, or 0 if the field has another type.
    pub(super) fn number(self) -> u64 {
        match self {
            Value::Number(n) => n,
            Value::Bytes(_) => 0,
        }
    }

    /// The bytes, or nothing if the field has another type.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Number(_) => &[],
            Value::Bytes(b) => b,
        }
    }

    /// Appends the number, or all the packed numbers.
    pub(super) fn numbers(self, out: &mut Vec<u64>) -> Result<(), Malformed> {
        match self {
            Value::Number(n) => out.push(n),
            Value::Bytes(mut b) => {
                while !b.is_empty() {
                    out.push(varint(&mut b)?);
                }
            }
        }
        Ok(())
    }
}

/// The fields of a message in order.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = varint(&mut self.rest)?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        if number == 0 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Value::Number(varint(&mut self.rest)?),
            1 => Value::Number(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let len = usize::try_from(varint(&mut self.rest)?).map_err(|_| Malformed)?;
                let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Number(u64::from(u32::from_le_bytes(self.fixed()?))),
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        if shift == 63 && *byte > 1 {
            return Err(Malformed);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Writes messages field by field. Zeros are left out, as proto3 does.
#[derive(Default)]
pub(super) struct Writer {
    /// The message so far.
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    /// A number; nothing if it is zero.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    /// A number, written even if it is zero.
    pub(super) fn present(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// A number of eight bytes.
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A string, bytes, or a finished message; written even if empty.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// Packed numbers; nothing if there are none.
    pub(super) fn packed(&mut self, field: u32, values: impl Iterator<Item = u64> + Clone) {
        let len: u64 = values.clone().map(varint_len).sum();
        if len == 0 {
            return;
        }
        self.varint(u64::from(field) << 3 | 2);
        self.varint(len);
        for v in values {
            self.varint(v);
        }
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

fn varint_len(value: u64) -> u64 {
    u64::from((70 - (value | 1).leading_zeros()) / 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        let mut values = vec![0, 1, u64::MAX];
        values.extend((0..64).flat_map(|b| [(1u64 << b) - 1, 1u64 << b]));
        let mut w = Writer::default();
        w.packed(7, values.iter().copied());
        w.number(8, u64::MAX);
        let fields: Vec<_> = Fields::new(&w.bytes).collect::<Result<_, _>>().unwrap();
        let mut back = Vec::new();
        fields[0].1.numbers(&mut back).unwrap();
        assert_eq!(back, values);
        assert_eq!(fields[1], (8, Value::Number(u64::MAX)));
    }

    #[test]
    fn broken_messages_are_errors() {
        for bytes in [
            &[0x08][..],
            &[0x0a, 5, 1],
            &[0x0b],
            &[0x00, 0],
            &[0x09, 1, 2],
            &[0xff; 12],
        ] {
            assert!(Fields::new(bytes).any(|f| f.is_err()), "{bytes:?}");
        }
    }
}
