//! The domain of merged recordings.

use crate::{Column, Domain, Window};

const MERGED: &str = "merged from ";

/// Most notes, limits and event sources of merged windows. A note that names a figure of its own window differs in
/// each of 360 windows; a longer list is of no use to a reader.
const MAX_ENTRIES: usize = 40;

/// The merged domain: values that all share, else the value of each.
pub(super) fn merged(domains: &[Domain]) -> Domain {
    let mut columns: Vec<Column> = domains[0].columns.clone();
    for c in &mut columns {
        c.how = each(domains, |d| {
            let same = d.columns.iter().find(|o| o.state == c.state);
            same.map_or("", |o| &o.how)
        });
    }
    let count: u64 = domains.iter().map(count).sum();
    let mut notes = vec![format!("{MERGED}{count} recordings")];
    let own = all(domains, |d| &d.notes).into_iter();
    notes.extend(own.filter(|n| count_in(n).is_none()));
    Domain {
        tool: each(domains, |d| &d.tool),
        backend: each(domains, |d| &d.backend),
        backend_reason: each(domains, |d| &d.backend_reason),
        privilege: each(domains, |d| &d.privilege),
        kernel: each(domains, |d| &d.kernel),
        cpus: domains.iter().map(|d| d.cpus).max().unwrap_or(0),
        target: each(domains, |d| &d.target),
        events: all(domains, |d| &d.events),
        columns,
        limits: all(domains, |d| &d.limits),
        notes,
        unit: domains[0].unit.clone(),
    }
}

/// The merged domain of windows, with the time that none of them covers.
pub(super) fn of_windows(domains: &[Domain], windows: &[Window]) -> Domain {
    let mut domain = merged(domains);
    let rest = domain.notes.len().saturating_sub(MAX_ENTRIES);
    domain.notes.truncate(MAX_ENTRIES);
    if rest > 0 {
        let note = format!("{rest} further notes stand in the domains of single windows");
        domain.notes.push(note);
    }
    domain.events.truncate(MAX_ENTRIES);
    domain.limits.truncate(MAX_ENTRIES);
    let gaps = windows
        .windows(2)
        .map(|w| w[1].start_ns.saturating_sub(w[0].end_ns));
    let gaps: Vec<u64> = gaps.filter(|ns| *ns > super::threads::MAX_GAP_NS).collect();
    if !gaps.is_empty() {
        domain.notes.push(format!(
            "{:.3} s in {} gaps between its windows are in no window",
            gaps.iter().sum::<u64>() as f64 / 1e9,
            gaps.len()
        ));
    }
    domain
}

/// The distinct values, in the order of their first recording.
fn each(domains: &[Domain], of: impl Fn(&Domain) -> &str) -> String {
    let mut values: Vec<&str> = Vec::new();
    for v in domains.iter().flat_map(|d| of(d).split("; ")) {
        if !v.is_empty() && !values.contains(&v) {
            values.push(v);
        }
    }
    values.join("; ")
}

/// The distinct entries, in the order of their first recording.
fn all<T: Clone + PartialEq>(domains: &[Domain], of: impl Fn(&Domain) -> &[T]) -> Vec<T> {
    let mut values = Vec::new();
    for v in domains.iter().flat_map(of) {
        if !values.contains(v) {
            values.push(v.clone());
        }
    }
    values
}

/// Recordings in a merged one: a merge of merges is a merge of all.
fn count(domain: &Domain) -> u64 {
    domain.notes.iter().find_map(|n| count_in(n)).unwrap_or(1)
}

fn count_in(note: &str) -> Option<u64> {
    let number = note.strip_prefix(MERGED)?.strip_suffix(" recordings")?;
    number.parse().ok()
}
