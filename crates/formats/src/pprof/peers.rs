//! Peers ↔ their messages.

use std::sync::Arc;

use wallscope_model as model;
use wallscope_model::{ContextId, PeerStack, StackId};

use super::super::ReadError;
use super::checks::{below, same};
use super::extension as ext;

pub(super) fn to_message(p: &model::Peer) -> ext::Peer {
    ext::Peer {
        pid: p.pid,
        asks: p.asks,
        address: p.address.to_string(),
        peer_pid: p.peer_pid,
        peer_name: p.peer_name.to_string(),
        connections: p.connections,
        requests: p.requests,
        in_flight: p.in_flight_ns,
        context: p.stacks.iter().map(|s| s.context.0).collect(),
        stack: p.stacks.iter().map(|s| s.stack.0).collect(),
        stack_requests: p.stacks.iter().map(|s| s.requests).collect(),
        stack_ns: p.stacks.iter().map(|s| s.ns).collect(),
        requests_at_least: p.requests_at_least,
    }
}

pub(super) fn from_message(m: ext::Peer, rec: &model::Recording) -> Result<model::Peer, ReadError> {
    let n = m.context.len();
    same(&m.stack, n, "the stacks of a peer")?;
    same(&m.stack_requests, n, "the requests of a peer's stacks")?;
    same(&m.stack_ns, n, "the times of a peer's stacks")?;
    let stack = |i: usize| {
        Ok(PeerStack {
            context: ContextId(below(m.context[i], rec.contexts.len(), "thread")?),
            stack: StackId(below(m.stack[i], rec.stacks.len(), "stack")?),
            requests: m.stack_requests[i],
            ns: m.stack_ns[i],
        })
    };
    Ok(model::Peer {
        pid: m.pid,
        asks: m.asks,
        stacks: (0..n).map(stack).collect::<Result<_, ReadError>>()?,
        address: Arc::from(m.address),
        peer_pid: m.peer_pid,
        peer_name: Arc::from(m.peer_name),
        connections: m.connections,
        requests: m.requests,
        requests_at_least: m.requests_at_least,
        in_flight_ns: m.in_flight,
    })
}
