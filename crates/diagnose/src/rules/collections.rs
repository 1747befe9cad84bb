//! Rule about garbage collection that stops threads.
//!
//! Shares are of the active time of the program's own threads: the collector's own computing is no time that the
//! program had.

use wallscope_model::{BlockReason, PauseGroup, State};

use super::verdict::{Finding, Spent, Verdict, bound, found};
use crate::evidence::{Evidence, WorkKind, largest};
use crate::thresholds::{CAUSE_SHARE, ONE_THREAD_SHARE};
use crate::words;

/// A collector stops threads for much of the active time, or one thread for much of the window.
pub(super) fn stopped(e: &Evidence<'_>) -> Finding {
    let ns = e.blocked(BlockReason::Gc);
    let share = share_of_own(e, ns);
    let of_one_thread = e.bottleneck.load(e.most_of_one_thread(BlockReason::Gc));
    found(
        format!(
            "stopped by a collector: {} of the program's own threads; one thread: {} of the window",
            words::share(share),
            words::share(of_one_thread)
        ),
        (share >= CAUSE_SHARE || of_one_thread >= ONE_THREAD_SHARE).then(|| verdict(e, ns)),
    )
}

/// Active time of threads that are not the collector's own, ns.
fn own_ns(e: &Evidence<'_>) -> u64 {
    (e.bottleneck.active_ns()).saturating_sub(e.work.collectors_ns)
}

/// `ns` as a share of the active time of threads that are not the collector's own.
fn share_of_own(e: &Evidence<'_>, ns: u64) -> f64 {
    (ns as f64 / own_ns(e).max(1) as f64).min(1.0)
}

fn verdict(e: &Evidence<'_>, ns: u64) -> Verdict {
    let by = largest(&e.causes, State::Blocked, Some(BlockReason::Gc));
    let groups = || e.recording.pauses.iter().filter(|g| g.collects());
    let main = groups().max_by_key(|g| g.total_ns);
    let collecting = e.work.ns(WorkKind::Collect);
    let mut verdict = Verdict::new(format!(
        "Garbage collection stops its threads{}",
        main.map_or_else(String::new, kind_words)
    ))
    .because(BlockReason::Gc.name())
    .of(e, Spent::blocked(ns, by))
    .of_waits(e.blocked_samples(BlockReason::Gc).collect())
    .measured(pauses_words(groups()))
    // A share would be of another whole than the verdict's.
    .measured((collecting > 0).then(|| {
        let collecting = words::time(collecting);
        format!("all threads together compute {collecting} for the collection")
    }))
    .advised(Some(advice(main).into()));
    verdict.share = share_of_own(e, ns);
    let own = words::time(own_ns(e));
    verdict.whole = format!("{own} of active time of the program's own threads");
    verdict.bound = bound(verdict.share, &verdict.whole);
    verdict
}

/// `: mostly full collections (Allocation Failure)`
fn kind_words(group: &PauseGroup) -> String {
    let cause = match &*group.cause {
        "" => String::new(),
        cause => format!(" ({cause})"),
    };
    format!(": mostly {} collections{cause}", group.kind)
}

/// Number and lengths of pauses.
pub(super) fn pauses_words<'g>(groups: impl Iterator<Item = &'g PauseGroup>) -> Option<String> {
    let (mut count, mut total, mut longest) = (0, 0, 0);
    for g in groups {
        (count, total) = (count + g.count, total + g.total_ns);
        longest = longest.max(g.max_ns());
    }
    (count > 0).then(|| {
        format!(
            "{count} pauses, mean {}, max {} (exact)",
            words::time(total / count),
            words::time(longest)
        )
    })
}

fn advice(main: Option<&PauseGroup>) -> &'static str {
    match main.map(|g| (&*g.kind, &*g.cause)) {
        Some((_, "System.gc()")) => {
            "find the caller of System.gc(), or start the VM with -XX:+DisableExplicitGC"
        }
        Some((_, cause)) if cause.starts_with("Metadata") => {
            "raise -XX:MetaspaceSize, or load fewer classes"
        }
        Some(("full", _)) => "give the heap more room (-Xmx), or keep fewer objects alive",
        Some(_) => "allocate less, or give the heap more room (-Xmx)",
        None => "allocate less, or allow the collector more memory",
    }
}
