//! Numbers for people: three digits and a unit.

use crate::{Peer, Unit};

/// A value in the unit of its recording.
pub fn value(unit: &Unit, v: u64) -> String {
    match unit {
        Unit::Nanoseconds => ns(v),
        Unit::Bytes => bytes(v),
        Unit::Count(_) => large(v),
    }
}

/// A count that may be too large to read digit by digit.
fn large(v: u64) -> String {
    let f = v as f64;
    match v {
        0..1_000_000 => count(v),
        1_000_000..1_000_000_000 => format!("{} M", digits(f / 1e6)),
        1_000_000_000..1_000_000_000_000 => format!("{} G", digits(f / 1e9)),
        _ => format!("{} T", digits(f / 1e12)),
    }
}

/// A length of time given in ns.
pub fn ns(ns: u64) -> String {
    let v = ns as f64;
    match ns {
        0 => "0 s".to_string(),
        1..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} µs", digits(v / 1e3)),
        999_500..999_500_000 => format!("{} ms", digits(v / 1e6)),
        999_500_000..100_000_000_000 => format!("{} s", digits(v / 1e9)),
        _ => format!("{} s", count((v / 1e9).round() as u64)),
    }
}

/// Three digits, as a slide rule gives them.
fn digits(v: f64) -> String {
    if v < 9.995 {
        format!("{v:.2}")
    } else if v < 99.95 {
        format!("{v:.1}")
    } else {
        format!("{v:.0}")
    }
}

/// A share of 1 as a percentage; small ones keep a digit that tells them from nothing.
pub fn share(v: f64) -> String {
    let p = v * 100.0;
    if p == 0.0 {
        "0 %".to_string()
    } else if p < 0.01 {
        "<0.01 %".to_string()
    } else if p < 0.095 {
        format!("{p:.2} %")
    } else if p < 99.95 {
        format!("{p:.1} %")
    } else {
        format!("{p:.0} %")
    }
}

/// `part` of `whole` as a percentage.
pub fn share_of(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_string();
    }
    share(part as f64 / whole as f64)
}

/// A share of 1 in parts per million.
pub fn ppm(v: f64) -> String {
    let p = v * 1e6;
    if p == 0.0 {
        "0 ppm".to_string()
    } else if p < 0.1 {
        "<0.1 ppm".to_string()
    } else if p < 9.95 {
        format!("{p:.1} ppm")
    } else if p < 100_000.0 {
        format!("{p:.0} ppm")
    } else {
        share(v)
    }
}

/// A count, with separators of thousands.
pub fn count(n: u64) -> String {
    let text = n.to_string();
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// How many requests on connections with a peer.
pub fn requests(peer: &Peer) -> String {
    let least = if peer.requests_at_least { "≥ " } else { "" };
    format!("{least}{}", count(peer.requests))
}

/// A size in bytes.
pub fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{} KiB", digits(n as f64 / 1024.0)),
        1_048_576..1_073_741_824 => format!("{} MiB", digits(n as f64 / 1_048_576.0)),
        _ => format!("{} GiB", digits(n as f64 / 1_073_741_824.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (v, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (1_500, "1.50 µs"),
            (999_600, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (999_700_000, "1.00 s"),
            (123_456_789_012, "123 s"),
            (1_234_567_890_123, "1,235 s"),
        ] {
            assert_eq!(ns(v), text);
        }
        for (v, text) in [
            (0.0, "0 %"),
            (0.000_01, "<0.01 %"),
            (0.000_5, "0.05 %"),
            (0.123_4, "12.3 %"),
            (0.999_9, "100 %"),
        ] {
            assert_eq!(share(v), text);
        }
        assert_eq!(ppm(0.000_031), "31 ppm");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(52_428_800), "50.0 MiB");
        let cycles = Unit::Count("cycles".to_string());
        assert_eq!(value(&cycles, 1_234), "1,234");
        assert_eq!(value(&cycles, 12_345_678_901), "12.3 G");
        assert_eq!(value(&Unit::Bytes, 2048), "2.00 KiB");
    }
}
