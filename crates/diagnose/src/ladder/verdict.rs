//! The verdict: the first rule of [`VERDICTS`] that applies speaks; the others that apply are named
//! beside it. Thresholds are the rules' own and stand in `when`, with where they come from.

use wallscope_model::State;

use super::causes::{Cause, largest};
use super::evidence::Evidence;
use super::{callers, facts, interval, rules_ask, rules_cpu, rules_rest, rules_tasks, rules_wait};
use crate::words;

/// A paragraph that a tired person can act on, in parts.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The rule that spoke.
    pub rule: &'static str,
    /// Whether something is wrong at all.
    pub bottleneck: bool,
    /// Whether the cause lies outside the process.
    pub outside: bool,
    /// The state that the time is spent in.
    pub state: Option<State>,
    /// Block reason or part, by the contract's name.
    pub reason: Option<&'static str>,
    /// The program's own function that leads there.
    pub function: Option<String>,
    /// What was waited for, where the recording names it.
    pub resource: Option<String>,
    /// Who ended the waits: a thread, and the function in which it did, where known.
    pub holder: Option<String>,
    /// The process that is waited for, where it is on this machine and not in the recording: the
    /// next one to look at.
    pub look_at: Option<u32>,
    /// The cause, in a sentence.
    pub cause: String,
    /// What else is known of it, a sentence each.
    pub more: Vec<String>,
    /// Other rules that apply, beside the one that spoke.
    pub also: Vec<&'static str>,
    /// Share that it explains, of `whole`.
    pub share: f64,
    /// What that is a share of, in words: [`ACTIVE`] unless tasks are what waits.
    pub whole: String,
    /// How sure, and what of it is exact.
    pub confidence: String,
    /// What would change at most if it were gone.
    pub bound: String,
}

/// The whole that verdicts on threads speak of.
pub const ACTIVE: &str = "active wall time";

/// A rule that was tried.
#[derive(Clone, Debug)]
pub struct Fired {
    /// Its name.
    pub rule: &'static str,
    /// When it speaks, and the source of its thresholds.
    pub when: &'static str,
    /// The figures that it looked at.
    pub looked_at: String,
    /// Whether it applied.
    pub applied: bool,
    /// Whether it is the verdict: the first one that applied.
    pub spoke: bool,
}

/// What a rule finds: the figures, and a verdict if they suffice.
pub(super) struct Found {
    pub looked_at: String,
    pub verdict: Option<Verdict>,
}

