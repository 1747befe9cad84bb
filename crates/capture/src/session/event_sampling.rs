//! Stacks at events by name: what is opened for them, and what became of it.

use wallscope_model::{ContextId, EventHits};

use super::{Options, accounts::Accounts};
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

/// How often each event happened to whom: `counted` has (thread record, event, hits). Stacks follow.
pub(super) fn assemble(
    taps: &[SampledEvent],
    counted: &[(u64, usize, u64)],
    accounts: &Accounts,
) -> Vec<EventHits> {
    let mut events: Vec<EventHits> = taps
        .iter()
        .map(|tap| EventHits {
            name: tap.spec.name.clone(),
            counted: tap.is_counted(),
            ..EventHits::default()
        })
        .collect();
    for (id, event, hits) in counted.iter().filter(|(.., hits)| *hits > 0) {
        if let (Some(event), Some(context)) = (events.get_mut(*event), accounts.index(*id)) {
            event.hits.push((ContextId(context), *hits));
        }
    }
    for event in &mut events {
        event.hits.sort_unstable();
    }
    events
}
