//! Keeps the total cost of measuring within its limit: reads the counters for the budget, and carries out its steps.

use std::rc::Rc;

use wallscope_model::Domain;
use wallscope_observe::{Connected, Observation};
use wallscope_procfs::kernel_file;
use zerocopy::IntoBytes;

use super::{
    super::budget::{Budget, Reading},
    Recorder,
};
use crate::{backend::ebpf::GivenUp, clock::now, event};

/// Switches of the machine since its start; 0 where the kernel does not say.
fn switches() -> u64 {
    let stat = kernel_file::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("ctxt "));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

impl Recorder<'_> {
    /// Starts the budget, if there is one.
    pub(super) fn begin_budget(&mut self) {
        let limit = self.setup.options.method.max_total_overhead;
        self.cost.budget = limit.map(|percent| Budget::new(percent / 100.0, self.reading(now())));
    }

    fn reading(&self, time: u64) -> Reading {
        let run_time = self.collector.programs.run_time();
        Reading {
            time,
            cost_ns: run_time.total_ns() + run_time.displaced_ns + self.cost.meter.own_ns(),
            switches: switches(),
        }
    }

    /// Whether stacks are taken now.
    pub(super) fn takes_stacks(&self) -> bool {
        let budget = self.cost.budget.as_ref();
        budget.is_none_or(|budget| budget.given_up() < GivenUp::Stacks)
    }

    /// Gives up, or takes back, the parts that the budget names.
    pub(super) fn keep_budget(&mut self, time: u64) {
        if self.cost.budget.is_none() {
            return;
        }
        let reading = self.reading(time);
        let step = self
            .cost
            .budget
            .as_mut()
            .and_then(|budget| budget.check(reading));
        let Some(given_up) = step else { return };
        let timers = &self.setup.timer.events;
        if let Err(e) = self.collector.programs.give_up(given_up, timers) {
            self.notes.push(format!(
                "after {} were given up, not all came back: {e}",
                given_up.name()
            ));
        }
        let period = match given_up < GivenUp::Stacks && self.setup.options.stacks {
            true => self.cost.pace.period,
            false => std::time::Duration::ZERO,
        };
        self.collector.programs.set_period(period);
        self.forget_requests();
    }

    /// Reports the connections seen so far, and stops the tracking of requests: some of them were not seen.
    fn forget_requests(&mut self) {
        let time = now();
        let intake = Rc::clone(&self.intake);
        let intake = &mut *intake.borrow_mut();
        for mut socket in self.collector.programs.take_sockets() {
            if socket.since > 0 {
                socket.in_flight += time.saturating_sub(socket.since);
                socket.since = 0;
            }
            let head = event::Head {
                kind: event::kind::SOCKET,
                size: (size_of::<event::Head>() + socket.as_bytes().len()) as u32,
            };
            let bytes = [head.as_bytes(), socket.as_bytes()].concat();
            intake.observe(Observation::Event(&bytes));
        }
        intake.observe(Observation::Connected(Connected {
            followed: false,
            ..Connected::default()
        }));
    }

    /// Adds to the domain the steps that are and were given up.
    pub(super) fn describe_budget(&self, domain: &mut Domain) {
        if let Some(budget) = &self.cost.budget {
            budget.describe(domain, self.time.start_ns);
        }
    }
}
