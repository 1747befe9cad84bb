//! Rules about a process that lets its callers wait.

use std::collections::HashSet;

use wallscope_model::{BlockReason, State};

use super::details::{
    asked_and_answered, beside, for_own_lock, length_words, main_own_lock, own_holder, tries_again,
    waker_words,
};
use super::tasks::sleeping_tasks;
use super::verdict::{Finding, SLEEP, Spent, Verdict, WAIT, found, own_timer, place, subject};
use crate::evidence::{Cause, Evidence, Polls, largest};
use crate::knowledge::Known;
use crate::thresholds::{CAUSE_SHARE, MOSTLY_ENDED, MOSTLY_SHARE, OWED_OF_SLEEP};
use crate::words;

/// Time slept with requests in flight, ns.
fn slept_in_flight(e: &Evidence<'_>) -> u64 {
    e.in_flight(|r| r == BlockReason::Timer)
}

/// Threads sleep by their own clock while callers wait.
pub(super) fn sleep_in_request(e: &Evidence<'_>) -> Finding {
    let in_flight = slept_in_flight(e);
    let while_owing = slept_while_owing(e).filter(|all| *all > in_flight);
    let (ns, least) = match while_owing {
        Some(ns) => (ns, MOSTLY_SHARE),
        None => (in_flight, CAUSE_SHARE),
    };
    let share = e.share(ns);
    found(
        format!("slept with requests in flight: {}", words::share(share)),
        (share >= least && ns >= e.main_wait().1).then(|| {
            let by = largest(&e.causes, State::Blocked, Some(BlockReason::Timer));
            let guessed = while_owing.is_some();
            let verdict = Verdict::new(format!(
                "{}{} {} while callers wait for an answer",
                subject(by, SLEEP),
                place(by, ns),
                own_timer(by)
            ))
            .because(BlockReason::Timer.name())
            .of(e, Spent::blocked(ns, by))
            .measured(guessed.then(|| asked_and_answered(e)).flatten())
            .rooted(tries_again(e))
            .advised(by.map(|c| format!("remove or shorten the sleep in {}", c.function)));
            match guessed {
                true => verdict
                    .suspected(
                        "requests were not followed; it owed answers for as long as it slept",
                    )
                    .assuming("callers wait for the thread that sleeps"),
                false => verdict,
            }
        }),
    )
}

/// Time slept, ns, if polled connections show that the process owed answers for about as long and hardly awaited any
/// itself. `None` if requests were followed.
fn slept_while_owing(e: &Evidence<'_>) -> Option<u64> {
    let slept = e.blocked(BlockReason::Timer);
    let owed = e.requests.owed_ns;
    let upstream = e.requests.upstream.as_ref();
    let asks = upstream.is_some_and(|u| u.awaited_ns * 2 > owed);
    let as_long = owed as f64 >= OWED_OF_SLEEP * slept as f64;
    (!e.follows_requests() && e.answers() && !asks && as_long).then_some(slept)
}

/// Polls that other threads of the process end. Servers of many processes wait so for each other's locks: the waker
/// holds the wanted thing, and reports by a signal or an event that it is free.
pub(super) fn colleagues(e: &Evidence<'_>) -> Finding {
    let (polled, handed) = (e.polled_in_flight(), e.handed());
    let share = e.share(polled);
    found(format!(
            "polled with requests in flight: {}, {} ended by its own threads",
            words::share(share),
            words::share(e.share(handed))
        ), (share >= CAUSE_SHARE
            && handed * 2 >= polled
            && polled >= slept_in_flight(e)
            && polled >= e.main_wait().1
            && polled > 0).then(|| {
            let in_flight = [Polls::ForAnswers, Polls::WhileOwing].map(|which| e.polls(which));
            let main = main_place(e, in_flight.concat());
            let (by, lock) = (main.by, main.lock);
            let ended = e.wakers(BlockReason::Poll);
            let says = match lock {
                Some(lock) => waits_for_own_lock(lock),
                None => format!(
                    "{}{} for its own threads or processes (an event or a signal, as for the program's own lock) with \
                     requests in flight",
                    subject(by, WAIT),
                    place(by, polled)
                ),
            };
            let mut verdict = Verdict::new(says)
                .because(BlockReason::Poll.name())
                .of(e, Spent::blocked(main.ns, by))
                .of_waits(match lock {
                    Some(_) => main.samples,
                    None => e.blocked_samples(BlockReason::Poll).collect(),
                });
            verdict.holder = ended.main();
            verdict
                .with(waker_words(&ended))
                .advised(lock.map(|lock| lock.meaning.into()))
                .measured(by.and_then(|c| length_words(e, c, BlockReason::Poll)))
                .with(beside(e))
        }))
}

