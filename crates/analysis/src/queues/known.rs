//! Figures of a queue before anything is computed, and the queue that follows from them.

use std::sync::Arc;

use crate::queueing::predict::{Open, Prediction};
use crate::queueing::{Discipline, Estimate, Moments, bootstrap};

use super::queue::{Queue, QueueKind, System};

/// Figures of a queue before anything is computed.
pub(super) struct Known {
    pub(super) kind: QueueKind,
    pub(super) name: Arc<str>,
    pub(super) system: System,
    pub(super) because: String,
    pub(super) servers: u32,
    pub(super) discipline: Discipline,
    /// Servers that are busy with other work.
    pub(super) others: f64,
    /// Sums by block of time, not empty.
    pub(super) blocks: Vec<Moments>,
    /// Whether the blocks' waits were measured.
    pub(super) waits_known: bool,
    /// Whether the blocks' squares of service times were measured.
    pub(super) variation_known: bool,
    pub(super) notes: Vec<String>,
}

impl Known {
    pub(super) fn open(&self) -> Open {
        Open {
            servers: self.servers,
            discipline: self.discipline,
            others: self.others,
        }
    }

    /// The queue with everything that follows from the blocks, and this prediction.
    pub(super) fn queue(self, prediction: Option<Prediction>) -> Queue {
        let servers = f64::from(self.servers);
        let of = |statistic: &dyn Fn(&Moments) -> f64| bootstrap::of(&self.blocks, statistic);
        let others = self.others;
        let system = self.system;
        // Signed, so not on the scale of logarithms: by the load that fills the servers.
        let full = of(&|m| match system {
            System::Open => (servers - others).max(0.0) / (m.service / m.span),
            System::Closed(n) => {
                let elsewhere = (n * m.span / m.jobs - m.mean_wait()).max(m.mean_service());
                (servers - others).max(0.0) * elsewhere / m.mean_service() / n
            }
        });
        Queue {
            arrival_rate: of(&Moments::arrival_rate),
            service: of(&Moments::mean_service),
            variation: (self.variation_known).then(|| of(&Moments::service_variation)),
            utilisation: of(&|m| m.utilisation(self.servers) + others / servers),
            wait: (self.waits_known).then(|| of(&Moments::mean_wait)),
            others: others / servers,
            headroom: Estimate {
                value: full.value - 1.0,
                low: full.low - 1.0,
                high: full.high - 1.0,
            },
            prediction,
            kind: self.kind,
            name: self.name,
            system,
            because: self.because,
            servers: self.servers,
            notes: self.notes,
        }
    }
}
