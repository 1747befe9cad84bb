//! Rules about rest, about nothing being wrong, and about nothing that can be told.

use wallscope_model::{BlockReason, FrameKind, State};

use super::causes::{Cause, largest};
use super::evidence::{Evidence, FEW};
use super::for_what::for_what;
use super::rules_wait::{
    OWN_LOCKS, SOME_TIME_NS, lengths, told_of_enders, tries_again, whom_to_ask,
};
use super::standing;
use super::verdict::{Found, Verdict, found, mostly};
use crate::words;

pub(super) fn empty(e: &Evidence<'_>) -> Found {
    let threads = e.recording.contexts.len();
    found(format!("{threads} threads"), threads == 0, || {
        Verdict::new("No thread of the target existed in the window".into()).healthy()
    })
}

pub(super) fn unseen(e: &Evidence<'_>) -> Found {
    let share = e.share(e.bottleneck.ledger.unknown_ns());
    found(
        format!("not seen: {}", words::share(share)),
        share >= 0.10,
        || {
            let mut v = Verdict::new(format!(
                "{} of the time could not be seen, so nothing firm can be said of the rest",
                words::share(share)
            ));
            v.share = share;
            v.state = Some(State::Unknown);
            v.confidence = "none beyond that".into();
            v
        },
    )
}

/// How much of one CPU the threads used or wanted, how much they waited for others, as shares of the window, and
/// whether both is next to nothing.
fn rests(e: &Evidence<'_>) -> (f64, f64, bool) {
    let b = e.bottleneck;
    let l = &b.ledger;
    let cpus = b.load(l.state_ns(State::OnCpu) + l.state_ns(State::Runnable));
    let pending = b.load(e.pending());
    let rests = b.active_ns() == 0 || (cpus < 0.01 && pending < 0.02);
    // Who was not seen is not known to rest.
    let rests = rests && e.mostly_unseen().is_none();
    (cpus, pending, rests)
}

/// What is waited for all along is no trouble by itself; where callers wait as long, somebody has to look.
pub(super) fn hung(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let (_, _, rests) = rests(e);
    let open = e.requests.unanswered(b.window_ns);
    let stands = (rests && open && b.window_ns >= SOME_TIME_NS)
        .then(|| standing::most(e))
        .flatten();
    found(
        format!(
            "{} requests {}; threads that stand where nobody waits for work: {}",
            e.requests.asked,
            if open {
                "not answered in the window"
            } else {
                "answered, or none"
            },
            stands.as_ref().map_or(0, |c| c.threads),
        ),
        stands.is_some(),
        || {
            let by = stands.expect("it was just asked for");
            let reason = by.reason.and_then(BlockReason::from_name);
            let what = reason.map_or("others", |r| for_what(e, r, &by));
            let at = by.resource.as_deref();
            let mut v = Verdict::new(format!(
                "It hangs: {} of its callers got no answer in the whole recording, and {} of its threads \
                 stood in {} all the time and waited for {what}{}, while the others waited for work",
                e.requests.asked,
                by.threads,
                if by.through == by.function {
                    by.function.to_string()
                } else {
                    format!("{} (through {})", by.function, by.through)
                },
                at.map_or_else(String::new, |r| format!(" ({r})")),
            ))
            .of(e, State::Blocked, by.ns, Some(&by));
            v.share = by.ns as f64 / (by.threads as f64 * b.window_ns as f64).max(1.0);
            v.whole = "the time of these threads".into();
            v.confidence = "that no thread moved is counted; suspected: callers that only want to be told of \
                            news (long polls, streams) look the same, if those threads have no part in it"
                .into();
            v.bound = "all of the callers' time, if that wait is what they wait for".into();
            v.with(e.requests.mean_ns().map(|ns| {
                format!(
                    "The callers have waited {} so far, on average",
                    words::time(ns)
                )
            }))
            .with(e.requests.upstream.as_ref().map(|u| {
                u.mean_ns().map_or_else(
                    || format!("It awaits answers of {} itself meanwhile", u.name),
                    |mean| {
                        format!(
                            "It awaits answers itself meanwhile: {} requests to {}, {} so far or until \
                             answered, on average",
                            u.requests,
                            u.name,
                            words::time(mean)
                        )
                    },
                )
            }))
        },
    )
}

