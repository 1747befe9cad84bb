//! Text forms of metrics: Prometheus 0.0.4 and OpenMetrics 1.0.0.

use std::fmt::Write as _;

/// Kind of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets, sum and count.
    Histogram,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Nanoseconds, written as seconds.
    Ns(u64),
    /// A whole number.
    Whole(u64),
    /// Any number.
    Number(f64),
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Ending of the family's name: `_bucket`, `_sum`, `_count`, or empty.
    pub suffix: &'static str,
    /// Its labels.
    pub labels: Vec<(&'static str, String)>,
    /// Its value.
    pub value: Value,
}

/// A metric family.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its help.
    pub help: &'static str,
    /// Its samples.
    pub samples: Vec<Sample>,
}

/// A text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text form.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

impl Exposition {
    /// The form that a scraper's `Accept` prefers.
    pub fn of_accept(accept: &str) -> Exposition {
        let quality = |kind: &str| {
            let part = accept.split(',').find(|p| p.trim().starts_with(kind))?;
            let q = part.split(';').find_map(|p| p.trim().strip_prefix("q="));
            q.map_or(Some(1.0), |q| q.trim().parse::<f64>().ok())
        };
        let text = quality("text/plain").or(quality("*/*")).unwrap_or(0.0);
        match quality("application/openmetrics-text") {
            Some(q) if q > 0.0 && q >= text => Exposition::OpenMetrics,
            _ => Exposition::Prometheus,
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The families as text; those without samples are left out.
    pub fn text(self, families: &[Family]) -> String {
        let mut out = String::new();
        for family in families.iter().filter(|f| !f.samples.is_empty()) {
            self.family(family, &mut out);
        }
        if self == Exposition::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    fn family(self, f: &Family, out: &mut String) {
        let kind = match f.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let total = match f.kind {
            Kind::Counter => "_total",
            _ => "",
        };
        // OpenMetrics names the family of a counter without `_total`.
        let in_head = match self {
            Exposition::Prometheus => total,
            Exposition::OpenMetrics => "",
        };
        let name = f.name;
        let _ = writeln!(out, "# HELP {name}{in_head} {}", f.help);
        let _ = writeln!(out, "# TYPE {name}{in_head} {kind}");
        for s in &f.samples {
            let _ = write!(out, "{name}{total}{}", s.suffix);
            for (i, (key, value)) in s.labels.iter().enumerate() {
                let open = if i == 0 { '{' } else { ',' };
                let _ = write!(out, "{open}{key}=\"{}\"", escaped(value));
            }
            let close = if s.labels.is_empty() { "" } else { "}" };
            let _ = writeln!(out, "{close} {}", number(s.value));
        }
    }
}

fn number(value: Value) -> String {
    match value {
        Value::Ns(ns) => format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
        Value::Whole(n) => n.to_string(),
        Value::Number(n) => n.to_string(),
    }
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            // A terminal or a page may obey it.
            c if wallscope_model::printable::is_obeyed(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(kind: Kind) -> Family {
        Family {
            name: "a_seconds",
            kind,
            help: "Help.",
            samples: vec![Sample {
                suffix: "",
                labels: vec![
                    ("service", "a\"b\\c\nd\u{1b}".to_string()),
                    ("x", "y".to_string()),
                ],
                value: Value::Ns(1_000_000_001),
            }],
        }
    }

    #[test]
    fn both_forms() {
        let f = [family(Kind::Counter)];
        let line = "a_seconds_total{service=\"a\\\"b\\\\c\\nd\u{fffd}\",x=\"y\"} 1.000000001\n";
        assert_eq!(
            Exposition::Prometheus.text(&f),
            format!("# HELP a_seconds_total Help.\n# TYPE a_seconds_total counter\n{line}")
        );
        assert_eq!(
            Exposition::OpenMetrics.text(&f),
            format!("# HELP a_seconds Help.\n# TYPE a_seconds counter\n{line}# EOF\n")
        );
    }

    #[test]
    fn the_scraper_chooses() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Exposition::of_accept(prometheus), Exposition::OpenMetrics);
        for other in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text;q=0.1,text/plain;q=0.5",
        ] {
            assert_eq!(
                Exposition::of_accept(other),
                Exposition::Prometheus,
                "{other}"
            );
        }
    }
}
