//! Rules about rest, and about nothing being wrong.

use wallscope_model::{BlockReason, State};

use super::details::{
    for_own_lock, length_words, main_own_lock, own_holder, tries_again, waker_words,
};
use super::event_loops::{holds_up_callers, is_in_a_step};
use super::verdict::{Finding, SLEEP, Spent, Verdict, found, own_timer, place, subject};
use crate::evidence::{Cause, Evidence, Polls, Upstream, host_facts, largest};
use crate::frames::Side;
use crate::knowledge::{PIPE_READ, knows};
use crate::thresholds::{
    AT_ONCE_NS, HEALTHY_PENDING, HEALTHY_PENDING_QUICK, IDLE_CPUS, IDLE_PENDING,
    LASTING_OF_COMPUTING, MIN_REQUESTS, MOSTLY_SHARE, POLLED_FOR_OTHERS_PART, ROOM,
    SLEEP_FOR_A_RATE_NS, UNNAMED_SHARE,
};
use crate::words;

/// CPUs that the threads used or wanted.
fn cpus_wanted(e: &Evidence<'_>) -> f64 {
    let l = &e.bottleneck.ledger;
    let ns = l.state_ns(State::OnCpu) + l.state_ns(State::Runnable);
    e.bottleneck.load(ns)
}

/// Waits for others, as share of the window.
fn pending(e: &Evidence<'_>) -> f64 {
    e.bottleneck.load(e.pending())
}

/// Whether the threads hardly compute and hardly wait for others. A thread that was not seen is not known to rest.
pub(super) fn does_nothing(e: &Evidence<'_>) -> bool {
    let nothing =
        e.bottleneck.active_ns() == 0 || (cpus_wanted(e) < IDLE_CPUS && pending(e) < IDLE_PENDING);
    nothing && e.mostly_unseen().is_none()
}

/// The process does nothing.
pub(super) fn idle(e: &Evidence<'_>) -> Finding {
    let looked_at = format!(
        "computing or ready to: {:.2} % of one CPU; waits for others: {:.1} % of the window",
        cpus_wanted(e) * 100.0,
        pending(e) * 100.0
    );
    let rests = does_nothing(e) && !holds_up_callers(e);
    found(looked_at, rests.then(|| {
        let unmoved = match e.bottleneck.active_ns() {
            0 => {
                ". No thread moved: if a request is stuck, nothing came to end its wait"
            }
            _ => "",
        };
        let rest = e.causes.first();
        let rest = rest.filter(|c| c.share > MOSTLY_SHARE && c.has_function());
        let sleeps = rest.is_some_and(|c| c.is_wait_for(BlockReason::Timer));
        let again = tries_again(e).filter(|_| sleeps);
        let cause = match again {
            Some(_) => "No bottleneck found in its own work: it sleeps by its own timer, and connections fail meanwhile"
                .into(),
            None => format!(
                "No bottleneck found: the process is idle; its threads wait for work, events or their own \
                 timers{unmoved}"
            ),
        };
        let limit = rest.filter(|_| sleeps).and_then(|c| limits_itself(e, c));
        let advice = match (&again, &limit) {
            (Some(_), _) => Some("check the peer that it connects to"),
            (None, Some(_)) => Some(RAISE_LIMIT),
            (None, None) => None,
        };
        let silent = silent_peer(e);
        let mut verdict = Verdict::new(cause)
        .healthy()
        .measured(open_all_along(e))
        .rooted(again)
        .rooted(limit)
        .advised(advice.map(str::to_string));
        verdict.look_at = silent.map(|peer| peer.pid).filter(|pid| *pid > 0);
        verdict
        .rooted(silent.map(gives_no_answer))
        .advised(silent.map(|peer| format!("if it hangs, look at {}", peer.name)))
        .measured(rest.map(|c| {
            format!(
                "if it should be working: it is {} in {} for {} of active time",
                c.what(),
                c.function,
                words::share(c.share)
            )
        }))
    }))
}

