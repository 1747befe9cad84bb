//! The verdict of a rule, in parts.

use wallscope_model::stats::Interval;
use wallscope_model::{BlockReason, State};

use crate::evidence::{Cause, Evidence, RootShare};
use crate::stalls;
use crate::thresholds::MENTIONED_SHARE;
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
    /// The lines that a verdict is printed in.
    pub parts: VerdictParts,
    /// Samples of the waits that it is about; empty: it is about no waits.
    pub(crate) waits: Vec<u32>,
    /// Samples of its main cause; empty: it has none.
    pub(crate) main_cause: Vec<u32>,
}

/// A verdict in the lines that a reader sees: the cause is [`Verdict::cause`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerdictParts {
    /// Time that the cause explains, and most that removing it saves; empty: nothing is wrong.
    pub impact: String,
    /// Activity behind the cause, where it is known.
    pub root: Option<String>,
    /// Figures that the verdict rests on, in words.
    pub evidence: Vec<String>,
    /// The thing to change, in words.
    pub advice: Option<String>,
    /// The blind spot that could change this verdict, with its remedy.
    pub not_seen: Option<String>,
    /// Parts of the impact by their words, where it has several.
    pub shares: Vec<(&'static str, f64)>,
    /// Roots of the waits, largest share first.
    pub blame: Vec<RootShare>,
}

/// The whole that verdicts on threads speak of.
pub const ACTIVE: &str = "active time";

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
pub(crate) struct Finding {
    /// The figures, in words.
    pub looked_at: String,
    /// The verdict.
    pub verdict: Option<Verdict>,
}

