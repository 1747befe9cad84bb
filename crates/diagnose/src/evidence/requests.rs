//! Requests that the processes answer and make, over connections that were followed.

use std::collections::BTreeMap;

use wallscope_model::{Peer, Recording};

use crate::thresholds::UNANSWERED_SHARE;

/// Requests of a recording.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Requests that others made to the processes.
    pub asked: u64,
    /// Whether there may have been more.
    pub at_least: bool,
    /// Time for which the processes owed answers, summed over connections, ns.
    pub owed_ns: u64,
    /// The peer that was awaited longest.
    pub upstream: Option<Upstream>,
    /// Requests that others made to the processes that ask that peer.
    pub asked_askers: u64,
}

/// A peer that the processes make requests to.
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
    /// Whether there may have been more.
    pub at_least: bool,
    /// Connections to it that carried one.
    pub connections: u64,
    /// Time for which its answers were awaited, summed over connections, ns.
    pub awaited_ns: u64,
}

impl Requests {
    pub(crate) fn new(recording: &Recording) -> Requests {
        let of = |asks: bool| recording.peers.iter().filter(move |p| p.asks == asks);
        let upstream = upstream(recording, of(true));
        let asks_it = |p: &&Peer| {
            let name = upstream.as_ref().map(|u| &*u.name);
            Some(&*peer_name(p)) == name
        };
        let askers: Vec<u32> = of(true).filter(asks_it).map(|p| p.pid).collect();
        let of_askers = of(false).filter(|p| askers.contains(&p.pid));
        Requests {
            asked_askers: of_askers.map(|p| p.requests).sum(),
            asked: of(false).map(|p| p.requests).sum(),
            at_least: of(false).any(|p| p.requests_at_least),
            owed_ns: of(false).map(|p| p.in_flight_ns).sum(),
            upstream,
        }
    }

    /// Whether the requests made to the processes were open all of a window of `window_ns`, on
    /// average: hardly any caller got an answer.
    pub fn unanswered(&self, window_ns: u64) -> bool {
        self.at_most_ns()
            .is_some_and(|ns| ns as f64 >= UNANSWERED_SHARE * window_ns as f64)
    }

    /// Mean time until the processes answered, ns; `None`: there was no request, or not all
    /// requests were counted.
    pub fn mean_ns(&self) -> Option<u64> {
        self.at_most_ns().filter(|_| !self.at_least)
    }

    /// Upper limit of the mean time until the processes answered, ns: there may have been more
    /// requests than were counted.
    pub fn at_most_ns(&self) -> Option<u64> {
        self.owed_ns.checked_div(self.asked)
    }
}

/// The peer that was awaited longest. An address to which several processes make requests is one
/// peer, although a different process may answer each of them. The process with the longest wait
/// represents it.
fn upstream<'a>(recording: &Recording, peers: impl Iterator<Item = &'a Peer>) -> Option<Upstream> {
    let mut peers: Vec<&Peer> = peers.collect();
    peers.sort_by_key(|p| std::cmp::Reverse(p.in_flight_ns));
    let mut sums: BTreeMap<(&str, &str, u32), Upstream> = BTreeMap::new();
    for p in peers {
        // Without an address, only the process distinguishes peers.
        let nameless = p.address.contains("without a name");
        let other = if nameless { p.peer_pid } else { 0 };
        let sum = sums
            .entry((&*p.address, &*p.peer_name, other))
            .or_insert_with(|| Upstream {
                name: peer_name(p),
                pid: p.peer_pid,
                measured: recording.processes.iter().any(|q| q.pid == p.peer_pid),
                requests: 0,
                at_least: false,
                connections: 0,
                awaited_ns: 0,
            });
        sum.requests += p.requests;
        sum.at_least |= p.requests_at_least;
        sum.connections += u64::from(p.connections);
        sum.awaited_ns += p.in_flight_ns;
    }
    sums.into_values()
        .max_by_key(|u| (u.awaited_ns, u.requests))
        .filter(|u| u.awaited_ns > 0)
}

/// Name and address of a peer.
fn peer_name(p: &Peer) -> String {
    match &*p.peer_name {
        "" => p.address.to_string(),
        name => format!("{name} at {}", p.address),
    }
}

impl Upstream {
    /// Mean time until it answered, ns; a lower bound if answers were not seen. `None`: requests
    /// were not counted.
    pub fn mean_ns(&self) -> Option<u64> {
        let mean = self.awaited_ns / self.requests.max(self.connections).max(1);
        (!self.at_least).then_some(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_of_a_pair_are_not_one_peer() {
        let end = |pid, peer_pid, in_flight_ns| Peer {
            pid,
            asks: true,
            address: "unix socket without a name".into(),
            peer_pid,
            peer_name: "worker".into(),
            requests: 10,
            in_flight_ns,
            ..Peer::default()
        };
        let rec = Recording {
            peers: vec![end(1, 2, 900), end(2, 1, 50)],
            ..Recording::default()
        };
        let most = Requests::new(&rec).upstream.unwrap();
        assert_eq!((most.pid, most.requests, most.mean_ns()), (2, 10, Some(90)));
    }

    #[test]
    fn one_address_that_several_processes_ask_is_one_peer() {
        let peer = |pid, address: &str, requests, in_flight_ns| Peer {
            pid,
            asks: true,
            address: address.into(),
            requests,
            in_flight_ns,
            ..Peer::default()
        };
        let rec = Recording {
            peers: vec![
                peer(1, "10.0.0.2:5432", 16, 800),
                peer(1, "10.0.0.3:80", 1, 900),
                peer(2, "10.0.0.2:5432", 10, 500),
            ],
            ..Recording::default()
        };
        let most = Requests::new(&rec).upstream.unwrap();
        assert_eq!((&*most.name, most.requests), ("10.0.0.2:5432", 26));
        assert_eq!((most.awaited_ns, most.mean_ns()), (1300, Some(50)));
    }
}
