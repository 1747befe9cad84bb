//! Pauses of runtimes: the kernel programs' events by process, operation and cause.
//!
//! The kind of a collection is that of its operation. Where one operation may do several kinds (Serial and
//! Parallel collect the young generation first, and all of it if that does not help), the VM's own number of
//! full collections decides. A collection of Go is one pause, which ends with the second of its two stops.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::{Pause, PauseGroup};
use wallscope_unwind::runtime::{go, hotspot::collection};

use crate::event::{PauseEvent, text};

/// Most different groups. Names come from processes, so their number needs a bound.
const MAX_GROUPS: usize = 1024;
/// The VM's words for the cause of a collection while there is none.
const NO_CAUSE: &str = "No GC";

/// Pauses of all processes.
#[derive(Default)]
pub struct PauseGroups {
    /// By process, operation, kind and cause.
    groups: BTreeMap<(u32, String, &'static str, String), PauseGroup>,
    /// Number of full collections at the end of each process's last pause.
    full: FxHashMap<u32, u64>,
}

impl PauseGroups {
    /// Takes a pause.
    pub fn take(&mut self, e: &PauseEvent) {
        let operation = text(&e.name);
        let [_, full, _] = e.collections;
        let before = self.full.insert(e.pid, full);
        let mut kind = match &*operation {
            go::COLLECTION => go::COLLECTION_KIND,
            operation => collection(operation).unwrap_or(""),
        };
        if kind == "young" && before.is_some_and(|before| full > before) {
            kind = "full";
        }
        let causes = e.causes.iter().map(|c| text(c));
        let mut known = causes.filter(|c| !c.is_empty() && c != NO_CAUSE);
        let cause = match kind {
            "" => String::new(),
            _ => known.next().unwrap_or_default(),
        };
        let pause = Pause {
            start_ns: e.begin,
            length_ns: e.end.saturating_sub(e.begin),
        };
        let key = (e.pid, operation, kind, cause);
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key) {
            return;
        }
        let group = self.groups.entry(key).or_insert_with_key(|key| PauseGroup {
            pid: key.0,
            operation: Arc::from(key.1.as_str()),
            kind: key.2.into(),
            cause: Arc::from(key.3.as_str()),
            ..PauseGroup::default()
        });
        group.add(pause);
    }

    /// Returns the groups, by process and operation.
    pub fn finish(self) -> Vec<PauseGroup> {
        self.groups.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn event(name: &str, causes: [&str; 2], full: u64) -> PauseEvent {
        let mut e = PauseEvent::new_zeroed();
        (e.pid, e.begin, e.end, e.collections[1]) = (7, 100, 150, full);
        e.name[..name.len()].copy_from_slice(name.as_bytes());
        for (to, cause) in e.causes.iter_mut().zip(causes) {
            to[..cause.len()].copy_from_slice(cause.as_bytes());
        }
        e
    }

    #[test]
    fn pauses_are_told_apart_by_operation_kind_and_cause() {
        let mut pauses = PauseGroups::default();
        let failed = [NO_CAUSE, "Allocation Failure"];
        pauses.take(&event("SerialCollectForAllocation", failed, 3));
        pauses.take(&event("SerialCollectForAllocation", failed, 3));
        pauses.take(&event("SerialCollectForAllocation", failed, 4));
        pauses.take(&event("ZMarkStartYoung", ["Warmup", "No GC"], 4));
        pauses.take(&event("ThreadDump", failed, 4));
        pauses.take(&event(go::COLLECTION, [go::FORCED, ""], 4));
        let found: Vec<_> = (pauses.finish().iter())
            .map(|g| (g.kind.to_string(), g.cause.to_string(), g.count, g.total_ns))
            .collect();
        let row = |kind: &str, cause: &str, count| (kind.into(), cause.into(), count, 50 * count);
        assert_eq!(
            found,
            [
                row("full", "Allocation Failure", 1),
                row("young", "Allocation Failure", 2),
                row("", "", 1),
                row("mark start", "Warmup", 1),
                row("concurrent", "runtime.GC()", 1),
            ]
        );
    }
}
