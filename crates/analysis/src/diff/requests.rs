//! Number of requests that a run served, as the recording itself counted them on sockets.

use rustc_hash::FxHashSet;
use wallscope_model::Recording;

/// Requests of others to the recorded processes over stream sockets. Requests between the recorded processes are part
/// of serving those. `None`: there were none, or not all were counted, so they cannot be a divisor.
pub fn served(rec: &Recording) -> Option<u64> {
    let own: FxHashSet<u32> = rec.processes.iter().map(|p| p.pid).collect();
    let asked =
        |p: &&wallscope_model::Peer| !p.asks && own.contains(&p.pid) && !own.contains(&p.peer_pid);
    let requests: u64 = rec.peers.iter().filter(asked).map(|p| p.requests).sum();
    let counted = !rec.peers.iter().filter(asked).any(|p| p.requests_at_least);
    (requests > 0 && counted).then_some(requests)
}
