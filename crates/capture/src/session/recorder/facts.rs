//! Facts that a log needs as they come, so that a recording can be made of it wherever it ends.

use std::rc::Rc;

use wallscope_model::Cost;
use wallscope_observe::{Counter, Mark, Observation};
use zerocopy::IntoBytes;

use super::{
    super::{
        cost,
        event_dispatch::EventDispatcher,
        process_news::{observe_processes, observe_programs},
    },
    Recorder,
};
use crate::backend::ebpf::{IterOrder, IterRecord};

/// Time between two readings of cumulative figures, ns: they take a walk through kernel maps, and a
/// recovery states their age.
const FIGURES_EVERY: u64 = 10_000_000_000;

impl Recorder<'_> {
    fn is_logged(&self) -> bool {
        self.intake.borrow().log.is_some()
    }

    /// Logs the figures of the threads that were found. Nothing else is known, before the end, of a thread that does
    /// not switch.
    pub(super) fn log_first_books(&mut self) {
        let mut intake = self.intake.borrow_mut();
        let Some(log) = &mut intake.log else { return };
        let iterated = self
            .collector
            .programs
            .iterate_tasks(IterOrder::All, None, |v| {
                if let IterRecord::Books(books) = v {
                    log.append(&Observation::FirstBooks(books.as_bytes()));
                }
            });
        if let Err(e) = iterated {
            self.notes
                .push(format!("the spool lacks threads that did not move: {e}"));
        }
    }

    /// Logs the facts that have become known since the last time slice, which ends at `time`.
    pub(super) fn log_news(&mut self, time: u64) {
        if !self.is_logged() {
            return;
        }
        let intake = Rc::clone(&self.intake);
        let intake = &mut *intake.borrow_mut();
        observe_processes(&mut self.collector.processes, intake);
        observe_programs(&mut self.collector.processes, intake);
        let names = self
            .early_names
            .of_samples(&intake.estimator, &self.collector.processes);
        names.into_iter().for_each(|name| intake.observe(name));
        for sample in self.host.take() {
            intake.observe(Observation::Host(Box::new(sample)));
        }
        self.last_values
            .kernel_losses(&self.collector.programs, intake);
        let run_time = self.collector.programs.run_time();
        intake.observe(Observation::Cost(Cost {
            bpf_ns: run_time.total_ns(),
            displaced_ns: run_time.displaced_ns,
            own_cpu_ns: self.cost.meter.own_ns(),
            ..self.last_values.memory.clone()
        }));
        if self.last_values.figures_ns == 0 {
            // The figures of a recording that ends soon have no age; its domain is told at once.
            self.last_values.figures_ns = time;
            self.log_domain(intake);
        }
    }

    /// Logs cumulative figures, if it is time to.
    pub(super) fn log_figures(&mut self, time: u64) {
        if !self.is_logged() || time < self.last_values.figures_ns + FIGURES_EVERY {
            return;
        }
        self.last_values.figures_ns = time;
        let intake = Rc::clone(&self.intake);
        let intake = &mut *intake.borrow_mut();
        self.last_values.figures(&self.collector.programs, intake);
        let waits = intake.lock_waits_so_far(self.collector.programs.lock_waits());
        self.last_values.lock_waits(waits, intake);
        let losses = self.collector.processes.losses();
        self.last_values.losses(Counter::Collector, losses, intake);
        let names = self
            .early_names
            .again(&intake.estimator, &self.collector.processes);
        names.into_iter().for_each(|name| intake.observe(name));
        let most_alive = intake.estimator.accounts.most_alive();
        self.last_values.memory = Cost {
            rss_bytes: cost::peak_rss_bytes(),
            kernel_bytes: self.collector.programs.map_bytes(most_alive)
                + self.collector.processes.table_bytes()
                + self.collector.sideband.bytes(),
            ..Cost::default()
        };
        self.log_domain(intake);
        intake.observe(Observation::Mark(Mark::Figures { time }));
    }

    fn log_domain(&mut self, intake: &mut EventDispatcher) {
        let domain = self.described();
        self.last_values.domain(domain, intake);
    }
}
