//! What tasks of a runtime wait for most: goroutines, asyncio's tasks, virtual threads. Their time is in no
//! thread's ledger, so that no sum of threads tells of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use wallscope_model::{Recording, State};

use crate::ladder;

/// Reasons of those that have nothing to do.
const IDLE: [&str; 2] = ["parked", "runtime"];

/// What the tasks of one kind do most.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskWaits {
    /// `virtual thread`.
    pub kind: Arc<str>,
    /// How many have something to do, or wait for it, at any time.
    pub at_once: f64,
    /// What they wait for most, and its share of that.
    pub reason: Arc<str>,
    /// The share.
    pub share: f64,
    /// The program's function in which most of that is; empty: none known.
    pub function: Arc<str>,
}

/// Time by function, ns.
type Places = BTreeMap<Arc<str>, u64>;

/// The kind of task with most time, and what those wait for most.
pub fn most(rec: &Recording) -> Option<TaskWaits> {
    let window = rec.window.length_ns();
    let busy = |reason: &str| !IDLE.contains(&reason);
    let mut kinds: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
    for group in &rec.tasks {
        let own = group.times.iter().filter(|t| busy(&t.reason));
        *kinds.entry(&group.kind).or_default() += own.map(|t| t.ns).sum::<u64>();
    }
    let (kind, all) = kinds.into_iter().max_by_key(|(_, ns)| *ns)?;
    let mut reasons: BTreeMap<&Arc<str>, (u64, Places)> = BTreeMap::new();
    let groups = rec.tasks.iter().filter(|g| g.kind == *kind);
    for t in groups.flat_map(|g| &g.times) {
        if t.state != State::Blocked || !busy(&t.reason) {
            continue;
        }
        let (ns, places) = reasons.entry(&t.reason).or_default();
        *ns += t.ns;
        if let Some(stack) = t.stack.and_then(|s| rec.stacks.get(s.0 as usize)) {
            let place = ladder::place(rec, stack);
            *places.entry(place.function).or_default() += t.ns;
        }
    }
    let (reason, (ns, places)) = reasons.into_iter().max_by_key(|(_, (ns, _))| *ns)?;
    let function = places.into_iter().max_by_key(|(_, ns)| *ns);
    Some(TaskWaits {
        kind: Arc::clone(kind),
        at_once: all as f64 / window.max(1) as f64,
        reason: Arc::clone(reason),
        share: ns as f64 / all.max(1) as f64,
        function: function.map_or_else(|| "".into(), |(f, _)| f),
    })
}
