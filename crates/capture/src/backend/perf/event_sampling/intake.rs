//! What events by name write into their rings -> stacks and counts.

use wallscope_model::{Part, State, WaitSeen};

use crate::backend::{
    perf::record::{EventCount, EventSample},
    proc::{
        poller::ProcPoller,
        samples::{Look, Polled, Weight},
    },
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
        let event = &mut hits.events[*event];
        let gap = event.gap_of(*stream, *opened, time);
        event.stacks += 1;
        *event.sampled.entry(index).or_default() += gap;
        let stack = (event.samples).stack(Polled::of(scope, &frames, Box::default(), end));
        let look = Look {
            thread: index as u32,
            stack,
            state: State::OnCpu,
            reason: None,
            part: Some(if running.user_mode {
                Part::User
            } else {
                Part::Kernel
            }),
            begin: time,
            end: time,
            ns: gap,
            weight: Weight::Own,
            seen: WaitSeen::default(),
        };
        event.samples.add(self.intake.estimator.grid, &look);
    }

    /// Takes what a thread that ended had counted.
    pub fn counted(&mut self, counted: &EventCount, time: u64) {
        let Some(index) = self.watch.find_ended(counted.pid, counted.tid) else {
            return;
        };
        if let Some(hits) = self.hits.as_mut().filter(|h| time >= h.begun_ns) {
            let told = &mut hits.events[counted.event].told;
            *told.entry(index).or_default() += counted.hits;
        }
    }
}