/// The peer that answered none of the requests to it in the window, where that is all that the process awaits.
fn silent_peer<'e>(e: &'e Evidence<'_>) -> Option<&'e Upstream> {
    let peer = e.requests.upstream.as_ref()?;
    let open = |ns: u64| ns >= e.bottleneck.window_ns;
    (e.requests.asked == 0 && !peer.measured && peer.mean_ns().is_some_and(open)).then_some(peer)
}

/// A peer that answered nothing, in words.
fn gives_no_answer(peer: &Upstream) -> String {
    let requests = match peer.requests {
        1 => "a request".to_owned(),
        n => format!("{n} requests"),
    };
    format!(
        "{requests} to {} got no answer in the whole recording: it hangs there, unless it waits for news or work (a \
         subscription, a blocking pop)",
        peer.name
    )
}

/// Requests that were open in all of the window, where nothing else is known to be wrong.
fn open_all_along(e: &Evidence<'_>) -> Option<String> {
    let r = &e.requests;
    let mean = r
        .at_most_ns()
        .filter(|_| r.unanswered(e.bottleneck.window_ns))?;
    let upstream = r.upstream.as_ref().map_or_else(String::new, |u| {
        format!(" (it awaits answers of {} itself)", u.name)
    });
    Some(format!(
        "{} requests got no answer in the whole recording ({} each so far){upstream}: it hangs, unless they wait \
         for news (long polls, streams)",
        r.asked,
        words::time(mean),
    ))
}

/// The process has room left.
pub(super) fn healthy(e: &Evidence<'_>) -> Finding {
    let b = &e.bottleneck;
    let (busiest, cpus, pending) = (b.load(b.busiest_ns), b.busy_cpus(), pending(e));
    let answers = answer_words(e);
    let looked_at = format!(
        "busiest thread: {:.0} % of the window; {cpus:.2} CPUs; waits for others: {:.1} % of the \
         window{answers}",
        busiest * 100.0,
        pending * 100.0
    );
    let applies = has_room(e) && hardly_waits(e) && !is_slow(e) && hardly_rests_in_the_way(e);
    found(
        looked_at,
        applies.then(|| {
            let by = e.causes.iter().find(|c| c.has_function());
            Verdict::new(format!(
                "No bottleneck found: the busiest thread computes {} of the time, and waits for others take \
                 {} of it{answers}",
                words::share(busiest),
                words::share(pending)
            ))
            .healthy()
            .with(by.map(|c| {
                let reason = c.reason.map_or_else(String::new, |r| format!(", {r}"));
                format!(
                    "The largest part of the rest is in {} ({}{reason}, {})",
                    c.function,
                    c.state.name(),
                    words::share(c.share)
                )
            }))
        }),
    )
}

/// `; N requests answered in T on average`; empty where none were counted.
fn answer_words(e: &Evidence<'_>) -> String {
    let Some(mean) = e.requests.mean_ns() else {
        return String::new();
    };
    let when = match mean {
        0 => "sooner than could be seen".to_string(),
        ns => format!("in {}", words::time(ns)),
    };
    format!("; {} requests answered {when} on average", e.requests.asked)
}

/// Whether the busiest thread, and all threads together, compute less than they could.
fn has_room(e: &Evidence<'_>) -> bool {
    let b = &e.bottleneck;
    let lasting = b.lasting_ns as f64 >= LASTING_OF_COMPUTING * b.on_cpu_ns() as f64;
    b.load(b.busiest_ns) < ROOM && (b.busy_cpus() < ROOM || lasting)
}

/// Whether the process answers within the time that a person perceives as immediate.
fn is_quick(e: &Evidence<'_>) -> bool {
    e.requests.at_most_ns().is_some_and(|ns| ns < AT_ONCE_NS)
}

/// Whether it answers late. If its own answers were not counted, its upstream's decide.
fn is_slow(e: &Evidence<'_>) -> bool {
    let late = |ns: u64| ns >= AT_ONCE_NS;
    match e.requests.mean_ns() {
        Some(mean) => late(mean),
        None => {
            let upstream = e.requests.upstream.as_ref();
            upstream.and_then(|u| u.mean_ns()).is_some_and(late)
        }
    }
}

