//! The domain, losses, audit and cost, in words: the same in every presentation.

use wallscope_model::scale::Scaled;
use wallscope_model::stats::smallest_share;
use wallscope_model::{Recording, State, Unit};

use super::total_row;
use crate::text::units::{bytes, count, ns, ppm, share, value};

/// What was measured, how, and what it could not see.
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

/// How small a share the samples resolve, by state.
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

/// What was lost, truncated or left unnamed.
pub fn loss_lines(rec: &Recording) -> Vec<String> {
    rec.losses
        .iter()
        .filter(|l| l.count > 0)
        .map(|l| format!("lost: {} x {}", count(l.count), l.cause))
        .collect()
}

/// What scaling could not place, or placed by siblings.
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

/// How well the ledger closes, and how it compares with the kernel's own counters.
pub fn audit_lines(rec: &Recording) -> Vec<String> {
    if rec.domain.is_import() {
        return vec!["audit: the file has no ledger that could be audited".to_string()];
    }
    if !rec.domain.unit.is_time() {
        return Vec::new();
    }
    let sum = total_row(rec).ledger;
    if sum.wall_ns == 0 {
        return vec!["audit: no thread existed in the window".to_string()];
    }
    let of_wall = |v: u64| ppm(v as f64 / sum.wall_ns as f64);
    let worst = rec
        .contexts
        .iter()
        .filter(|c| c.ledger.wall_ns > 0)
        .map(|c| c.ledger.residue_ns().unsigned_abs() as f64 / c.ledger.wall_ns as f64)
        .fold(0.0, f64::max);
    let mut lines = vec![format!(
        "audit: residue {} of wall (worst thread {}), unseen {}, repaired {}",
        of_wall(sum.residue_ns().unsigned_abs()),
        ppm(worst),
        of_wall(sum.unknown_ns()),
        of_wall(sum.repaired_ns),
    )];
    let audited: Vec<_> = rec
        .contexts
        .iter()
        .filter(|c| c.ledger.audit.valid)
        .collect();
    if audited.is_empty() {
        lines.push("audit: the kernel's own counters could not be read".to_string());
        return lines;
    }
    let total = |f: &dyn Fn(&wallscope_model::Ledger) -> u64| -> u64 {
        audited.iter().map(|c| f(&c.ledger)).sum()
    };
    let wall = total(&|l| l.wall_ns).max(1) as f64;
    let compare = |what: &str, own: u64, kernel: u64| {
        format!(
            "{what} {} here, {} there ({} of wall apart)",
            ns(own),
            ns(kernel),
            ppm(own.abs_diff(kernel) as f64 / wall)
        )
    };
    let switches = total(&|l| l.voluntary_switches + l.involuntary_switches);
    lines.push(format!(
        "audit: against the kernel's counters of {} of {} threads: {}; {}; switches {} here, {} there",
        audited.len(),
        rec.contexts.len(),
        compare("on-CPU", total(&|l| l.on_cpu.total()), total(&|l| l.audit.on_cpu_ns)),
        compare("runnable", total(&|l| l.runnable.total()), total(&|l| l.audit.run_delay_ns)),
        count(switches),
        count(total(&|l| l.audit.switches)),
    ));
    lines
}

/// What the recording cost.
pub fn cost_lines(rec: &Recording) -> Vec<String> {
    let c = &rec.cost;
    if *c == Default::default() {
        return Vec::new();
    }
    let length = rec.window.length_ns().max(1) as f64;
    let of_cpu = |v: u64| share(v as f64 / length);
    let mut line = format!(
        "cost: kernel programs {} ({} of one CPU), own CPU {} ({}), memory {} own and {} in the kernel",
        ns(c.bpf_ns),
        of_cpu(c.bpf_ns),
        ns(c.own_cpu_ns),
        of_cpu(c.own_cpu_ns),
        bytes(c.rss_bytes),
        bytes(c.kernel_bytes),
    );
    if c.target_stopped_ns > 0 {
        line.push_str(&format!(", target stopped for {}", ns(c.target_stopped_ns)));
    }
    vec![line]
}
