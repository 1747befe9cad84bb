//! Rules about waiting for answers: of a slow upstream, or of who has no work.

use wallscope_model::{BlockReason, FrameKind, State};

use super::causes::largest;
use super::evidence::{Evidence, FEW, WORK};
use super::for_what::{TO_CONNECT, TO_READ, TO_RECEIVE, TO_TAKE, for_what, resolves};
use super::requests::Upstream;
use super::rules_wait::{beside, held_back, lengths, saturated, told_of_enders};
use super::verdict::{Found, Verdict, found, mostly};
use crate::words;

/// Waits for answers over connections: by reason, and in all.
fn awaited(e: &Evidence<'_>) -> (BlockReason, u64) {
    use BlockReason::{Lock, Network, Pipe, Poll};
    let network = e.blocked(Network);
    let unix = e.in_flight(|r| r == Pipe);
    let polled = (e.polled_for_answers()).saturating_sub(e.handed_of_awaited());
    let results = results_of_upstream(e);
    let most = [
        (Network, network),
        (Poll, polled),
        (Pipe, unix),
        (Lock, results),
    ]
    .into_iter()
    .fold((Network, 0), |a, b| if b.1 > a.1 { b } else { a });
    // Who polls for those results waits for the same answers at the same time.
    (most.0, (network + unix + polled).max(results))
}

/// Waits for results of futures, where a thread of its own asks others for them: clients that poll in one thread
/// for all. As long as answers were awaited meanwhile, ns.
fn results_of_upstream(e: &Evidence<'_>) -> u64 {
    const MOST: f64 = 0.5;
    let results = e.awaited_results();
    let answers = (e.requests.upstream.as_ref()).map_or(0, |u| u.awaited_ns);
    match answers as f64 >= MOST * results as f64 {
        true => results,
        false => 0,
    }
}

/// Functions that ask another process for work, and are answered when there is some: the blocking commands
/// of Redis in its clients' libraries, and what takes from Kafka.
const TAKES_WORK: [&str; 15] = [
    "blpop",
    "brpop",
    "blmove",
    "blmpop",
    "brpoplpush",
    "bzpopmin",
    "bzpopmax",
    "bzmpop",
    "xread",
    "xreadgroup",
    // Ruby's client, by which Sidekiq asks.
    "blocking_call",
    "blocking_call_v",
    "rd_kafka_consumer_poll",
    "rd_kafka_consume_batch",
    "rd_kafka_consume_batch_queue",
];

/// Whether a function's own name is one of those, in whatever class and module.
pub(super) fn takes_work(name: &str) -> bool {
    let plain = name.split(['(', '<']).next().unwrap_or_default();
    let own = plain
        .rsplit(['.', ':', ' ', '#'])
        .next()
        .unwrap_or_default();
    TAKES_WORK.iter().any(|t| own.eq_ignore_ascii_case(t))
}

/// Answers that are work: who asks for it without being asked himself has nothing to do.
pub(super) fn fed(e: &Evidence<'_>) -> Found {
    use BlockReason::{Network, Pipe, Poll};
    let of = |reason: BlockReason| {
        let by = largest(e.causes, State::Blocked, Some(reason))?;
        e.mostly_passes(by, |kind, name| {
            kind != FrameKind::Kernel && takes_work(name)
        })
        .then_some((reason, by))
    };
    let by = [Network, Poll, Pipe].into_iter().filter_map(of);
    let by = by.max_by_key(|(_, by)| by.ns);
    let ns = by.map_or(0, |(_, by)| by.ns);
    let share = e.share(ns);
    found(
        format!(
            "asked others for work: {}; asked itself {} times",
            words::share(share),
            e.requests.asked
        ),
        share >= 0.5 && e.requests.asked == 0,
        || {
            let (reason, by) = by.expect("a share of nothing is none");
            let peer = e.requests.upstream.as_ref();
            let whom = peer
                .map(|p| p.name.clone())
                .or_else(|| by.resource.as_deref().map(str::to_owned));
            let mut v = Verdict::new(format!(
                "No bottleneck found in this process: it waits for work that it asks {} for {} of active \
                 time{}; if that is too slow, the cause is whoever brings it there",
                whom.as_deref().unwrap_or("others"),
                words::share(share),
                mostly(Some(by))
            ))
            .because(reason.name())
            .of(e, State::Blocked, ns, Some(by))
            .healthy()
            .outside();
            v.resource = whom.or(v.resource);
            v
        },
    )
}

/// An answer after this time is slow, or was work that was waited for: what a person takes for at once, by
/// Nielsen, ns.
const LATE_NS: u64 = 100_000_000;

/// Whether its waits for answers may be for work: nobody asked it anything, it hardly computes, and answers
/// take long. Which of the two it is, only those who know the service can say.
fn may_be_work(e: &Evidence<'_>) -> Option<String> {
    let b = e.bottleneck;
    let late = (e.requests.upstream.as_ref())
        .and_then(Upstream::mean_ns)
        .is_some_and(|ns| ns >= LATE_NS);
    let quiet = b.load(b.ledger.state_ns(State::OnCpu)) < 0.02;
    (late && quiet && e.requests.asked == 0).then(|| {
        "Nobody was seen to ask this process for anything meanwhile: if what it asks for is work (a \
         blocking pop of a queue, a long poll), it has none to do, and nothing is wrong"
            .into()
    })
}

