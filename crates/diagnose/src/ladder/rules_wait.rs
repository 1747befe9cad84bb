//! Rules about waiting for somebody.

use wallscope_model::{BlockReason, FrameKind, State};

use super::causes::{Cause, largest};
use super::circles;
use super::delays::Delay;
use super::enders::Enders;
use super::evidence::{Evidence, FEW, WORK};
use super::for_what::for_what;
use super::verdict::{Found, Verdict, found, mostly};
use super::waits::own_lock;
use super::{Level, facts, rules_tasks};
use crate::idle::waits_for_condition;
use crate::words;

pub(super) fn serial(e: &Evidence<'_>) -> Found {
    use BlockReason::{Gil, KernelLock, Lock};
    let (reason, ns) = [Lock, Gil, KernelLock]
        .map(|r| (r, e.blocked(r)))
        .into_iter()
        .fold((Lock, 0), |a, b| if b.1 > a.1 { b } else { a });
    let share = e.share(ns);
    let enders = (share >= 1.0 / 3.0).then(|| e.enders(reason));
    let own = enders.as_ref().map_or(0.0, |w| w.by_waiters);
    found(
        format!(
            "{}: {} of active time, {} of it ended by threads that wait for the same",
            words::reason(reason),
            words::share(share),
            words::share(own)
        ),
        share >= 1.0 / 3.0 && own >= 0.5 && ns >= e.main_wait().1,
        || wait(e, reason, ns),
    )
}

/// The shortest window in which never to get a lock says something, ns.
pub(super) const SOME_TIME_NS: u64 = 1_000_000_000;

pub(super) fn stuck(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let held = circles::of(e.recording, &b.stuck);
    let mut stuck = b.stuck.clone();
    let circle = held.iter().flat_map(|h| &h.circle);
    stuck.extend(circle.filter(|c| !b.stuck.contains(c)));
    let at_lock = |c: &Cause| -> u64 {
        let of_stuck = |i: &&u32| {
            let s = &e.recording.samples[**i as usize];
            let lock = s.reason == Some(BlockReason::Lock) || own_lock(e.recording, s).is_some();
            lock && stuck.contains(&s.context)
        };
        let samples = c.samples.iter().filter(of_stuck);
        samples.map(|i| e.waits.sample_ns[*i as usize]).sum()
    };
    let ns: u64 = e.causes.iter().map(at_lock).sum();
    let (n, share) = (stuck.len(), e.share(ns));
    found(
        format!(
            "{n} threads got nowhere at a lock: {} of active time",
            words::share(share)
        ),
        n > 0 && share >= 0.10 && b.window_ns >= SOME_TIME_NS,
        || {
            let by = e.causes.iter().max_by_key(|c| (at_lock(c), c.ns));
            let what = by
                .and_then(|c| c.resource.as_deref())
                .filter(|_| by.is_some_and(|c| c.reason == Some(BlockReason::Lock.name())))
                .map_or_else(String::new, |r| format!(" ({r})"));
            let why = match &held {
                Some(held) if held.circle.len() == 1 => {
                    "it is a deadlock of one thread with itself"
                }
                Some(held) if !held.circle.is_empty() => "it is a deadlock",
                Some(_) => {
                    "who has it does not give it up, or others always come first (starvation)"
                }
                None => {
                    "it is a deadlock, or whoever has it does not give it up, or others always come \
                     first (starvation)"
                }
            };
            Verdict::new(format!(
                "{} to the end of the recording at a lock{what} and never got it, {} of active \
                 time{}: {why}",
                if n == 1 { "One thread stood".into() } else { format!("{n} threads stood") },
                words::share(share),
                mostly(by)
            ))
            .because(BlockReason::Lock.name())
            .of(e, State::Blocked, ns, by)
            .with(Some(held.map_or_else(
                || {
                    "Who has it is not known: nobody was seen to give it, and no note of its owner was found \
                     (semaphores, and the locks of Rust, Go and Python, keep none)"
                        .into()
                },
                |held| held.told,
            )))
            .with(by.and_then(|c| whom_to_ask(e, c)))
            .with(beside(e))
        },
    )
}

