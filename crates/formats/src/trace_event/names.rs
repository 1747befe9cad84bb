//! Names of processes and threads in trace events.

use rustc_hash::FxHashMap;
use serde_json::Value;
use wallscope_model::ContextId;

use super::super::ReadError;
use super::super::import::Import;
use super::event::Event;

/// The frame of an event without a name.
pub(super) const NO_NAME: &str = "[no name]";

/// Names of processes and threads.
#[derive(Default)]
pub(super) struct Names {
    of: FxHashMap<(u32, Option<u32>), String>,
}

impl Names {
    pub(super) fn add(&mut self, e: &Event, (pid, tid): (u32, u32)) {
        let Some(name) = e.args.get("name").and_then(Value::as_str) else {
            return;
        };
        match e.name.as_str() {
            "process_name" => self.of.insert((pid, None), name.to_string()),
            "thread_name" => self.of.insert((pid, Some(tid)), name.to_string()),
            _ => None,
        };
    }

    pub(super) fn context(
        &self,
        (pid, tid): (u32, u32),
        to: &mut Import,
    ) -> Result<ContextId, ReadError> {
        let of = |key| self.of.get(&key).map_or("", |n| n.as_str());
        to.context(pid, tid, of((pid, Some(tid))), of((pid, None)))
    }
}
