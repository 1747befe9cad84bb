//! Records of events by name -> observations of stacks and counts.

use wallscope_observe::{CounterHeir, EventHits, EventStack, HitsOfEnded, Observation};

use crate::backend::{
    perf::record::{EventCount, EventSample},
    proc::{poller::ProcPoller, samples::Polled},
};

impl ProcPoller {
    /// Takes a stack at an event. `since`: when threads were listed last.
    pub fn hit(&mut self, hit: &EventSample, time: u64, since: u64, now: u64) {
        let EventSample {
            event,
            stream,
            opened,
            running,
        } = hit;
        if self.hits.as_ref().is_none_or(|h| time < h.begun_ns) {
            return;
        }
        let Some(index) = self.heard_of(running.pid, running.tid, since, now) else {
            self.tally.strangers += 1;
            return;
        };
        let (frames, end) = self.stack_of(running, time, now);
        let scope = self.processes.scope_of(running.pid, time, &frames);
        let Some(hits) = &mut self.hits else { return };
        let sampled = &mut hits.events[*event];
        sampled.stacks += 1;
        let gap = sampled.gap_of(*stream, *opened, time);
        let stack = (self.intake).stack(Polled::of(scope, &frames, Box::default(), end));
        self.intake.observe(&Observation::EventStack(EventStack {
            event: *event as u32,
            thread: index as u32,
            stack,
            time,
            hits: gap,
            user_mode: running.user_mode,
        }));
    }

    /// Takes the count of a thread that ended.
    pub fn counted(&mut self, counted: &EventCount, time: u64) {
        let Some(index) = self.watch.find_ended(counted.pid, counted.tid) else {
            return;
        };
        if self.hits.as_ref().is_some_and(|h| time >= h.begun_ns) {
            self.intake.observe(&Observation::HitsOfEnded(HitsOfEnded {
                event: counted.event as u32,
                thread: index as u32,
                hits: counted.hits,
            }));
        }
    }

    /// Observes the values of the counters, and the threads that share them.
    pub fn tell_counted_events(&mut self) {
        let Some(hits) = &self.hits else { return };
        let counted = hits.counted();
        let counted = counted.into_iter().map(|(event, thread, hits)| EventHits {
            event: event as u32,
            record: thread as u64,
            hits,
        });
        self.last_values.hits(counted, &mut self.intake);
        for (index, t) in self.watch.threads.iter().enumerate() {
            let Some(root) = t.records.heir_of else {
                continue;
            };
            let heir = CounterHeir {
                thread: index as u32,
                of: root as u32,
            };
            self.last_values.heir(heir, &mut self.intake);
        }
    }
}