pub(super) fn idle(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let (cpus, pending, rests) = rests(e);
    found(
        format!(
            "computing or ready to: {:.2} % of one CPU; waits for others: {:.1} % of the window",
            cpus * 100.0,
            pending * 100.0
        ),
        rests,
        || {
            let all = if b.active_ns() == 0 {
                ": not one of them left the place where it waits, so if a request is stuck, nothing \
                 came that could end its wait"
            } else {
                ""
            };
            let rest = e.causes.first();
            let rest = rest.filter(|c| c.share > 0.5 && !c.function.starts_with('['));
            Verdict::new(format!(
                "No bottleneck found: the process is idle; its threads wait for work, for events \
                 or for a time that they chose themselves{all}"
            ))
            .healthy()
            .with(open_all_along(e))
            .with(rest.map(|c| {
                format!(
                    "Were it expected to work: it is {} in {} {} of the time of the threads that \
                     move at all",
                    c.reason.map_or(c.state.name().into(), |r| format!(
                        "{} ({r})",
                        c.state.name()
                    )),
                    c.function,
                    words::share(c.share)
                )
            }))
        },
    )
}

/// Requests that were open in all of the window, where nothing else is known to be wrong.
fn open_all_along(e: &Evidence<'_>) -> Option<String> {
    let r = e.requests;
    let mean = r
        .at_most_ns()
        .filter(|_| r.unanswered(e.bottleneck.window_ns))?;
    Some(format!(
        "{} requests of others got no answer in the whole recording ({} so far, on average){}: nothing is wrong \
         where they wait for news (long polls, streams); else it hangs",
        r.asked,
        words::time(mean),
        r.upstream.as_ref().map_or_else(String::new, |u| format!(
            ", while it awaits answers of {} itself",
            u.name
        )),
    ))
}

/// Mean time to answer that a person takes for at once, ns (Nielsen's 0.1 s).
const AT_ONCE_NS: u64 = 100_000_000;

pub(super) fn healthy(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let busiest = b.load(b.busiest_ns);
    let computed = b.ledger.state_ns(State::OnCpu);
    let cpus = b.load(computed);
    let lasting = b.lasting_ns * 5 >= computed * 4;
    let pending = b.load(e.pending());
    let mean = e.requests.mean_ns();
    let quick = (e.requests.at_most_ns()).is_some_and(|ns| ns < AT_ONCE_NS);
    let slow = mean.is_some_and(|ns| ns >= AT_ONCE_NS);
    let upstream = e.requests.upstream.as_ref();
    let late = (upstream.and_then(|u| u.mean_ns())).is_some_and(|ns| ns >= AT_ONCE_NS);
    let slow = slow || (mean.is_none() && late);
    let slept = e.share(e.blocked(BlockReason::Timer));
    // Whose threads hardly move may have polled for most of what is left.
    let polled = e.share(e.blocked(BlockReason::Poll));
    let seldom = quick && b.load(e.blocked(BlockReason::Poll)) < 0.25;
    let room = busiest < 0.5 && (cpus < 0.5 || lasting);
    let waits = pending < 0.05 || (quick && pending < 0.25);
    let waits = waits && e.mostly_unseen().is_none() && b.load(e.unnamed()) < 0.25;
    let answers = mean.map_or_else(String::new, |ns| {
        format!(
            "; {} requests answered {} on average",
            e.requests.asked,
            match ns {
                0 => "sooner than could be seen".to_string(),
                ns => format!("in {}", words::time(ns)),
            }
        )
    });
    found(
        format!(
            "busiest thread: {:.0} % of the window; {cpus:.2} CPUs; waits for others: {:.1} % of the \
             window{answers}",
            busiest * 100.0,
            pending * 100.0
        ),
        room && waits
            && !slow
            && slept < 0.5
            && (polled < 0.5 || seldom || follows(e) || answers_itself(e)),
        || {
            let by = e.causes.iter().find(|c| !c.function.starts_with('['));
            Verdict::new(format!(
                "No bottleneck found: the process has room left; its busiest thread computes {} of \
                 the time, and it waits for others {} of the time{answers}",
                words::share(busiest),
                words::share(pending)
            ))
            .healthy()
            .with(by.map(|c| {
                format!(
                    "Of what it does beside, the largest part is in {} ({}, {})",
                    c.function,
                    c.reason.map_or(c.state.name().into(), |r| format!(
                        "{}, {r}",
                        c.state.name()
                    )),
                    words::share(c.share)
                )
            }))
        },
    )
}

