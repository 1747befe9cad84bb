//! Rules about waiting for answers: of a slow upstream, or of a source of work.

use wallscope_model::{BlockReason, State};

use super::details::{beside, length_words, saturated, unsent_requests, waker_words};
use super::verdict::{Finding, Spent, Verdict, WAIT, found, place, subject};
use super::wait_target::{TO_CONNECT, TO_READ, TO_RECEIVE, TO_TAKE, resolves, wait_target};
use crate::evidence::tasks::{ANSWER, TaskWaits};
use crate::evidence::{Cause, ENDED_BY_OTHERS, Evidence, Upstream, Wakers, largest};
use crate::frames::Side;
use crate::knowledge::takes_work;
use crate::thresholds::{
    ANSWERS_OF_FUTURES, AT_ONCE_NS, CAUSE_SHARE, MANY_EACH, MEASURED_PART, MIN_REQUESTS,
    MOSTLY_SHARE, ONE_FOR_ONE, QUEUE_FACTOR, QUIET_CPUS, SHORT_ANSWER_NS, WAKER_SHARE,
};
use crate::words;

/// Main reason of waits for answers over connections, and their time in all, ns.
fn awaited(e: &Evidence<'_>) -> (BlockReason, u64) {
    use BlockReason::{Lock, Network, Pipe, Poll};
    let network = e.blocked(Network);
    let unix = e.in_flight(|r| r == Pipe);
    let polled = (e.polled_for_answers()).saturating_sub(e.handed_of_answers());
    let results = results_of_upstream(e);
    let (reason, _) = [
        (Network, network),
        (Poll, polled),
        (Pipe, unix),
        (Lock, results),
    ]
    .into_iter()
    .fold((Network, 0), |a, b| if b.1 > a.1 { b } else { a });
    // The thread that polls for those results waits for the same answers at the same time.
    (reason, (network + unix + polled).max(results))
}

/// Waits for results of futures, ns, where another thread asks a peer for them: clients that poll in one thread for
/// all. Answers must have been awaited for about as long.
fn results_of_upstream(e: &Evidence<'_>) -> u64 {
    let results = e.awaited_results();
    let answers = (e.requests.upstream.as_ref()).map_or(0, |u| u.awaited_ns);
    match answers as f64 >= ANSWERS_OF_FUTURES * results as f64 {
        true => results,
        false => 0,
    }
}

/// The process asks another one for work, and no caller asks it for anything: it has nothing to do.
pub(super) fn fed(e: &Evidence<'_>) -> Finding {
    use BlockReason::{Network, Pipe, Poll};
    let asks_for_work = |reason: BlockReason| {
        let by = largest(&e.causes, State::Blocked, Some(reason))?;
        e.mostly_passes(by, |side, name| side == Side::User && takes_work(name))
            .then_some((reason, by))
    };
    let by = [Network, Poll, Pipe].into_iter().filter_map(asks_for_work);
    let by = by.max_by_key(|(_, by)| by.ns);
    let ns = by.map_or(0, |(_, by)| by.ns);
    let share = e.share(ns);
    let looked_at = format!(
        "asked others for work: {}; asked itself {} times",
        words::share(share),
        e.requests.asked
    );
    let verdict = by
        .filter(|_| share >= MOSTLY_SHARE && e.requests.asked == 0)
        .map(|(reason, by)| {
            let upstream = e.requests.upstream.as_ref().map(|p| p.name.clone());
            let source = upstream.or_else(|| by.resource.as_deref().map(str::to_owned));
            let mut verdict = Verdict::new(format!(
                "No bottleneck found in this process: it waits for work from {} {} of active time{}; the \
                 producer of that work sets the pace",
                source.as_deref().unwrap_or("others"),
                words::share(share),
                place(Some(by), ns)
            ))
            .because(reason.name())
            .of(e, Spent::blocked(ns, Some(by)))
            .healthy()
            .outside();
            verdict.resource = source.or(verdict.resource);
            verdict
        });
    Finding { looked_at, verdict }
}

/// A hint that the process may be waiting for work, not for answers. It is given if no caller asked the process for
/// anything, it hardly computes, and answers take long. Only an engineer with knowledge of the service can tell the
/// two apart.
fn may_be_work(e: &Evidence<'_>) -> Option<String> {
    let late = (e.requests.upstream.as_ref())
        .and_then(Upstream::mean_ns)
        .is_some_and(|ns| ns >= AT_ONCE_NS);
    let quiet = e.bottleneck.busy_cpus() < QUIET_CPUS;
    (late && quiet && e.requests.asked == 0).then(|| {
        "if it asks for work (a blocking pop of a queue, a long poll), it has none to do, and nothing is wrong: \
         no caller asked it for anything"
            .into()
    })
}

