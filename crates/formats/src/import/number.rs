//! Numbers as text, without loss.

/// A number of seconds written with a decimal point → nanoseconds, without rounding by floats.
pub(crate) fn seconds(text: &[u8]) -> Option<u64> {
    let (whole, part) = match memchr::memchr(b'.', text) {
        Some(i) => (&text[..i], &text[i + 1..]),
        None => (text, &b""[..]),
    };
    let mut ns: u64 = 0;
    if part.len() > 18 {
        return None;
    }
    for i in 0..9 {
        let d = match part.get(i) {
            Some(d) => digit(*d)?,
            None => 0,
        };
        ns = ns * 10 + d;
    }
    number(whole)?.checked_mul(1_000_000_000)?.checked_add(ns)
}

fn digit(c: u8) -> Option<u64> {
    c.is_ascii_digit().then(|| u64::from(c - b'0'))
}

/// A decimal number.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut n = 0u64;
    for c in text {
        n = n.checked_mul(10)?.checked_add(digit(*c)?)?;
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_without_loss() {
        assert_eq!(seconds(b"12.000000001"), Some(12_000_000_001));
        assert_eq!(seconds(b"5"), Some(5_000_000_000));
        assert_eq!(seconds(b"1.5"), Some(1_500_000_000));
        assert_eq!(seconds(b"x"), None);
        assert_eq!(number(b"18446744073709551616"), None);
    }
}
