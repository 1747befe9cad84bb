//! The recording of one event, with events in place of time.

use crate::{Context, Ledger, Recording, Sample, State, Unit, UnknownCause};

impl Recording {
    /// The recording of one event, with events in place of time, so that every view, format and
    /// comparison works on it. A thread's ledger holds its events; data about time is left out.
    /// `None` if the event was not recorded.
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
            // An event is not time, so it is in no state of time.
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
