//! Values of a comparison for people.

use super::Normal;

/// What a comparison's values are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share of 1.
    Share,
    /// Nanoseconds per something, or a run.
    Time {
        /// Per what, in words that follow a time.
        per: &'static str,
    },
}

impl Unit {
    /// The unit of values so normalised.
    pub fn of(normal: Normal) -> Unit {
        match normal {
            Normal::Total => Unit::Share,
            Normal::Second => Unit::Time { per: "/s" },
            Normal::CpuSecond => Unit::Time { per: "/CPU s" },
            Normal::Request => Unit::Time { per: "/request" },
            Normal::Raw => Unit::Time { per: "" },
        }
    }

    /// In words, for the head of a table.
    pub fn about(self, normal: Normal) -> &'static str {
        match normal {
            Normal::Total => "share of all time shown",
            Normal::Second => "time per second of recording",
            Normal::CpuSecond => "time per second of on-CPU time",
            Normal::Request => "time per request",
            Normal::Raw => "time of a run",
        }
    }

    /// A value, three digits.
    pub fn value(self, v: f64) -> String {
        match self {
            Unit::Share => format!("{} %", digits(v * 100.0)),
            Unit::Time { .. } => {
                let (scale, unit) = time_unit(v);
                format!("{} {unit}", digits(v / scale))
            }
        }
    }

    /// A difference and half its interval, in one unit: `+41.0 ± 3.2 ms`.
    pub fn difference(self, delta: f64, half: f64) -> String {
        let (scale, unit) = match self {
            Unit::Share => (0.01, "pp"),
            Unit::Time { .. } => time_unit(delta.abs().max(half)),
        };
        let sign = if delta < 0.0 { '−' } else { '+' };
        format!(
            "{sign}{} ± {} {unit}",
            digits(delta.abs() / scale),
            digits(half / scale)
        )
    }
}

/// Digits for people: three that matter, never in powers of ten.
fn digits(v: f64) -> String {
    match v.abs() {
        0.0 => "0".to_string(),
        a if a < 0.001 => "<0.001".to_string(),
        a if a < 0.995 => format!("{v:.3}"),
        a if a < 9.995 => format!("{v:.2}"),
        a if a < 99.95 => format!("{v:.1}"),
        _ => format!("{v:.0}"),
    }
}

/// The unit in which a time of so many ns is read best, and its length.
fn time_unit(ns: f64) -> (f64, &'static str) {
    match ns.abs() {
        a if a < 1e3 => (1.0, "ns"),
        a if a < 1e6 => (1e3, "µs"),
        a if a < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// A relative change: `+12 %`, or how many times.
pub(super) fn relative(v: Option<f64>) -> String {
    match v {
        None => "new".to_string(),
        Some(v) if v <= -1.0 => "gone".to_string(),
        Some(v) if v >= 9.0 => format!("× {}", digits(1.0 + v)),
        Some(v) => {
            let sign = if v < 0.0 { '−' } else { '+' };
            format!("{sign}{:.1} %", v.abs() * 100.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_one_unit() {
        let unit = Unit::of(Normal::Request);
        assert_eq!(unit.difference(41e6, 3.21e6), "+41.0 ± 3.21 ms");
        assert_eq!(unit.difference(-500.0, 2e6), "−<0.001 ± 2.00 ms");
        assert_eq!(Unit::Share.difference(0.0123, 0.004), "+1.23 ± 0.400 pp");
        assert_eq!(relative(Some(0.051)), "+5.1 %");
        assert_eq!(relative(Some(-1.0)), "gone");
        assert_eq!(relative(None), "new");
    }
}
