//! Measured children of a process: a wait for one of them is charged to its ledger.

use std::collections::HashMap;

use wallscope_model::{BlockReason, ContextId, Recording};

/// Maximum generations in the search for an ancestor. Process ids are reused, so parents may form a
/// cycle; this limit ends it.
const MAX_GENERATIONS: usize = 16;

/// Processes by parent, and their main threads.
pub(super) struct Children {
    parents: HashMap<u32, u32>,
    /// Main threads of the measured children of a process, in the order of contexts.
    mains: HashMap<u32, Vec<ContextId>>,
    main_of: HashMap<u32, ContextId>,
}

impl Children {
    /// Reads the processes of a recording.
    pub fn new(recording: &Recording) -> Children {
        let parents: HashMap<u32, u32> = (recording.processes.iter())
            .filter(|p| p.parent != 0 && p.parent != p.pid)
            .map(|p| (p.pid, p.parent))
            .collect();
        let mut mains: HashMap<u32, Vec<ContextId>> = HashMap::new();
        let mut main_of = HashMap::new();
        for (i, context) in (0..).zip(&recording.contexts) {
            if context.pid != context.tid || main_of.contains_key(&context.pid) {
                continue;
            }
            main_of.insert(context.pid, ContextId(i));
            if let Some(parent) = parents.get(&context.pid) {
                mains.entry(*parent).or_default().push(ContextId(i));
            }
        }
        Children {
            parents,
            mains,
            main_of,
        }
    }

    /// Main threads of the children of `pid`.
    pub fn of(&self, pid: u32) -> &[ContextId] {
        self.mains.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// The main thread of `pid`, if it is a descendant of `of`.
    pub fn descendant(&self, pid: u32, of: u32) -> Option<ContextId> {
        let mut at = pid;
        for _ in 0..MAX_GENERATIONS {
            let parent = *self.parents.get(&at)?;
            if parent == of {
                return self.main_of.get(&pid).copied();
            }
            at = parent;
        }
        None
    }
}

/// Whether a wait for `reason` may be one for a child: for its end, its output, or news of either.
pub(super) fn may_be_for_child(reason: Option<BlockReason>) -> bool {
    use BlockReason::{Child, Pipe, Poll};
    matches!(reason, Some(Child | Pipe | Poll))
}
