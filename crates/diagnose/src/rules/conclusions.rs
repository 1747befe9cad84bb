//! Conclusion of a verdict in one or two sentences, for the end of a recording: the cause, the time
//! that faster code could save, and the time that it could not. The last full stop is left to the caller.
//!
//! Shares are of active time, as in the rest of the sentence.

use wallscope_model::{BlockReason, State};

use super::verdict::Verdict;
use crate::evidence::Evidence;
use crate::thresholds::{BUSY_BESIDE, CPU_FIRST, MENTIONED_SHARE, NEARLY_ALL, ROOT_OF_WAITS};
use crate::words;

/// Share of active time that was blocked.
fn blocked(e: &Evidence<'_>) -> f64 {
    e.share(e.bottleneck.blocked_ns())
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
    verdict.cause.clone()
}

/// A CPU quota, or too few CPUs, held threads back.
pub(super) fn quota(e: &Evidence<'_>, verdict: &Verdict) -> String {
    let quota = match e.totals.quota_cpus {
        Some(quota) => format!("Its CPU quota ({})", words::cpus(quota)),
        None => "Its CPU quota".to_string(),
    };
    let most = match e.bottleneck.ledger.runnable.throttled {
        0 => "up to ",
        _ => "",
    };
    format!(
        "{quota} cost {most}{}. A higher quota, or less CPU work, gives that back",
        words::share(verdict.share)
    )
}

/// Threads wait for a CPU.
pub(super) fn shortage(_: &Evidence<'_>, verdict: &Verdict) -> String {
    format!(
        "{}. More CPU time for it saves at most {}",
        verdict.cause,
        words::share(verdict.share)
    )
}

/// Threads compute, or the kernel works for them.
pub(super) fn computing(e: &Evidence<'_>, verdict: &Verdict) -> String {
    let saves = match (&verdict.parts.shares[..], blocked(e)) {
        (_, b) if b < NEARLY_ALL => "A CPU profile shows nearly all of it".to_string(),
        ([(_, own), (_, others)], _) => format!(
            "Faster code saves at most the {} spent computing and the {} spent waiting for it",
            words::share(*own),
            words::share(*others)
        ),
        (_, b) => format!(
            "Faster code saves at most the {} spent computing, and none of the {} spent waiting",
            words::share(e.bottleneck.on_cpu()),
            words::share(b)
        ),
    };
    format!("{}. {saves}", verdict.cause)
}

/// Threads wait.
pub(super) fn waiting(e: &Evidence<'_>, verdict: &Verdict) -> String {
    if waits_for_computing(verdict) {
        return format!(
            "{}. Faster code there shortens these waits, too",
            verdict.cause
        );
    }
    let unless = match (unseen(e), beside_computing(e)) {
        (Some(unseen), _) => format!(", unless the waiting is for {unseen}"),
        (None, true) => ", unless the waiting is for the threads that compute".into(),
        (None, false) => String::new(),
    };
    format!(
        "{}. Faster code cannot reduce the {} spent waiting{}{unless}",
        verdict.cause,
        words::share(blocked(e)),
        work_or_not(verdict),
    )
}

/// Whether the headline is a thread that computes while others wait for it.
fn waits_for_computing(verdict: &Verdict) -> bool {
    let main = verdict.parts.blame.first();
    let main = main.filter(|root| root.share > ROOT_OF_WAITS && root.open.is_none());
    main.is_some_and(|root| root.state == State::OnCpu && !root.own)
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

/// Nothing is wrong.
pub(super) fn at_rest(e: &Evidence<'_>, verdict: &Verdict) -> String {
    if verdict.bottleneck {
        return waiting(e, verdict);
    }
    if let Some(unseen) = unseen(e) {
        return format!("It may have waited for {unseen}");
    }
    let waited = words::share(blocked(e));
    match verdict.state {
        Some(State::Blocked) => {
            format!("Faster code cannot reduce the {waited} spent waiting, which may be for work")
        }
        _ => {
            // A cause elsewhere is more than that nothing was found.
            let rest = match verdict.parts.root {
                Some(_) => verdict.cause.clone(),
                None => AT_REST.into(),
            };
            match blocked(e) < MENTIONED_SHARE {
                true => rest,
                false => format!("{rest}. Faster code cannot reduce the {waited} spent waiting"),
            }
        }
    }
}

const AT_REST: &str = "No bottleneck was found: its threads wait for work, or have room left";