/// Whether looks at connections saw it answer at once, and saw it ask nobody, or have answers of others to wait for
/// a small part of the time that it polled only: it is mostly for work that it polls.
fn answers_itself(e: &Evidence<'_>) -> bool {
    const PART: u64 = 4;
    let r = e.requests;
    let polled = e.blocked(BlockReason::Poll);
    let awaited = r.upstream.as_ref().map_or(0, |u| u.awaited_ns);
    let seldom = awaited == 0 || awaited.max(r.owed_ns) < polled / PART;
    r.asked >= FEW && r.mean_ns().is_some_and(|ns| ns < AT_ONCE_NS) && seldom
}

/// Whether requests on connections were followed, so that waits without one in flight are known.
fn follows(e: &Evidence<'_>) -> bool {
    e.recording.domain.backend == "ebpf"
}

/// Waits for what others bring who are not measured: work, as far as can be told, and too little of it is
/// their doing.
pub(super) fn input(e: &Evidence<'_>) -> Found {
    let (reason, all) = e.main_wait();
    let by = largest(e.causes, State::Blocked, Some(reason));
    let of_input = reason == BlockReason::Pipe && by.is_some_and(|c| is_standard_input(e, c));
    let ns = match of_input {
        true => by.map_or(0, |c| c.ns),
        false if [BlockReason::Pipe, BlockReason::Lock].contains(&reason) => e.brought(reason),
        false => 0,
    };
    let share = e.share(ns);
    found(
        format!(
            "waits for {}: {}",
            match of_input {
                true => "standard input",
                false => "what somebody brings who is not measured",
            },
            words::share(share)
        ),
        share >= 0.5 && ns * 2 >= all,
        || {
            let (what, whoever) = match by.and_then(|c| c.resource.as_deref()) {
                _ if of_input => ("its standard input".into(), "writes it"),
                Some(through) => (format!("what others bring by {through}"), "brings it"),
                None => ("what others bring".into(), "brings it"),
            };
            let v = Verdict::new(format!(
                "No bottleneck found in this process: it waits for {what} {} of active time{}; if that \
                 is too slow, the cause is whoever {whoever}",
                words::share(share),
                mostly(by)
            ))
            .because(reason.name())
            .of(e, State::Blocked, ns, by)
            .healthy()
            .outside()
            .with(told_of_enders(&e.enders(reason)));
            match reason {
                BlockReason::Lock => v.suspected(
                    "a condition or semaphore of another process may also stand for something that is \
                     to be given back",
                ),
                _ => v,
            }
        },
    )
}

/// Whether a cause's waits are for a pipe at descriptor 0, the only one that a pipe's name is without.
fn is_standard_input(e: &Evidence<'_>, c: &Cause) -> bool {
    let name = c.resource.as_deref().unwrap_or_default();
    name.starts_with("pipe:[")
        && !name.contains("(fd")
        && e.mostly_passes(c, |kind, name| {
            kind == FrameKind::Kernel && name.contains("pipe_read")
        })
}

/// Threads and processes that come and go between two looks: what they wait for is not known, and those that are
/// there all the time may do nothing but start them.
pub(super) fn brief(e: &Evidence<'_>) -> Found {
    let unseen = e.mostly_unseen();
    let seen = e.bottleneck.ledger.state_ns(State::OnCpu);
    let times = format!(
        "{} computed by threads that lived too briefly to be seen, {} by others",
        words::time(unseen.unwrap_or(0)),
        words::time(seen)
    );
    found(times.clone(), unseen.is_some(), || {
        let mut v = Verdict::new(format!(
            "Nothing firm can be said: most of what it does is done by threads or processes that live too \
             briefly to be looked at ({times}); a recording by eBPF or perf events sees each of them"
        ));
        v.share = e.bottleneck.load(unseen.unwrap_or(0));
        v.whole = "one CPU".into();
        v.confidence = "that they computed is counted; what they waited for is not known".into();
        v.bottleneck = false;
        v
    })
}