/// Who tells who holds a lock of a server's own.
pub(super) fn whom_to_ask(e: &Evidence<'_>, c: &Cause) -> Option<String> {
    let mut samples = c.samples.iter().map(|i| &e.recording.samples[*i as usize]);
    let says = samples.find_map(|s| own_lock(e.recording, s))?;
    e.mostly(c, |rec, s| own_lock(rec, s).is_some())
        .then(|| says.into())
}

pub(super) fn waiting(e: &Evidence<'_>) -> Found {
    let (reason, ns) = e.main_wait();
    let share = e.share(ns);
    let most = e.bottleneck.load(e.most_of_one_thread(reason));
    found(
        format!(
            "most on {}: {}; of one thread: {} of the window",
            words::reason(reason),
            words::share(share),
            words::share(most)
        ),
        share >= 0.20 || most >= 0.5,
        || wait(e, reason, ns),
    )
}

/// Waits that look like rest to the kernel, and are none: see [`Delay`].
pub(super) fn delayed(e: &Evidence<'_>) -> Found {
    let (delay, own) = e.main_delay();
    let (mut ns, mut others) = (own, e.main_wait().1);
    if delay == Delay::Child {
        // The same wait in other calls: for the end of a child, and for what it writes.
        ns += e.blocked(BlockReason::Child) + e.piped_from_children();
        others = (WORK.iter())
            .filter(|r| !matches!(r, BlockReason::Child | BlockReason::Pipe))
            .map(|r| e.blocked(*r))
            .max()
            .unwrap_or(0);
    }
    let share = e.share(ns);
    found(
        format!(
            "{}: {}, {} with waits of that kind in other calls",
            delay.name(),
            words::share(e.share(own)),
            words::share(share)
        ),
        share >= 0.20
            && e.share(own) >= 0.05
            && ns >= others.max(e.polled_for_answers())
            // A server that starts a process for each of its callers waits for callers, while its
            // processes wait for what they need.
            && ns >= e.handed_owed() + e.held(),
        || {
            let by = e.main_delayed(delay);
            let (cause, reason) = match delay {
                Delay::Child => (
                    "waits for child processes, for what they write or for their end,",
                    BlockReason::Child,
                ),
                Delay::Disk => (
                    "waits for what it asked of the disk without blocking (io_uring, aio)",
                    BlockReason::Disk,
                ),
                Delay::Tries => (
                    "sleeps between its tries to get a lock that another has",
                    BlockReason::Timer,
                ),
            };
            let samples = e.delayed_samples(delay);
            let enders = e.waits.enders(e.recording, &samples);
            let v = Verdict::new(format!(
                "It {cause} {} of active time{}",
                words::share(share),
                mostly(by)
            ))
            .because(reason.name())
            .of(e, State::Blocked, ns, by);
            let v = match delay {
                Delay::Tries => match facts::file_locks(e.recording) {
                    Some((holder, said)) => Verdict {
                        holder: Some(holder),
                        ..v.with(Some(said))
                    },
                    None => v.with(Some(
                        "Nobody is told of such a wait: `lslocks` names the processes that hold locks of \
                         files"
                            .into(),
                    )),
                },
                Delay::Disk => v.with(saturated(e, BlockReason::Disk)),
                Delay::Child => v.with(told_of_enders(&enders)),
            };
            v.with(by.and_then(|c| lengths(e, c, reason)))
                .with(beside(e))
        },
    )
}

