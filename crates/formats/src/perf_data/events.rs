//! The events of the file: which are read, and what their values are.

use linux_perf_data::AttributeDescription;
use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, HardwareEventId, PerfEventType, SamplingPolicy, SoftwareCounterType,
};
use wallscope_model::Unit;

use super::super::ReadError;
use super::super::perf_script::Measures;
use super::order::Order;

/// An event.
pub(super) struct Event {
    pub name: String,
    pub measures: Measures,
    /// Its period or frequency, in words.
    pub rate: String,
    fixed: Option<u64>,
    tracepoint: bool,
    used: bool,
    seen: u64,
}

/// All events of a file.
pub(super) struct Events {
    list: Vec<Event>,
    timed: bool,
    counted: bool,
    /// Whether context switches come as perf's own records.
    pub by_records: bool,
}

impl Events {
    pub(super) fn new(
        attributes: &[AttributeDescription],
        asked: Option<&str>,
    ) -> Result<Events, ReadError> {
        let mut list: Vec<Event> = attributes.iter().map(event).collect();
        let dummy = |e: &Event| e.name.starts_with("dummy");
        let records = attributes
            .iter()
            .any(|a| a.attributes().flags.contains(AttrFlags::CONTEXT_SWITCH));
        let timed = asked.is_none() && list.iter().any(|e| e.measures != Measures::Count);
        let counted = asked == Some("samples");
        match asked {
            Some("samples") => list.iter_mut().for_each(|e| e.used = true),
            Some(asked) => {
                let Some(e) = list.iter_mut().find(|e| e.name == asked) else {
                    let have: Vec<_> = list.iter().map(|e| e.name.as_str()).collect();
                    return Err(ReadError::NoSuchValue {
                        asked: asked.to_string(),
                        have: format!("samples, {}", have.join(", ")),
                    });
                };
                e.used = true;
            }
            None if timed => {
                for e in &mut list {
                    e.used = e.measures != Measures::Count;
                }
            }
            None => {
                let first = list.iter().position(|e| !dummy(e)).unwrap_or(0);
                if let Some(e) = list.get_mut(first) {
                    e.used = true;
                }
            }
        }
        let by_tracepoint = list.iter().any(|e| e.measures == Measures::Switch);
        Ok(Events {
            list,
            timed,
            counted,
            by_records: records && timed && !by_tracepoint,
        })
    }

    /// Counts a sample; tells whether it is to be read.
    pub(super) fn counts(&mut self, attr: usize) -> bool {
        match self.list.get_mut(attr) {
            Some(e) => {
                e.seen += 1;
                e.used
            }
            None => false,
        }
    }

    /// What the samples of an event are.
    pub(super) fn measures(&self, attr: usize) -> Measures {
        match self.list.get(attr) {
            Some(e) if self.timed || e.measures == Measures::Clock => e.measures,
            _ => Measures::Count,
        }
    }

    pub(super) fn is_tracepoint(&self, attr: usize) -> bool {
        self.list.get(attr).is_some_and(|e| e.tracepoint)
    }

    /// What a sample is worth.
    pub(super) fn value(&self, attr: usize, period: Option<u64>) -> u64 {
        if self.counted {
            return 1;
        }
        let fixed = self.list.get(attr).and_then(|e| e.fixed);
        period.or(fixed).unwrap_or(1)
    }

    /// The events that are read.
    pub(super) fn used(&self) -> impl Iterator<Item = &Event> {
        self.list.iter().filter(|e| e.used && e.seen > 0)
    }

    /// Whether there is time off the CPU.
    pub(super) fn switched(&self) -> bool {
        self.by_records || self.timed && self.used().any(|e| e.measures == Measures::Switch)
    }

    pub(super) fn unit(&self) -> Unit {
        if self.counted {
            return Unit::Count("samples".to_string());
        }
        match self.used().next() {
            _ if self.timed => Unit::Nanoseconds,
            Some(e) if e.measures == Measures::Clock => Unit::Nanoseconds,
            Some(e) => Unit::Count(e.name.clone()),
            None => Unit::Count("samples".to_string()),
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let others: Vec<String> = (self.list.iter())
            .filter(|e| !e.used && e.seen > 0)
            .map(|e| format!("{} ({} samples)", e.name, e.seen))
            .collect();
        if others.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "the file also holds {}: choose with --value EVENT, or count all with --value samples",
            others.join(", ")
        )]
    }
}

fn event(d: &AttributeDescription) -> Event {
    let a = d.attributes();
    let name = match d.name().filter(|n| !n.is_empty()) {
        Some(name) => name.to_string(),
        None => name_of(&a.type_),
    };
    // The kind decides, a name is what the user gave it.
    let measures = match &a.type_ {
        PerfEventType::Software(SoftwareCounterType::CpuClock | SoftwareCounterType::TaskClock) => {
            Measures::Clock
        }
        PerfEventType::Tracepoint(_) => Measures::of(&name),
        _ => Measures::Count,
    };
    let (fixed, rate) = match a.sampling_policy {
        SamplingPolicy::Period(n) => (Some(n.get()), format!("every {n}")),
        SamplingPolicy::Frequency(hz) => (None, format!("{hz} Hz")),
        SamplingPolicy::NoSampling => (None, "not sampled".to_string()),
    };
    Event {
        name,
        measures,
        rate,
        fixed,
        tracepoint: matches!(a.type_, PerfEventType::Tracepoint(_)),
        used: false,
        seen: 0,
    }
}

/// A name for an event whose own is lost.
fn name_of(kind: &PerfEventType) -> String {
    match kind {
        PerfEventType::Software(SoftwareCounterType::CpuClock) => "cpu-clock".to_string(),
        PerfEventType::Software(SoftwareCounterType::TaskClock) => "task-clock".to_string(),
        PerfEventType::Hardware(HardwareEventId::CpuCycles, _) => "cycles".to_string(),
        PerfEventType::Hardware(HardwareEventId::Instructions, _) => "instructions".to_string(),
        PerfEventType::Tracepoint(id) => format!("tracepoint {id}"),
        _ => "event".to_string(),
    }
}

/// What a `sched_switch` says. Its layout has not changed since Linux 2.6.32.
pub(super) struct Switch {
    pub prev: u32,
    pub next: u32,
    pub wants: bool,
}

impl Switch {
    pub(super) fn parse(raw: &[u8], order: Order) -> Option<Switch> {
        // Common fields 8 bytes, prev_comm 16, prev_pid, prev_prio, prev_state 8, next_comm 16.
        Some(Switch {
            prev: order.int(raw, 24)?,
            next: order.int(raw, 56)?,
            wants: order.long(raw, 32)? & 0xff == 0,
        })
    }
}
