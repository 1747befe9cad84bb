//! Time by the value of a label and by state.

use std::collections::BTreeMap;

use wallscope_model::{ContextId, Sample, State};

use super::Analysis;

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

/// The time of a recording by the values of `key`: `thread`, `process`, `state`, `reason`, `cpu`,
/// or any label beyond the contract's own. Most time first. If a sample has several labels with one
/// key, the first counts, so that the groups sum to the whole.
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
            _ => (rec
                .context_label(ContextId(context as u32), key)
                .map(str::to_string))
            .or_else(|| sample.and_then(of_sample)),
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
