//! Numbers with decimals → whole units, without loss.
//!
//! Some writers give fractions where a recording holds whole numbers. The values of a file are kept
//! in units of 1/[`Scale`]. The scale grows by powers of ten as longer fractions come, and a note of
//! the reader gives it.

use super::super::ReadError;
use super::Import;

/// Decimals that are kept; further ones are rounded.
pub(crate) const MAX_DECIMALS: u32 = 9;

/// A number as the file has it: `digits` / 10^`decimals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    digits: u64,
    decimals: u32,
}

impl Decimal {
    /// `12`, `1.5`, `.5`, `2.5e-3`, `1E6`: no sign before it. `None` for anything else, and for numbers
    /// beyond 64 bits.
    pub(crate) fn parse(text: &[u8]) -> Option<Decimal> {
        let (mantissa, exponent) = match text.iter().position(|c| matches!(c, b'e' | b'E')) {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (whole, part) = match memchr::memchr(b'.', mantissa) {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &b""[..]),
        };
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        let mut digits = 0u128;
        for c in whole.iter().chain(part) {
            let digit = c.is_ascii_digit().then(|| u128::from(c - b'0'))?;
            digits = digits.checked_mul(10)?.checked_add(digit)?;
        }
        Decimal::new(digits, i64::try_from(part.len()).ok()? - exponent)
    }

    /// A number of a JSON text. `None` for negative and infinite ones.
    pub(crate) fn of(value: f64) -> Option<Decimal> {
        // The shortest text that gives the same number back is the one that the writer meant.
        Decimal::parse(value.to_string().as_bytes())
    }

    fn new(mut digits: u128, mut decimals: i64) -> Option<Decimal> {
        while decimals > 0 && digits.is_multiple_of(10) {
            digits /= 10;
            decimals -= 1;
            if digits == 0 {
                decimals = 0;
            }
        }
        if decimals > i64::from(MAX_DECIMALS) {
            let over = u32::try_from(decimals - i64::from(MAX_DECIMALS)).ok()?;
            let unit = 10u128.checked_pow(over).unwrap_or(u128::MAX);
            digits = digits / unit + u128::from(digits % unit >= unit / 2);
            decimals = i64::from(MAX_DECIMALS);
        }
        if decimals < 0 {
            let over = u32::try_from(-decimals).ok()?;
            digits = digits.checked_mul(10u128.checked_pow(over)?)?;
            decimals = 0;
        }
        Some(Decimal {
            digits: u64::try_from(digits).ok()?,
            decimals: decimals as u32,
        })
    }

    /// The number times `factor`, rounded; saturates.
    pub(crate) fn times(self, factor: u64) -> u64 {
        let unit = 10u128.pow(self.decimals);
        let product = u128::from(self.digits) * u128::from(factor);
        u64::try_from((product + unit / 2) / unit).unwrap_or(u64::MAX)
    }

    /// The smallest power of ten that makes it a whole number.
    pub(crate) fn scale(self) -> u64 {
        10u64.pow(self.decimals)
    }
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    // Three digits are more than any number of 64 bits needs.
    (digits.len() <= 3).then_some(())?;
    Some(sign * super::number(digits)? as i64)
}

/// Units of a file's values: 1 while they are whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale(u64);

impl Scale {
    /// Whole numbers.
    pub(crate) const WHOLE: Scale = Scale(1);

    /// How many units the number 1 has.
    pub(crate) fn factor(self) -> u64 {
        self.0
    }

    /// `value` in units, which become smaller where it needs that.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] where values become too large.
    pub(crate) fn units(&mut self, value: Decimal, to: &mut Import) -> Result<u64, ReadError> {
        if value.scale() > self.0 {
            to.multiply(value.scale() / self.0)?;
            self.0 = value.scale();
        }
        Ok(value.times(self.0))
    }

    /// A sentence about the scaling; `None` while values are whole numbers.
    pub(crate) fn note(self) -> Option<String> {
        (self.0 > 1).then(|| {
            format!(
                "its values have decimals: they were multiplied by {}, so a value of {} here is 1 in \
                 the file",
                self.0, self.0
            )
        })
    }
}

impl Import {
    /// Multiplies all values so far.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] where values become too large.
    pub(crate) fn multiply(&mut self, factor: u64) -> Result<(), ReadError> {
        let sum: u128 = self.rec.samples.iter().map(|s| u128::from(s.ns)).sum();
        let more = u64::try_from(sum * u128::from(factor - 1)).unwrap_or(u64::MAX);
        self.total = self.total.saturating_add(more);
        self.check_total()?;
        for s in &mut self.rec.samples {
            s.ns *= factor;
            s.slices.iter_mut().for_each(|v| v.ns *= factor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(u64, u64)> {
        Decimal::parse(text.as_bytes()).map(|d| (d.times(d.scale()), d.scale()))
    }

    #[test]
    fn every_form_of_a_number_is_read_without_loss() {
        assert_eq!(parts("12"), Some((12, 1)));
        assert_eq!(parts("1.50"), Some((15, 10)));
        assert_eq!(parts(".25"), Some((25, 100)));
        assert_eq!(parts("0.000"), Some((0, 1)));
        assert_eq!(parts("2.5e-3"), Some((25, 10_000)));
        assert_eq!(parts("1E6"), Some((1_000_000, 1)));
        assert_eq!(parts("1e+06"), Some((1_000_000, 1)));
        assert_eq!(parts("0.1234567891"), Some((123_456_789, 1_000_000_000)));
        assert_eq!(parts("0.1234567899"), Some((123_456_790, 1_000_000_000)));
        for text in [
            "",
            ".",
            "-1",
            "1.2.3",
            "x",
            "1e",
            "1e9999",
            "99999999999999999999",
        ] {
            assert_eq!(parts(text), None, "{text}");
        }
        assert_eq!(Decimal::of(0.1).map(Decimal::scale), Some(10));
        assert_eq!(
            Decimal::of(1e15 + 0.5).map(|d| d.times(10)),
            Some(10_000_000_000_000_005)
        );
        assert_eq!(Decimal::of(f64::NAN), None);
        assert_eq!(Decimal::of(-2.0), None);
    }
}
