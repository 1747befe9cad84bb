//! Chooses the events of each chunk that are read as time, so that no time is read twice.
//!
//! Two recorders may have measured one process at once: async-profiler beside the JDK (`jfrsync`),
//! Datadog's profiler beside the JDK. If wall-clock samples cover a chunk's time, they include the waits. If
//! a profiler of CPU time covers it, its samples replace the JDK's own samples of running threads.

use std::collections::BTreeMap;

use super::catalog::{
    AllocationSource, CPU_TIME, DATADOG_CPU, DATADOG_WALL, EXECUTION, WALL, allocation,
};
use super::chunk::{Chunk, Header};
use super::settings::Settings;
use super::value::Value;

/// The facts about a chunk that its outline gives.
pub(super) struct Outline {
    start_ns: u64,
    end_ns: u64,
    /// The process; 0 if unknown.
    pid: i64,
    /// Numbers of events by name.
    counts: BTreeMap<String, u64>,
    async_profiler: bool,
    execution_is_wall: bool,
}

/// The events of a chunk that are read as time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The JDK's samples of running threads.
    pub jdk_execution: bool,
    /// Events of waiting.
    pub waits: bool,
    /// Recorder of the allocations that are read; `None`: there are no allocations.
    pub allocations: Option<AllocationSource>,
}

impl Outline {
    pub(super) fn new(chunk: &Chunk) -> Outline {
        let Header {
            start_ns,
            duration_ns,
            ..
        } = chunk.header;
        let mut counts = BTreeMap::new();
        let mut pid = 0;
        for (kind, bytes) in chunk.events().filter(|(kind, _)| *kind > 1) {
            let Some(t) = chunk.types.get(&kind) else {
                continue;
            };
            match counts.get_mut(&t.name) {
                Some(n) => *n += 1,
                None => drop(counts.insert(t.name.clone(), 1)),
            }
            if t.name == "jdk.JVMInformation"
                && let Some(fields) = chunk.event(kind, bytes)
                && let Some(Value::Number(n)) = t.field("pid").and_then(|i| fields.get(i))
            {
                pid = *n;
            }
        }
        let settings = Settings::read(chunk);
        Outline {
            start_ns,
            end_ns: start_ns.saturating_add(duration_ns),
            pid,
            counts,
            async_profiler: settings.are_async_profilers(),
            execution_is_wall: settings.execution_is_wall(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.counts.contains_key(name)
    }

    fn has_wall(&self) -> bool {
        let legacy = self.execution_is_wall && self.has(EXECUTION);
        self.has(WALL) || self.has(DATADOG_WALL) || legacy
    }

    /// Whether it has samples of CPU time, which are better than the JDK's own samples of running threads.
    fn has_cpu_time(&self) -> bool {
        let own = self.async_profiler && self.has(EXECUTION);
        own || self.has(CPU_TIME) || self.has(DATADOG_CPU)
    }

    /// The most exact recorder of its allocations, if any.
    fn allocations(&self) -> Option<AllocationSource> {
        let sources = self.counts.keys().filter_map(|name| allocation(name));
        sources.map(|(source, _)| source).min()
    }

    /// Whether both chunks cover the same time of the same process, for at least half of the shorter chunk.
    /// Consecutive chunks may overlap a little.
    fn covers(&self, other: &Outline) -> bool {
        if self.pid != other.pid && self.pid != 0 && other.pid != 0 {
            return false;
        }
        let length = |o: &Outline| o.end_ns - o.start_ns;
        let start = self.start_ns.max(other.start_ns);
        let end = self.end_ns.min(other.end_ns);
        let shared = end.saturating_sub(start);
        shared > 0 && shared >= length(self).min(length(other)) / 2
    }
}

/// The plan of each chunk.
pub(super) fn plans(outlines: &[Outline]) -> Vec<Plan> {
    let those = |has: fn(&Outline) -> bool| outlines.iter().filter(move |o| has(o));
    let cpu_time: Vec<&Outline> = those(Outline::has_cpu_time).collect();
    let wall: Vec<&Outline> = those(Outline::has_wall).collect();
    let beside = |own: &Outline, others: &[&Outline]| others.iter().any(|o| o.covers(own));
    let plan = |own: &Outline| Plan {
        jdk_execution: own.async_profiler || !(own.has_cpu_time() || beside(own, &cpu_time)),
        waits: !(own.has_wall() || beside(own, &wall)),
        allocations: (outlines.iter())
            .filter(|o| std::ptr::eq(*o, own) || o.covers(own))
            .filter_map(Outline::allocations)
            .min(),
    };
    outlines.iter().map(plan).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(range: (u64, u64), pid: i64, events: &[&str]) -> Outline {
        Outline {
            start_ns: range.0,
            end_ns: range.1,
            pid,
            counts: events.iter().map(|e| (e.to_string(), 1)).collect(),
            async_profiler: false,
            execution_is_wall: false,
        }
    }

    #[test]
    fn time_that_another_recorder_has_is_not_read_twice() {
        let jdk = || outline((0, 100), 7, &[EXECUTION, "jdk.ThreadPark"]);
        let all = Plan {
            jdk_execution: true,
            waits: true,
            allocations: None,
        };
        assert_eq!(plans(&[jdk()]), [all]);
        let beside = outline((5, 95), 7, &[WALL, DATADOG_CPU]);
        let none = Plan {
            jdk_execution: false,
            waits: false,
            allocations: None,
        };
        assert_eq!(plans(&[jdk(), beside])[0], none);
        let later = outline((99, 200), 7, &[WALL]);
        assert_eq!(plans(&[jdk(), later])[0], all);
        let other_process = outline((0, 100), 8, &[WALL, CPU_TIME]);
        assert_eq!(plans(&[jdk(), other_process])[0], all);
        let sampled = || outline((0, 100), 7, &["jdk.ObjectAllocationSample"]);
        let buffers = outline((5, 95), 7, &["jdk.ObjectAllocationInNewTLAB"]);
        let allocations = |o: &[Outline]| plans(o)[0].allocations;
        assert_eq!(allocations(&[sampled()]), Some(AllocationSource::Samples));
        assert_eq!(
            allocations(&[sampled(), buffers]),
            Some(AllocationSource::Buffers)
        );
        let precise = outline((0, 100), 7, &[EXECUTION, CPU_TIME]);
        assert!(!plans(&[precise])[0].jdk_execution);
    }
}
