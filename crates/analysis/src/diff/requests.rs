//! How many requests a run served, as the recording itself counted them on sockets.

use rustc_hash::FxHashSet;
use wallscope_model::Recording;

/// Requests that the recorded processes were asked by others over stream sockets; what they ask each
/// other is part of serving those. `None` where there were none, or not all were counted: then there is nothing to divide
/// by.
pub fn served(rec: &Recording) -> Option<u64> {
    let own: FxHashSet<u32> = rec.processes.iter().map(|p| p.pid).collect();
    let asked =
        |p: &&wallscope_model::Peer| !p.asks && own.contains(&p.pid) && !own.contains(&p.peer_pid);
    let requests: u64 = rec.peers.iter().filter(asked).map(|p| p.requests).sum();
    let counted = !rec.peers.iter().filter(asked).any(|p| p.requests_at_least);
    (requests > 0 && counted).then_some(requests)
}
