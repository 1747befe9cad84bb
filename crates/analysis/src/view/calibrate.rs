//! A CPU profile beside a wall-clock profile: one window by the program's own functions, once by on-CPU
//! time alone and once by all of wall time.
//!
//! A function here is the innermost of the program's own on a stack ([`Analysis::place`]). Waiting
//! therefore counts for the function that waits, and not for the kernel's scheduler. Idle time is kept
//! apart, as the analysis says. Blocked time is split by the state of the thread at the other end. Faster
//! code shortens the blocked time in which that thread computed or was runnable. It does not shorten the
//! rest.

use std::collections::HashMap;

use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{Above, Context, ContextId, Role, State};

use super::Analysis;

/// A function in both pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationRow {
    /// The function.
    pub function: String,
    /// Time by state, ns, indexed by `State as usize`.
    pub ns: [u64; State::COUNT],
}

impl CalibrationRow {
    /// Time in all states, ns.
    pub fn wall_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// Time in `state`, ns.
    pub fn state_ns(&self, state: State) -> u64 {
        self.ns[state as usize]
    }
}

/// Both pictures of one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Time by state without idle time, ns, indexed by `State as usize`; the rows sum to it.
    pub ns: [u64; State::COUNT],
    /// Idle time, which `ns` leaves out, ns.
    pub idle_ns: u64,
    /// Blocked time in which the thread waited for was on a CPU or runnable, ns; as far as chains of
    /// waits are known.
    pub behind_cpu_ns: u64,
    /// Whether the recording has any wakers or holders.
    pub has_chains: bool,
    /// Samples of computing.
    pub on_cpu_samples: u64,
    /// Samples of all time.
    pub samples: u64,
    /// Functions, most wall time first.
    pub rows: Vec<CalibrationRow>,
}

impl Calibration {
    /// Wall time without idle time, ns.
    pub fn wall_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// Time in `state`, ns.
    pub fn state_ns(&self, state: State) -> u64 {
        self.ns[state as usize]
    }

    /// Time that faster code cannot shorten, ns: blocked, and not behind a thread that computed or was
    /// runnable.
    pub fn untouchable_ns(&self) -> u64 {
        let blocked = self.state_ns(State::Blocked);
        blocked.saturating_sub(self.behind_cpu_ns)
    }

    /// The functions as a CPU profile has them: most computing first.
    pub fn by_cpu(&self) -> Vec<&CalibrationRow> {
        let computes = |r: &&CalibrationRow| r.state_ns(State::OnCpu) > 0;
        let mut rows: Vec<_> = self.rows.iter().filter(computes).collect();
        rows.sort_by_key(|r| std::cmp::Reverse(r.state_ns(State::OnCpu)));
        rows
    }
}

impl Analysis<'_> {
    /// Both pictures of the recording, or of the threads in it that are `wanted`.
    pub fn calibration(&self, wanted: impl Fn(&Context) -> bool) -> Calibration {
        let rec = self.recording;
        let wanted: Vec<bool> = rec.contexts.iter().map(wanted).collect();
        let is_wanted = |c: ContextId| wanted[c.0 as usize];
        let mut rows: HashMap<String, [u64; State::COUNT]> = HashMap::new();
        let mut places: Vec<Option<String>> = vec![None; rec.stacks.len()];
        let (mut idle_ns, mut samples) = (0, [0; State::COUNT]);
        let mut last = None;
        for p in self.scaled.pieces.iter().filter(|p| is_wanted(p.context)) {
            let s = &rec.samples[p.sample as usize];
            if !self.shows(s.idle) {
                idle_ns += p.ns;
                continue;
            }
            if last != Some(p.sample) {
                samples[s.state as usize] += s.count;
                last = Some(p.sample);
            }
            let place = places[s.stack.0 as usize].get_or_insert_with(|| {
                self.place(s.stack).unwrap_or_else(|| {
                    wallscope_model::name::no_frames(rec.stacks[s.stack.0 as usize].end)
                })
            });
            rows.entry(place.clone()).or_default()[s.state as usize] += p.ns;
        }
        for u in self.unsampled().filter(|u| is_wanted(u.context)) {
            rows.entry(NOT_SAMPLED.to_string()).or_default()[u.state as usize] += u.ns;
        }
        let mut ns = [0; State::COUNT];
        for row in rows.values() {
            for (sum, part) in ns.iter_mut().zip(row) {
                *sum += part;
            }
        }
        let waits = self.waits();
        // The wait that each hop is a part of; parents come before children.
        let mut of_wanted: Vec<bool> = Vec::with_capacity(rec.hops.len());
        let mut behind_cpu_ns = 0;
        for (hop, ns) in rec.hops.iter().zip(&waits.ns) {
            let own = match hop.above {
                Above::Sample(s) => is_wanted(rec.samples[s as usize].context),
                Above::Hop(h) => of_wanted[h as usize],
            };
            of_wanted.push(own);
            if own && matches!(hop.role, Role::OnCpu | Role::Runnable) {
                behind_cpu_ns += ns;
            }
        }
        let mut rows: Vec<CalibrationRow> = rows
            .into_iter()
            .map(|(function, ns)| CalibrationRow { function, ns })
            .collect();
        rows.sort_by(|a, b| {
            let key = |r: &CalibrationRow| (r.wall_ns(), r.state_ns(State::OnCpu));
            key(b)
                .cmp(&key(a))
                .then_with(|| a.function.cmp(&b.function))
        });
        Calibration {
            ns,
            idle_ns,
            behind_cpu_ns,
            has_chains: !rec.hops.is_empty(),
            on_cpu_samples: samples[State::OnCpu as usize],
            samples: samples.iter().sum(),
            rows,
        }
    }
}
