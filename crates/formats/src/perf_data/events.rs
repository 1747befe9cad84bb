//! The events of the file: the choice of those that are read, and the meaning of their values.

use wallscope_model::Unit;

use super::super::ReadError;
use super::super::perf_event::{Meaning, base};
use super::super::switches::Left;
use super::attribute::{Attribute, Rate, flag, kind, reading, sample};
use super::file::EventDescription;
use super::order::Order;

/// `config` of the software event that BPF programs write.
const BPF_OUTPUT: u64 = 10;

/// An event.
pub(super) struct Event {
    pub name: String,
    pub meaning: Meaning,
    /// Its period or frequency, in words.
    pub rate: String,
    attribute: Attribute,
    /// Its samples are read.
    used: bool,
    /// Samples of it in the file, and the sum of their values.
    seen: u64,
    sum: u64,
}

impl Event {
    fn new(d: &EventDescription) -> Event {
        let a = d.attribute;
        // The type decides: the name is the user's choice.
        let meaning = match (a.kind, a.config) {
            // A tick of a clock of unknown length is a count.
            (kind::SOFTWARE, 0 | 1) if is_weighed(&a) => Meaning::Clock,
            (kind::TRACEPOINT, _) => Meaning::of(&d.name),
            (kind::SOFTWARE, BPF_OUTPUT) if Meaning::of(&d.name) == Meaning::OffCpu => {
                Meaning::OffCpu
            }
            _ => Meaning::Count,
        };
        Event {
            name: d.name.clone(),
            meaning,
            rate: match a.rate {
                Rate::Period(n) => format!("every {n}"),
                Rate::Frequency(hz) => format!("{hz} Hz"),
                Rate::None => "not sampled".to_string(),
            },
            attribute: a,
            used: false,
            seen: 0,
            sum: 0,
        }
    }

    fn is_dummy(&self) -> bool {
        self.name.starts_with("dummy")
    }

    /// Its name, samples and sum, in words.
    fn summary(&self) -> String {
        format!("{} ({} samples, {} in all)", self.name, self.seen, self.sum)
    }
}

/// Whether the file has the number of events that a sample represents.
fn is_weighed(a: &Attribute) -> bool {
    let counted = a.has(sample::READ) && a.reading & reading::ID != 0;
    counted || a.has(sample::PERIOD) || matches!(a.rate, Rate::Period(_))
}

/// All events of a file.
pub(super) struct Events {
    list: Vec<Event>,
    /// Values are time.
    timed: bool,
    /// Every sample counts one, whatever its event.
    counted: bool,
    /// The common name of several events that were added up.
    added: Option<String>,
    /// Context switches are read from perf's own records.
    pub by_records: bool,
}

impl Events {
    /// The file's events. Those that were `asked` for are read.
    ///
    /// # Errors
    /// [`ReadError::NoSuchValue`].
    pub(super) fn new(
        descriptions: &[EventDescription],
        asked: Option<&str>,
    ) -> Result<Events, ReadError> {
        let mut list: Vec<Event> = descriptions.iter().map(Event::new).collect();
        let records = (list.iter()).any(|e| e.attribute.flags & flag::CONTEXT_SWITCH != 0);
        let timed = asked.is_none() && list.iter().any(|e| e.meaning != Meaning::Count);
        let by_tracepoint = list.iter().any(|e| e.meaning == Meaning::Switch);
        let by_length = list.iter().any(|e| e.meaning == Meaning::OffCpu);
        let mut added = None;
        match asked {
            Some("samples") => list.iter_mut().for_each(|e| e.used = true),
            Some(asked) => added = choose(&mut list, asked)?,
            None if timed => {
                for e in &mut list {
                    // Switches and `offcpu-time` both cover all time off the CPU.
                    let twice = e.meaning == Meaning::OffCpu && by_tracepoint;
                    e.used = e.meaning != Meaning::Count && !twice;
                }
            }
            None => {
                let first = list.iter().position(|e| !e.is_dummy()).unwrap_or(0);
                if let Some(e) = list.get_mut(first) {
                    e.used = true;
                }
            }
        }
        Ok(Events {
            list,
            timed,
            counted: asked == Some("samples"),
            added,
            by_records: records && timed && !by_tracepoint && !by_length,
        })
    }

    /// Whether samples of this event are read.
    pub(super) fn is_used(&self, event: usize) -> bool {
        self.list.get(event).is_some_and(|e| e.used)
    }

    /// Counts a sample.
    pub(super) fn count(&mut self, event: usize, value: u64) {
        if let Some(e) = self.list.get_mut(event) {
            e.seen += 1;
            e.sum = e.sum.saturating_add(value);
        }
    }

    /// Meaning of an event's samples.
    pub(super) fn meaning(&self, event: usize) -> Meaning {
        match self.list.get(event) {
            Some(e) if self.timed || e.meaning.is_length() => e.meaning,
            _ => Meaning::Count,
        }
    }

