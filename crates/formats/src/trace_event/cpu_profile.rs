//! V8's CPU profiles inside a trace (Chrome DevTools, Node's trace events).
//!
//! `Profile` begins one on the thread that it samples; its `ProfileChunk`s come from the sampling
//! thread and carry nodes, samples and deltas; ids hold within a process. Chrome before version 58
//! wrote one `CpuProfile` event that holds all. Chunks without a `Profile` event in the
//! trace have no start, and are left out.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::ReadError;
use super::super::import::Import;
use super::super::v8::{CallTree, Node, Times};
use super::event::{Event, Ids};

/// `args.data` of the three events.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Data {
    start_time: Option<f64>,
    end_time: Option<f64>,
    time_deltas: Vec<f64>,
    cpu_profile: Option<Part>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Part {
    nodes: Vec<Node>,
    samples: Vec<i64>,
    time_deltas: Vec<f64>,
    start_time: Option<f64>,
    end_time: Option<f64>,
}

/// A profile in the making.
#[derive(Default)]
struct Building {
    tid: u32,
    start: Option<f64>,
    end: Option<f64>,
    tree: CallTree,
    samples: Vec<i64>,
    deltas: Vec<f64>,
}

/// A profile of a thread.
pub(super) struct CpuProfile {
    pub pid: u32,
    pub tid: u32,
    pub tree: CallTree,
    pub times: Times,
}

/// The profiles of a trace.
#[derive(Default)]
pub(super) struct CpuProfiles {
    building: BTreeMap<(u32, String), Building>,
    chunks: Vec<(u32, String, Data)>,
    /// Number of their events that could not be read.
    unreadable: u64,
    /// Chunks of profiles that have no beginning in the trace.
    orphans: u64,
}

/// Whether the event is part of a CPU profile.
pub(super) fn is_part(e: &Event) -> bool {
    matches!(e.name.as_str(), "Profile" | "ProfileChunk" | "CpuProfile")
        && matches!(e.ph.as_str(), "P" | "I" | "i")
        && e.args.get("data").is_some()
}

impl CpuProfiles {
    /// Takes in an event for which [`is_part`] holds.
    pub(super) fn add(&mut self, e: &mut Event, ids: &mut Ids) {
        let (pid, tid) = (ids.number(&e.pid), ids.number(&e.tid));
        // Old traces have no id, and one profile for each thread.
        let id = e.key().unwrap_or_else(|| format!("thread {tid}"));
        let data = e.args.get_mut("data").map(serde_json::Value::take);
        let data = match data.map(serde_json::from_value::<Data>) {
            // Chrome leaves it empty at times.
            None => return,
            Some(Ok(data)) => data,
            Some(Err(_)) => {
                self.unreadable += 1;
                return;
            }
        };
        if e.name == "ProfileChunk" {
            self.chunks.push((pid, id, data));
            return;
        }
        let b = self.building.entry((pid, id.clone())).or_default();
        b.tid = tid;
        b.start = data.start_time;
        if e.name == "CpuProfile" {
            let part = data.cpu_profile.as_ref();
            b.start = part.and_then(|p| p.start_time).or(b.start);
            self.chunks.push((pid, id, data));
        }
    }

    /// The profiles, and sentences about parts that were left out.
    pub(super) fn finish(
        mut self,
        to: &mut Import,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<CpuProfile>, ReadError> {
        for (pid, id, data) in std::mem::take(&mut self.chunks) {
            match self.building.get_mut(&(pid, id)) {
                Some(b) => b.chunk(data, to)?,
                None => self.orphans += 1,
            }
        }
        let mut list = Vec::new();
        for ((pid, _), b) in self.building {
            if b.samples.is_empty() {
                continue;
            }
            let Some(start) = b.start else {
                self.orphans += 1;
                continue;
            };
            list.push(CpuProfile {
                pid,
                tid: b.tid,
                tree: b.tree,
                times: Times::from_deltas(&b.samples, &b.deltas, (start, b.end)),
            });
        }
        if self.orphans > 0 {
            warnings.push(format!(
                "{} parts of CPU profiles were left out: the start of their profile is not in the trace",
                self.orphans
            ));
        }
        if self.unreadable > 0 {
            warnings.push(format!(
                "{} events of CPU profiles could not be read, and were left out",
                self.unreadable
            ));
        }
        Ok(list)
    }
}

impl Building {
    fn chunk(&mut self, data: Data, to: &mut Import) -> Result<(), ReadError> {
        self.end = data.end_time.or(self.end);
        self.deltas.extend(data.time_deltas);
        if let Some(part) = data.cpu_profile {
            for node in &part.nodes {
                self.tree.add(node, to)?;
            }
            self.samples.extend(part.samples);
            self.deltas.extend(part.time_deltas);
            self.end = part.end_time.or(self.end);
        }
        Ok(())
    }
}
