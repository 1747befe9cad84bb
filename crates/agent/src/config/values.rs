//! Values with units, as people write them: `10s`, `2GiB`, `3%`.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

const LENGTHS: [(&str, u64); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
const SIZES: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A length of time: `1ms`, `10s`, `24h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub Duration);

/// A number of bytes: `64MiB`, `2GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A share, above 0 and at most 1: `3%`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(pub f64);

impl Length {
    pub(super) const fn seconds(seconds: u64) -> Length {
        Length(Duration::from_secs(seconds))
    }

    fn parse(text: &str) -> Option<Length> {
        let ns = with_unit(text, &LENGTHS)?;
        (ns > 0).then_some(Length(Duration::from_nanos(ns)))
    }
}

impl Size {
    fn parse(text: &str) -> Option<Size> {
        with_unit(text, &SIZES).map(Size)
    }
}

impl Share {
    fn parse(text: &str) -> Option<Share> {
        let percent: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
        (percent > 0.0 && percent <= 100.0).then_some(Share(percent / 100.0))
    }
}

/// A whole number with one of the units.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim_start())?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Reads a value from a string of one form.
struct FromText<T> {
    parse: fn(&str) -> Option<T>,
    form: &'static str,
}

impl<T> Visitor<'_> for FromText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

macro_rules! from_text {
    ($type:ident, $form:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_str(FromText {
                    parse: $type::parse,
                    form: $form,
                })
            }
        }
    };
}

from_text!(
    Length,
    "a length such as \"1ms\", \"10s\", \"5m\" or \"24h\" (us, ms, s, m, h, d)"
);
from_text!(
    Size,
    "a size such as \"64MiB\" or \"2GiB\" (B, KiB, MiB, GiB)"
);
from_text!(Share, "a share above \"0%\", at most \"100%\"");

/// A name that may be a file's: letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub String);

impl Name {
    fn parse(text: &str) -> Option<Name> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let fits = (1..=64).contains(&text.len()) && text.chars().all(is_plain);
        fits.then(|| Name(text.to_string()))
    }
}

from_text!(Name, "1 to 64 letters, digits, - and _");

/// A regular expression that must match a whole value.
#[derive(Clone, Debug)]
pub struct Pattern(pub regex::Regex);

impl Pattern {
    fn parse(text: &str) -> Option<Pattern> {
        regex::Regex::new(&format!("^(?:{text})$"))
            .ok()
            .map(Pattern)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

from_text!(
    Pattern,
    "a regular expression, such as \"nginx\" or \"web-.*\""
);

/// An address of the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url(pub String);

impl Url {
    fn parse(text: &str) -> Option<Url> {
        let rest = text
            .strip_prefix("http://")
            .or(text.strip_prefix("https://"))?;
        let plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
        let has_host = !rest.is_empty() && !rest.starts_with('/');
        (plain && has_host).then(|| Url(text.trim_end_matches('/').to_string()))
    }
}

from_text!(Url, "an address such as \"https://profiles.example:8443\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        let ns = |t| Length::parse(t).map(|l| l.0.as_nanos());
        assert_eq!(ns("1ms"), Some(1_000_000));
        assert_eq!(ns("24h"), Some(86_400_000_000_000));
        assert_eq!(ns("5 m"), Some(300_000_000_000));
        for wrong in [
            "",
            "10",
            "s",
            "0s",
            "-1s",
            "1.5s",
            "10 fortnights",
            "99999999999999d",
        ] {
            assert_eq!(ns(wrong), None, "{wrong}");
        }
        assert_eq!(Size::parse("2GiB"), Some(Size(2 << 30)));
        assert_eq!(Size::parse("2GB"), None);
        assert_eq!(Share::parse("2.5%"), Some(Share(0.025)));
        for wrong in ["0%", "101%", "5", "nan%"] {
            assert_eq!(Share::parse(wrong), None, "{wrong}");
        }
        assert!(Pattern::parse("web-.*").is_some_and(|p| !p.0.is_match("a web-1")));
        assert!(Pattern::parse("(").is_none());
        assert!(Name::parse("../up").is_none());
        assert!(Url::parse("https://").is_none());
        assert_eq!(Url::parse("http://a/b/"), Some(Url("http://a/b".into())));
    }
}
