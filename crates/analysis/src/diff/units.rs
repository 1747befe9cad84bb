//! Values of a comparison for people.

use wallscope_model::compare::Difference;

use super::options::Normal;
use wallscope_model::units::count;

/// Unit of a comparison's values. `per` is the suffix of a value that names its divisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share of 1.
    Share,
    /// Nanoseconds.
    Time {
        /// `/s`, `/request`; empty: of a run.
        per: &'static str,
    },
    /// Bytes.
    Bytes {
        /// `/s`, `/request`; empty: of a run.
        per: &'static str,
    },
    /// Things counted.
    Count {
        /// `/s`, `/request`; empty: of a run.
        per: &'static str,
    },
}

impl Unit {
    /// The unit of `measured` values, divided by `normal`.
    pub fn of(normal: Normal, measured: &wallscope_model::Unit) -> Unit {
        let per = match normal {
            Normal::Total => return Unit::Share,
            Normal::Second => "/s",
            Normal::CpuSecond => "/CPU s",
            Normal::Request => "/request",
            Normal::Raw => "",
        };
        match measured {
            wallscope_model::Unit::Nanoseconds => Unit::Time { per },
            wallscope_model::Unit::Bytes => Unit::Bytes { per },
            wallscope_model::Unit::Count(_) => Unit::Count { per },
        }
    }

    /// The suffix of a value that names its divisor.
    pub fn per(self) -> &'static str {
        match self {
            Unit::Share => "",
            Unit::Time { per } | Unit::Bytes { per } | Unit::Count { per } => per,
        }
    }

    /// The scale that suits a value best, and its name.
    fn scale(self, v: f64) -> (f64, &'static str) {
        match self {
            Unit::Share => (0.01, " %"),
            Unit::Time { .. } => match v.abs() {
                a if a < 1e3 => (1.0, " ns"),
                a if a < 1e6 => (1e3, " µs"),
                a if a < 1e9 => (1e6, " ms"),
                _ => (1e9, " s"),
            },
            Unit::Bytes { .. } => match v.abs() {
                a if a < 1024.0 => (1.0, " B"),
                a if a < 1024.0 * 1024.0 => (1024.0, " KiB"),
                a if a < 1024.0 * 1024.0 * 1024.0 => (1024.0 * 1024.0, " MiB"),
                _ => (1024.0 * 1024.0 * 1024.0, " GiB"),
            },
            Unit::Count { .. } => match v.abs() {
                a if a < 1e6 => (1.0, ""),
                a if a < 1e9 => (1e6, " M"),
                _ => (1e9, " G"),
            },
        }
    }

    /// A value, three digits.
    pub fn value(self, v: f64) -> String {
        let (scale, name) = self.scale(v);
        format!("{}{name}", digits(v / scale))
    }

    /// A difference and half its interval, in one unit: `+41.0 ± 3.2 ms`.
    pub fn difference(self, delta: f64, half: f64) -> String {
        let (scale, name) = match self {
            Unit::Share => (0.01, " pp"),
            unit => unit.scale(delta.abs().max(half)),
        };
        let sign = if delta < 0.0 { '−' } else { '+' };
        format!(
            "{sign}{} ± {}{name}",
            digits(delta.abs() / scale),
            digits(half / scale)
        )
    }
}

/// Meaning of the values, in words, for the head of a table.
pub(super) fn about(normal: Normal, measured: &wallscope_model::Unit) -> String {
    let what = if measured.is_time() {
        "time"
    } else {
        measured.name()
    };
    match normal {
        Normal::Total => format!("share of all {what} shown"),
        Normal::Second => format!("{what} per second of recording"),
        Normal::CpuSecond => format!("{what} per second of on-CPU time"),
        Normal::Request => format!("{what} per request"),
        Normal::Raw => format!("{what} of a run"),
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
        a => count(a.round() as u64),
    }
}

/// A relative change: `+12 %`, or how many times; of nothing to nothing there is none.
pub fn relative(d: &Difference) -> String {
    match d.relative() {
        None if d.new == 0.0 => "–".to_string(),
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
    use wallscope_model::Unit as Measured;

    use super::*;

    #[test]
    fn differences_have_one_unit() {
        let unit = Unit::of(Normal::Request, &Measured::Nanoseconds);
        assert_eq!(unit.difference(41e6, 3.21e6), "+41.0 ± 3.21 ms");
        assert_eq!(unit.difference(-500.0, 2e6), "−<0.001 ± 2.00 ms");
        assert_eq!(Unit::Share.difference(0.0123, 0.004), "+1.23 ± 0.400 pp");
        let change = |base: f64, new: f64| {
            relative(&Difference {
                base,
                new,
                delta: new - base,
                ..Difference::default()
            })
        };
        assert_eq!(change(1000.0, 1051.0), "+5.1 %");
        assert_eq!(change(1.0, 0.0), "gone");
        assert_eq!(change(0.0, 1.0), "new");
        assert_eq!(change(0.0, 0.0), "–");
    }

    #[test]
    fn bytes_and_counts_are_no_times() {
        let bytes = Unit::of(Normal::Raw, &Measured::Bytes);
        assert_eq!(bytes.value(3.0 * 1024.0 * 1024.0), "3.00 MiB");
        assert_eq!(bytes.difference(-2048.0, 100.0), "−2.00 ± 0.098 KiB");
        let cycles = Measured::Count("cycles".to_string());
        let count = Unit::of(Normal::Second, &cycles);
        assert_eq!(
            (count.value(12_345.0), count.per()),
            ("12,345".into(), "/s")
        );
        assert_eq!(count.value(2.5e9), "2.50 G");
        assert_eq!(about(Normal::Raw, &cycles), "cycles of a run");
        assert_eq!(Unit::of(Normal::Total, &cycles), Unit::Share);
    }
}