    pub(super) fn is_tracepoint(&self, event: usize) -> bool {
        (self.list.get(event)).is_some_and(|e| e.attribute.kind == kind::TRACEPOINT)
    }

    /// Value of a sample that has this period.
    pub(super) fn value(&self, event: usize, period: Option<u64>) -> u64 {
        let fixed = match self.list.get(event).map(|e| e.attribute.rate) {
            Some(Rate::Period(n)) => Some(n),
            _ => None,
        };
        period.or(fixed).unwrap_or(1)
    }

    /// Whether every sample counts one.
    pub(super) fn are_counted(&self) -> bool {
        self.counted
    }

    /// The events that are read.
    pub(super) fn used(&self) -> impl Iterator<Item = &Event> {
        self.list.iter().filter(|e| e.used && e.seen > 0)
    }

    /// Whether there is time off the CPU.
    pub(super) fn switched(&self) -> bool {
        self.by_records || self.timed && self.used().any(|e| e.meaning.is_off_cpu())
    }

    pub(super) fn unit(&self) -> Unit {
        let samples = || Unit::Count("samples".to_string());
        if self.counted {
            return samples();
        }
        match self.used().next() {
            _ if self.timed => Unit::Nanoseconds,
            Some(e) if e.meaning.is_length() => Unit::Nanoseconds,
            Some(e) if !is_weighed(&e.attribute) => samples(),
            Some(e) => Unit::Count(self.added.clone().unwrap_or(e.name.clone())),
            None => samples(),
        }
    }

    /// Sentences about events that were added up, and about those that were not read.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(name) = &self.added {
            let parts: Vec<String> = self.used().map(Event::summary).collect();
            if parts.len() > 1 {
                warnings.push(format!("{name} is the sum of {}", parts.join(" and ")));
            }
        }
        if let Some(e) = (self.used()).find(|e| !self.counted && !is_weighed(&e.attribute)) {
            warnings.push(format!(
                "its samples of {} have no period: they are counted, each as one",
                e.name
            ));
        }
        let others: Vec<&Event> = (self.list.iter())
            .filter(|e| !e.used && e.seen > 0)
            .collect();
        if others.is_empty() {
            return warnings;
        }
        let list: Vec<String> = (others.iter())
            .map(|e| format!("{} ({} samples)", e.name, e.seen))
            .collect();
        let mut text = format!(
            "the file also holds {}: choose with --value EVENT, or count all with --value samples",
            list.join(", ")
        );
        let read = self.used().next().map(|e| base(&e.name));
        let same = |e: &&Event| Some(base(&e.name)) == read;
        if let Some(name) = read.filter(|_| others.iter().any(same)) {
            text.push_str(&format!("; --value {name} adds them up"));
        }
        warnings.push(text);
        warnings
    }
}

/// Marks the events that the name `asked` means: the one with this name, or all with this name after removing
/// PMU and modifiers. Returns the common name if several are added up.
fn choose(list: &mut [Event], asked: &str) -> Result<Option<String>, ReadError> {
    if let Some(e) = list.iter_mut().find(|e| e.name == asked) {
        e.used = true;
        return Ok(None);
    }
    let (name, mut chosen) = (base(asked), 0);
    for e in list.iter_mut() {
        // If a PMU was requested, events of other PMUs do not match.
        let fits = base(&e.name) == name && pmu(asked).is_none_or(|p| pmu(&e.name) == Some(p));
        if fits {
            e.used = true;
            chosen += 1;
        }
    }
    match chosen {
        0 => Err(ReadError::NoSuchValue {
            asked: asked.to_string(),
            have: have(list),
        }),
        1 => Ok(None),
        _ => Ok(Some(name.to_string())),
    }
}

/// The PMU that an event's name begins with.
fn pmu(event: &str) -> Option<&str> {
    event.split_once('/').map(|(pmu, _)| pmu)
}

/// The values that may be requested: all events, and sums of events that several PMUs have.
fn have(list: &[Event]) -> String {
    let mut names = vec!["samples"];
    for e in list {
        names.push(&e.name);
        let same = list.iter().filter(|o| base(&o.name) == base(&e.name));
        if same.count() > 1 && !names.contains(&base(&e.name)) {
            names.push(base(&e.name));
        }
    }
    names.join(", ")
}

/// A `sched_switch`. Its layout has not changed since Linux 2.6.32.
pub(super) struct Switch {
    /// Thread that leaves its CPU, and the one that gets it.
    pub prev: u32,
    pub next: u32,
    /// The thread that leaves still wants a CPU.
    pub left: Left,
}

impl Switch {
    pub(super) fn parse(raw: &[u8], order: Order) -> Option<Switch> {
        // Common fields 8 bytes, prev_comm 16, prev_pid, prev_prio, prev_state 8, next_comm 16.
        Some(Switch {
            prev: order.int(raw, 24)?,
            next: order.int(raw, 56)?,
            left: match order.long(raw, 32)? & 0xff {
                0 => Left::Preempted,
                _ => Left::Blocked,
            },
        })
    }
}