/// Whether it hardly waits for others, as far as is known.
fn hardly_waits(e: &Evidence<'_>) -> bool {
    let pending = pending(e);
    let hardly = pending < HEALTHY_PENDING || (is_quick(e) && pending < HEALTHY_PENDING_QUICK);
    hardly && e.mostly_unseen().is_none() && e.bottleneck.load(e.unnamed()) < UNNAMED_SHARE
}

/// Whether it neither sleeps nor polls for most of its time where that may be in a caller's way.
fn hardly_rests_in_the_way(e: &Evidence<'_>) -> bool {
    let slept = e.share(e.blocked(BlockReason::Timer));
    let polled = e.blocked(BlockReason::Poll);
    // Threads that hardly move may poll for most of the time that is left.
    let seldom = is_quick(e) && e.bottleneck.load(polled) < HEALTHY_PENDING_QUICK;
    slept < MOSTLY_SHARE
        && (e.share(polled) < MOSTLY_SHARE
            || seldom
            || e.follows_requests()
            || answers_by_itself(e))
}

/// Whether the process mostly polls for work, by its polled connections. It answers at once. It makes no request, or
/// awaits answers for a small part of the time that it polled.
fn answers_by_itself(e: &Evidence<'_>) -> bool {
    let r = &e.requests;
    let polled = e.blocked(BlockReason::Poll);
    let awaited = r.upstream.as_ref().map_or(0, |u| u.awaited_ns);
    let seldom = awaited == 0 || awaited.max(r.owed_ns) < polled / POLLED_FOR_OTHERS_PART;
    r.asked >= MIN_REQUESTS && r.mean_ns().is_some_and(|ns| ns < AT_ONCE_NS) && seldom
}

/// Unmeasured processes bring something: work, as far as is known.
pub(super) fn input(e: &Evidence<'_>) -> Finding {
    use BlockReason::{Lock, Pipe};
    let (reason, all) = e.main_wait();
    let by = largest(&e.causes, State::Blocked, Some(reason));
    let standard = reason == Pipe && by.is_some_and(|c| is_standard_input(e, c));
    let ns = match reason {
        Pipe if standard => by.map_or(0, |c| c.ns),
        Pipe | Lock => e.brought(reason),
        _ => 0,
    };
    let share = e.share(ns);
    let target = match standard {
        true => "standard input",
        false => "what an unmeasured process brings",
    };
    found(format!("waits for {target}: {}", words::share(share)), (share >= MOSTLY_SHARE && ns * 2 >= all).then(|| {
            let through = by.and_then(|c| c.resource.as_deref());
            let (target, source) = match through {
                _ if standard => ("its standard input".into(), "writes it"),
                Some(through) => (format!("input of another process by {through}"), "brings it"),
                None => ("input of another process".into(), "brings it"),
            };
            let verdict = Verdict::new(format!(
                "No bottleneck found in this process: it waits for {target} {} of active time{}; the process \
                 that {source} sets the pace",
                words::share(share),
                place(by, ns)
            ))
            .because(reason.name())
            .of(e, Spent::blocked(ns, by))
            .healthy()
            .outside()
            .with(waker_words(&e.wakers(reason)));
            match reason {
                Lock => verdict
                    .suspected(
                        "a condition or semaphore of another process may also be a lock or a full queue",
                    )
                    .assuming("others bring work by it, and give nothing back"),
                _ => verdict,
            }
        }))
}

/// Whether a cause's waits are for a pipe at descriptor 0, the only descriptor that a pipe's name leaves out.
fn is_standard_input(e: &Evidence<'_>, c: &Cause) -> bool {
    let name = c.resource.as_deref().unwrap_or_default();
    name.starts_with("pipe:[")
        && !name.contains("(fd")
        && e.mostly_passes(c, |side, name| {
            side == Side::Kernel && knows(PIPE_READ, name)
        })
}

