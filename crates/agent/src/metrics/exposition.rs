//! Forms of metrics: Prometheus' text 0.0.4, OpenMetrics 1.0.0, and Prometheus' protobuf messages
//! ([`super::protobuf`]), which alone can hold native histograms.

use std::fmt::Write as _;

use super::family::{Family, Lengths, MetricKind, Value, printable};
use super::protobuf;

/// A form of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text form.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
    /// Prometheus' protobuf messages, each after its length.
    Protobuf,
}

/// Parameters of the media type of [`Exposition::Protobuf`].
const MESSAGES: [&str; 2] = [
    "proto=io.prometheus.client.metricfamily",
    "encoding=delimited",
];

impl Exposition {
    /// The form that a scraper's `Accept` prefers: the highest quality; of equal ones the richer form.
    pub fn of_accept(accept: &str) -> Exposition {
        let accept = accept.to_ascii_lowercase();
        let ranges = accept.split(',').map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let parameters: Vec<&str> = parts.collect();
            let quality = parameters.iter().find_map(|p| p.strip_prefix("q="));
            let quality = quality.map_or(Some(1.0), |q| q.parse::<f64>().ok());
            let form = match kind {
                "text/plain" | "text/*" | "*/*" => Some(Exposition::Prometheus),
                "application/openmetrics-text" => Some(Exposition::OpenMetrics),
                "application/vnd.google.protobuf" => {
                    (MESSAGES.iter().all(|m| parameters.contains(m)))
                        .then_some(Exposition::Protobuf)
                }
                _ => None,
            };
            (form, quality.unwrap_or(0.0))
        });
        let mut best = (Exposition::Prometheus, 0.0);
        for (form, quality) in ranges {
            let Some(form) = form.filter(|_| quality > 0.0) else {
                continue;
            };
            let is_richer = quality == best.1 && form as u8 > best.0 as u8;
            if quality > best.1 || is_richer {
                best = (form, quality);
            }
        }
        best.0
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The families in this form; those without samples are left out.
    pub fn bytes(self, families: &[Family]) -> Vec<u8> {
        match self {
            Exposition::Protobuf => protobuf::bytes(families),
            Exposition::Prometheus | Exposition::OpenMetrics => self.text(families).into_bytes(),
        }
    }

    /// The families as text, in OpenMetrics' form if that is asked for, else in Prometheus'. Families without samples are
    /// left out.
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
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let total = f.ending();
        // OpenMetrics names the family of a counter without `_total`.
        let in_head = match self {
            Exposition::OpenMetrics => "",
            Exposition::Prometheus | Exposition::Protobuf => total,
        };
        let name = f.name;
        let _ = writeln!(out, "# HELP {name}{in_head} {}", f.help);
        let _ = writeln!(out, "# TYPE {name}{in_head} {kind}");
        for s in &f.samples {
            let series = |labels| Series {
                name,
                ending: total,
                labels,
            };
            match &s.value {
                Value::Lengths(lengths) => histogram(name, &s.labels, lengths, out),
                Value::Ns(ns) => series(&s.labels).line(&seconds(*ns), out),
                Value::Whole(n) => series(&s.labels).line(&n.to_string(), out),
                Value::Number(n) => series(&s.labels).line(&n.to_string(), out),
            }
        }
    }
}

type Labels = [(&'static str, String)];

/// A series of a family.
struct Series<'a> {
    /// Name of the family.
    name: &'a str,
    /// Ending behind that name.
    ending: &'a str,
    labels: &'a Labels,
}

impl Series<'_> {
    /// Writes a line: the series and its value.
    fn line(&self, value: &str, out: &mut String) {
        let _ = write!(out, "{}{}", self.name, self.ending);
        for (i, (key, value)) in self.labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(out, "{open}{key}=\"{}\"", escaped(value));
        }
        let close = if self.labels.is_empty() { "" } else { "}" };
        let _ = writeln!(out, "{close} {value}");
    }
}

/// Writes the lines of a classic histogram.
fn histogram(name: &str, labels: &Labels, lengths: &Lengths, out: &mut String) {
    let bounds = (lengths.classic.iter()).map(|(le, n)| ((*le as f64 / 1e9).to_string(), *n));
    let last = ("+Inf".to_string(), lengths.count);
    for (le, count) in bounds.chain([last]) {
        let labels = [labels, &[("le", le)]].concat();
        let bucket = Series {
            name,
            ending: "_bucket",
            labels: &labels,
        };
        bucket.line(&count.to_string(), out);
    }
    let series = |ending| Series {
        name,
        ending,
        labels,
    };
    series("_sum").line(&seconds(lengths.sum_ns), out);
    series("_count").line(&lengths.count.to_string(), out);
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in printable(value).chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::family::Sample;
    use super::*;

    fn family(kind: MetricKind) -> Family {
        Family {
            name: "a_seconds",
            kind,
            help: "Help.",
            samples: vec![Sample {
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
        let f = [family(MetricKind::Counter)];
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
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let accept = format!("{native};q=0.6,{prometheus}");
        assert_eq!(Exposition::of_accept(&accept), Exposition::Protobuf);
        let accept = format!("{native};q=0.2,{prometheus}");
        assert_eq!(Exposition::of_accept(&accept), Exposition::OpenMetrics);
        for other in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text;q=0.1,text/plain;q=0.5",
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf;proto=other.Message;encoding=delimited,text/plain;q=0.1",
        ] {
            assert_eq!(
                Exposition::of_accept(other),
                Exposition::Prometheus,
                "{other}"
            );
        }
    }
}
