//! Observations of polls on their way to the estimator and the log.
//!
//! [`Intake::observe`] is the one place through which the estimator learns anything of polls.

use wallscope_observe::{LogWriter, Observation, PolledStack, StackMemory};

use super::{estimator::PollEstimator, samples::Polled};
use crate::session::observation_sink::ObservationSink;

/// The estimator, and the log of its observations.
pub struct Intake {
    /// Turns the observations into a recording.
    pub estimator: PollEstimator,
    /// Keeps the observations, too.
    pub log: Option<LogWriter>,
}

impl Intake {
    /// Logs an observation, and gives it to the estimator.
    pub fn observe(&mut self, observation: &Observation<'_>) {
        if let Some(log) = &mut self.log {
            log.append(observation);
        }
        self.estimator.observe(observation);
    }

    /// Logs stack memory, where that is asked for.
    pub fn keep_memory(&mut self, memory: impl FnOnce() -> StackMemory) {
        if let Some(log) = &mut self.log {
            log.keep_memory(memory);
        }
    }

    /// Whether there is a log that still grows.
    pub fn is_logged(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.failed().is_none())
    }

    /// The index of a stack.
    pub fn stack(&mut self, stack: Polled) -> u32 {
        if let Some(index) = self.estimator.samples.known(&stack) {
            return index;
        }
        let number = self.estimator.samples.distinct() as u32;
        self.observe(&Observation::PolledStack(PolledStack {
            number,
            pid: stack.scope.pid,
            code: stack.scope.code,
            end: stack.end,
            native: stack.frames.into(),
            managed: stack.managed.into(),
            resource: stack.resource,
        }));
        number
    }
}

impl ObservationSink for Intake {
    fn observe(&mut self, observation: Observation<'_>) {
        Intake::observe(self, &observation);
    }
}
