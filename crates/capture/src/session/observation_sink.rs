//! The way of observations to the log and the estimator, for collectors of all tiers.

use wallscope_observe::Observation;

/// Takes observations: the log keeps them, and the estimator gets them.
pub trait ObservationSink {
    /// Takes one.
    fn observe(&mut self, observation: Observation<'_>);
}