/// The verdict on waits for `reason`, all that is known of them with it.
fn wait(e: &Evidence<'_>, reason: BlockReason, ns: u64) -> Verdict {
    let by = largest(e.causes, State::Blocked, Some(reason));
    let what = by
        .and_then(|c| c.resource.as_deref())
        .map_or_else(String::new, |r| format!(" ({r})"));
    let enders = e.enders(reason);
    let share = words::share(e.share(ns));
    let cause = match reason {
        BlockReason::Stopped => format!(
            "It is stopped, by a signal, a debugger or a frozen cgroup, {share} of active time; where \
             that meets it says nothing"
        ),
        _ => format!(
            "It waits for {}{what} {share} of active time{}",
            by.map_or(words::reason(reason), |c| for_what(e, reason, c)),
            mostly(by)
        ),
    };
    let mut v = Verdict::new(cause)
        .because(reason.name())
        .of(e, State::Blocked, ns, by);
    v.holder = holder(&enders);
    v.with(told_of_enders(&enders))
        .with(by.and_then(|c| of_transactions(e, reason, c, &enders)))
        .with(by.and_then(|c| done_there(e, reason, c)))
        .with(by.and_then(|c| lengths(e, c, reason)))
        .with(saturated(e, reason))
        .with(beside(e))
}

/// What MySQL and MariaDB wait for where they read or write rows at a condition until another thread's transaction is
/// over: what that one has locked. Their storage engines are stripped of names mostly.
fn of_transactions(
    e: &Evidence<'_>,
    reason: BlockReason,
    c: &Cause,
    enders: &Enders,
) -> Option<String> {
    const ENDS: [&str; 4] = ["ha_commit", "ha_rollback", "trans_commit", "trans_rollback"];
    let over = |function: &str| ENDS.iter().any(|name| function.starts_with(name));
    let ended = enders.who.iter().filter(|(_, function, _)| over(function));
    let ended: f64 = ended.map(|(.., share)| share).sum();
    let rows = || e.mostly_passes(c, |_, name| name.starts_with("handler::ha_"));
    (reason == BlockReason::Lock && ended >= 0.5 && rows()).then(|| {
        "It is rows (or a table) that another transaction has locked until it ends: SHOW ENGINE INNODB STATUS, and \
         information_schema.innodb_lock_waits, name both"
            .into()
    })
}

/// What threads wait for besides in the function in which they wait for a lock: where nobody tells who gave it up,
/// that may well be what it is held across.
fn done_there(e: &Evidence<'_>, reason: BlockReason, c: &Cause) -> Option<String> {
    const LEAST: f64 = 0.05;
    let lock = reason == BlockReason::Lock
        && !e.mostly_passes(c, |kind, name| {
            kind != FrameKind::Kernel && waits_for_condition(name)
        });
    if !lock || !e.recording.hops.is_empty() {
        return None;
    }
    let other = e.causes.iter().find(|o| {
        let same = (&o.function, &o.module) == (&c.function, &c.module);
        same && o.state == State::Blocked && o.reason != c.reason && o.share >= LEAST
    })?;
    let what = other.reason.and_then(BlockReason::from_name)?;
    Some(format!(
        "In {} they also wait for {} ({} of active time): if the lock is held across that, it is what the others \
         wait for",
        other.function,
        for_what(e, what, other),
        words::share(other.share)
    ))
}

/// Who ended most of the waits, and in which function.
fn holder(enders: &Enders) -> Option<String> {
    let (who, function, _) = enders.who.first()?;
    Some(match &**function {
        "" => who.clone(),
        function => format!("{who} in {function}"),
    })
}

