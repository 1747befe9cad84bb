//! The audit of the ledger and the cost of the recording, in words.

use wallscope_model::Recording;
use wallscope_model::units::{bytes, count, ns, ppm, share};

use super::total_row;

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

/// The cost of the recording.
pub fn cost_lines(rec: &Recording) -> Vec<String> {
    let c = &rec.cost;
    if *c == Default::default() {
        return Vec::new();
    }
    let length = rec.window.length_ns().max(1) as f64;
    let of_cpu = |v: u64| share(v as f64 / length);
    let displaced = match c.displaced_ns {
        0 => String::new(),
        lost => format!(
            "caches that they displaced about {} ({}), ",
            ns(lost),
            of_cpu(lost)
        ),
    };
    let mut line = format!(
        "cost: kernel programs {} ({} of one CPU), {}own CPU {} ({}), memory {} own and {} in the kernel",
        ns(c.bpf_ns),
        of_cpu(c.bpf_ns),
        displaced,
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
