//! Sums over all threads of a recording, active or not.

use wallscope_model::scale::Scaled;
use wallscope_model::{HostSample, Ledger, Peer, Recording, State};

use super::work::spinner;

/// Sums over all threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    /// All threads' ledgers, added up.
    pub ledger: Ledger,
    /// Number of threads.
    pub threads: usize,
    /// On-CPU time of threads too short to be seen, ns.
    pub unattributed_ns: u64,
    /// CPU quota of the target's cgroup in CPUs, where it has one.
    pub quota_cpus: Option<f64>,
    /// The peer that requests wait for longest: its name, and the share of the request time of the
    /// process that makes requests to it.
    pub peer: Option<(String, f64)>,
    /// On-CPU time in functions that spin or yield, ns, and the one with most of it.
    pub spinning: Option<(u64, String)>,
}

impl Totals {
    /// Adds up a recording.
    pub fn new(recording: &Recording, scaled: &Scaled) -> Totals {
        let processes = recording.processes.iter();
        Totals {
            ledger: ledger(recording),
            threads: recording.contexts.len(),
            unattributed_ns: processes.map(|p| p.unattributed_on_cpu_ns).sum(),
            quota_cpus: recording.host.iter().find_map(quota),
            peer: main_peer(recording),
            spinning: spinning(recording, scaled),
        }
    }

    /// Time that was not idle, ns.
    pub fn busy_ns(&self) -> u64 {
        self.ledger.wall_ns.saturating_sub(self.ledger.idle_ns)
    }

    /// `ns` as a share of the time that was not idle.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.busy_ns().max(1) as f64
    }

    /// On-CPU time, ns.
    pub fn on_cpu_ns(&self) -> u64 {
        self.ledger.state_ns(State::OnCpu)
    }
}

/// All threads' ledgers, added up.
pub(crate) fn ledger(recording: &Recording) -> Ledger {
    let mut total = Ledger::default();
    for context in &recording.contexts {
        total.add(&context.ledger);
    }
    total
}

fn quota(sample: &HostSample) -> Option<f64> {
    let cgroup = sample.facts.cgroup.as_ref()?;
    let period_us = cgroup.period_us.filter(|period| *period > 0)?;
    Some(cgroup.quota_us? as f64 / period_us as f64)
}

/// The peer that most request time waits for, in processes that owe answers themselves. A request
/// may wait for several answers at once, and for no longer than it takes.
fn main_peer(recording: &Recording) -> Option<(String, f64)> {
    let owed = |pid: u32| -> u64 {
        let asked = recording.peers.iter().filter(|p| !p.asks && p.pid == pid);
        asked.map(|p| p.in_flight_ns).sum()
    };
    // A socket without a name or an address tells a reader nothing.
    let known = |p: &Peer| !p.peer_name.is_empty() || p.address.contains(':');
    let asked = (recording.peers.iter()).filter(|p| p.asks && owed(p.pid) > 0 && known(p));
    let main = asked.max_by_key(|p| p.in_flight_ns)?;
    let name = match &*main.peer_name {
        "" => main.address.to_string(),
        name => format!("{name} at {}", main.address),
    };
    let share = main.in_flight_ns as f64 / owed(main.pid) as f64;
    Some((name, share.min(1.0)))
}

fn spinning(recording: &Recording, scaled: &Scaled) -> Option<(u64, String)> {
    let spinners: Vec<Option<&str>> = (0..recording.stacks.len() as u32)
        .map(|i| spinner(recording, wallscope_model::StackId(i)))
        .collect();
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for piece in &scaled.pieces {
        let sample = &recording.samples[piece.sample as usize];
        let spinner = spinners[sample.stack.0 as usize];
        let Some(name) = spinner.filter(|_| sample.state == State::OnCpu) else {
            continue;
        };
        match sums.iter_mut().find(|(n, _)| *n == name) {
            Some((_, ns)) => *ns += piece.ns,
            None => sums.push((name, piece.ns)),
        }
    }
    let (main, _) = sums.iter().max_by_key(|(_, ns)| *ns)?;
    Some((sums.iter().map(|(_, ns)| ns).sum(), (*main).to_string()))
}