/// Whether its own callers wait much longer than the answers of `peer` take, where it asks about once for each of
/// them: what is in their way is how few of them may ask at a time.
fn queue_here(e: &Evidence<'_>, peer: &Upstream) -> Option<String> {
    const LONGER: f64 = 2.0;
    let r = e.requests;
    let mean = r.mean_ns().filter(|_| r.asked >= FEW)?;
    let each = peer.requests as f64 / r.asked as f64;
    let longer = mean as f64 / peer.mean_ns()?.max(1) as f64;
    ((0.5..1.5).contains(&each) && longer >= LONGER).then(|| {
        format!(
            "Its own callers wait {} on average, {longer:.1} times as long: the rest of that they stand in a queue in \
             this process (too few connections, or threads, for so many of them), or its answers come late",
            words::time(mean)
        )
    })
}

/// Of waits, so many ended by threads that are measured are for these.
const MOSTLY: f64 = 0.5;

pub(super) fn upstream(e: &Evidence<'_>) -> Found {
    let (reason, ns) = awaited(e);
    let share = e.share(ns);
    let results = results_of_upstream(e);
    let others = (WORK.iter())
        .filter(|r| !matches!(r, BlockReason::Network | BlockReason::Pipe))
        .map(|r| match r {
            BlockReason::Lock => e.blocked(*r).saturating_sub(results),
            r => e.blocked(*r),
        })
        .max()
        .unwrap_or(0);
    // What it sends is no question: somebody is slow to take it.
    let sends = largest(e.causes, State::Blocked, Some(reason))
        .is_some_and(|c| [TO_TAKE, TO_READ, TO_RECEIVE].contains(&for_what(e, reason, c)));
    found(
        format!("answers of others awaited: {}", words::share(share)),
        share >= 0.20 && ns > others && !sends,
        || {
            let by = largest(e.causes, State::Blocked, Some(reason));
            let peer = e.requests.upstream.as_ref();
            let names = by.is_some_and(|c| resolves(e, c));
            let whom = match (peer, by.and_then(|c| c.resource.as_deref())) {
                (_, at) if names => format!(
                    "names to be resolved (DNS{})",
                    at.map_or_else(String::new, |at| format!("; {at}"))
                ),
                (_, at) if by.is_some_and(|c| for_what(e, reason, c) == TO_CONNECT) => format!(
                    "{TO_CONNECT}{}, which whoever listens there does not take or nobody answers",
                    at.map_or_else(String::new, |at| format!(" ({at})"))
                ),
                (Some(p), _) => format!(
                    "the answers of {}{}",
                    p.name,
                    if p.pid > 0 {
                        format!(" (pid {})", p.pid)
                    } else {
                        String::new()
                    }
                ),
                (None, Some(r)) => format!("answers over the network ({r})"),
                (None, None) => "answers over the network".to_string(),
            };
            let enders = e.enders(reason);
            // Of datagrams no peer is known, but who sent what ended the waits.
            let measured = match peer {
                Some(p) => p.measured,
                None => enders.by_measured >= MOSTLY,
            };
            let mut v = Verdict::new(format!(
                "It waits for {whom} {} of active time{}{}",
                words::share(share),
                mostly(by),
                if measured {
                    ""
                } else {
                    ": the cause is outside this process"
                }
            ))
            .because(reason.name())
            .of(e, State::Blocked, ns, by);
            v.outside = !measured;
            let connects = by.is_some_and(|c| for_what(e, reason, c) == TO_CONNECT);
            if let Some(p) = peer.filter(|_| !names && !connects) {
                v.resource = Some(p.name.clone());
                v.look_at = Some(p.pid).filter(|pid| *pid > 0 && !p.measured);
                // Looks at connections miss those that live shortly: what is known of the others says nothing then.
                if p.awaited_ns >= ns / 2
                    && p.requests * 2 >= p.connections
                    && let Some(mean) = p.mean_ns()
                {
                    v.more.push(format!(
                        "{} requests to it took {} on average",
                        p.requests,
                        words::time(mean)
                    ));
                    v.more.extend(queue_here(e, p));
                }
            }
            let timed_out = enders.timed_out();
            v.with(
                ((reason == BlockReason::Network || names) && timed_out >= 0.10).then(|| {
                    format!(
                        "{} of these waits ended by a time limit of their own: nothing had come",
                        words::share(timed_out)
                    )
                }),
            )
            .with(measured.then(|| told_of_enders(&enders)).flatten())
            .with((!names && !connects).then(|| may_be_work(e)).flatten())
            .with(peer.and_then(|p| held_back(e, &p.name)))
            .with(by.and_then(|c| lengths(e, c, reason)))
            .with(saturated(e, BlockReason::Network))
            .with(beside(e))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::takes_work;

    #[test]
    fn clients_that_ask_for_work_are_known_by_their_functions() {
        assert!(takes_work("RedisClient#blocking_call"));
        assert!(takes_work("Redis.brpop"));
        assert!(!takes_work("RedisClient#call"));
    }
}
