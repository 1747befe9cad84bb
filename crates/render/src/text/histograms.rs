//! Lengths of the single intervals, at a terminal.

use wallscope_model::histogram::Histogram;
use wallscope_model::{Recording, State};

use super::layout::{Ink, label, pad};
use super::page::Page;
use wallscope_analysis::view::histogram_lines;
use wallscope_model::units::{count, ns};

/// Rows with less than this share of a state's intervals, and no long one among them, are left out.
const MIN_SHARE: f64 = 0.001;

impl Page<'_> {
    /// Prints the lengths of intervals: fifty waits of 2 ms are not one of 100 ms.
    pub(super) fn histograms(&mut self, rec: &Recording) {
        let lines = histogram_lines(rec);
        if lines.is_empty() {
            return;
        }
        self.heading(
            "How long at a time",
            "each interval counted, over all threads",
        );
        let head = format!(
            "  {} {} {} {} {}",
            pad("", 20),
            pad("times", -11),
            pad("half ≤", -8),
            pad("99 % ≤", -8),
            pad("longest", -8)
        );
        let head = self.style.ink(Ink::Faint, &head);
        self.line(&head);
        let mut left_out = 0;
        for line in &lines {
            let same = || lines.iter().filter(|l| l.state == line.state);
            let all: f64 = same().map(|l| l.histogram.count()).sum();
            let longest = same().map(|l| l.histogram.max_ns).max().unwrap_or(0);
            if line.histogram.count() < MIN_SHARE * all && line.histogram.max_ns * 10 < longest {
                left_out += 1;
                continue;
            }
            let what = match (line.state, line.reason) {
                (State::OnCpu, _) => "on the CPU".to_string(),
                (state, None) => label(state).to_string(),
                (state, Some(reason)) => format!("{}, {reason}", label(state)),
            };
            let quantile = |q| line.histogram.quantile(q).map_or("–".to_string(), ns);
            let text = format!(
                "  {} {} {} {} {}",
                self.style.ink(Ink::State(line.state), &pad(&what, 20)),
                pad(&count(line.histogram.count().round() as u64), -11),
                pad(&quantile(0.5), -8),
                pad(&quantile(0.99), -8),
                pad(&ns(line.histogram.max_ns), -8)
            );
            self.line(&text);
        }
        if left_out > 0 {
            self.faint(&format!("  {left_out} rare ones are in --json"), 2);
        }
    }
}

/// The intervals of a stack, estimated from its samples, in one line.
pub(crate) fn intervals(histogram: &Histogram) -> String {
    let quantile = |q| histogram.quantile(q).map_or("–".to_string(), ns);
    let n = histogram.count().round().max(1.0) as u64;
    if n == 1 {
        return format!("once, {}", ns(histogram.max_ns));
    }
    format!(
        "some {} times: half ≤ {}, 99 % ≤ {}, longest seen {}",
        count(n),
        quantile(0.5),
        quantile(0.99),
        ns(histogram.max_ns)
    )
}