/// Threads sleep by their own clock.
pub(super) fn sleeping(e: &Evidence<'_>) -> Finding {
    let ns = e.blocked(BlockReason::Timer);
    let share = e.share(ns);
    found(
        format!("sleeping: {}", words::share(share)),
        (share >= MOSTLY_SHARE).then(|| {
            let by = largest(&e.causes, State::Blocked, Some(BlockReason::Timer));
            let limit = by.and_then(|c| limits_itself(e, c));
            // The shell or person that started a command waits for its end.
            let command = e.recording.domain.target.starts_with("command");
            let says = match command {
                true => format!("{}{} {}", subject(by, SLEEP), place(by, ns), own_timer(by)),
                false => format!(
                    "No bottleneck found: {}{} {} ({} of active time); that is the cause only if a caller \
                     waits for it",
                    words::clause(&subject(by, SLEEP)),
                    place(by, ns),
                    own_timer(by),
                    words::share(share),
                ),
            };
            let verdict = Verdict::new(says)
            .because(BlockReason::Timer.name())
            .of(e, Spent::blocked(ns, by))
            .measured(by.and_then(|c| length_words(e, c, BlockReason::Timer)))
            .rooted(by.and_then(|c| holds_up_a_loop(e, c)))
            .rooted(tries_again(e))
            .rooted(limit.clone());
            let advice = match (limit, command) {
                (Some(_), _) => Some(RAISE_LIMIT.into()),
                (None, true) => by.map(|c| format!("remove or shorten the sleep in {}", c.function)),
                (None, false) => None,
            };
            let verdict = verdict.advised(advice);
            match command {
                true => verdict,
                false => verdict
                    .healthy()
                    .suspected("no request was seen in flight, and no other thread waits for it")
                    .assuming("no caller waits for the threads that sleep"),
            }
        }),
    )
}

/// Advice to a program that keeps to a rate.
const RAISE_LIMIT: &str = "raise or remove its rate limit, if it should be faster";

/// Data that the target moves between short sleeps: it keeps to a rate of its own.
fn limits_itself(e: &Evidence<'_>, c: &Cause) -> Option<String> {
    let median = e.lengths(c)?.quantile(0.5)?;
    let traffic = host_facts::disk_traffic(e.recording)?;
    (median <= SLEEP_FOR_A_RATE_NS).then(|| {
        format!(
            "it moves data between its sleeps ({traffic}): a program that keeps to a rate limit of its own looks \
             like this (--bwlimit of rsync, --limit-rate)"
        )
    })
}

/// A sleep below a step of an event loop: the loop waits with it.
fn holds_up_a_loop(e: &Evidence<'_>, c: &Cause) -> Option<String> {
    is_in_a_step(e, c).then(|| {
            "it sleeps inside a step of an event loop, so all other tasks of that loop stand still (await the loop's \
             own sleep, or use a thread)"
                .into()
        })
}

/// Threads poll.
pub(super) fn events(e: &Evidence<'_>) -> Finding {
    let ns = e.blocked(BlockReason::Poll);
    let share = e.share(ns);
    found(format!("waiting for events: {}", words::share(share)), (share >= MOSTLY_SHARE).then(|| {
            let by = largest(&e.causes, State::Blocked, Some(BlockReason::Poll));
            let lock = by.and_then(|c| main_own_lock(e, c));
            let (follows, share) = (e.follows_requests(), words::share(share));
            let place = place(by, ns);
            let cause = if let Some(lock) = lock {
                format!("It waits {}{place}", for_own_lock(lock))
            } else if !follows {
                format!(
                    "It waits for events{place}: for replies if requests are in flight, else for work"
                )
            } else {
                let says = match e.polls(Polls::WhileOwing).is_empty() {
                    false => {
                        "its callers are not answered meanwhile, as where they wait for news"
                    }
                    true => "no request is in flight on its connections meanwhile",
                };
                format!(
                    "No bottleneck found: it waits for events {share} of active time{place}: {says}"
                )
            };
            let verdict = Verdict::new(cause)
                .because(BlockReason::Poll.name())
                .of(e, Spent::blocked(ns, by));
            match (lock, follows) {
                (Some(lock), _) => verdict
                    .rooted(Some(own_holder(lock)))
                    .advised(Some(lock.meaning.into())),
                (None, true) => verdict.healthy(),
                (None, false) => verdict
                    .suspected("which of the two is not known")
                    .assuming("the threads wait for replies of others, and not for work"),
            }
        }))
}
