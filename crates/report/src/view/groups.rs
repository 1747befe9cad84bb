//! Time by the value of a label: whose it was, in which state.

use std::collections::BTreeMap;

use wallscope_model::{Sample, State, Unit};

use unicode_width::UnicodeWidthStr as _;

use super::Analysis;
use crate::text::units::{self, share_of};

/// Time with one value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The value; `None`: time that has no such label.
    pub value: Option<String>,
    /// Time by state, ns, indexed by `State as usize`.
    pub ns: [u64; State::COUNT],
}

impl GroupRow {
    /// Time in all states, ns.
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }
}

/// The time of a recording by the values of `key`: `thread`, `process`, `state`, `reason`, `cpu`, or
/// any label beyond the contract's own. Most time first. Of several labels with one key the first
/// counts, so that the groups sum to the whole.
pub fn groups(analysis: &Analysis<'_>, key: &str) -> Vec<GroupRow> {
    let rec = analysis.recording;
    let process = |context: usize| {
        let pid = rec.contexts[context].pid;
        let found = rec.processes.iter().find(|p| p.pid == pid);
        Some(found.map_or(pid.to_string(), |p| format!("{} ({pid})", p.name)))
    };
    let of_sample = |s: &Sample| match key {
        "cpu" => s.cpu.map(|cpu| cpu.to_string()),
        _ => {
            let set = rec.label_sets.get(s.labels?.0 as usize)?;
            let label = set.iter().find(|l| *l.key == *key)?;
            Some(label.value.to_string())
        }
    };
    let mut rows: BTreeMap<Option<String>, [u64; State::COUNT]> = BTreeMap::new();
    let mut add = |sample: Option<&Sample>, context: usize, state: State, reason, ns| {
        let value = match key {
            "thread" => Some(rec.contexts[context].name.to_string()),
            "process" => process(context),
            "state" => Some(state.name().to_string()),
            "reason" => Option::<&str>::map(reason, str::to_string),
            _ => sample.and_then(of_sample),
        };
        rows.entry(value).or_default()[state as usize] += ns;
    };
    for p in analysis.pieces() {
        let s = &rec.samples[p.sample as usize];
        add(
            Some(s),
            p.context.0 as usize,
            s.state,
            s.reason_name(),
            p.ns,
        );
    }
    for u in analysis.unsampled() {
        add(None, u.context.0 as usize, u.state, u.reason, u.ns);
    }
    let mut rows: Vec<GroupRow> = rows
        .into_iter()
        .map(|(value, ns)| GroupRow { value, ns })
        .collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.total_ns()));
    rows
}

/// Groups as a table for people, the first `most` of them and the rest together. What is no time has
/// no states to be divided by.
pub fn groups_text(rows: &[GroupRow], key: &str, unit: &Unit, most: usize) -> String {
    let all: u64 = rows.iter().map(GroupRow::total_ns).sum();
    // One by itself is as short as a word that it was left out.
    let shown = if rows.len() > most + 1 {
        most
    } else {
        rows.len()
    };
    let name = |value: &Option<String>| value.clone().unwrap_or_else(|| format!("[no {key}]"));
    let mut lines: Vec<(String, [u64; State::COUNT])> = rows[..shown]
        .iter()
        .map(|r| (name(&r.value), r.ns))
        .collect();
    if shown < rows.len() {
        let mut rest = [0; State::COUNT];
        for row in &rows[shown..] {
            rest.iter_mut().zip(row.ns).for_each(|(sum, ns)| *sum += ns);
        }
        lines.push((format!("{} more", rows.len() - shown), rest));
    }
    let width = lines
        .iter()
        .map(|(name, _)| name.width())
        .max()
        .unwrap_or(0);
    let width = width.max(key.width());
    let states: &[(State, &str)] = match unit.is_time() {
        true => &[
            (State::OnCpu, "on-CPU"),
            (State::Runnable, "runnable"),
            (State::Blocked, "blocked"),
        ],
        false => &[],
    };
    let what = if unit.is_time() { "wall" } else { unit.name() };
    let column = what.width().max(9);
    let mut out = format!("{key:<width$} {what:>column$} {:>8}", "share");
    for (_, state) in states {
        out.push_str(&format!(" {state:>9}"));
    }
    out.push('\n');
    for (name, ns) in lines {
        let pad = " ".repeat(width - name.width());
        let total: u64 = ns.iter().sum();
        let (value, share) = (units::value(unit, total), share_of(total, all));
        out.push_str(&format!("{name}{pad} {value:>column$} {share:>8}"));
        for (state, _) in states {
            out.push_str(&format!(" {:>9}", units::ns(ns[*state as usize])));
        }
        out.push('\n');
    }
    out
}
