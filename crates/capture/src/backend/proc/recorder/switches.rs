//! Switches recorded by perf events, beside the polls.

use super::{
    super::{PerfEvents, poller::ProcPoller, refusal},
    PollRecorder,
};
use wallscope_observe::{Observation, SwitchRecording};

use crate::{
    Error,
    backend::perf::{DATA_PAGES, EventSampler, EventSampling, ThreadEvents},
    clock, cpus,
    session::Options,
};

impl PollRecorder<'_> {
    /// Has switches recorded by perf events, where these are allowed.
    ///
    /// # Errors
    /// They are required and not allowed, or they cannot do the requested work.
    pub(super) fn record_switches(
        &mut self,
        perf: PerfEvents,
        descriptors: usize,
    ) -> Result<(), Error> {
        let options = self.options;
        let poller = &mut self.poller;
        match open_clock(poller, options, descriptors) {
            Ok(cpus) => {
                if let (Some(clock), false) = (&poller.clock, options.events.is_empty()) {
                    let sampling = EventSampling {
                        events: &options.events,
                        gap: options.method.event_period,
                        hz: options.method.hz,
                        descriptors,
                        with_kernel: clock.with_kernel,
                    };
                    let hits = EventSampler::open(sampling, &cpus)?;
                    for event in hits.describe_counts() {
                        (poller.intake).observe(&Observation::CountedEvent(event));
                    }
                    poller.hits = Some(hits);
                }
                join_all(poller);
                let clock = poller.clock.iter().flat_map(ThreadEvents::descriptors);
                for fd in clock.chain(poller.hits.iter().flat_map(EventSampler::descriptors)) {
                    self.events.sideband(fd)?;
                }
                Ok(())
            }
            Err(e) if perf == PerfEvents::Must => Err(refusal::of_events(&e)),
            Err(e) => {
                self.reason = format!("{}; perf events are refused: {e}", self.reason);
                refusal::of_stacks_at(&options.events, &self.reason)
            }
        }
    }
}

/// Prepares perf events of every watched thread. Returns the CPUs.
fn open_clock(
    poller: &mut ProcPoller,
    options: &Options,
    descriptors: usize,
) -> std::io::Result<Vec<u32>> {
    let cpus = cpus::online()?;
    // The memory that an ordinary user may lock has to suffice for stacks at events too.
    let pages = if options.events.is_empty() {
        DATA_PAGES
    } else {
        DATA_PAGES / 2
    };
    let mut clock = ThreadEvents::open(&cpus, options.method.hz, descriptors, pages)?;
    // The first thread shows whether perf events are allowed at all.
    for t in &poller.watch.threads {
        match clock.join(t.tid, 1.0) {
            Ok(()) => {
                clock.leave(t.tid);
                break;
            }
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => return Err(e),
        }
    }
    let recording = SwitchRecording {
        samples_kernel: clock.with_kernel,
        tick_ns: clock::tick_ns(),
    };
    (poller.intake).observe(&Observation::SwitchRecording(recording));
    poller.clock = Some(clock);
    Ok(cpus)
}

/// Opens perf events of every watched thread.
fn join_all(poller: &mut ProcPoller) {
    poller.join(0);
    // Records show a thread that was born meanwhile if its parent had its events already. Listing finds the others,
    // until there are none.
    for _ in 0..16 {
        let now = clock::now();
        poller.drain(now, now);
        let known = poller.watch.threads.len();
        poller.watch.list_all(now);
        poller.open_accounts();
        if poller.watch.threads.len() == known {
            break;
        }
        poller.join(known);
    }
}
