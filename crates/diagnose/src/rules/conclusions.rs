//! Conclusion of a verdict in one clause, for the sentence at the end of a recording: the time that
//! faster code could save, and the time that it could not.
//!
//! Shares are of active time. Where that is less than the time that the sentence describes, the
//! clause says of which time they are.

use wallscope_model::{BlockReason, State};

use super::verdict::Verdict;
use crate::evidence::Evidence;
use crate::thresholds::{BUSY_BESIDE, CPU_FIRST, MENTIONED_SHARE, NEARLY_ALL};
use crate::words;

/// `of the 5.2 s of active time, `; empty where active time is all that was not idle.
fn whole(e: &Evidence<'_>) -> String {
    let active = e.bottleneck.active_ns();
    let excluded = e.totals.busy_ns().saturating_sub(active);
    match e.totals.share(excluded) < MENTIONED_SHARE {
        true => String::new(),
        false => format!("of the {} of active time, ", words::time(active)),
    }
}

/// Share of active time that was blocked.
fn blocked(e: &Evidence<'_>) -> f64 {
    let l = &e.bottleneck.ledger;
    let excluded = l.idle_ns + e.bottleneck.starved_ns;
    e.share(l.blocked_ns().saturating_sub(excluded))
}

/// Threads too short to be seen, which the others may wait for.
fn unseen(e: &Evidence<'_>) -> Option<String> {
    let unseen = e.mostly_unseen()?;
    Some(format!(
        "the threads too short-lived to be seen, which computed for {}",
        words::time(unseen)
    ))
}

/// No thread existed.
pub(super) fn empty(_: &Evidence<'_>, _: &Verdict) -> String {
    "No thread existed here: the target had none during the recording, or the selection has none"
        .into()
}

/// The verdict says it all.
pub(super) fn cause(_: &Evidence<'_>, verdict: &Verdict) -> String {
    words::clause(&verdict.cause)
}

/// A CPU quota, or too few CPUs, held threads back.
pub(super) fn quota(e: &Evidence<'_>, verdict: &Verdict) -> String {
    let quota = match e.totals.quota_cpus {
        Some(quota) => format!("its CPU quota ({})", words::cpus(quota)),
        None => "its CPU quota".to_string(),
    };
    let most = match e.bottleneck.ledger.runnable.throttled {
        0 => "up to ",
        _ => "",
    };
    format!(
        "{}{quota} cost {most}{}; a higher quota, or less CPU work, gives that back",
        whole(e),
        words::share(verdict.share)
    )
}

/// Threads wait for a CPU.
pub(super) fn shortage(e: &Evidence<'_>, verdict: &Verdict) -> String {
    format!(
        "{}; {}more CPUs for it save at most {}",
        words::clause(&verdict.cause),
        whole(e),
        words::share(verdict.share)
    )
}

/// Threads compute, or the kernel works for them.
pub(super) fn computing(e: &Evidence<'_>, verdict: &Verdict) -> String {
    let saves = match blocked(e) {
        b if b < NEARLY_ALL => "a CPU profile shows nearly all of it".to_string(),
        b => format!(
            "faster code saves at most the {} spent computing, and none of the {} spent waiting",
            words::share(e.bottleneck.on_cpu()),
            words::share(b)
        ),
    };
    format!("{}; {}{saves}", verdict.cause, whole(e))
}

/// Threads wait.
pub(super) fn waiting(e: &Evidence<'_>, verdict: &Verdict) -> String {
    let unless = match (unseen(e), beside_computing(e)) {
        (Some(unseen), _) => format!(", unless the waiting is for {unseen}"),
        (None, true) => ", unless the waiting is for the threads that compute".into(),
        (None, false) => String::new(),
    };
    format!(
        "{}; {}faster code cannot reduce the {} spent waiting{}{unless}",
        words::clause(&verdict.cause),
        whole(e),
        words::share(blocked(e)),
        work_or_not(verdict),
    )
}

/// A hint that waits for events or by the clock may be waits for work.
fn work_or_not(verdict: &Verdict) -> &'static str {
    let rests = [BlockReason::Poll, BlockReason::Timer].map(|r| Some(r.name()));
    match rests.contains(&verdict.reason) && verdict.assumes.is_some() {
        true => " (some of it may be waiting for work)",
        false => "",
    }
}

/// Whether others keep a CPU busy throughout while most of the time is blocked.
fn beside_computing(e: &Evidence<'_>) -> bool {
    let b = &e.bottleneck;
    let computed = b.on_cpu_ns() + e.totals.unattributed_ns;
    b.active_threads > 1 && b.on_cpu() < CPU_FIRST && b.load(computed) >= BUSY_BESIDE
}

/// Nothing is wrong. Shares are of all time that was not idle, as nothing is made of them.
pub(super) fn at_rest(e: &Evidence<'_>, verdict: &Verdict) -> String {
    if verdict.bottleneck {
        return waiting(e, verdict);
    }
    if let Some(unseen) = unseen(e) {
        return format!("it may have waited for {unseen}");
    }
    let t = &e.totals;
    let waited = words::share(t.share(t.blocked_ns()));
    match verdict.state {
        Some(State::Blocked) => {
            format!("faster code cannot reduce the {waited} spent waiting, which may be for work")
        }
        _ if t.share(t.blocked_ns()) < MENTIONED_SHARE => AT_REST.into(),
        _ => format!("{AT_REST}; faster code cannot reduce the {waited} spent waiting"),
    }
}

const AT_REST: &str = "no bottleneck was found: its threads wait for work, or have room left";
