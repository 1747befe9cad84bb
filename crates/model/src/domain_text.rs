//! The domain and the losses in words, for every format and presentation.

use crate::scale::Scaled;
use crate::stats::smallest_share;
use crate::{Recording, State, Unit};

use crate::units::{count, ns, share, value};

/// Lines on the measurement: its events, its methods and its blind spots.
pub fn domain_lines(rec: &Recording) -> Vec<String> {
    let d = &rec.domain;
    let mut lines = Vec::new();
    let mut push = |key: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{key}: {value}"));
        }
    };
    let length = rec.window.length_ns();
    push("target", d.target.clone());
    if length > 0 {
        push("window", format!("{} on {}", ns(length), rec.window.clock));
    }
    if !d.unit.is_time() {
        push(
            "unit",
            format!("{}: no time, so no share of wall time", d.unit.name()),
        );
    }
    push("recorded by", d.tool.clone());
    let because = if d.backend_reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", d.backend_reason)
    };
    push("backend", format!("{}{because}", d.backend));
    push("privilege", d.privilege.clone());
    let cpus = match d.cpus {
        0 => String::new(),
        1 => ", 1 CPU".to_string(),
        n => format!(", {n} CPUs"),
    };
    if !d.kernel.is_empty() {
        push("kernel", format!("{}{cpus}", d.kernel));
    }
    for e in &d.events {
        push("event", format!("{} from {}, {}", e.what, e.event, e.rate));
    }
    let alike = d
        .columns
        .windows(2)
        .all(|c| (c[0].exact, &c[0].how) == (c[1].exact, &c[1].how));
    for c in d.columns.iter().take(if alike { 1 } else { usize::MAX }) {
        let how = if c.exact { "exact" } else { "estimated" };
        let of = if alike { "values" } else { c.state.name() };
        push(of, format!("{how}: {}", c.how));
    }
    if let Some(resolves) = resolution(rec) {
        push("resolution", resolves);
    }
    for l in &d.limits {
        let remedy = if l.remedy.is_empty() {
            String::new()
        } else {
            format!("; remedy: {}", l.remedy)
        };
        push("not seen", format!("{}{remedy}", l.what));
    }
    for n in &d.notes {
        push("note", n.clone());
    }
    lines
}

/// The smallest shares that the samples resolve, by state.
fn resolution(rec: &Recording) -> Option<String> {
    let states = match rec.domain.unit.is_time() {
        true => &[State::OnCpu, State::Blocked, State::Runnable][..],
        false => &[State::Unknown],
    };
    if rec.domain.columns.iter().all(|c| c.exact) && rec.domain.is_import() {
        return None;
    }
    let words: Vec<String> = states
        .iter()
        .filter_map(|state| {
            let of = rec.samples.iter().filter(|s| s.state == *state);
            let n: u64 = of.map(|s| s.count).sum();
            (n > 0).then(|| {
                let least = smallest_share(n as f64);
                let of = match rec.domain.unit.is_time() {
                    true => state.name(),
                    false => rec.domain.unit.name(),
                };
                format!("{} of {of} ({} samples)", share(least), count(n))
            })
        })
        .collect();
    if words.is_empty() {
        return None;
    }
    Some(format!(
        "a function below {} may not have been seen at all",
        words.join(", ")
    ))
}

/// Lines on data that was lost, truncated or left unnamed.
pub fn loss_lines(rec: &Recording) -> Vec<String> {
    rec.losses
        .iter()
        .filter(|l| l.count > 0)
        .map(|l| format!("lost: {} x {}", count(l.count), l.cause))
        .collect()
}

/// Lines on time that scaling could not place, or placed by siblings.
pub fn scaling_lines(scaled: &Scaled, unit: &Unit) -> Vec<String> {
    let ns = |v| value(unit, v);
    let mut lines = Vec::new();
    let unsampled: u64 = scaled.unsampled.iter().map(|u| u.ns).sum();
    if unsampled > 0 {
        lines.push(format!(
            "stacks: {} has no sample and is shown as [not sampled]",
            ns(unsampled)
        ));
    }
    if scaled.borrowed_ns > 0 {
        lines.push(format!(
            "stacks: {} of threads too short to be sampled is shown by the stacks of threads of \
             the same program and name",
            ns(scaled.borrowed_ns)
        ));
    }
    if scaled.unplaced_ns > 0 {
        lines.push(format!(
            "stacks: {} of samples is in states for which the ledger has no time, and is left out",
            ns(scaled.unplaced_ns)
        ));
    }
    lines
}