/// The thing to change where requests queue before they are sent on.
const LET_MORE_RUN: &str = "let more of its requests run at a time (more connections or threads), if the other end can \
                            take them";

/// A queue in this process: its callers wait much longer than the answers of `peer` take, though it
/// asks about once for each of them. Few requests to the peer may run at a time.
fn queue_here(e: &Evidence<'_>, peer: &Upstream) -> Option<String> {
    let r = &e.requests;
    let mean = r.mean_ns().filter(|_| r.asked >= MIN_REQUESTS)?;
    let each = peer.requests as f64 / r.asked as f64;
    let longer = mean as f64 / peer.mean_ns()?.max(1) as f64;
    let one_for_one = (ONE_FOR_ONE.0..ONE_FOR_ONE.1).contains(&each);
    (one_for_one && longer >= QUEUE_FACTOR).then(|| {
        format!(
            "its own callers wait {}, {longer:.1} times as long: they queue in this process (too few connections \
             or threads)",
            words::time(mean)
        )
    })
}

/// The thing to change where requests are many and short.
const ASK_FOR_MORE: &str =
    "ask for more at once (a join, a batch), or ask for several things in parallel";

/// Many short requests to `peer` for each request of a caller: most of the time is round trips.
fn many_each(e: &Evidence<'_>, peer: &Upstream) -> Option<f64> {
    let asked = e.requests.asked_askers;
    let each = peer.requests as f64 / asked.max(1) as f64;
    (asked >= MIN_REQUESTS && each >= MANY_EACH && is_short(peer)?).then_some(each)
}

/// Whether the answers of `peer` are so short that most of their time is the round trip; `None`: not known.
fn is_short(peer: &Upstream) -> Option<bool> {
    Some(peer.mean_ns()? <= SHORT_ANSWER_NS)
}

/// Answers of others are awaited, in the thread itself or through a future.
pub(super) fn upstream(e: &Evidence<'_>) -> Finding {
    let (reason, ns) = awaited(e);
    let share = e.share(ns);
    let by = largest(&e.causes, State::Blocked, Some(reason));
    // Data that it sends is no question: its receiver is slow.
    let sends =
        by.is_some_and(|c| [TO_TAKE, TO_READ, TO_RECEIVE].contains(&wait_target(e, reason, c)));
    found(
        format!("answers of others awaited: {}", words::share(share)),
        (share >= CAUSE_SHARE && ns > longest_other_wait(e) && !sends)
            .then(|| AnswerWaits::new(e, reason, ns).verdict()),
    )
}

/// The longest wait that others have to end, without those for answers, ns.
fn longest_other_wait(e: &Evidence<'_>) -> u64 {
    let results = results_of_upstream(e);
    let reasons = ENDED_BY_OTHERS.iter();
    let others = reasons.filter(|r| !matches!(r, BlockReason::Network | BlockReason::Pipe));
    let time = |r: &BlockReason| match r {
        BlockReason::Lock => e.blocked(*r).saturating_sub(results),
        r => e.blocked(*r),
    };
    others.map(time).max().unwrap_or(0)
}

/// End of the name of a peer on a socket with neither a name nor an address.
const NAMELESS: &str = " at unix socket without a name";

/// Waits for answers, with the facts known of the peer.
struct AnswerWaits<'e, 'r> {
    e: &'e Evidence<'r>,
    reason: BlockReason,
    ns: u64,
    by: Option<&'e Cause>,
    peer: Option<&'e Upstream>,
    wakers: Wakers,
    /// Names are resolved.
    resolves: bool,
    /// Connections are made.
    connects: bool,
}

impl<'e, 'r> AnswerWaits<'e, 'r> {
    fn new(e: &'e Evidence<'r>, reason: BlockReason, ns: u64) -> AnswerWaits<'e, 'r> {
        let by = largest(&e.causes, State::Blocked, Some(reason));
        AnswerWaits {
            e,
            reason,
            ns,
            by,
            peer: e.requests.upstream.as_ref(),
            wakers: e.wakers(reason),
            resolves: by.is_some_and(|c| resolves(e, c)),
            connects: by.is_some_and(|c| wait_target(e, reason, c) == TO_CONNECT),
        }
    }

