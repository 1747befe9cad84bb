//! Integers and texts of a flight recording.

/// Reason for which bytes cannot be read.
#[derive(Debug)]
pub(super) enum Stop {
    /// The bytes end, or are no values.
    Malformed,
    /// The values take more memory than allowed.
    Memory,
}

/// A text as it is written.
pub(super) enum Text {
    /// No text.
    Null,
    Own(Box<str>),
    /// The number of a constant.
    Constant(u64),
}

/// Reads integers and texts.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    pub rest: &'a [u8],
    /// Integers have a variable length.
    pub compressed: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        let (own, rest) = self.rest.split_at_checked(n).ok_or(Stop::Malformed)?;
        self.rest = rest;
        Ok(own)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Stop> {
        Ok(self.bytes(1)?[0])
    }

    /// An integer of `fixed` bytes, or of variable length: seven bits a byte, the ninth byte whole.
    pub(super) fn number(&mut self, fixed: usize) -> Result<u64, Stop> {
        if !self.compressed {
            let b = self.bytes(fixed)?;
            return Ok(b.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
        }
        let mut v = 0u64;
        for i in 0..9 {
            let b = self.byte()?;
            if i == 8 {
                return Ok(v | u64::from(b) << 56);
            }
            v |= u64::from(b & 0x7f) << (7 * i);
            if b & 0x80 == 0 {
                break;
            }
        }
        Ok(v)
    }

    pub(super) fn long(&mut self) -> Result<u64, Stop> {
        self.number(8)
    }

    pub(super) fn int(&mut self) -> Result<u64, Stop> {
        self.number(4)
    }

    /// A number of items, each of which takes a byte at least.
    pub(super) fn count(&mut self) -> Result<usize, Stop> {
        let n = usize::try_from(self.int()?).map_err(|_| Stop::Malformed)?;
        if n > self.rest.len() {
            return Err(Stop::Malformed);
        }
        Ok(n)
    }

    /// A text: in place, or the number of a constant.
    pub(super) fn text(&mut self) -> Result<Text, Stop> {
        Ok(match self.byte()? {
            0 => Text::Null,
            1 => Text::Own("".into()),
            2 => Text::Constant(self.long()?),
            3 => {
                let n = self.count()?;
                Text::Own(String::from_utf8_lossy(self.bytes(n)?).into())
            }
            4 => {
                let n = self.count()?;
                let mut text = String::new();
                for _ in 0..n {
                    let c = u32::try_from(self.number(2)?).ok().and_then(char::from_u32);
                    text.push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                Text::Own(text.into())
            }
            5 => {
                let n = self.count()?;
                Text::Own(self.bytes(n)?.iter().map(|b| char::from(*b)).collect())
            }
            _ => return Err(Stop::Malformed),
        })
    }
}
