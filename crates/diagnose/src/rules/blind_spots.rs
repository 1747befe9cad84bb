//! Blind spots of a recording that could change a verdict. Each rule names those that matter to it.

use wallscope_model::State;

use crate::evidence::Evidence;
use crate::thresholds::BLIND_SHARE;

/// A blind spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlindSpot {
    /// No record says which thread ends which wait.
    Wakers,
    /// Requests are not followed: waits for work and waits for answers look alike.
    Requests,
    /// Waiting for a quota is not distinguished from waiting for a CPU.
    Throttling,
    /// Threads live too briefly to be seen.
    ShortThreads,
    /// Much time has no sample, so its place is not known.
    Places,
    /// Nothing is known of the host: neighbours, limits, devices.
    Host,
}

use BlindSpot::{Host, Places, Requests, ShortThreads, Throttling, Wakers};

/// Blind spots of rules about waits.
pub(super) const OF_WAITS: &[BlindSpot] = &[Wakers, Requests, ShortThreads, Places];
/// Blind spots of rules about waits with known requests.
pub(super) const OF_REQUESTS: &[BlindSpot] = &[Wakers, Requests];
/// Blind spots of rules about rest.
pub(super) const OF_REST: &[BlindSpot] = &[Requests, ShortThreads];
/// Blind spots of rules about computing.
pub(super) const OF_COMPUTING: &[BlindSpot] = &[ShortThreads, Places];
/// Blind spots of rules about time without a CPU.
pub(super) const OF_CPUS: &[BlindSpot] = &[Throttling, Host];

/// The first of `blind` that this recording has, with its remedy.
pub(super) fn first_that_matters(e: &Evidence<'_>, blind: &[BlindSpot]) -> Option<String> {
    // Another tool's blind spots are not known.
    let spot = blind.iter().find(|spot| spot.is_there(e));
    let spot = spot.filter(|_| !e.recording.domain.is_import())?;
    Some(spot.words().into())
}

impl BlindSpot {
    /// Whether a recording has it.
    fn is_there(self, e: &Evidence<'_>) -> bool {
        let rec = e.recording;
        match self {
            Wakers => rec.hops.is_empty(),
            Requests => !e.follows_requests(),
            Throttling => !e.follows_requests() && e.bottleneck.ledger.runnable.throttled == 0,
            ShortThreads => e.totals.share(e.totals.unattributed_ns) >= BLIND_SHARE,
            Places => {
                let nameless = e.causes.iter().filter(|c| !c.has_function());
                let seen = nameless.filter(|c| c.state != State::Unknown);
                e.share(seen.map(|c| c.ns).sum()) >= BLIND_SHARE
            }
            Host => rec.host.is_empty(),
        }
    }

    /// It and its remedy, in words.
    fn words(self) -> &'static str {
        match self {
            Wakers => "which thread ends a wait (remedy: record as root, with eBPF)",
            Requests => {
                "whether requests are in flight, so work and answers look alike (remedy: record as root, with eBPF)"
            }
            Throttling => {
                "waiting for a CPU quota apart from waiting for a CPU (remedy: record as root, with eBPF)"
            }
            ShortThreads => {
                "the waits of threads too short-lived to be seen (remedy: record as root, with eBPF)"
            }
            Places => {
                "the stacks of much of the time (remedy: a longer recording, or a higher rate with -F)"
            }
            Host => "the host: neighbours, limits and devices (remedy: record with wallscope)",
        }
    }
}
