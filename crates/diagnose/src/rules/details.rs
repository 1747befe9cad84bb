//! Facts that verdicts add: wakers, lengths of single waits, the host's view, computing beside it.

use wallscope_model::histogram::Histogram;
use wallscope_model::{BlockReason, State};

use crate::evidence::{Cause, Evidence, Level, Resource, Wakers, host_facts, in_function, largest};
use crate::frames::{Side, functions_on};
use crate::knowledge::{Known, of_syncing_commits};
use crate::labels::resource;
use crate::lock_wait::own_lock;
use crate::thresholds::{
    AT_MEMORY_LIMIT, BESIDE_SHARE, FAILED_CONNECTS_RATE, FEW_WAITS, HELD_BY_OUTSIDERS,
    LONG_WAIT_NS, SHORT_WAIT_NS, WAKER_SHARE,
};
use crate::words;

/// Maximum number of the wakers' activities in a verdict.
const MAX_ACTIVITIES: usize = 3;

/// Target of the waits of a server's processes for a lock that the server builds from other calls.
pub(super) fn for_own_lock(lock: &Known) -> String {
    format!("for a {} lock (row, table or advisory)", lock.software())
}

/// The reason for which no holder is named.
pub(super) fn own_holder(lock: &Known) -> String {
    let server = lock.software();
    format!("{server} alone knows which of its processes holds the lock")
}

