//! Numbers as the machine that wrote the file has them.

/// Which end of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Of a file with this beginning.
    pub(super) fn of(bytes: &[u8]) -> Order {
        if bytes.starts_with(b"2ELIFREP") {
            Order::Big
        } else {
            Order::Little
        }
    }

    pub(super) fn long(self, bytes: &[u8], at: usize) -> Option<u64> {
        let b: [u8; 8] = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(match self {
            Order::Little => u64::from_le_bytes(b),
            Order::Big => u64::from_be_bytes(b),
        })
    }

    pub(super) fn int(self, bytes: &[u8], at: usize) -> Option<u32> {
        let b: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(b),
            Order::Big => u32::from_be_bytes(b),
        })
    }

    pub(super) fn short(self, bytes: &[u8], at: usize) -> Option<u16> {
        let b: [u8; 2] = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(b),
            Order::Big => u16::from_be_bytes(b),
        })
    }

    /// Writes a number over what stands at `at`; without effect beyond the end.
    pub(super) fn put_long(self, bytes: &mut [u8], at: usize, value: u64) {
        let b = match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        };
        if let Some(to) = at.checked_add(8).and_then(|end| bytes.get_mut(at..end)) {
            to.copy_from_slice(&b);
        }
    }

    /// The flags of an event are bits of a C structure: where the high end comes first, so does the
    /// first of them, and the parser counts from the low end.
    pub(super) fn turn_flags(self, bytes: &mut [u8], at: usize) {
        if self == Order::Big
            && let Some(flags) = self.long(bytes, at)
        {
            self.put_long(bytes, at, flags.reverse_bits());
        }
    }
}