/// A named rule.
pub struct VerdictRule {
    /// Its name.
    pub name: &'static str,
    /// When it speaks, and the source of its thresholds.
    pub when: &'static str,
    judge: fn(&Evidence<'_>) -> Found,
}

/// Every rule, most urgent first.
pub const VERDICTS: &[VerdictRule] = &[
    VerdictRule {
        name: "empty",
        when: "no thread existed in the window",
        judge: rules_rest::empty,
    },
    VerdictRule {
        name: "unseen",
        when: "10 % of active time or more was not seen: nothing firm can be said of the rest",
        judge: rules_rest::unseen,
    },
    VerdictRule {
        name: "hung",
        when: "in a window of a second or more no thread did anything (as for idle), what others asked the \
               process was open all of it, and threads stood all the time where nobody waits for work",
        judge: rules_rest::hung,
    },
    VerdictRule {
        name: "idle",
        when: "threads did less than 1 % of one CPU's work, and waited for others, or with requests \
               in flight, less than 2 % of the window (below that nobody can tell it from standing \
               still), and no more was done by threads that lived too briefly to be seen",
        judge: rules_rest::idle,
    },
    VerdictRule {
        name: "quota",
        when: "a CPU quota held threads back for 5 % of active time or more (the share at which \
               throttling shows in latency quantiles), and no wait takes four times as long, or a \
               quarter of the quota's periods ran out",
        judge: rules_cpu::quota,
    },
    VerdictRule {
        name: "reclaim",
        when: "threads looked for memory to free, or waited for it, 15 % of active time or more \
               (what the kernel's own PSI calls serious is 10 %)",
        judge: rules_cpu::reclaim,
    },
    VerdictRule {
        name: "spinning",
        when: "functions that are known to spin or yield took 20 % of active time or more, and a third of \
               what was computed (on too few CPUs the spinning is what fills them)",
        judge: rules_cpu::spinning,
    },
    VerdictRule {
        name: "cpu-shortage",
        when: "threads waited for a CPU 25 % of active time or more, at least half as long as they \
               computed (a queue of one for two that run), at least half as long as for anything \
               else, no shorter than for locks, and 5 % of the window or more (who has nothing to do is held up by nobody), \
               each of them where all compute less than 1 % of one CPU",
        judge: rules_cpu::shortage,
    },
    VerdictRule {
        name: "tasks-lock",
        when: "goroutines and their like that began with one function waited for locks, for somebody to take \
               what they send, for a pool's connections, or while they handle a request for what others are to \
               send them, 20 % or more of the time that they spent in the program's own functions, one of them \
               or more at any time",
        judge: rules_tasks::held,
    },
    VerdictRule {
        name: "stuck",
        when: "a thread stood at a lock to the end of a window of a second or more and never got it, \
               which is no way to rest; 10 % of active time or more in all",
        judge: rules_wait::stuck,
    },
    VerdictRule {
        name: "healthy",
        when: "no thread computed half of the window or more, the process less than half a CPU; \
               waits for others took less than 5 % of the window, or less than 25 % with requests \
               answered within 100 ms on average (what a person takes for at once, by Nielsen); \
               requests did not take longer, less than half of the time was slept, and it is known what most threads \
               did",
        judge: rules_rest::healthy,
    },
    VerdictRule {
        name: "churn",
        when: "20 threads or processes a second or more were started, starting and ending them took 15 % of \
               the time computed, or more, and threads computed or were ready to half of the window or more",
        judge: rules_cpu::churn,
    },
    VerdictRule {
        name: "page-faults",
        when: "the kernel's handling of page faults took 25 % of active time or more (a quarter is \
               what makes a cause in this table), and no less than waiting for pages from a disk",
        judge: rules_cpu::faults,
    },
    VerdictRule {
        name: "serial",
        when: "threads waited a third of active time or more for locks that they hold in turn \
               themselves (with Amdahl: half as fast again without it)",
        judge: rules_wait::serial,
    },
    VerdictRule {
        name: "computing",
        when: "threads computed more than half of active time, waits for own children left out, or \
               one CPU or more throughout, or one thread half of the window, while nothing else explains \
               20 %",
        judge: rules_cpu::computing,
    },
    VerdictRule {
        name: "delayed",
        when: "threads polled for children that they had started, or for a disk, or slept between tries to \
               get a lock, 20 % of active time or more (with waits for children in other calls), and as long as for \
               anything else that somebody has to end",
        judge: rules_wait::delayed,
    },
    VerdictRule {
        name: "colleagues",
        when: "threads with requests in flight waited in poll and its kin 20 % of active time or more, \
               longer than they slept or waited otherwise, and at least half of that was ended by other \
               threads of the recording by a signal, an event or a pipe",
        judge: rules_wait::colleagues,
    },
    VerdictRule {
        name: "sleep-in-request",
        when: "threads slept by their own clock 20 % of active time or more while requests were in \
               flight, and longer than they waited for others; where nobody followed requests, 50 % or more, and it \
               owed answers about as long",
        judge: rules_wait::sleep_in_request,
    },
    VerdictRule {
        name: "held",
        when: "threads with requests of others in flight, and none of their own, waited in poll and its kin 20 % of \
               active time or more, and longer than for anything else",
        judge: rules_wait::held,
    },
    VerdictRule {
        name: "fed",
        when: "50 % of active time or more is waited in functions that ask another process for work (blocking \
               pops of Redis, consumers of Kafka), while nobody asks this one for anything",
        judge: rules_ask::fed,
    },
    VerdictRule {
        name: "upstream",
        when: "answers of others were awaited 20 % of active time or more, in the thread itself or by way of a \
               future, and longer than anything else that somebody has to end",
        judge: rules_ask::upstream,
    },
    VerdictRule {
        name: "input",
        when: "50 % of active time or more is waited for what comes to standard input, or for what somebody \
               who is not measured brings through a pipe, a queue of messages or a condition, with no request \
               in flight",
        judge: rules_rest::input,
    },
    VerdictRule {
        name: "waiting",
        when: "one reason that somebody else has to end takes 20 % of active time or more, or half of one \
               thread's",
        judge: rules_wait::waiting,
    },
    VerdictRule {
        name: "brief",
        when: "threads or processes that lived too briefly to be seen computed more than all others, and 1 % of \
               one CPU or more, and nothing of the above is seen of the others",
        judge: rules_rest::brief,
    },
    VerdictRule {
        name: "sleeping",
        when: "threads slept by their own clock 50 % of active time or more",
        judge: rules_rest::sleeping,
    },
    VerdictRule {
        name: "events",
        when: "threads waited for events (poll and its kin) 50 % of active time or more",
        judge: rules_rest::events,
    },
    VerdictRule {
        name: "spread",
        when: "always: no rule above found one cause",
        judge: rules_rest::spread,
    },
];

/// Rules that speak only where no other does.
const LAST: [&str; 4] = ["spread", "healthy", "input", "idle"];

/// Tries the rules in order.
pub(super) fn judge(e: &Evidence<'_>) -> (Verdict, Vec<Fired>) {
    let mut fired: Vec<Fired> = Vec::new();
    let mut spoken: Option<Verdict> = None;
    for rule in VERDICTS {
        let found = (rule.judge)(e);
        let applied = found.verdict.is_some();
        fired.push(Fired {
            rule: rule.name,
            when: rule.when,
            looked_at: found.looked_at,
            applied,
            spoke: applied && spoken.is_none(),
        });
        match (found.verdict, &mut spoken) {
            (Some(mut verdict), None) => {
                verdict.rule = rule.name;
                // Nothing further is true of nothing.
                if ["empty", "unseen", "hung", "idle"].contains(&rule.name) {
                    spoken = Some(verdict);
                    break;
                }
                spoken = Some(verdict);
            }
            (Some(_), Some(first)) if first.bottleneck && !LAST.contains(&rule.name) => {
                first.also.push(rule.name);
            }
            _ => {}
        }
    }
    let Some(mut verdict) = spoken else {
        unreachable!("the last rule always speaks")
    };
    if verdict.state == Some(State::Blocked) {
        let told = callers::told(e, &verdict);
        verdict.more.extend(told);
    }
    tell_of_queue(e, &mut verdict);
    (verdict, fired)
}

/// Connections that nobody accepts are the callers' view of whatever the process does instead.
fn tell_of_queue(e: &Evidence<'_>, verdict: &mut Verdict) {
    let Some(queue) = facts::accept_queue(e.recording) else {
        return;
    };
    let words = format!(
        "Its accept queue at {} was full ({} waiting, room for {}) in {:.0} % of the looks: callers \
         wait before it takes them, and {} were turned away",
        queue.address,
        queue.most,
        queue.room,
        queue.full * 100.0,
        match queue.refused {
            0 => "none".to_string(),
            n => n.to_string(),
        }
    );
    if verdict.bottleneck {
        verdict.more.insert(0, words);
        return;
    }
    // Callers wait, whatever its threads seem to be content with.
    let by = e.causes.iter().find(|c| !c.function.starts_with('['));
    let doing = by.map_or_else(String::new, |c| {
        format!(
            "; its threads are meanwhile {} in {} ({} of active time)",
            c.reason.map_or(c.state.name().to_string(), |r| format!(
                "{} ({r})",
                c.state.name()
            )),
            c.function,
            words::share(c.share)
        )
    });
    let before = std::mem::replace(
        verdict,
        Verdict::new(format!("{words}{doing}")).of(
            e,
            by.map_or(State::Blocked, |c| c.state),
            by.map_or(0, |c| c.ns),
            by,
        ),
    );
    verdict.rule = "accept-queue";
    verdict.more.push(format!("Beside that: {}", before.cause));
}

impl Verdict {
    pub(super) fn new(cause: String) -> Verdict {
        Verdict {
            rule: "",
            bottleneck: true,
            outside: false,
            state: None,
            reason: None,
            function: None,
            resource: None,
            holder: None,
            look_at: None,
            cause,
            more: Vec::new(),
            also: Vec::new(),
            share: 0.0,
            whole: ACTIVE.into(),
            confidence: String::new(),
            bound: String::new(),
        }
    }