    fn verdict(&self) -> Verdict {
        let e = self.e;
        let measured = self.peer_is_measured();
        let mut verdict = Verdict::new(format!(
            "{} for {}{}",
            self.waiting(),
            self.target(),
            match measured {
                true => "",
                false => ", outside this process",
            }
        ))
        .because(self.reason.name())
        .of(e, Spent::blocked(self.ns, self.by))
        .of_waits(e.blocked_samples(self.reason).collect());
        verdict.outside = !measured;
        let of_peer = !self.resolves && !self.connects;
        if let Some(peer) = self.peer.filter(|_| of_peer) {
            verdict.resource = Some(peer.name.clone());
            verdict.look_at = Some(peer.pid).filter(|pid| *pid > 0 && !peer.measured);
            let known = self.mean_of(peer);
            verdict = verdict.measured(known.map(|mean| {
                let mean = words::time(mean);
                format!("{} requests to it took {mean} on average", peer.requests)
            }));
            let queue = known.and_then(|_| queue_here(e, peer));
            if queue.is_some() {
                verdict.cause += ", while its own callers queue here for a turn";
            }
            verdict = verdict
                .advised(queue.is_some().then(|| LET_MORE_RUN.into()))
                .measured(queue);
            // A script has no callers: its own requests follow one another.
            let in_turn = e.requests.asked == 0 && is_short(peer) == Some(true);
            verdict = verdict.advised(known.filter(|_| in_turn).map(|_| ASK_FOR_MORE.into()));
            if let Some(each) = known.and_then(|_| many_each(e, peer)) {
                verdict = verdict
                    .measured(Some(format!(
                        "{each:.0} of these for each request of its own callers"
                    )))
                    .advised(Some(ASK_FOR_MORE.into()));
            }
        }
        verdict = verdict.rooted(self.timed_out());
        if !measured {
            verdict.parts.root = verdict.parts.root.or_else(|| Some(self.outside()));
        }
        let names = "check the name servers of this host (/etc/resolv.conf)";
        verdict
            .advised(self.resolves.then(|| names.into()))
            .with(measured.then(|| waker_words(&self.wakers)).flatten())
            .advised(self.peer.and_then(|p| unsent_requests(e, &p.name)))
            .with(of_peer.then(|| may_be_work(e)).flatten())
            .measured(self.by.and_then(|c| length_words(e, c, self.reason)))
            .measured(saturated(e, BlockReason::Network))
            .with(beside(e))
    }

    /// The tasks that wait, with their function, where a scheduler of the program's own runs them; else the threads.
    fn waiting(&self) -> String {
        let tasks = TaskWaits::new(self.e.recording);
        let answers = |t: &TaskWaits| [ANSWER, "network"].contains(&&*t.reason);
        match tasks.filter(|t| answers(t) && !t.function.is_empty()) {
            Some(t) => format!(
                "{:.1} {}s on average wait in {}",
                t.at_once * t.share,
                t.kind,
                t.function
            ),
            None => format!("{}{}", subject(self.by, WAIT), place(self.by, self.ns)),
        }
    }

    /// The thing that is awaited, in words.
    fn target(&self) -> String {
        let at = self.by.and_then(|c| c.resource.as_deref());
        let at = at.and_then(words::resource);
        match (self.peer, at) {
            (_, at) if self.resolves => {
                let at = at.map_or_else(String::new, |at| format!("; {at}"));
                format!("name resolution (DNS{at})")
            }
            (_, at) if self.connects => {
                let at = at.map_or_else(String::new, |at| format!(" ({at})"));
                format!("{TO_CONNECT}{at}, which no listener accepts")
            }
            (Some(peer), _) => {
                let pid = match peer.pid {
                    0 => String::new(),
                    pid => format!(" (pid {pid})"),
                };
                let name = peer.name.trim_end_matches(NAMELESS);
                format!("the answers of {name}{pid}")
            }
            (None, Some(at)) => format!("answers over the network ({at})"),
            (None, None) => "answers over the network".to_string(),
        }
    }

    /// Whether the peer is in the recording itself. For datagrams no peer is known, but the sender ended the waits.
    fn peer_is_measured(&self) -> bool {
        match self.peer {
            Some(peer) => peer.measured,
            None => self.wakers.by_measured >= MEASURED_PART,
        }
    }

    /// Mean time of the answers of a peer, ns. Polls miss short-lived connections; if they missed most, the mean is
    /// not known.
    fn mean_of(&self, peer: &Upstream) -> Option<u64> {
        let known = peer.awaited_ns >= self.ns / 2 && peer.requests * 2 >= peer.connections;
        peer.mean_ns().filter(|_| known)
    }

    /// The peer that is not measured, in words.
    fn outside(&self) -> String {
        match self.peer.filter(|_| !self.resolves && !self.connects) {
            Some(peer) if peer.pid > 0 => {
                format!("{} (pid {}) is not in this recording", peer.name, peer.pid)
            }
            Some(peer) => format!("{} is not in this recording", peer.name),
            None => "the other end is not in this recording".into(),
        }
    }

    fn timed_out(&self) -> Option<String> {
        let timed_out = self.wakers.timed_out();
        let network = self.reason == BlockReason::Network || self.resolves;
        (network && timed_out >= WAKER_SHARE).then(|| {
            format!(
                "{} of these waits ended by their own time limit: no answer came",
                words::share(timed_out)
            )
        })
    }
}
