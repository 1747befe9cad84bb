//! Is the CPU the bottleneck? Times of the threads that work.

use std::collections::HashMap;

use wallscope_model::{ContextId, Ledger, Recording, State};

use super::threads::Threads;
use crate::thresholds::{CPU_FIRST, LASTING, WALL_FIRST};

/// Reading of the on-CPU fraction of active time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No thread did anything but wait for work.
    Idle,
    /// Mostly computing: look at on-CPU time first.
    CpuFirst,
    /// Neither.
    Both,
    /// Mostly not computing: look at waiting first.
    WallFirst,
}

impl Reading {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Reading::Idle => "idle",
            Reading::CpuFirst => "cpu-first",
            Reading::Both => "both",
            Reading::WallFirst => "wall-first",
        }
    }
}

/// Times of the threads that work: idle time, and waits for want of work, left out.
#[derive(Clone, Debug, Default)]
pub struct Bottleneck {
    /// Threads that work.
    pub active_threads: usize,
    /// Threads that did nothing in the window but wait in one place: parked.
    pub parked_threads: usize,
    /// Active threads that waited for a lock to the end of the window, and never got it.
    pub stuck: Vec<ContextId>,
    /// Wall time of parked threads, ns.
    pub parked_ns: u64,
    /// Threads that only tick: they sleep or poll, and do next to nothing between.
    pub ticking_threads: usize,
    /// Wall time of those, ns.
    pub ticking_ns: u64,
    /// The active threads' ledgers, added up.
    pub ledger: Ledger,
    /// Time of active threads that waited for want of work, beside idle time, ns.
    pub starved_ns: u64,
    /// On-CPU time of the active thread that computed most, ns.
    pub busiest_ns: u64,
    /// On-CPU time of active threads that lived (nearly) all the time, ns.
    pub lasting_ns: u64,
    /// Threads and processes that started in the window.
    pub births: usize,
    /// The part of `births` that is in groups of ended threads.
    pub folded: usize,
    /// Time in which requests were in flight while their threads were blocked, ns.
    pub awaited_ns: u64,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// CPUs of the machine, 0 where unknown.
    pub cpus: u32,
}

impl Bottleneck {
    pub(crate) fn new(recording: &Recording, threads: &Threads) -> Bottleneck {
        let window = &recording.window;
        let mut out = Bottleneck {
            window_ns: window.length_ns(),
            cpus: recording.domain.cpus,
            ..Bottleneck::default()
        };
        let groups = (recording.processes.iter()).filter(|p| p.folded_threads > 0);
        let groups: HashMap<u32, u64> = groups.map(|p| (p.pid, p.folded_threads)).collect();
        out.folded = groups.values().sum::<u64>() as usize;
        out.births = out.folded;
        for (i, c) in recording.contexts.iter().enumerate() {
            let id = ContextId(i as u32);
            let is_group = groups.contains_key(&c.pid);
            let born = c.start_ns > window.start_ns + out.window_ns / 100;
            out.births += usize::from(born && !is_group);
            if threads.counts(id) {
                let on_cpu = c.ledger.state_ns(State::OnCpu);
                let lasting = c.ledger.wall_ns as f64 >= LASTING * out.window_ns as f64;
                out.active_threads += 1;
                out.stuck.extend(threads.stuck(id).then_some(id));
                out.ledger.add(&c.ledger);
                out.starved_ns += threads.starved_ns[i];
                out.awaited_ns += threads.awaited_ns[i];
                out.busiest_ns = out.busiest_ns.max(on_cpu);
                out.lasting_ns += if lasting { on_cpu } else { 0 };
            } else if threads.only_ticks(id) {
                out.ticking_threads += 1;
                out.ticking_ns += c.ledger.wall_ns;
            } else {
                out.parked_threads += 1;
                out.parked_ns += c.ledger.wall_ns;
            }
        }
        out
    }

    /// Active time, ns: wall time of active threads without idle time and want of work. It is the whole of all
    /// shares.
    pub fn active_ns(&self) -> u64 {
        let excluded = self.ledger.idle_ns + self.starved_ns;
        self.ledger.wall_ns.saturating_sub(excluded)
    }

    /// Blocked time of active threads, without idle time and want of work, ns.
    pub fn blocked_ns(&self) -> u64 {
        let excluded = self.ledger.idle_ns + self.starved_ns;
        self.ledger.blocked_ns().saturating_sub(excluded)
    }

    /// `ns` as a share of the window: the mean number of threads that did that.
    pub fn load(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
    }

    /// `ns` as a share of active time.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.active_ns().max(1) as f64
    }

    /// Time on a CPU, ns.
    pub fn on_cpu_ns(&self) -> u64 {
        self.ledger.state_ns(State::OnCpu)
    }

    /// On-CPU share of active time.
    pub fn on_cpu(&self) -> f64 {
        self.share(self.on_cpu_ns())
    }

    /// CPUs kept busy, on average over the window.
    pub fn busy_cpus(&self) -> f64 {
        self.load(self.on_cpu_ns())
    }

    /// Reading of the on-CPU share.
    pub fn reading(&self) -> Reading {
        match self.on_cpu() {
            _ if self.active_ns() == 0 => Reading::Idle,
            f if f > CPU_FIRST => Reading::CpuFirst,
            f if f < WALL_FIRST => Reading::WallFirst,
            _ => Reading::Both,
        }
    }
}
