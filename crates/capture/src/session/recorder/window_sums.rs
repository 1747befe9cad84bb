//! Sums that grow over the whole session. A window has their growth since the previous window.

use std::collections::BTreeMap;

use wallscope_model::{Loss, Recording};

use super::super::{
    event_merger::Collector,
    histograms::{self, ClassCounts},
    processes::Processes,
};
use crate::{backend::ebpf::RunTime, event};

/// Sums up to a window.
#[derive(Default)]
pub(super) struct WindowSums {
    run_time: RunTime,
    losses: Vec<u64>,
    /// Losses beside them, by cause.
    collector_losses: BTreeMap<String, u64>,
    lengths: ClassCounts,
}

impl WindowSums {
    /// Gives `window` the growth since the previous one.
    pub fn take(&mut self, collector: &Collector, window: &mut Recording) {
        let Collector {
            programs,
            processes,
            ..
        } = collector;
        let (now, before) = (programs.run_time(), self.run_time);
        window.cost.bpf_ns = now.total_ns().saturating_sub(before.total_ns());
        window.cost.displaced_ns = now.displaced_ns.saturating_sub(before.displaced_ns);
        self.run_time = now;
        let losses: Vec<u64> = programs.losses().into_iter().collect();
        for (at, (cause, count)) in event::LOSSES.iter().zip(&losses).enumerate() {
            let added = count.saturating_sub(self.losses.get(at).copied().unwrap_or(0));
            if added > 0 {
                let cause = (*cause).into();
                window.losses.push(Loss {
                    cause,
                    count: added,
                });
            }
        }
        self.losses = losses;
        window.losses.extend(self.collector_losses_since(processes));
        let lengths = programs.histograms();
        window
            .histograms
            .extend(histograms::added(&lengths, &self.lengths));
        self.lengths = lengths;
    }

    /// Losses of reading processes and their files since the last window.
    fn collector_losses_since(&mut self, processes: &Processes) -> Vec<Loss> {
        let mut added = Vec::new();
        for (cause, so_far) in processes.losses() {
            let before = self.collector_losses.entry(cause.clone()).or_default();
            let count = so_far.saturating_sub(*before);
            *before = so_far.max(*before);
            if count > 0 {
                added.push(Loss { cause, count });
            }
        }
        added
    }
}
