//! Peers of the processes, and the share of request time that waits for each.

use std::sync::Arc;

use wallscope_model::{Peer, Recording};

use super::{Analysis, StackFrame};

/// A peer, ready to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRow {
    /// The peer as recorded.
    pub peer: Peer,
    /// Name of the process that talks to it.
    pub process: Arc<str>,
    /// The share of the process's request time (time with requests in flight that the process was
    /// asked) that it waits for this peer. It exceeds 1 if the process asks several peers at once.
    /// `None` for a peer that is not asked, and for a process that was asked nothing itself.
    pub share: Option<f64>,
    /// Where its requests are sent, most time first: frames (leaf first), sampled requests, ns.
    pub stacks: Vec<(Vec<StackFrame>, u64, u64)>,
}

/// Time with requests in flight that `pid` was asked.
fn owed(rec: &Recording, pid: u32) -> u64 {
    let asked = rec.peers.iter().filter(|p| !p.asks && p.pid == pid);
    asked.map(|p| p.in_flight_ns).sum()
}

impl Analysis<'_> {
    /// The peers, most time in flight first.
    pub fn peers(&self) -> Vec<PeerRow> {
        let rec = self.recording;
        let mut rows: Vec<PeerRow> = rec
            .peers
            .iter()
            .map(|peer| {
                let process = rec.processes.iter().find(|p| p.pid == peer.pid);
                let owed = owed(rec, peer.pid);
                // Stacks of all threads are joined by their frames.
                let mut stacks: Vec<(Vec<StackFrame>, u64, u64)> = Vec::new();
                for s in &peer.stacks {
                    let frames = self.frames(&rec.stacks[s.stack.0 as usize]);
                    match stacks.iter_mut().find(|(f, _, _)| *f == frames) {
                        Some((_, requests, ns)) => {
                            (*requests, *ns) = (*requests + s.requests, *ns + s.ns)
                        }
                        None => stacks.push((frames, s.requests, s.ns)),
                    }
                }
                stacks.sort_by_key(|(_, _, ns)| std::cmp::Reverse(*ns));
                PeerRow {
                    process: process.map_or_else(|| Arc::from(""), |p| p.name.clone()),
                    share: (peer.asks && owed > 0).then(|| peer.in_flight_ns as f64 / owed as f64),
                    stacks,
                    peer: peer.clone(),
                }
            })
            .collect();
        rows.sort_by_key(|r| std::cmp::Reverse(r.peer.in_flight_ns));
        rows
    }
}

impl PeerRow {
    /// `postgres at 127.0.0.1:5432`, as far as it is known.
    pub fn called(&self) -> String {
        match &*self.peer.peer_name {
            "" => self.peer.address.to_string(),
            name => format!("{name} at {}", self.peer.address),
        }
    }
}