/// Who ended the waits, and what they did meanwhile.
pub(super) fn told_of_enders(enders: &Enders) -> Option<String> {
    let (who, function, share) = enders.who.first()?;
    if *share < 0.10 {
        return None;
    }
    let place = match &**function {
        "" => String::new(),
        function => format!(" in {function}"),
    };
    let few = enders.who.len();
    let others = match few {
        1 => String::new(),
        n => format!(", of {n} that do"),
    };
    let mut did: Vec<(String, f64)> = Vec::new();
    for (deed, share) in &enders.did {
        let place = match &*deed.function {
            "" => String::new(),
            function => format!(" in {function}"),
        };
        // Told by what was done, not by who of several alike did it.
        let what = match deed.elsewhere {
            // A server's processes are alike.
            Some(pid) if deed.who != *who => format!(
                "waits for {} (pid {pid}), which {}{place}",
                deed.who, deed.what
            ),
            _ => format!("{}{place}", deed.what),
        };
        match did.iter_mut().find(|(w, _)| *w == what) {
            Some((_, sum)) => *sum += share,
            None => did.push((what, *share)),
        }
    }
    did.sort_by(|a, b| b.1.total_cmp(&a.1));
    let did: Vec<String> = (did.iter().filter(|(_, share)| *share >= 0.10).take(3))
        .map(|(what, share)| format!("{what} ({} of these waits)", words::share(*share)))
        .collect();
    let did = if did.is_empty() {
        String::new()
    } else {
        format!("; meanwhile whoever is waited for {}", words::list(&did))
    };
    Some(format!(
        "The waits are ended by {who}{place} ({} of them{others}){did}",
        words::share(*share)
    ))
}

/// How long the single waits are: many short ones, or few long ones.
pub(super) fn lengths(e: &Evidence<'_>, c: &Cause, reason: BlockReason) -> Option<String> {
    let exact = (c.resource.as_deref())
        .filter(|_| reason == BlockReason::Lock)
        .and_then(|name| facts::lock_waits(e.recording, name));
    if let Some((count, total, longest)) = exact.filter(|(count, ..)| *count > 0) {
        return Some(format!(
            "{count} single waits for it, {} on average, the longest {}{}",
            words::time(total / count),
            words::time(longest),
            long_or_short(e, c, total / count, longest)
        ));
    }
    let shape = e.lengths(c)?;
    let (half, most) = (shape.quantile(0.5)?, shape.max_ns);
    Some(format!(
        "Single waits there take {} (half of them less), the longest {}",
        words::time(half),
        words::time(most)
    ))
}

/// A wait of this length is long: half of what a person takes for at once (Nielsen's 0.1 s), ns.
const LONG_NS: u64 = 50_000_000;
/// And one of this length is short, where it comes alone, ns.
const SHORT_NS: u64 = 5_000_000;

const LONG_HOLDS: &str = ": it is long holds, not many short ones";
const SHORT_HOLDS: &str = ": it is many short holds, not a few long ones";

