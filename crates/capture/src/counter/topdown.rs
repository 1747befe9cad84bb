//! Top-down analysis: use of the slots of the CPU's pipeline (Yasin, "A top-down method for
//! performance analysis and counters architecture", 2014), on CPUs that count it themselves.
//!
//! Each cycle has a fixed number of slots for operations. A slot retires an operation, or is spent on one that is
//! thrown away (bad speculation). It is empty if no operation was delivered (front end), or if its operation
//! could not proceed (back end: memory or a busy unit). Intel's cores from Ice Lake on offer the
//! four as counters of one group, and later cores also their second level. The kernel lists them as events
//! of the CPU's device. Other CPUs are not asked.

use std::path::Path;

use super::{Count, EventSpec, Reading};

/// First level: event, its meaning.
const FIRST: [(&str, &str); 4] = [
    ("topdown-retiring", "retiring"),
    ("topdown-bad-spec", "bad speculation"),
    ("topdown-fe-bound", "front end"),
    ("topdown-be-bound", "back end"),
];

/// Second level: event, index in [`FIRST`] of the part that it divides, its meaning, the meaning of the rest of
/// that part.
const SECOND: [(&str, usize, &str, &str); 4] = [
    (
        "topdown-heavy-ops",
        0,
        "heavy operations",
        "light operations",
    ),
    (
        "topdown-br-mispredict",
        1,
        "branch mispredictions",
        "machine clears",
    ),
    ("topdown-fetch-lat", 2, "fetch latency", "fetch bandwidth"),
    ("topdown-mem-bound", 3, "memory", "core"),
];

/// The group's leader.
const SLOTS: &str = "slots";

/// A part of the pipeline's slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The use of its slots.
    pub what: &'static str,
    /// 1 or 2.
    pub level: u8,
    /// The share of all slots.
    pub share: f64,
}

/// The events of top-down analysis that this machine has, leader first; none: it has none.
pub fn events() -> Vec<EventSpec> {
    events_in(Path::new("/sys/bus/event_source/devices"))
}

fn events_in(devices: &Path) -> Vec<EventSpec> {
    let listed = |name: &str| {
        ["cpu", "cpu_core"]
            .iter()
            .any(|d| devices.join(d).join("events").join(name).is_file())
    };
    if !listed(SLOTS) || !FIRST.iter().all(|(name, _)| listed(name)) {
        return Vec::new();
    }
    let second = SECOND.iter().map(|(name, ..)| *name).filter(|n| listed(n));
    let names = [SLOTS].into_iter().chain(FIRST.map(|(name, _)| name));
    let specs = names.chain(second).filter_map(|name| {
        let mut spec = EventSpec::parse(name).ok()?;
        spec.in_group = name != SLOTS;
        Some(spec)
    });
    specs.collect()
}

/// Whether an event serves only this analysis.
pub fn is_part(name: &str) -> bool {
    name == SLOTS || name.starts_with("topdown-")
}

/// Use of the slots; empty if an event of the first level is missing. Parts of the second level follow their
/// part of the first.
pub fn parts(readings: &[Reading]) -> Vec<Part> {
    let value = |name: &str| {
        let r = readings.iter().find(|r| r.name == name)?;
        match r.count {
            Count::Value { value, .. } => Some(value),
            Count::None(_) => None,
        }
    };
    let first: Option<Vec<f64>> = FIRST.iter().map(|(name, _)| value(name)).collect();
    let Some(first) = first else {
        return Vec::new();
    };
    let all: f64 = first.iter().sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (i, (_, what)) in FIRST.iter().enumerate() {
        let share = first[i] / all;
        let part = |what, level, share| Part { what, level, share };
        out.push(part(*what, 1, share));
        for (name, of, what, rest) in SECOND {
            if let (true, Some(v)) = (of == i, value(name)) {
                let inner = (v / all).min(share);
                out.push(part(what, 2, inner));
                out.push(part(rest, 2, share - inner));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Source;

    fn reading(name: &str, value: f64) -> Reading {
        Reading {
            name: name.into(),
            source: Source::Hardware,
            is_time: false,
            user_only: false,
            count: Count::Value { value, share: 1.0 },
        }
    }

    #[test]
    fn shares_sum_to_one_on_each_level() {
        let all = [
            reading("slots", 1000.0),
            reading("topdown-retiring", 300.0),
            reading("topdown-bad-spec", 100.0),
            reading("topdown-fe-bound", 200.0),
            reading("topdown-be-bound", 400.0),
            reading("topdown-mem-bound", 350.0),
        ];
        let parts = parts(&all);
        let sum: f64 = parts.iter().filter(|p| p.level == 1).map(|p| p.share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        let share = |what| parts.iter().find(|p| p.what == what).unwrap().share;
        assert!((share("memory") - 0.35).abs() < 1e-9);
        assert!((share("core") - 0.05).abs() < 1e-9);
        assert!(super::parts(&all[..3]).is_empty());
    }

    #[test]
    fn a_machine_without_slots_is_not_asked() {
        let folder = tempfile::tempdir().unwrap();
        assert!(events_in(folder.path()).is_empty());
    }
}
