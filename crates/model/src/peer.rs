//! Peers: processes that exchange requests and replies with the measured ones.

use std::sync::Arc;

use crate::{ContextId, StackId};

/// Connections of a waiting thread, beside its stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitSeen {
    /// Whether a request of the thread or its process was in flight when the wait began. `None`:
    /// connections were not followed.
    pub in_flight: Option<bool>,
    /// Whether one of these is the thread's own request, so that it waits for a reply. Otherwise
    /// others wait for its replies.
    pub awaits: bool,
    /// The thread has sent or received on a stream socket, or its process has one.
    pub talks: bool,
}

/// Requests on the connections of one process with one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The measured process.
    pub pid: u32,
    /// True: it sends requests to `address` and waits for replies. False: it receives them at
    /// `address` and owes the replies.
    pub asks: bool,
    /// `127.0.0.1:5432`, `port 8080`, `unix:/run/x`.
    pub address: Arc<str>,
    /// Process at the other end (the first one found); 0: unknown.
    pub peer_pid: u32,
    /// Its name.
    pub peer_name: Arc<str>,
    /// Connections that carried requests.
    pub connections: u32,
    /// Requests.
    pub requests: u64,
    /// Whether the count is a lower bound: requests were seen by polling, and shorter ones than the
    /// interval may be missing.
    pub requests_at_least: bool,
    /// Time with a request in flight, summed over connections, ns.
    pub in_flight_ns: u64,
    /// Stacks of sampled requests.
    pub stacks: Vec<PeerStack>,
}

/// A stack that sends requests, with its sampled requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStack {
    /// The thread that sent them.
    pub context: ContextId,
    /// Its stack then.
    pub stack: StackId,
    /// Sampled requests.
    pub requests: u64,
    /// Time until they were answered, ns.
    pub ns: u64,
}
