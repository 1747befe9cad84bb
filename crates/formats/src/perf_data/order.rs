//! Integers in the byte order of the machine that wrote the file.

/// Byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Byte order of a file with this beginning.
    pub(super) fn of(bytes: &[u8]) -> Order {
        if bytes.starts_with(b"2ELIFREP") {
            Order::Big
        } else {
            Order::Little
        }
    }

    /// The 64-bit integer at `at`.
    pub(super) fn long(self, bytes: &[u8], at: usize) -> Option<u64> {
        let b: [u8; 8] = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(match self {
            Order::Little => u64::from_le_bytes(b),
            Order::Big => u64::from_be_bytes(b),
        })
    }

    /// The 32-bit integer at `at`.
    pub(super) fn int(self, bytes: &[u8], at: usize) -> Option<u32> {
        let b: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(b),
            Order::Big => u32::from_be_bytes(b),
        })
    }

    /// The 16-bit integer at `at`.
    pub(super) fn short(self, bytes: &[u8], at: usize) -> Option<u16> {
        let b: [u8; 2] = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(b),
            Order::Big => u16::from_be_bytes(b),
        })
    }

    /// The 64 one-bit fields of a C structure at `at`, the first declared in bit 0.
    ///
    /// Compilers for big-endian machines begin with the highest bit.
    pub(super) fn bit_fields(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bits = self.long(bytes, at)?;
        Some(match self {
            Order::Little => bits,
            Order::Big => bits.reverse_bits(),
        })
    }
}

/// Fields that follow each other.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub rest: &'a [u8],
    pub order: Order,
}

impl<'a> Fields<'a> {
    pub(super) fn new(rest: &'a [u8], order: Order) -> Self {
        Fields { rest, order }
    }

    pub(super) fn bytes(&mut self, n: u64) -> Option<&'a [u8]> {
        let (own, rest) = self.rest.split_at_checked(usize::try_from(n).ok()?)?;
        self.rest = rest;
        Some(own)
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        let order = self.order;
        order.long(self.bytes(8)?, 0)
    }

    pub(super) fn int(&mut self) -> Option<u32> {
        let order = self.order;
        order.int(self.bytes(4)?, 0)
    }

    /// `n` 64-bit integers.
    pub(super) fn words(&mut self, n: u64) -> Option<Words<'a>> {
        Some(Words {
            bytes: self.bytes(n.checked_mul(8)?)?,
            order: self.order,
        })
    }
}

/// An array of 64-bit integers.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    order: Order,
}

impl<'a> Words<'a> {
    pub(super) fn empty() -> Words<'a> {
        Words {
            bytes: &[],
            order: Order::Little,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    pub(super) fn get(&self, i: usize) -> Option<u64> {
        self.order.long(self.bytes, i.checked_mul(8)?)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u64> + 'a {
        (0..self.len()).filter_map(move |i| self.get(i))
    }
}