/// Few long waits and many short ones need different cures: which of them most of the time is in.
/// `mean` and `longest` are counted, ns; how they are distributed is told by the cause's own waits, as those
/// of threads that rest at other locks say nothing of it.
fn long_or_short(e: &Evidence<'_>, c: &Cause, mean: u64, longest: u64) -> &'static str {
    if mean >= LONG_NS {
        return LONG_HOLDS;
    }
    if longest < SHORT_NS {
        return SHORT_HOLDS;
    }
    let Some(shape) = e.lengths(c) else {
        return "";
    };
    let time = |fits: &dyn Fn(u64) -> bool| -> f64 {
        let each = shape.counts.iter().map(|(bucket, count)| {
            let (low, high) = shape.bounds(*bucket);
            (low.midpoint(high), *count)
        });
        each.filter(|(ns, _)| fits(*ns))
            .map(|(ns, count)| ns as f64 * count)
            .sum()
    };
    let whole = time(&|_| true).max(1.0);
    if longest >= LONG_NS && time(&|ns| ns >= LONG_NS) >= whole / 2.0 {
        LONG_HOLDS
    } else if mean < SHORT_NS && time(&|ns| ns < SHORT_NS) >= whole / 2.0 {
        SHORT_HOLDS
    } else {
        ""
    }
}

/// Whether what it asks `peer` with stands back on its own side.
pub(super) fn held_back(e: &Evidence<'_>, peer: &str) -> Option<String> {
    let held = facts::held_back(e.recording);
    let of_it = |p: &&str| peer == *p || peer.ends_with(&format!(" {p}"));
    held.iter().any(of_it).then(|| {
        "Part of what it asks was not even sent when that was looked at: it is written in small pieces, and a \
         piece waits until the one before is acknowledged, which the other end delays by up to 40 ms \
         (Nagle's algorithm; TCP_NODELAY, or one write for all of a request, ends that)"
            .into()
    })
}

/// The host's own word on what is waited for.
pub(super) fn saturated(e: &Evidence<'_>, reason: BlockReason) -> Option<String> {
    let r = match reason {
        BlockReason::Disk => e.host.iter().find(|r| r.name.starts_with("disk ")),
        BlockReason::PageFault | BlockReason::Memory => (e.host("memory limit"))
            .filter(|r| r.utilisation.is_some_and(|u| u > 0.95))
            .or_else(|| e.host("memory")),
        BlockReason::Network => e.host("network"),
        _ => None,
    }?;
    let close = r.name == "memory limit" && r.utilisation.is_some_and(|u| u > 0.95);
    (r.level == Level::Saturated || close).then(|| {
        let words = [r.saturation.as_str(), r.errors.as_str()];
        let words: Vec<&str> = words.into_iter().filter(|s| !s.is_empty()).collect();
        format!("The {} is saturated ({})", r.name, words.join(", "))
    })
}

/// What it computes beside its waits, where that is much.
pub(super) fn beside(e: &Evidence<'_>) -> Option<String> {
    let share = e.share(e.bottleneck.ledger.state_ns(State::OnCpu));
    let by = largest(e.causes, State::OnCpu, None)?;
    (share >= 0.25).then(|| {
        format!(
            "Beside that it computes {} of active time, most in {}",
            words::share(share),
            by.function
        )
    })
}

pub(super) fn sleep_in_request(e: &Evidence<'_>) -> Found {
    let ns = e.in_flight(|r| r == BlockReason::Timer);
    let by_all = slept_while_owed(e).filter(|all| *all > ns);
    let (known, ns) = (by_all.is_none(), by_all.unwrap_or(ns));
    let share = e.share(ns);
    found(
        format!("slept with requests in flight: {}", words::share(share)),
        share >= if known { 0.20 } else { 0.5 } && ns >= e.main_wait().1,
        || {
            let by = largest(e.causes, State::Blocked, Some(BlockReason::Timer));
            let v = Verdict::new(format!(
                "It sleeps by its own clock {} of active time while callers wait for its answer{}",
                words::share(share),
                mostly(by)
            ))
            .because(BlockReason::Timer.name())
            .of(e, State::Blocked, ns, by)
            .with((e.requests.mean_ns()).filter(|_| !known).map(|mean| {
                format!(
                    "It was asked {} times, and answered after {} on average",
                    e.requests.asked,
                    words::time(mean)
                )
            }))
            .with(tries_again(e));
            if known {
                return v;
            }
            v.suspected("whose requests they are is not known, but that it owed answers as long as it slept")
        },
    )
}

/// Both times are those of looks, a percent or ten off: so much of one is as long.
const ABOUT: f64 = 0.8;

/// Time slept where nobody followed whose requests are, but looks at connections saw the process owe answers as
/// long, and ask nobody, ns.
fn slept_while_owed(e: &Evidence<'_>) -> Option<u64> {
    let slept = e.blocked(BlockReason::Timer);
    let r = e.requests;
    let followed = e.recording.domain.backend == "ebpf";
    let mean = r.at_most_ns()?;
    // Who never answers serves by a stream, or lets his callers wait for news.
    let answers = r.asked >= FEW && mean <= e.bottleneck.window_ns / 4;
    let asks = r
        .upstream
        .as_ref()
        .is_some_and(|u| u.awaited_ns * 2 > r.owed_ns);
    let owed = r.owed_ns as f64 >= ABOUT * slept as f64;
    (!followed && answers && !asks && owed).then_some(slept)
}

/// Connections that fail while it sleeps: it may sleep between its tries.
pub(super) fn tries_again(e: &Evidence<'_>) -> Option<String> {
    let (failed, each_second) = facts::failed_connects(e.recording)?;
    (each_second >= SOME_FAIL).then(|| {
        format!(
            "{failed} connections of this host could not be made meanwhile (refused, or not answered): if \
             they are its own, it sleeps between its tries, and whom it asks is the cause"
        )
    })
}

/// Failed connections a second: what a service that tries again without end makes.
const SOME_FAIL: f64 = 1.0;

/// Waits in poll and its kin that are no waits for the network: a colleague has what is wanted, and says
/// so by a signal or an event when it is free. How servers of many processes wait for each other's locks.
pub(super) fn colleagues(e: &Evidence<'_>) -> Found {
    let (polled, handed) = (e.polled_in_flight(), e.handed());
    let share = e.share(polled);
    let slept = e.in_flight(|r| r == BlockReason::Timer);
    found(
        format!(
            "polled with requests in flight: {}, {} ended by its own threads",
            words::share(share),
            words::share(e.share(handed))
        ),
        share >= 0.20
            && handed * 2 >= polled
            && polled >= slept
            && polled >= e.main_wait().1
            && polled > 0,
        || {
            let by = largest(e.causes, State::Blocked, Some(BlockReason::Poll));
            let enders = e.enders(BlockReason::Poll);
            let mut v = Verdict::new(format!(
                "With requests in flight, it waits for others of its own threads or processes {} of \
                 active time, which end the waits by a signal or an event, as for a lock of the \
                 program's own{}",
                words::share(share),
                mostly(by)
            ))
            .because(BlockReason::Poll.name())
            .of(e, State::Blocked, polled, by);
            v.holder = holder(&enders);
            v.with(told_of_enders(&enders))
                .with(by.and_then(|c| whom_to_ask(e, c)))
                .with(by.and_then(|c| lengths(e, c, BlockReason::Poll)))
                .with(beside(e))
        },
    )
}

/// Waits in poll and its kin with requests of others in flight, when nobody was asked in turn: an event loop
/// that lets its callers wait, for a time of its own or for what comes neither from a peer nor from its threads.
pub(super) fn held(e: &Evidence<'_>) -> Found {
    let ns = e.held();
    let share = e.share(ns);
    let slept = e.in_flight(|r| r == BlockReason::Timer);
    found(
        format!(
            "polled with requests of others in flight, and none of its own: {}",
            words::share(share)
        ),
        share >= 0.20 && ns >= slept && ns >= e.main_wait().1 && ns >= e.polled_for_answers(),
        || {
            let by = largest(e.causes, State::Blocked, Some(BlockReason::Poll));
            let enders = e.waits.enders(e.recording, &e.polls(true));
            let timed_out = enders.timed_out();
            let asks = by.and_then(|c| whom_to_ask(e, c));
            let what = if asks.is_some() {
                OWN_LOCKS
            } else if timed_out >= 0.5 {
                "until a time that it set itself (a sleep or a delay in its event loop)"
            } else {
                "for events, with no request of its own in flight that was seen"
            };
            Verdict::new(format!(
                "Callers wait for its answers while it polls {what}, {} of active time{}",
                words::share(share),
                mostly(by)
            ))
            .because(BlockReason::Poll.name())
            .of(e, State::Blocked, ns, by)
            .with(e.requests.mean_ns().map(|ns| {
                format!(
                    "It was asked {} times, and answered after {} on average",
                    e.requests.asked,
                    words::time(ns)
                )
            }))
            .with(told_of_enders(&enders))
            .with(rules_tasks::asleep(e).filter(|_| asks.is_none()))
            .with(asks)
            .with(beside(e))
        },
    )
}

/// What servers poll for that make locks of their own of other calls.
pub(super) const OWN_LOCKS: &str = "for locks of its own making, by events";
