//! Stacks taken at events (page faults, system calls, cache misses…) beside those by the clock.

use crate::{Context, ContextId, Ledger, Recording, Sample, State, Unit, UnknownCause};

/// How often one event happened to whom, and with which stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventHits {
    /// The event, as it was asked for: `page-faults`, `syscalls:sys_enter_write`.
    pub name: String,
    /// Whether `hits` were counted one by one; otherwise they are sums of sampling periods.
    pub counted: bool,
    /// How often, by thread; threads without a hit are left out.
    pub hits: Vec<(ContextId, u64)>,
    /// Stacks; `ns` and the slices' are hits that they stand for, unscaled. The state is
    /// [`State::OnCpu`], the part that of the moment.
    pub samples: Vec<Sample>,
}

impl EventHits {
    /// Hits of all threads.
    pub fn total(&self) -> u64 {
        self.hits.iter().map(|(_, n)| n).sum()
    }
}

impl Recording {
    /// The recording of one event: its hits in the place of time, so that every view, format and
    /// comparison serves it. Threads have their hits for a ledger; what tells of time is left out.
    pub fn of_event(&self, name: &str) -> Option<Recording> {
        let event = self.events.iter().find(|e| e.name == name)?;
        let mut domain = self.domain.clone();
        domain.unit = Unit::Count(event.name.clone());
        for column in &mut domain.columns {
            column.exact = event.counted;
            column.how = match event.counted {
                true => format!("each of the {} {name} was counted", event.total()),
                false => format!("{name} are sums of sampling periods"),
            };
        }
        let mut contexts: Vec<Context> = self.contexts.clone();
        for c in &mut contexts {
            c.ledger = Ledger::default();
        }
        for (context, hits) in &event.hits {
            if let Some(c) = contexts.get_mut(context.0 as usize) {
                c.ledger.wall_ns += hits;
                c.ledger.unknown[UnknownCause::NotInSource as usize] += hits;
            }
        }
        let sample = |s: &Sample| Sample {
            // A hit is no time, so it is in no state of time.
            state: State::Unknown,
            part: None,
            ..s.clone()
        };
        Some(Recording {
            domain,
            window: self.window.clone(),
            contexts,
            processes: self.processes.clone(),
            modules: self.modules.clone(),
            functions: self.functions.clone(),
            frames: self.frames.clone(),
            stacks: self.stacks.clone(),
            label_sets: self.label_sets.clone(),
            samples: event.samples.iter().map(sample).collect(),
            slices: self.slices,
            losses: self.losses.clone(),
            cost: self.cost.clone(),
            ..Recording::default()
        })
    }
}