pub(super) fn sleeping(e: &Evidence<'_>) -> Found {
    let ns = e.blocked(BlockReason::Timer);
    let share = e.share(ns);
    found(
        format!("sleeping: {}", words::share(share)),
        share >= 0.5,
        || {
            let by = largest(e.causes, State::Blocked, Some(BlockReason::Timer));
            let says = |before: &str| {
                Verdict::new(format!(
                    "{before}t sleeps by its own clock {} of active time{}: harmless where nobody \
                     waits for it, the cause if somebody does",
                    words::share(share),
                    mostly(by)
                ))
                .because(BlockReason::Timer.name())
                .of(e, State::Blocked, ns, by)
                .with(by.and_then(|c| lengths(e, c, BlockReason::Timer)))
                .with(by.and_then(|c| holds_up_a_loop(e, c)))
                .with(tries_again(e))
            };
            // Who starts a command waits for its end.
            if e.recording.domain.target.starts_with("command") {
                return says("I");
            }
            says("No bottleneck found, as far as is known who waits for whom: i")
                .healthy()
                .suspected("no request was seen in flight, and no other thread waits for it")
        },
    )
}

/// A sleep below a step of a Python event loop: the loop waits with it.
fn holds_up_a_loop(e: &Evidence<'_>, c: &Cause) -> Option<String> {
    // asyncio's steps of a task, its own in C, and its callbacks.
    const STEPS: [&str; 3] = ["task_step", "Handle._run", "Task.__step"];
    let in_a_step = |_, name: &str| STEPS.iter().any(|s| name.starts_with(s));
    e.mostly_passes(c, in_a_step).then(|| {
        "It sleeps inside an event loop's step: all other tasks of that loop stand still meanwhile (await a sleep \
         of the loop's own, or give such calls to a thread)"
            .into()
    })
}

pub(super) fn events(e: &Evidence<'_>) -> Found {
    let ns = e.blocked(BlockReason::Poll);
    let share = e.share(ns);
    found(
        format!("waiting for events: {}", words::share(share)),
        share >= 0.5,
        || {
            let by = largest(e.causes, State::Blocked, Some(BlockReason::Poll));
            if let Some(says) = by.and_then(|c| whom_to_ask(e, c)) {
                return Verdict::new(format!(
                    "It waits {OWN_LOCKS}, {} of active time{}",
                    words::share(share),
                    mostly(by)
                ))
                .because(BlockReason::Poll.name())
                .of(e, State::Blocked, ns, by)
                .with(Some(says));
            }
            let v = |says: &str| {
                Verdict::new(format!(
                    "{}t waits for events {} of active time{}: {says}",
                    if follows(e) {
                        "No bottleneck found: i"
                    } else {
                        "I"
                    },
                    words::share(share),
                    mostly(by)
                ))
                .because(BlockReason::Poll.name())
                .of(e, State::Blocked, ns, by)
            };
            if follows(e) && !e.polls(true).is_empty() {
                return v(
                    "what callers asked before is not answered meanwhile, as where they wait for news",
                )
                .healthy();
            }
            if follows(e) {
                return v("no request is in flight on its connections meanwhile").healthy();
            }
            v("for replies of others if requests are in flight, for work if not")
                .suspected("which of the two is not known")
        },
    )
}

pub(super) fn spread(e: &Evidence<'_>) -> Found {
    let top: Vec<String> = e
        .causes
        .iter()
        .take(3)
        .map(|c| {
            format!(
                "{} {} in {}",
                words::share(c.share),
                c.reason.map_or(c.state.name(), |r| r),
                c.function
            )
        })
        .collect();
    found(top.join("; "), true, || {
        let mut v = Verdict::new(format!(
            "No single cause explains the time; the largest parts are {}",
            words::list(&top)
        ));
        v.share = e.causes.first().map_or(0.0, |c| c.share);
        v.confidence = "the states' shares are counted, the functions' are sampled".into();
        v.bottleneck = false;
        v
    })
}
