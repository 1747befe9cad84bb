//! Requests: what the processes are asked, and whom they ask, over connections that were followed.

use wallscope_model::{Peer, Recording};

/// What was seen of requests.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Requests that the processes were asked.
    pub asked: u64,
    /// Time for which they owed answers, summed over connections, ns.
    pub owed_ns: u64,
    /// The peer whose answers were awaited longest.
    pub upstream: Option<Upstream>,
}

/// A peer that is asked.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name and address.
    pub name: String,
    /// Its process, 0 where it is not on this machine or not known.
    pub pid: u32,
    /// Whether that process is in the recording itself.
    pub measured: bool,
    /// Requests to it.
    pub requests: u64,
    /// Time for which its answers were awaited, summed over connections, ns.
    pub awaited_ns: u64,
}

impl Requests {
    pub(super) fn new(recording: &Recording) -> Requests {
        let of = |asks: bool| recording.peers.iter().filter(move |p| p.asks == asks);
        Requests {
            asked: of(false).map(|p| p.requests).sum(),
            owed_ns: of(false).map(|p| p.in_flight_ns).sum(),
            upstream: of(true)
                .max_by_key(|p| (p.in_flight_ns, p.requests))
                .filter(|p| p.in_flight_ns > 0)
                .map(|p| upstream(recording, p)),
        }
    }

    /// Mean time until the processes answered, ns; `None` where they were asked nothing.
    pub fn mean_ns(&self) -> Option<u64> {
        self.owed_ns.checked_div(self.asked)
    }
}

fn upstream(recording: &Recording, p: &Peer) -> Upstream {
    Upstream {
        name: match &*p.peer_name {
            "" => p.address.to_string(),
            name => format!("{name} at {}", p.address),
        },
        pid: p.peer_pid,
        measured: recording.processes.iter().any(|q| q.pid == p.peer_pid),
        requests: p.requests,
        awaited_ns: p.in_flight_ns,
    }
}

impl Upstream {
    /// Mean time until it answered, ns.
    pub fn mean_ns(&self) -> u64 {
        self.awaited_ns / self.requests.max(1)
    }
}