/// A finding; the verdict is there where the rule applies.
pub(crate) fn found(looked_at: String, verdict: Option<Verdict>) -> Finding {
    Finding { looked_at, verdict }
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
            parts: VerdictParts::default(),
            waits: Vec::new(),
            main_cause: Vec::new(),
        }
    }

    /// Indices of the samples that its share sums up, as far as samples show it: all of its waits,
    /// else those of its main cause.
    pub fn samples(&self) -> &[u32] {
        match self.waits.is_empty() {
            true => &self.main_cause,
            false => &self.waits,
        }
    }

    /// Sets the time that it explains, with state, share, function and resource.
    pub(crate) fn of(mut self, e: &Evidence<'_>, spent: Spent<'_>) -> Verdict {
        self.state = Some(spent.state);
        self.share = e.share(spent.ns);
        self.confidence = "the share is exact: counted, not sampled".into();
        self.parts.evidence.clear();
        if let Some(by) = spent.by {
            self.reason = self.reason.or(by.reason);
            self.function = Some(by.function.to_string());
            self.main_cause = by.samples.clone();
            self.resource = by.resource.as_deref().map(str::to_owned);
            self.parts.evidence.push(precision(e, by, spent.state));
            self.confidence = format!(
                "the state's share is counted; {} has {} of active time by samples (95 % interval)",
                by.function,
                interval(by.interval)
            );
        }
        self.bound = bound(self.share, ACTIVE);
        self
    }

    /// Adds time that a fix of the cause saves, too: words and ns. `first` are the words for the time so far.
    pub(crate) fn with_other_time(
        mut self,
        e: &Evidence<'_>,
        first: &'static str,
        others: &[(&'static str, u64)],
    ) -> Verdict {
        let others = others.iter().map(|(part, ns)| (*part, e.share(*ns)));
        let others: Vec<_> = others.filter(|(_, s)| *s >= MENTIONED_SHARE).collect();
        if others.is_empty() {
            return self;
        }
        self.parts.shares = vec![(first, self.share)];
        self.share += others.iter().map(|(_, share)| share).sum::<f64>();
        self.share = self.share.min(1.0);
        self.parts.shares.extend(others);
        self.bound = bound(self.share, ACTIVE);
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

    /// The samples of the waits that it is about.
    pub(crate) fn of_waits(mut self, samples: Vec<u32>) -> Verdict {
        self.waits = samples;
        self
    }

    /// Adds a figure, if there is one.
    pub(crate) fn measured(mut self, figure: Option<String>) -> Verdict {
        // The basis of the figures comes last.
        let last = self.parts.evidence.len().saturating_sub(1);
        self.parts.evidence.splice(last..last, figure.clone());
        self.with(figure)
    }

    /// Adds the activity behind the cause, if it is known.
    pub(crate) fn rooted(mut self, root: Option<String>) -> Verdict {
        self.parts.root = self.parts.root.or(root.clone());
        self.with(root)
    }

    /// Adds the thing to change, if one is known.
    pub(crate) fn advised(mut self, advice: Option<String>) -> Verdict {
        self.parts.advice = self.parts.advice.or(advice.clone());
        self.with(advice)
    }

    /// Adds a fact that only an explanation prints, if there is one.
    pub(crate) fn with(mut self, more: Option<String>) -> Verdict {
        self.more.extend(more);
        self
    }
}

/// Most of `whole` that a fix saves, in words.
pub(crate) fn bound(share: f64, whole: &str) -> String {
    format!(
        "at most {} of {whole}, if nothing else takes its place",
        words::share(share)
    )
}

/// An interval as percents in words.
fn interval(i: Interval) -> String {
    format!("{:.0} to {:.0} %", i.low * 100.0, i.high * 100.0)
}

/// Basis of the figures: time of the state is counted, the function's share of it has an interval.
fn precision(e: &Evidence<'_>, by: &Cause, state: State) -> String {
    let half = (by.interval.high - by.interval.low) / 2.0 * 100.0;
    let columns = &e.recording.domain.columns;
    let estimated = columns.iter().any(|c| c.state == state && !c.exact);
    let of_cpu = state == State::Runnable;
    let partly = by.is_wait_for(BlockReason::Gc) && stalls::estimated(e.recording);
    let state = match state {
        State::OnCpu => "time on a CPU",
        State::Runnable => "time waiting for a CPU",
        State::Blocked => "blocked time",
        State::Unknown => "time not seen",
    };
    let basis = match (estimated, partly) {
        (true, _) => "is estimated",
        (false, true) => "is counted, the part of garbage collection estimated by stacks",
        (false, false) => "is counted (exact)",
    };
    let half = match half < 0.05 {
        true => "less than ± 0.1 points".to_string(),
        false => format!("± {half:.1} points"),
    };
    // A function tells nothing of the wait for a CPU.
    match of_cpu {
        true => format!("{state} {basis}"),
        false => format!("{state} {basis}, the shares of functions are by samples ({half})"),
    }
}

/// `4 threads wait`, `Thread x waits`, `It waits`: the threads of a cause with a verb.
pub(crate) fn subject(by: Option<&Cause>, verb: Verb) -> String {
    match by {
        None => format!("It {}", verb.one),
        Some(c) if c.threads == 1 => format!("Thread {} {}", c.thread, verb.one),
        Some(c) => format!("{} threads {}", c.threads, verb.many),
    }
}

/// The timer by which the threads of a cause sleep.
pub(crate) fn own_timer(by: Option<&Cause>) -> &'static str {
    match by.is_some_and(|c| c.threads > 1) {
        true => "by their own timers",
        false => "by its own timer",
    }
}

/// A verb for one subject and for many.
#[derive(Clone, Copy)]
pub(crate) struct Verb {
    one: &'static str,
    many: &'static str,
}

impl Verb {
    /// The form for one subject.
    pub(crate) fn one(self) -> &'static str {
        self.one
    }
}

/// To wait.
pub(crate) const WAIT: Verb = Verb {
    one: "waits",
    many: "wait",
};
/// To sleep.
pub(crate) const SLEEP: Verb = Verb {
    one: "sleeps",
    many: "sleep",
};

/// Minimum share of a time at which its main function is named for all of it.
const NEARLY: f64 = 0.8;

/// ` in FUNCTION`, or ` (mostly in FUNCTION)` where that is a part of `ns`; empty: none has a name.
pub(crate) fn place(by: Option<&Cause>, ns: u64) -> String {
    match by {
        None => String::new(),
        Some(c) if words::is_address(&c.function) => String::new(),
        Some(c) if (c.ns as f64) < NEARLY * ns as f64 => {
            format!(" (mostly in {})", words::function(&c.function))
        }
        Some(c) => format!(" in {}", words::function(&c.function)),
    }
}

/// A target with the name of a cause's resource, in one pair of brackets.
pub(crate) fn with_resource(target: &str, by: Option<&Cause>) -> String {
    let name = resource_of(by);
    match (target.strip_suffix(')'), name.strip_prefix(" (")) {
        (Some(target), Some(name)) => format!("{target}; {name}"),
        _ => format!("{target}{name}"),
    }
}

/// ` (NAME)` of a cause's resource, without addresses; empty where none is named.
pub(crate) fn resource_of(by: Option<&Cause>) -> String {
    let name = by.and_then(|c| c.resource.as_deref());
    let name = name.and_then(words::resource);
    name.map_or_else(String::new, |name| format!(" ({name})"))
}
