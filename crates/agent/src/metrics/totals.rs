//! Sums over all windows of this run of the agent.

use std::collections::{BTreeMap, HashMap};

use wallscope_model::histogram::{FINE, Histogram};
use wallscope_model::{ContextId, Ledger, Recording, State};

use crate::services::{IDLE_WINDOWS, OTHER, SERVICE};

/// Most causes of losses that are kept apart.
const MAX_CAUSES: usize = 100;
/// Cause of losses beyond that number.
const OTHER_CAUSE: &str = "other";

/// Sums of one service.
#[derive(Clone, Debug)]
pub struct ServiceTotals {
    /// Its ledger.
    pub ledger: Ledger,
    /// Lengths of its waits for a CPU.
    pub run_queue: Histogram,
    /// Requests that it answered.
    pub served: u64,
    /// Requests that it sent.
    pub asked: u64,
    /// On-CPU share of its active time in the last window; `None`: it was not active.
    pub on_cpu_fraction: Option<f64>,
    /// Number of its last window.
    last_window: u64,
}

/// Sums of all windows.
#[derive(Clone, Debug)]
pub struct Totals {
    /// By service.
    pub services: BTreeMap<String, ServiceTotals>,
    /// Lengths of waits for a CPU of all threads.
    pub run_queue: Histogram,
    /// Losses by cause.
    pub losses: BTreeMap<String, u64>,
    /// Windows.
    pub windows: u64,
    /// Run time of the kernel programs, ns.
    pub bpf_ns: u64,
    /// Estimated time that other programs lost because the kernel programs displaced their caches, ns.
    pub displaced_ns: u64,
    /// CPU time of the agent, ns.
    pub own_cpu_ns: u64,
    /// Resident size of the agent in the last window, bytes.
    pub rss_bytes: u64,
    /// Memory of kernel maps in the last window, bytes.
    pub kernel_bytes: u64,
    /// End of the last window, ns since the epoch.
    pub last_unix_ns: u64,
}

impl Default for ServiceTotals {
    fn default() -> ServiceTotals {
        ServiceTotals {
            ledger: Ledger::default(),
            run_queue: Histogram::new(FINE),
            served: 0,
            asked: 0,
            on_cpu_fraction: None,
            last_window: 0,
        }
    }
}

impl Default for Totals {
    fn default() -> Totals {
        Totals {
            services: BTreeMap::new(),
            run_queue: Histogram::new(FINE),
            losses: BTreeMap::new(),
            windows: 0,
            bpf_ns: 0,
            displaced_ns: 0,
            own_cpu_ns: 0,
            rss_bytes: 0,
            kernel_bytes: 0,
            last_unix_ns: 0,
        }
    }
}

impl Totals {
    /// Adds a window.
    pub fn add(&mut self, window: &Recording) {
        let names: Vec<&str> = (0..window.contexts.len() as u32)
            .map(|i| window.context_label(ContextId(i), SERVICE).unwrap_or(OTHER))
            .collect();
        let mut ledgers: BTreeMap<&str, Ledger> = BTreeMap::new();
        for (name, c) in names.iter().zip(&window.contexts) {
            let sum = ledgers.entry(name);
            sum.or_default().add(&c.ledger);
        }
        for service in self.services.values_mut() {
            service.on_cpu_fraction = None;
        }
        for (name, ledger) in ledgers {
            let service = self.services.entry(name.to_string()).or_default();
            service.on_cpu_fraction = on_cpu_fraction(&ledger);
            service.last_window = self.windows;
            service.ledger.add(&ledger);
        }
        self.lengths(window, &names);
        self.requests(window, &names);
        self.losses(window);
        // A service that is long gone has no series, or names of jobs would add up without end.
        let oldest = self.windows.saturating_sub(IDLE_WINDOWS);
        self.services.retain(|_, s| s.last_window >= oldest);
        self.windows += 1;
        self.bpf_ns += window.cost.bpf_ns;
        self.displaced_ns += window.cost.displaced_ns;
        self.own_cpu_ns += window.cost.own_cpu_ns;
        self.rss_bytes = window.cost.rss_bytes;
        self.kernel_bytes = window.cost.kernel_bytes;
        self.last_unix_ns = window.window.start_unix_ns + window.window.length_ns();
    }

    /// Adds histograms: a service's from the rows of its threads.
    fn lengths(&mut self, window: &Recording, names: &[&str]) {
        for row in &window.histograms {
            if row.state != State::Runnable || row.stack.is_some() {
                continue;
            }
            match row.context {
                // Rows of all threads are by part.
                None => self.run_queue.merge(&row.histogram),
                Some(c) if row.part.is_none() => {
                    let name = names.get(c.0 as usize).copied().unwrap_or(OTHER);
                    let service = self.services.entry(name.to_string()).or_default();
                    service.run_queue.merge(&row.histogram);
                }
                Some(_) => {}
            }
        }
    }

    fn requests(&mut self, window: &Recording, names: &[&str]) {
        let of_process: HashMap<u32, &str> = (window.contexts.iter().zip(names))
            .map(|(c, name)| (c.pid, *name))
            .collect();
        for p in &window.peers {
            let name = of_process.get(&p.pid).copied().unwrap_or(OTHER);
            let service = self.services.entry(name.to_string()).or_default();
            match p.asks {
                true => service.asked += p.requests,
                false => service.served += p.requests,
            }
        }
    }

    fn losses(&mut self, window: &Recording) {
        for l in &window.losses {
            let is_known = self.losses.contains_key(&l.cause);
            let cause = match is_known || self.losses.len() < MAX_CAUSES {
                true => l.cause.as_str(),
                false => OTHER_CAUSE,
            };
            *self.losses.entry(cause.to_string()).or_default() += l.count;
        }
    }
}

/// On-CPU share of the time in which a service was not idle.
pub(crate) fn on_cpu_fraction(ledger: &Ledger) -> Option<f64> {
    let active = ledger.wall_ns.saturating_sub(ledger.idle_ns);
    (active > 0).then(|| ledger.on_cpu.total() as f64 / active as f64)
}