    /// The time is spent in `state`, `ns` of it, most of it by way of `by`.
    pub(super) fn of(
        mut self,
        e: &Evidence<'_>,
        state: State,
        ns: u64,
        by: Option<&Cause>,
    ) -> Verdict {
        self.state = Some(state);
        self.share = e.share(ns);
        self.confidence = "the share is exact: counted, not sampled".into();
        if let Some(by) = by {
            self.reason = self.reason.or(by.reason);
            self.function = Some(by.function.to_string());
            self.resource = by.resource.as_deref().map(str::to_owned);
            self.confidence = format!(
                "the state's share is counted; {} has {} of active time by samples (95 %)",
                by.function,
                interval(by.interval)
            );
        }
        self.bound = format!(
            "at most {} of active wall time, if nothing else takes its place",
            words::share(self.share)
        );
        self
    }

    pub(super) fn because(mut self, reason: &'static str) -> Verdict {
        self.reason = Some(reason);
        self
    }

    pub(super) fn outside(mut self) -> Verdict {
        self.outside = true;
        self
    }

    pub(super) fn healthy(mut self) -> Verdict {
        self.bottleneck = false;
        self.bound.clear();
        self
    }

    pub(super) fn suspected(mut self, why: &str) -> Verdict {
        self.confidence = format!("{}; suspected: {why}", self.confidence);
        self
    }

    pub(super) fn with(mut self, more: Option<String>) -> Verdict {
        self.more.extend(more);
        self
    }
}

pub(super) fn found(looked_at: String, applies: bool, verdict: impl FnOnce() -> Verdict) -> Found {
    Found {
        looked_at,
        verdict: applies.then(verdict),
    }
}

/// `; most of it in f, through g (61 % of active time, thread x and 3 more)`.
pub(super) fn mostly(by: Option<&Cause>) -> String {
    by.map_or_else(String::new, |c| {
        let through = if c.through == c.function {
            String::new()
        } else {
            format!(", through {}", c.through)
        };
        format!(
            "; most of it in {}{through} ({} of active time, thread {}{})",
            c.function,
            words::share(c.share),
            c.thread,
            match c.threads {
                0 | 1 => String::new(),
                n => format!(" and {} more", n - 1),
            }
        )
    })
}

/// The cause with most time among those that are computing or waiting for a CPU.
pub(super) fn main_code<'a>(e: &Evidence<'a>, state: State) -> Option<&'a Cause> {
    largest(e.causes, state, None)
}
