//! The ladder: from a recording to a named cause, rung by rung, as an experienced engineer climbs.
//!
//! Rung 1 asks whether the CPU is the bottleneck at all, and looks at the host around the process
//! ([`Bottleneck`], [`Resource`]). Rung 2 says where the time went, by cause ([`Cause`]), and what
//! the recording can resolve. The verdict is spoken by the first of a table of named rules
//! ([`VERDICTS`]) that applies; every rule that was tried is kept with the figures it looked at.
//!
//! Pure, like the rest of the crate. What counts calls or times them is not here: those rungs need
//! probes in the live process.

mod causes;
mod host;
mod verdict;

use wallscope_model::stats::{Interval, smallest_share};
use wallscope_model::{Ledger, Recording, State};

pub use causes::Cause;
pub use host::{Level, Resource};
pub use verdict::{Fired, VERDICTS, Verdict, VerdictRule};

/// Above this on-CPU share of active wall time, faster code is the first thing to look for.
/// Convention among practitioners of off-CPU analysis: half.
pub const CPU_FIRST: f64 = 0.5;
/// Below this share, waiting is.
pub const WALL_FIRST: f64 = 0.3;

/// How a recording answers.
pub struct Ladder {
    /// Rung 1.
    pub bottleneck: Bottleneck,
    /// Rung 1: the host around it, worst first.
    pub host: Vec<Resource>,
    /// Rung 2: causes of active wall time, largest first.
    pub causes: Vec<Cause>,
    /// Rung 2: shares of active wall time below this are noise in this recording.
    pub resolves: f64,
    /// What it comes to.
    pub verdict: Verdict,
    /// Every rule that was tried, in order, with what it looked at.
    pub fired: Vec<Fired>,
}

/// What the on-CPU fraction says.
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

/// Is the CPU the bottleneck? Times of threads that are not parked, idle time left out.
#[derive(Clone, Debug, Default)]
pub struct Bottleneck {
    /// The other threads.
    pub active_threads: usize,
    /// Threads that did nothing in the window but wait in one place: parked.
    pub parked_threads: usize,
    /// Wall time of parked threads, ns.
    pub parked_ns: u64,
    /// The active threads' ledgers, added up.
    pub ledger: Ledger,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// CPUs of the machine, 0 where unknown.
    pub cpus: u32,
}

impl Bottleneck {
    fn new(recording: &Recording) -> Bottleneck {
        let mut out = Bottleneck {
            window_ns: recording
                .window
                .end_ns
                .saturating_sub(recording.window.start_ns),
            cpus: recording.domain.cpus,
            ..Bottleneck::default()
        };
        for c in &recording.contexts {
            if parked(&c.ledger) {
                out.parked_threads += 1;
                out.parked_ns += c.ledger.wall_ns;
            } else {
                out.active_threads += 1;
                out.ledger.add(&c.ledger);
            }
        }
        out
    }

    /// Wall time of active threads without idle, ns: what shares are of.
    pub fn active_ns(&self) -> u64 {
        self.ledger.wall_ns.saturating_sub(self.ledger.idle_ns)
    }

    /// `ns` as a share of active wall time.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.active_ns().max(1) as f64
    }

    /// On-CPU share of active wall time.
    pub fn on_cpu(&self) -> f64 {
        self.share(self.ledger.state_ns(State::OnCpu))
    }

    /// CPUs kept busy, on average over the window.
    pub fn busy_cpus(&self) -> f64 {
        self.ledger.state_ns(State::OnCpu) as f64 / self.window_ns.max(1) as f64
    }

    /// What the on-CPU share says.
    pub fn reading(&self) -> Reading {
        match self.on_cpu() {
            _ if self.active_ns() == 0 => Reading::Idle,
            f if f > CPU_FIRST => Reading::CpuFirst,
            f if f < WALL_FIRST => Reading::WallFirst,
            _ => Reading::Both,
        }
    }
}

/// Whether a thread did nothing in the window but begin: it came to one place where it waits, or
/// stood there all the time, and never left it to do anything.
fn parked(ledger: &Ledger) -> bool {
    let on_cpu = ledger.state_ns(State::OnCpu);
    if on_cpu == 0 && ledger.state_ns(State::Runnable) == 0 {
        return true;
    }
    let once = ledger.audit.valid && ledger.voluntary_switches <= 1;
    once && on_cpu < ledger.wall_ns / 100 && ledger.blocked_ns() > ledger.wall_ns / 2
}

/// Climbs as far as a recording goes.
pub fn climb(recording: &Recording) -> Ladder {
    let bottleneck = Bottleneck::new(recording);
    let host = host::resources(recording, &bottleneck);
    let causes = causes::causes(recording, &bottleneck);
    let samples: u64 = recording.samples.iter().map(|s| s.count).sum();
    let resolves = smallest_share(samples as f64);
    let (verdict, fired) = verdict::judge(&verdict::Evidence {
        bottleneck: &bottleneck,
        host: &host,
        causes: &causes,
        recording,
    });
    Ladder {
        bottleneck,
        host,
        causes,
        resolves,
        verdict,
        fired,
    }
}

/// An interval as percents in words.
pub(crate) fn interval(i: Interval) -> String {
    format!("{:.0} to {:.0} %", i.low * 100.0, i.high * 100.0)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
