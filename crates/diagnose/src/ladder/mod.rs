//! The ladder: from a recording to a named cause, rung by rung, as an experienced engineer climbs.
//!
//! Rung 1 asks whether the CPU is the bottleneck at all, and looks at the host around the process
//! ([`Bottleneck`], [`Resource`]). Rung 2 says where the time went, by cause ([`Cause`]), and what
//! the recording can resolve. The verdict is spoken by the first of a table of named rules
//! ([`VERDICTS`]) that applies; every rule that was tried is kept with the figures it looked at.
//!
//! Pure, like the rest of the crate. What counts calls or times them is not here: those rungs need
//! probes in the live process.

mod apart;
mod callers;
mod causes;
mod circles;
mod delays;
mod enders;
mod evidence;
mod facts;
mod for_what;
mod host;
mod news;
mod places;
mod requests;
mod rules_ask;
mod rules_cpu;
mod rules_rest;
mod rules_tasks;
mod rules_wait;
mod standing;
mod threads;
mod turns;
mod verdict;
mod waits;
mod work;

use wallscope_model::scale::{Scaled, scale};
use wallscope_model::stats::{Interval, smallest_share};
use wallscope_model::{ContextId, Ledger, Recording, State};

use threads::Threads;
use waits::Waits;

pub use apart::{Apart, Why};
pub use causes::Cause;
pub(crate) use delays::of_samples as delays;
pub(crate) use enders::held_by_fellows;
pub(crate) use facts::{BINDING, throttled_periods};
pub use host::{Level, Resource};
pub(crate) use news::says_that_it_gives;
pub(crate) use places::place;
pub use requests::{Requests, Upstream};
pub use verdict::{ACTIVE, Fired, VERDICTS, Verdict, VerdictRule};
pub(crate) use waits::text_label;

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
    /// What shares of active wall time leave out, largest first.
    pub apart: Vec<Apart>,
    /// Requests over connections that were followed.
    pub requests: Requests,
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

/// Is the CPU the bottleneck? Times of the threads that work: idle time, and waits for want of
/// work, left out.
#[derive(Clone, Debug, Default)]
pub struct Bottleneck {
    /// The threads that work.
    pub active_threads: usize,
    /// Threads that did nothing in the window but wait in one place: parked.
    pub parked_threads: usize,
    /// Active threads that stood at a lock to the end of the window, and never got it.
    pub stuck: Vec<ContextId>,
    /// Wall time of parked threads, ns.
    pub parked_ns: u64,
    /// Threads that only tick: they sleep or wait for events, and do next to nothing between.
    pub ticking_threads: usize,
    /// Wall time of those, ns.
    pub ticking_ns: u64,
    /// The active threads' ledgers, added up.
    pub ledger: Ledger,
    /// Time of active threads that waited for want of work, beside what is idle, ns.
    pub starved_ns: u64,
    /// On-CPU time of the active thread that computed most, ns.
    pub busiest_ns: u64,
    /// On-CPU time of active threads that were there (nearly) all the time, ns.
    pub lasting_ns: u64,
    /// Threads and processes that came into being in the window.
    pub births: usize,
    /// Time in which requests were in flight while their threads were blocked, ns.
    pub awaited_ns: u64,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// CPUs of the machine, 0 where unknown.
    pub cpus: u32,
}

/// A thread that was there for this share of the window was there all the time.
const LASTING: f64 = 0.8;

impl Bottleneck {
    fn new(recording: &Recording, threads: &Threads) -> Bottleneck {
        let window = &recording.window;
        let mut out = Bottleneck {
            window_ns: window.length_ns(),
            cpus: recording.domain.cpus,
            ..Bottleneck::default()
        };
        for (i, c) in recording.contexts.iter().enumerate() {
            let id = ContextId(i as u32);
            out.births += usize::from(c.start_ns > window.start_ns + out.window_ns / 100);
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

    /// Wall time of active threads without idle and want of work, ns: what shares are of.
    pub fn active_ns(&self) -> u64 {
        let set_apart = self.ledger.idle_ns + self.starved_ns;
        self.ledger.wall_ns.saturating_sub(set_apart)
    }

    /// `ns` as a share of the window: how many did that on average.
    pub fn load(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
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

/// Climbs as far as a recording goes.
pub fn climb(recording: &Recording) -> Ladder {
    let scaled: Scaled = scale(recording);
    let waits = Waits::new(recording, &scaled);
    let threads = Threads::new(recording, &scaled, &waits);
    let bottleneck = Bottleneck::new(recording, &threads);
    let host = host::resources(recording, &bottleneck);
    let causes = causes::causes(recording, &scaled, &waits, &threads, &bottleneck);
    let apart = apart::apart(recording, &scaled, &waits, &threads);
    let work = work::Work::new(recording, &scaled, &waits, &threads);
    let requests = Requests::new(recording);
    let samples: u64 = recording.samples.iter().map(|s| s.count).sum();
    let resolves = smallest_share(samples as f64);
    let (verdict, fired) = verdict::judge(&evidence::Evidence {
        bottleneck: &bottleneck,
        host: &host,
        causes: &causes,
        waits: &waits,
        work: &work,
        requests: &requests,
        recording,
    });
    Ladder {
        bottleneck,
        host,
        causes,
        apart,
        requests,
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
mod tests;
