//! Stacks at events by name: what is opened for them, and what became of it.

use wallscope_model::{ContextId, EventHits};
use wallscope_observe::{CountedEvent, EventHits as ObservedHits, Observation};

use super::{Options, accounts::Accounts, estimator::Facts};
use crate::{
    Error,
    backend::ebpf::event_sampling::{MOST, SampledEvent},
    counter::Source,
};

/// Opens the events that are asked for.
///
/// # Errors
/// One cannot be had here, or there are too many.
pub(super) fn open(options: &Options, cpus: &[u32]) -> Result<Vec<SampledEvent>, Error> {
    if options.events.len() > MOST {
        return Err(Error::NoEvent {
            name: format!("{} events", options.events.len()),
            why: format!("a recording has room for {MOST}"),
        });
    }
    let open = |spec| {
        SampledEvent::open(spec, cpus, options.hz, options.event_period).map_err(|why| {
            Error::NoEvent {
                name: spec.name.clone(),
                why,
            }
        })
    };
    options.events.iter().map(open).collect()
}

/// Which kinds there are: software or hardware events, tracepoints.
pub(super) fn kinds(taps: &[SampledEvent]) -> (bool, bool) {
    let point = |tap: &SampledEvent| tap.spec.source == Source::Tracepoint;
    (taps.iter().any(|t| !point(t)), taps.iter().any(point))
}

/// What the events are, and how often each happened: `counted` has (thread record, event, hits).
pub(super) fn observe(
    taps: &[SampledEvent],
    counted: &[(u64, usize, u64)],
) -> Vec<Observation<'static>> {
    let events = taps.iter().map(|tap| {
        Observation::CountedEvent(CountedEvent {
            name: tap.spec.name.clone(),
            counted: tap.is_counted(),
        })
    });
    let hits = counted.iter().map(|(record, event, hits)| {
        Observation::EventHits(ObservedHits {
            event: *event as u32,
            record: *record,
            hits: *hits,
        })
    });
    events.chain(hits).collect()
}

/// How often each event happened to each thread. Stacks follow.
pub(super) fn assemble(facts: &Facts, accounts: &Accounts) -> Vec<EventHits> {
    let mut events: Vec<EventHits> = (facts.events.iter())
        .map(|event| EventHits {
            name: event.name.clone(),
            counted: event.counted,
            ..EventHits::default()
        })
        .collect();
    for counted in facts.hits.iter().filter(|counted| counted.hits > 0) {
        let event = events.get_mut(counted.event as usize);
        if let (Some(event), Some(context)) = (event, accounts.index(counted.record)) {
            event.hits.push((ContextId(context), counted.hits));
        }
    }
    for event in &mut events {
        event.hits.sort_unstable();
    }
    events
}
