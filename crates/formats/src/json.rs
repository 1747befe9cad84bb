//! Parts that the JSON readers use: truncated files, keys for recognition, units, times.

use serde::de::DeserializeOwned;

use super::ReadError;
use super::source::Source;
use wallscope_model::Unit;

/// Warning about a file that ends in the middle.
pub(super) const CUT: &str = "the file ends in the middle: what came before is used";

/// The parsed file, and a warning if it is truncated. [`Source::cut`] is then true.
pub(super) fn parse<T: DeserializeOwned>(
    source: &mut Source,
) -> Result<(T, Vec<String>), ReadError> {
    let bytes = source.bytes()?;
    parse_bytes(&bytes, source)
}

/// Parses all bytes of `source`, as [`parse`] does.
pub(super) fn parse_bytes<T: DeserializeOwned>(
    bytes: &[u8],
    source: &mut Source,
) -> Result<(T, Vec<String>), ReadError> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok((value, Vec::new())),
        Err(e) if e.is_eof() || source.cut() => {
            source.set_cut();
            let closed = close(bytes);
            let value = serde_json::from_slice(&closed).map_err(|_| ReadError::Truncated)?;
            Ok((value, vec![CUT.to_string()]))
        }
        Err(e) => Err(ReadError::Damaged {
            what: e.to_string(),
        }),
    }
}

/// Closes a truncated text after its last whole value.
pub(super) fn close(bytes: &[u8]) -> Vec<u8> {
    let mut open: Vec<u8> = Vec::new();
    // The end of the whole part, and the number of brackets open there. A value is whole after a bracket or
    // before a comma.
    let mut good: (usize, usize) = (0, 0);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
            }
            b'{' | b'[' => {
                open.push(bytes[at] + 2);
                good = (at + 1, open.len());
            }
            b'}' | b']' => {
                open.pop();
                good = (at + 1, open.len());
            }
            b',' => good = (at, open.len()),
            _ => {}
        }
        at += 1;
    }
    // The brackets open at that end are the outermost of those open at the end of the file.
    let mut out = bytes[..good.0.min(bytes.len())].to_vec();
    out.extend(open[..good.1.min(open.len())].iter().rev());
    out
}

/// The unit with this name in JSON formats, and the number of units that a value of 1 is.
pub(super) fn unit(name: &str) -> (Unit, f64) {
    match name {
        "nanoseconds" | "ns" => (Unit::Nanoseconds, 1.0),
        "microseconds" | "us" | "µs" | "μs" => (Unit::Nanoseconds, 1e3),
        "milliseconds" | "ms" => (Unit::Nanoseconds, 1e6),
        "seconds" | "s" => (Unit::Nanoseconds, 1e9),
        "bytes" => (Unit::Bytes, 1.0),
        "none" | "" => (Unit::Count(super::UNTOLD.to_string()), 1.0),
        other => (Unit::Count(other.to_string()), 1.0),
    }
}

/// Converts `value` to whole units, `factor` (a whole number) for 1; 0 for NaN and negative values.
pub(super) fn whole(value: f64, factor: f64) -> u64 {
    // Casts saturate, and convert NaN to 0. The fraction is scaled separately: a float has room for the fraction
    // of times since 1970 in µs, but not in ns.
    let whole = (value.trunc() as u64).saturating_mul(factor as u64);
    let part = (value.fract() * factor).round() as u64;
    whole.saturating_add(part).min(1 << 61)
}

/// Whether `text` occurs in `head`.
pub(super) fn has(head: &[u8], text: &str) -> bool {
    memchr::memmem::find(head, text.as_bytes()).is_some()
}

/// Whether `head` has an object with the key `name`: the quoted name and a colon.
pub(super) fn has_key(head: &[u8], name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    memchr::memmem::find_iter(head, quoted.as_bytes()).any(|at| {
        let rest = head[at + quoted.len()..].trim_ascii_start();
        rest.first() == Some(&b':')
    })
}

/// The first byte that is no white space.
pub(super) fn start(head: &[u8]) -> Option<u8> {
    head.iter().copied().find(|c| !c.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_since_1970_keep_their_nanoseconds() {
        assert_eq!(super::whole(1.7e15 + 0.25, 1e3), 1_700_000_000_000_000_250);
        assert_eq!(super::whole(0.5, 1e9), 500_000_000);
        assert_eq!(super::whole(2.0, 1.0), 2);
        assert_eq!(super::whole(-1.5, 1e3), 0);
        assert_eq!(super::whole(f64::NAN, 1e3), 0);
        assert_eq!(super::whole(1e300, 1e3), 1 << 61);
    }

    #[test]
    fn a_cut_text_is_ended_after_its_last_whole_value() {
        let text = br#"{"a":[1,{"b":"x,]\"}"},3],"c":{"d":[true,null]}}"#;
        for len in 1..=text.len() {
            let closed = super::close(&text[..len]);
            let parsed = serde_json::from_slice::<serde_json::Value>(&closed);
            assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&closed));
        }
    }
}