fn waits_for_own_lock(lock: &Known) -> String {
    format!(
        "Server processes with requests to answer wait {}",
        for_own_lock(lock)
    )
}

/// The main place of some polls.
struct MainPlace<'e> {
    by: Option<&'e Cause>,
    /// The server's own lock that is waited for there.
    lock: Option<&'static Known>,
    /// Time of the polls there, ns: those for that lock, or all of them without one.
    ns: u64,
    /// The samples of that time.
    samples: Vec<u32>,
}

/// The cause with most time of `samples`, which are polls. Waits for a server's own lock come first where they are
/// [`CAUSE_SHARE`] of these polls: the lock's holder waits in a request, too.
fn main_place<'e>(e: &'e Evidence<'_>, samples: Vec<u32>) -> MainPlace<'e> {
    let all = e.time(&samples);
    let chosen: HashSet<u32> = samples.iter().copied().collect();
    let of = |c: &Cause| -> Vec<u32> {
        let ours = c.samples.iter().filter(|i| chosen.contains(i));
        ours.copied().collect()
    };
    let ns = |c: &Cause| e.time(&of(c));
    let polls = || e.causes.iter().filter(|c| c.is_wait_for(BlockReason::Poll));
    let locked = polls()
        .filter_map(|c| Some((c, main_own_lock(e, c)?)))
        .max_by_key(|(c, _)| ns(c))
        .filter(|(c, _)| ns(c) as f64 >= CAUSE_SHARE * all as f64);
    match locked {
        Some((c, lock)) => MainPlace {
            by: Some(c),
            lock: Some(lock),
            ns: ns(c),
            samples: of(c),
        },
        None => MainPlace {
            by: polls().max_by_key(|c| ns(c)),
            lock: None,
            ns: all,
            samples,
        },
    }
}

/// Polls with requests of callers in flight, and none of the process's own: an event loop that lets
/// its callers wait, for a time of its own or for an event of neither a peer nor its threads.
pub(super) fn held(e: &Evidence<'_>) -> Finding {
    let ns = e.held();
    let share = e.share(ns);
    found(
        format!(
            "polled with requests of others in flight, and none of its own: {}",
            words::share(share)
        ),
        (share >= CAUSE_SHARE
            && ns >= slept_in_flight(e)
            && ns >= e.main_wait().1
            && ns >= e.polled_for_answers())
        .then(|| {
            let owing = e.polls(Polls::WhileOwing);
            let ended = e.wakers_of(&owing);
            let main = main_place(e, owing);
            let (by, lock) = (main.by, main.lock);
            let ns = match lock {
                Some(_) => main.ns,
                None => ns,
            };
            let place = place(by, ns);
            let says = if let Some(lock) = lock {
                waits_for_own_lock(lock)
            } else if ended.timed_out() >= MOSTLY_ENDED {
                format!(
                    "Callers wait for its answers while it polls until a time that it set itself (a sleep or delay in \
                     its event loop){place}"
                )
            } else {
                format!(
                    "Callers wait for its answers while it polls for events, with no request of its own in flight{place}"
                )
            };
            Verdict::new(says)
            .because(BlockReason::Poll.name())
            .of(e, Spent::blocked(ns, by))
            .of_waits(main.samples)
            .measured(asked_and_answered(e))
            .with(waker_words(&ended))
            .rooted(lock.map(own_holder))
            .rooted(sleeping_tasks(e))
            .advised(lock.map(|lock| lock.meaning.into()))
            .with(beside(e))
        }),
    )
}