/// The server's own lock that most of a cause waits for.
pub(super) fn main_own_lock(e: &Evidence<'_>, c: &Cause) -> Option<&'static Known> {
    let mut samples = c.samples.iter().map(|i| e.sample(*i));
    let lock = samples.find_map(|s| own_lock(e.recording, s))?;
    e.mostly(c, |rec, s| own_lock(rec, s).is_some())
        .then_some(lock)
}

/// The way to ask for the holder of a server's own lock, where most of a cause waits for one.
pub(super) fn ask_for_holder(e: &Evidence<'_>, c: &Cause) -> Option<String> {
    main_own_lock(e, c).map(|lock| lock.meaning.into())
}

/// The change that makes a server wait less for its commits, where most of a cause waits for one to reach the disk.
pub(super) fn relax_commits(e: &Evidence<'_>, c: &Cause) -> Option<String> {
    let first = e.sample(*c.samples.first()?);
    let mut user = functions_on(e.recording, first.stack, Side::User);
    let advice = user.find_map(of_syncing_commits)?;
    let same = |_, name: &str| of_syncing_commits(name) == Some(advice);
    (c.is_wait_for(BlockReason::Disk) && e.mostly_passes(c, same)).then(|| advice.to_owned())
}

/// The main waker, and the wakers' activities while others waited.
pub(super) fn waker_words(wakers: &Wakers) -> Option<String> {
    let (thread, function, share) = wakers.threads.first()?;
    if *share < WAKER_SHARE {
        return None;
    }
    let others = match wakers.threads.len() {
        1 => String::new(),
        n => format!(", of {n} wakers"),
    };
    Some(format!(
        "The waits are ended by {thread}{} ({} of them{others}){}",
        in_function(function),
        words::share(*share),
        activities(wakers, thread)
    ))
}

fn activities(wakers: &Wakers, main: &str) -> String {
    let mut sums: Vec<(String, f64)> = Vec::new();
    for (activity, share) in &wakers.activities {
        let place = in_function(&activity.function);
        // Named by the activity, not by which of several like threads did it: a server's processes
        // are alike.
        let what = match activity.elsewhere {
            Some(pid) if activity.thread != main => format!(
                "waits for {} (pid {pid}), which {}{place}",
                activity.thread, activity.verb
            ),
            _ => format!("{}{place}", activity.verb),
        };
        match sums.iter_mut().find(|(w, _)| *w == what) {
            Some((_, sum)) => *sum += share,
            None => sums.push((what, *share)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown: Vec<String> = (sums.iter().filter(|(_, share)| *share >= WAKER_SHARE))
        .take(MAX_ACTIVITIES)
        .map(|(what, share)| format!("{what} ({} of these waits)", words::share(*share)))
        .collect();
    match shown.is_empty() {
        true => String::new(),
        false => format!(
            "; meanwhile the thread that ends them {}",
            words::list(&shown)
        ),
    }
}

/// Lengths of the single waits of a cause, and of the lock's holds if the waits show them.
pub(super) fn length_words(e: &Evidence<'_>, c: &Cause, reason: BlockReason) -> Option<String> {
    let counted = (c.resource.as_deref())
        .filter(|_| reason == BlockReason::Lock)
        .and_then(|name| host_facts::lock_waits(e.recording, name));
    let lengths = e.lengths(c);
    if let Some((count, total, longest)) = counted.filter(|(count, ..)| *count > 0) {
        let mean = total / count;
        let waits = CountedWaits {
            mean_ns: mean,
            longest_ns: longest,
            lengths: lengths.as_ref(),
        };
        return Some(format!(
            "{count} waits, mean {}, longest {}{}",
            words::time(mean),
            words::time(longest),
            waits.holds(&wakers_of_lock(e, c))
        ));
    }
    let lengths = lengths?;
    Some(format!(
        "single waits: median {}, longest {}",
        words::time(lengths.quantile(0.5)?),
        words::time(lengths.max_ns)
    ))
}

/// Wakers of all waits for the lock of a cause, in any function.
fn wakers_of_lock(e: &Evidence<'_>, c: &Cause) -> Wakers {
    let of_lock = |i: &u32| resource(e.recording, e.sample(*i)) == c.resource;
    let samples = e.blocked_samples(BlockReason::Lock);
    e.wakers_of(&samples.filter(of_lock).collect::<Vec<u32>>())
}

/// Waits for a lock: their count, with the lengths of the cause's own waits. The lengths of threads that rest at
/// other locks say nothing about this one.
struct CountedWaits<'h> {
    mean_ns: u64,
    longest_ns: u64,
    lengths: Option<&'h Histogram>,
}

impl CountedWaits<'_> {
    /// The lock's holds, as far as its waits tell them; else the long waits, where they take much of the time.
    ///
    /// No hold is longer than all of the waits for it, so short waits are waits for short holds. A long wait is one
    /// for a long hold only if the holder did not queue itself: in a queue it is the sum of many holds.
    fn holds(&self, wakers: &Wakers) -> String {
        let half = self.lengths.map_or(0.0, |l| time_of(l, |_| true) / 2.0);
        let half_is = |fits: &dyn Fn(u64) -> bool| {
            self.lengths
                .is_some_and(|l| half > 0.0 && time_of(l, fits) >= half)
        };
        let short = self.longest_ns < SHORT_WAIT_NS
            || (self.mean_ns < SHORT_WAIT_NS && half_is(&|ns| ns < SHORT_WAIT_NS));
        let half_long = self.longest_ns >= LONG_WAIT_NS && half_is(&|ns| ns >= LONG_WAIT_NS);
        let held = wakers.by_outsiders >= HELD_BY_OUTSIDERS;
        match self.lengths.and_then(longest_part) {
            _ if short => ": many short holds".into(),
            _ if held && self.mean_ns >= LONG_WAIT_NS => ": long holds".into(),
            _ if held && half_long => ": long holds take half of the time or more".into(),
            Some(part) if part <= FEW_WAITS => format!(
                "; the longest {} of them take half of the time",
                words::share(part)
            ),
            _ => String::new(),
        }
    }
}

/// Part of the waits, longest first, that takes half of their time.
fn longest_part(lengths: &Histogram) -> Option<f64> {
    let half = time_of(lengths, |_| true) / 2.0;
    let (mut time, mut waits) = (0.0, 0.0);
    for (bucket, count) in lengths.counts.iter().rev() {
        let (low, high) = lengths.bounds(*bucket);
        let each = low.midpoint(high) as f64;
        let missing = (half - time).max(0.0);
        let taken = count.min(missing / each.max(1.0));
        (time, waits) = (time + taken * each, waits + taken);
    }
    let all = lengths.count();
    (half > 0.0 && all > 0.0).then(|| waits / all)
}

/// Time in the waits of a histogram with a fitting length, ns.
fn time_of(lengths: &Histogram, fits: impl Fn(u64) -> bool) -> f64 {
    let each = lengths.counts.iter().map(|(bucket, count)| {
        let (low, high) = lengths.bounds(*bucket);
        (low.midpoint(high), *count)
    });
    let fitting = each.filter(|(ns, _)| fits(*ns));
    fitting.map(|(ns, count)| ns as f64 * count).sum()
}

/// Whether data for `peer` is held back on this side.
pub(super) fn unsent_requests(e: &Evidence<'_>, peer: &str) -> Option<String> {
    let held = host_facts::unacknowledged_peers(e.recording);
    let is_peer = |p: &&str| peer == *p || peer.ends_with(&format!(" {p}"));
    held.iter().any(is_peer).then(|| {
        "set TCP_NODELAY, or write each request at once: a part of it waits here for the acknowledgement of \
         the part before (Nagle's algorithm), which the other end delays by up to 40 ms"
            .into()
    })
}

/// The host's view of the resource that is waited for, where it is saturated.
pub(super) fn saturated(e: &Evidence<'_>, reason: BlockReason) -> Option<String> {
    let at_limit = |r: &&Resource| r.utilisation.is_some_and(|u| u > AT_MEMORY_LIMIT);
    let limit = e.host("memory limit").filter(at_limit);
    let resource = match reason {
        BlockReason::Disk => e.host.iter().find(|r| r.name.starts_with("disk ")),
        BlockReason::PageFault | BlockReason::Memory => limit.or_else(|| e.host("memory")),
        BlockReason::Network => e.host("network"),
        _ => None,
    }?;
    let close = resource.name == "memory limit" && at_limit(&resource);
    (resource.level == Level::Saturated || close).then(|| {
        let words = [resource.saturation.as_str(), resource.errors.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|s| !s.is_empty()).collect();
        format!("the {} is saturated ({})", resource.name, words.join(", "))
    })
}

/// Computing beside the waits, where that is much.
pub(super) fn beside(e: &Evidence<'_>) -> Option<String> {
    let share = e.bottleneck.on_cpu();
    let by = largest(&e.causes, State::OnCpu, None)?;
    (share >= BESIDE_SHARE).then(|| {
        format!(
            "It also computes {} of active time, most in {}",
            words::share(share),
            by.function
        )
    })
}

/// Connections that fail while it sleeps: it may sleep between its tries.
pub(super) fn tries_again(e: &Evidence<'_>) -> Option<String> {
    let (failed, rate) = host_facts::failed_connects(e.recording)?;
    (rate >= FAILED_CONNECTS_RATE).then(|| {
        format!(
            "{failed} connections of this host failed meanwhile (refused or not answered): if they are its own, \
             it sleeps between its tries, and the peer is the cause"
        )
    })
}

/// Number of requests of callers, and mean time to answer.
pub(super) fn asked_and_answered(e: &Evidence<'_>) -> Option<String> {
    let mean = e.requests.mean_ns()?;
    Some(format!(
        "{} requests, answered after {} on average",
        e.requests.asked,
        words::time(mean)
    ))
}
