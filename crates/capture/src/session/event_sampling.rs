//! Stacks at named events: opens the events, and adds their counts to the recording.

use wallscope_model::{ContextId, EventHits};
use wallscope_observe::{CountedEvent, Observation};

use super::{Options, accounts::Accounts, estimator::Facts};
use crate::{
    Error,
    backend::ebpf::event_sampling::{MAX_EVENTS, SampledEvent},
    counter::Source,
};

/// Opens the events that are asked for.
///
/// # Errors
/// One cannot be had here, or there are too many.
pub(super) fn open(options: &Options, cpus: &[u32]) -> Result<Vec<SampledEvent>, Error> {
    if options.events.len() > MAX_EVENTS {
        return Err(Error::NoEvent {
            name: format!("{} events", options.events.len()),
            why: format!("a recording has room for {MAX_EVENTS}"),
        });
    }
    let open = |spec| {
        SampledEvent::open(spec, cpus, options.method.hz, options.method.event_period).map_err(
            |why| Error::NoEvent {
                name: spec.name.clone(),
                why,
            },
        )
    };
    options.events.iter().map(open).collect()
}

/// Whether there are software or hardware events, and whether there are tracepoints.
pub(super) fn kinds(taps: &[SampledEvent]) -> (bool, bool) {
    let point = |tap: &SampledEvent| tap.spec.source == Source::Tracepoint;
    (taps.iter().any(|t| !point(t)), taps.iter().any(point))
}

/// Observations that describe the events.
pub(super) fn observe(taps: &[SampledEvent]) -> impl Iterator<Item = Observation<'static>> {
    taps.iter().map(|tap| {
        Observation::CountedEvent(CountedEvent {
            name: tap.spec.name.clone(),
            counted: tap.is_counted(),
        })
    })
}

/// Counts of each event by thread. Stacks follow.
pub(super) fn assemble(facts: &Facts, accounts: &Accounts) -> Vec<EventHits> {
    let mut events: Vec<EventHits> = (facts.events.iter())
        .map(|event| EventHits {
            name: event.name.clone(),
            counted: event.counted,
            ..EventHits::default()
        })
        .collect();
    for ((event, record), hits) in facts.hits.iter().filter(|(_, hits)| **hits > 0) {
        let event = events.get_mut(*event as usize);
        if let (Some(event), Some(context)) = (event, accounts.index(*record)) {
            event.hits.push((ContextId(context), *hits));
        }
    }
    for event in &mut events {
        event.hits.sort_unstable();
        // Ended threads may be one group.
        event.hits.dedup_by(|next, kept| {
            let is_one = next.0 == kept.0;
            kept.1 += if is_one { next.1 } else { 0 };
            is_one
        });
    }
    events
}
