//! The universal scalability law, for the terminal.

use std::fmt::Write as _;

use wallscope_analysis::queueing::usl::Fit;
use wallscope_model::printable::printable;

use super::{Scaling, ends, number};
use crate::text::layout::pad;

pub(super) fn scaling(out: &mut String, s: &Scaling) {
    match &s.fit {
        Ok(fit) => law(out, fit),
        Err(reason) => {
            let _ = writeln!(out, "Throughput over load cannot be fitted: {reason}.");
        }
    }
    let _ = writeln!(
        out,
        "\n  {} {}  point",
        pad("load", -9),
        pad("throughput", -12)
    );
    for (source, point) in &s.points {
        let _ = writeln!(
            out,
            "  {} {}  {}",
            pad(&number(point.load), -9),
            pad(&format!("{}/s", number(point.throughput)), -12),
            printable(source)
        );
    }
    for (file, reason) in &s.without {
        let _ = writeln!(out, "  {}: {reason}", printable(file));
    }
    out.push('\n');
}

fn law(out: &mut String, fit: &Fit) {
    let peak = fit.peak_load;
    let _ = match peak.value.is_finite() {
        true => writeln!(
            out,
            "Throughput peaks at load {} {}, with {}/s {}.",
            number(peak.value),
            ends(&peak, number),
            number(fit.peak_throughput.value),
            ends(&fit.peak_throughput, number)
        ),
        false if fit.peak_throughput.value.is_finite() => writeln!(
            out,
            "Throughput has no peak: it approaches {}/s {}.",
            number(fit.peak_throughput.value),
            ends(&fit.peak_throughput, number)
        ),
        false => writeln!(out, "Throughput grows with the load: no limit is visible."),
    };
    let _ = writeln!(
        out,
        "  contention σ {} {}: the serial share of the work",
        term(fit.contention.value),
        ends(&fit.contention, term)
    );
    let _ = writeln!(
        out,
        "  coherence  κ {} {}: the cost of each pair that has to agree",
        term(fit.coherence.value),
        ends(&fit.coherence, term)
    );
    let _ = match fit.scatter {
        Some(scatter) => writeln!(
            out,
            "  one worker   {}/s {}; points scatter by {:.1} % around the universal scalability law",
            number(fit.single.value),
            ends(&fit.single, number),
            scatter * 100.0
        ),
        None => writeln!(
            out,
            "  three points meet the law exactly and give no interval: record more loads"
        ),
    };
}

/// A term of the law.
fn term(v: f64) -> String {
    match v {
        v if !v.is_finite() => "no bound".into(),
        v if v >= 0.01 || v == 0.0 => format!("{v:.3}"),
        v => format!("{v:.2e}"),
    }
}
