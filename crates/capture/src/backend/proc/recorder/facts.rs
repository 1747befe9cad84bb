//! Facts that are logged as they come, so that a recording can be made of a log that ends anywhere.

use wallscope_model::Cost;
use wallscope_observe::{Mark, Observation};
use wallscope_unwind::native::FrameWord;

use super::{
    super::{estimator::PollEstimator, poller::ProcPoller},
    PollProgress, PollRecorder,
};
use crate::session::{
    build::{Stacks, UserFrames},
    cost::thread_cpu_ns,
    early_names::{NamedStacks, StackOf},
    naming::CodeNames,
    process_news::observe_programs,
};

/// Least time between two readings of cumulative figures, ns. A recovery states their age.
const FIGURES_EVERY: u64 = 1_000_000_000;
/// Reading them takes at most one part in this many of the time.
const FIGURES_SHARE: u64 = 1000;

impl PollRecorder<'_> {
    /// Logs facts that have become known since the last round, which ends at `now`.
    pub(super) fn log_news(&mut self, progress: &PollProgress, now: u64) {
        if !self.poller.intake.is_logged() {
            return;
        }
        self.poller.tell_news();
        self.log_names();
        let samples = self.host.take();
        if !samples.is_empty() {
            let cost = Cost {
                own_cpu_ns: progress.meter.own_ns(),
                target_stopped_ns: self.stops().map_or(0, |stops| stops.ns),
                ..self.poller.last_values.memory.clone()
            };
            (self.poller.intake).observe(&Observation::Cost(cost));
        }
        for sample in samples {
            let sample = Box::new(sample);
            (self.poller.intake).observe(&Observation::Host(sample));
        }
        if self.logged.figures_due_ns == 0 {
            self.logged.figures_due_ns = now + FIGURES_EVERY;
            self.log_domain(progress, now);
        }
    }

    /// Logs the names in new stacks of code made at run time and of interpreted code.
    fn log_names(&mut self) {
        let ProcPoller {
            processes, intake, ..
        } = &mut self.poller;
        observe_programs(processes, intake);
        let (logged, estimator) = (&mut self.logged, &intake.estimator);
        let new = logged.named..estimator.samples.distinct();
        if new.is_empty() {
            return;
        }
        logged.named = new.end;
        let own = new.filter_map(|number| own_stack(estimator, number));
        let names = logged.names.of(own.collect(), estimator, processes);
        names.iter().for_each(|name| intake.observe(name));
    }

    /// Logs cumulative figures, if it is time to.
    pub(super) fn log_figures(&mut self, progress: &PollProgress, now: u64) {
        if !self.poller.intake.is_logged() || now < self.logged.figures_due_ns {
            return;
        }
        let began = thread_cpu_ns();
        let poller = &mut self.poller;
        for thread in &mut poller.watch.threads {
            thread.catch_up(now);
        }
        poller.tell_figures();
        poller.tell_counted_events();
        poller.tell_connections();
        poller.tell_losses(Vec::new());
        let ProcPoller {
            processes, intake, ..
        } = poller;
        let names = self.logged.names.again(&intake.estimator, processes);
        names.iter().for_each(|name| intake.observe(name));
        self.poller.last_values.memory = self.memory();
        self.log_domain(progress, now);
        let mark = Mark::Figures { time: now };
        self.poller.intake.observe(&Observation::Mark(mark));
        let took = thread_cpu_ns().saturating_sub(began);
        self.logged.figures_due_ns = now + FIGURES_EVERY.max(FIGURES_SHARE * took);
    }

    fn log_domain(&mut self, progress: &PollProgress, now: u64) {
        let domain = self.described(&progress.pace, self.stops(), now);
        let ProcPoller {
            last_values,
            intake,
            ..
        } = &mut self.poller;
        last_values.domain(domain, intake);
    }
}

/// A stack with frames that mean something in its own process only; `None`: it has none.
fn own_stack(estimator: &PollEstimator, number: usize) -> Option<StackOf> {
    let stack = estimator.samples.polled(number as u32);
    let is_own = |word: &u64| FrameWord(*word).file() == 0;
    let has_own = !stack.managed.is_empty() || stack.frames.iter().any(is_own);
    has_own.then_some((stack.scope.pid, number as u64, stack.scope.code))
}

impl NamedStacks for PollEstimator {
    fn name(&self, (_, number, _): StackOf, names: &dyn CodeNames) {
        let stack = self.samples.polled(number as u32);
        // Only the questions are of interest here; the stack itself is dropped.
        let mut stacks = Stacks::new(Vec::new());
        stacks.interpreter_frames = self.interpreter_frames;
        let frames = UserFrames {
            native: &stack.frames,
            managed: &stack.managed,
            end: stack.end,
        };
        stacks.user_stack(&frames, stack.scope, names);
    }
}
