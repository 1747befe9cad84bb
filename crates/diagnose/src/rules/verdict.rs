//! The verdict of a rule, in parts.

use wallscope_model::State;
use wallscope_model::stats::Interval;

use crate::evidence::{Cause, Evidence};
use crate::words;

/// A finding that a tired person can act on.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Name of the rule that gave it.
    pub rule: &'static str,
    /// Whether something is wrong at all.
    pub bottleneck: bool,
    /// Whether the cause lies outside the process.
    pub outside: bool,
    /// State that the time is spent in.
    pub state: Option<State>,
    /// Block reason or part, by the contract's name.
    pub reason: Option<&'static str>,
    /// The program's own function that leads there.
    pub function: Option<String>,
    /// The lock, file or peer that was waited for, where the recording names it.
    pub resource: Option<String>,
    /// Main waker: a thread, and the function in which it ended the waits, where known.
    pub holder: Option<String>,
    /// The process that is waited for, where it is on this machine and not in the recording: the
    /// next one to record.
    pub look_at: Option<u32>,
    /// The cause, in a sentence without a full stop.
    pub cause: String,
    /// Further facts, a sentence each.
    pub more: Vec<String>,
    /// Other rules that apply, beside the one that spoke.
    pub also: Vec<&'static str>,
    /// Share that the cause explains, of `whole`.
    pub share: f64,
    /// The whole of that share in words: [`ACTIVE`] unless tasks wait.
    pub whole: String,
    /// Certainty, and the part of the finding that is exact.
    pub confidence: String,
    /// Assumption beyond the counted sums. A verdict with one is a suspicion.
    pub assumes: Option<&'static str>,
    /// Most time that removing the cause can save.
    pub bound: String,
}

/// The whole that verdicts on threads speak of.
pub const ACTIVE: &str = "active wall time";

/// The time that a verdict explains.
#[derive(Clone, Copy)]
pub(crate) struct Spent<'c> {
    /// State.
    pub state: State,
    /// Length, ns.
    pub ns: u64,
    /// The cause with most of it.
    pub by: Option<&'c Cause>,
}

impl<'c> Spent<'c> {
    /// Time blocked.
    pub fn blocked(ns: u64, by: Option<&'c Cause>) -> Spent<'c> {
        let state = State::Blocked;
        Spent { state, ns, by }
    }

    /// Time on a CPU.
    pub fn on_cpu(ns: u64, by: Option<&'c Cause>) -> Spent<'c> {
        let state = State::OnCpu;
        Spent { state, ns, by }
    }

    /// Time waited for a CPU.
    pub fn runnable(ns: u64, by: Option<&'c Cause>) -> Spent<'c> {
        let state = State::Runnable;
        Spent { state, ns, by }
    }
}

/// A rule's finding: its figures, and a verdict if they suffice.
pub(crate) struct Found {
    /// The figures, in words.
    pub looked_at: String,
    /// The verdict.
    pub verdict: Option<Verdict>,
}

/// A finding; the verdict is there where the rule applies.
pub(crate) fn found(looked_at: String, verdict: Option<Verdict>) -> Found {
    Found { looked_at, verdict }
}

impl Verdict {
    /// A bottleneck with its cause.
    pub(crate) fn new(cause: String) -> Verdict {
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
            assumes: None,
            bound: String::new(),
        }
    }

    /// Sets the time that it explains, with state, share, function and resource.
    pub(crate) fn of(mut self, e: &Evidence<'_>, spent: Spent<'_>) -> Verdict {
        self.state = Some(spent.state);
        self.share = e.share(spent.ns);
        self.confidence = "the share is exact: counted, not sampled".into();
        if let Some(by) = spent.by {
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

    /// Sets the reason.
    pub(crate) fn because(mut self, reason: &'static str) -> Verdict {
        self.reason = Some(reason);
        self
    }

    /// The cause lies outside the process.
    pub(crate) fn outside(mut self) -> Verdict {
        self.outside = true;
        self
    }

    /// Nothing is wrong.
    pub(crate) fn healthy(mut self) -> Verdict {
        self.bottleneck = false;
        self.bound.clear();
        self
    }

    /// It is a suspicion, for a reason in words.
    pub(crate) fn suspected(mut self, reason: &str) -> Verdict {
        self.confidence = format!("{}; suspected: {reason}", self.confidence);
        self
    }

    /// It takes something for granted.
    pub(crate) fn assuming(mut self, assumption: &'static str) -> Verdict {
        self.assumes = Some(assumption);
        self
    }

    /// Adds a fact, if there is one.
    pub(crate) fn with(mut self, more: Option<String>) -> Verdict {
        self.more.extend(more);
        self
    }
}

/// An interval as percents in words.
fn interval(i: Interval) -> String {
    format!("{:.0} to {:.0} %", i.low * 100.0, i.high * 100.0)
}

/// `; most of it in f, through g (61 % of active time, thread x and 3 more)`.
pub(crate) fn most_in(by: Option<&Cause>) -> String {
    by.map_or_else(String::new, |c| {
        let through = match c.through == c.function {
            true => String::new(),
            false => format!(", through {}", c.through),
        };
        format!(
            "; most of it in {}{through} {}",
            c.function,
            spent_by(c.share, c)
        )
    })
}

/// `(61 % of active time, thread x and 3 more)`.
pub(crate) fn spent_by(share: f64, c: &Cause) -> String {
    let others = match c.threads {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let share = words::share(share);
    format!("({share} of active time, thread {}{others})", c.thread)
}

/// ` (NAME)` of a cause's resource; empty where none is named.
pub(crate) fn resource_of(by: Option<&Cause>) -> String {
    let name = by.and_then(|c| c.resource.as_deref());
    name.map_or_else(String::new, |name| format!(" ({name})"))
}
