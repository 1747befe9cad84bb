//! Rules about recordings that leave little to say, and about processes that hang.

use wallscope_model::{BlockReason, State};

use super::rest::does_nothing;
use super::stalled::most_stalled;
use super::verdict::{Finding, Spent, Verdict, WAIT, found, resource_of, subject};
use super::wait_target::wait_target;
use crate::evidence::{Cause, Evidence};
use crate::thresholds::{MIN_WINDOW_NS, UNSEEN_SHARE};
use crate::words;

/// No thread existed.
pub(super) fn empty(e: &Evidence<'_>) -> Finding {
    let threads = e.recording.contexts.len();
    found(
        format!("{threads} threads"),
        (threads == 0).then(|| {
            Verdict::new("No thread of the target existed in the recording".into()).healthy()
        }),
    )
}

/// Much of the time was not seen.
pub(super) fn unseen(e: &Evidence<'_>) -> Finding {
    let share = e.share(e.bottleneck.ledger.unknown_ns());
    found(
        format!("not seen: {}", words::share(share)),
        (share >= UNSEEN_SHARE).then(|| {
            let mut verdict = Verdict::new(format!(
                "{} of the time was not seen, so no cause can be named",
                words::share(share)
            ));
            verdict.share = share;
            verdict.state = Some(State::Unknown);
            verdict.confidence = "none beyond that".into();
            verdict
        }),
    )
}

/// Nothing moves while callers wait.
pub(super) fn hung(e: &Evidence<'_>) -> Finding {
    let open = e.requests.unanswered(e.bottleneck.window_ns);
    let hangs = does_nothing(e) && open && e.bottleneck.window_ns >= MIN_WINDOW_NS;
    let stalled = hangs.then(|| most_stalled(e)).flatten();
    let looked_at = format!(
        "{} requests {}; threads that stand where nobody waits for work: {}",
        e.requests.asked,
        match open {
            true => "not answered in the window",
            false => "answered, or none",
        },
        stalled.as_ref().map_or(0, |c| c.threads),
    );
    Finding {
        looked_at,
        verdict: stalled.map(|by| hung_verdict(e, &by)),
    }
}

fn hung_verdict(e: &Evidence<'_>, by: &Cause) -> Verdict {
    let reason = by.reason.and_then(BlockReason::from_name);
    let target = reason.map_or("other threads", |r| wait_target(e, r, by));
    let place = match by.through == by.function {
        true => by.function.to_string(),
        false => format!("{} (through {})", by.function, by.through),
    };
    let mut verdict = Verdict::new(format!(
        "It hangs: {} in {place} for {target}{} all the time, and {} callers got no answer",
        words::clause(&subject(Some(by), WAIT)),
        resource_of(Some(by)),
        e.requests.asked,
    ))
    .of(e, Spent::blocked(by.ns, Some(by)));
    let lives = by.threads as f64 * e.bottleneck.window_ns as f64;
    verdict.share = by.ns as f64 / lives.max(1.0);
    verdict.whole = "the time of these threads".into();
    verdict.confidence = "that no thread moved is counted; suspected: callers that only want to be told of \
                          news (long polls, streams) look the same, if those threads have no part in it"
        .into();
    verdict.bound = "all of the callers' time, if that wait is what they wait for".into();
    let mean = e.requests.mean_ns();
    verdict
        .assuming("its callers do not just want to be told of news (long polls, streams)")
        .measured(
            mean.map(|ns| format!("callers have waited {} so far on average", words::time(ns))),
        )
        .rooted(awaits_answers(e))
}

/// Answers that the process awaits itself meanwhile.
fn awaits_answers(e: &Evidence<'_>) -> Option<String> {
    let upstream = e.requests.upstream.as_ref()?;
    Some(match upstream.mean_ns() {
        None => format!("it awaits answers of {} itself meanwhile", upstream.name),
        Some(mean) => format!(
            "it awaits answers itself: {} requests to {}, {} each on average so far",
            upstream.requests,
            upstream.name,
            words::time(mean)
        ),
    })
}

/// Threads and processes come and go between two polls. Their waits are unknown, and the threads that live all the
/// time may do nothing but start them.
pub(super) fn brief(e: &Evidence<'_>) -> Finding {
    let unseen = e.mostly_unseen();
    let times = format!(
        "{} computed by short-lived threads, {} by others",
        words::time(unseen.unwrap_or(0)),
        words::time(e.bottleneck.on_cpu_ns())
    );
    found(times.clone(), unseen.is_some().then(|| {
        let mut verdict = Verdict::new(format!(
            "No cause can be named: most work is done by threads or processes that live too briefly to be \
             polled ({times})"
        ));
        verdict.share = e.bottleneck.load(unseen.unwrap_or(0));
        verdict.whole = "one CPU".into();
        verdict.confidence =
            "that they computed is counted; what they waited for is not known".into();
        verdict.bottleneck = false;
        verdict.advised(Some("record with eBPF or perf events, which see each of them".into()))
    }))
}

/// Maximum number of causes that are listed if none stands out.
const MAX_CAUSES: usize = 3;

/// No single cause explains the time.
pub(super) fn spread(e: &Evidence<'_>) -> Finding {
    let top: Vec<String> = (e.causes.iter().take(MAX_CAUSES))
        .map(|c| {
            let what = c.reason.unwrap_or(c.state.name());
            format!("{} {what} in {}", words::share(c.share), c.function)
        })
        .collect();
    found(
        top.join("; "),
        true.then(|| {
            let mut verdict = Verdict::new(format!(
                "No single cause explains the time; the largest parts: {}",
                words::list(&top)
            ));
            verdict.share = e.causes.first().map_or(0.0, |c| c.share);
            verdict.confidence =
                "the states' shares are counted, the functions' are sampled".into();
            verdict.bottleneck = false;
            verdict
        }),
    )
}
