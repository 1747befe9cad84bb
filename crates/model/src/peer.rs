//! Who owes whom a reply: the processes that the measured ones talk to.

use std::sync::Arc;

use crate::{ContextId, StackId};

/// What was seen of the connections of a thread that waits, beside its stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitSeen {
    /// A request of the thread, or of its process, was in flight when the wait began. `None`:
    /// connections were not followed.
    pub in_flight: Option<bool>,
    /// One of the requests in flight is the thread's own, whose answer it awaits; else others await its
    /// answers only.
    pub awaits: bool,
    /// The thread has sent or received on a stream socket, or its process has one.
    pub talks: bool,
}

/// Requests on the connections of one process with one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The measured process.
    pub pid: u32,
    /// True: it asks, and awaits answers from `address`. False: it is asked at `address`, and
    /// owes the answers.
    pub asks: bool,
    /// `127.0.0.1:5432`, `port 8080`, `unix:/run/x`.
    pub address: Arc<str>,
    /// Process at the other end (the first that was found), 0 where it is not known.
    pub peer_pid: u32,
    /// Its name.
    pub peer_name: Arc<str>,
    /// Connections that carried requests.
    pub connections: u32,
    /// Requests.
    pub requests: u64,
    /// There may have been more: they were seen by looks, and are shorter than these are apart.
    pub requests_at_least: bool,
    /// Time with a request in flight, summed over connections, ns.
    pub in_flight_ns: u64,
    /// Where sampled requests were sent.
    pub stacks: Vec<PeerStack>,
}

/// A place in the code that sends requests, by a sample of them.
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
