//! The verdict: the first rule of [`VERDICTS`] that applies speaks. Thresholds are the rules' own
//! and stand in `when`, with where they come from.

use wallscope_model::{BlockReason, Recording, State};

use super::causes::{Cause, largest};
use super::{Bottleneck, CPU_FIRST, Level, Resource, interval};
use crate::words;

/// What rules judge by.
pub(super) struct Evidence<'a> {
    pub bottleneck: &'a Bottleneck,
    pub host: &'a [Resource],
    pub causes: &'a [Cause],
    pub recording: &'a Recording,
}

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
    /// The cause, in a sentence.
    pub cause: String,
    /// Share of active wall time that it explains.
    pub share: f64,
    /// How sure, and what of it is exact.
    pub confidence: String,
    /// What would change at most if it were gone.
    pub bound: String,
}

/// A rule that was tried.
#[derive(Clone, Debug)]
pub struct Fired {
    /// Its name.
    pub rule: &'static str,
    /// When it speaks, and the source of its thresholds.
    pub when: &'static str,
    /// The figures that it looked at.
    pub looked_at: String,
    /// Whether it applied. The first one that does is the verdict.
    pub applied: bool,
}

/// What a rule finds: the figures, and a verdict if they suffice.
struct Found {
    looked_at: String,
    verdict: Option<Verdict>,
}

/// A named rule.
pub struct VerdictRule {
    /// Its name.
    pub name: &'static str,
    /// When it speaks, and the source of its thresholds.
    pub when: &'static str,
    judge: fn(&Evidence<'_>) -> Found,
}

/// Waits that somebody else has to end, in the order in which equal ones are looked at.
const WORK: [BlockReason; 10] = [
    BlockReason::Lock,
    BlockReason::Gil,
    BlockReason::KernelLock,
    BlockReason::Disk,
    BlockReason::Network,
    BlockReason::Pipe,
    BlockReason::Child,
    BlockReason::PageFault,
    BlockReason::Memory,
    BlockReason::Stopped,
];

/// Every rule, most urgent first.
pub const VERDICTS: &[VerdictRule] = &[
    VerdictRule {
        name: "empty",
        when: "no thread existed in the window",
        judge: empty,
    },
    VerdictRule {
        name: "unseen",
        when: "10 % of active time or more was not seen: nothing firm can be said of the rest",
        judge: unseen,
    },
    VerdictRule {
        name: "idle",
        when: "threads did less than 1 % of one CPU's work and waited only for work, time or events \
               (below that no user can tell it from standing still)",
        judge: idle,
    },
    VerdictRule {
        name: "quota",
        when: "a CPU quota held threads back for 5 % of active time or more (the share at which \
               throttling shows in latency quantiles)",
        judge: quota,
    },
    VerdictRule {
        name: "cpu-shortage",
        when: "threads waited for a CPU 25 % of active time or more, and at least half as long as \
               they computed (a queue of one for two that run)",
        judge: shortage,
    },
    VerdictRule {
        name: "computing",
        when: "threads computed more than half of active time, or one CPU or more throughout while \
               nothing else explains 20 %",
        judge: computing,
    },
    VerdictRule {
        name: "waiting",
        when: "one reason that somebody else has to end takes 20 % of active time or more",
        judge: waiting,
    },
    VerdictRule {
        name: "sleeping",
        when: "threads slept by their own clock 50 % of active time or more",
        judge: sleeping,
    },
    VerdictRule {
        name: "events",
        when: "threads waited for events (poll and its kin) 50 % of active time or more",
        judge: events,
    },
    VerdictRule {
        name: "spread",
        when: "always: no rule above found one cause",
        judge: spread,
    },
];

/// Tries the rules in order.
pub(super) fn judge(e: &Evidence<'_>) -> (Verdict, Vec<Fired>) {
    let mut fired = Vec::new();
    for rule in VERDICTS {
        let found = (rule.judge)(e);
        fired.push(Fired {
            rule: rule.name,
            when: rule.when,
            looked_at: found.looked_at,
            applied: found.verdict.is_some(),
        });
        if let Some(mut verdict) = found.verdict {
            verdict.rule = rule.name;
            return (verdict, fired);
        }
    }
    unreachable!("the last rule always speaks")
}

impl Evidence<'_> {
    fn share(&self, ns: u64) -> f64 {
        self.bottleneck.share(ns)
    }

    /// Blocked time for `reason` that was not idle, ns.
    fn blocked(&self, reason: BlockReason) -> u64 {
        let seen: u64 = self
            .causes
            .iter()
            .filter(|c| c.state == State::Blocked && c.reason == Some(reason.name()))
            .map(|c| c.ns)
            .sum();
        seen.min(self.bottleneck.ledger.blocked[reason as usize])
    }

    /// The largest of the reasons that somebody else has to end.
    fn main_wait(&self) -> (BlockReason, u64) {
        WORK.iter()
            .map(|r| (*r, self.blocked(*r)))
            .fold((WORK[0], 0), |a, b| if b.1 > a.1 { b } else { a })
    }

    fn host(&self, name: &str) -> Option<&Resource> {
        self.host.iter().find(|r| r.name == name)
    }
}

impl Verdict {
    fn new(cause: String) -> Verdict {
        Verdict {
            rule: "",
            bottleneck: true,
            outside: false,
            state: None,
            reason: None,
            function: None,
            resource: None,
            cause,
            share: 0.0,
            confidence: String::new(),
            bound: String::new(),
        }
    }

    /// The time is spent in `state`, `ns` of it, most of it by way of `by`.
    fn of(mut self, e: &Evidence<'_>, state: State, ns: u64, by: Option<&Cause>) -> Verdict {
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

    fn because(mut self, reason: &'static str) -> Verdict {
        self.reason = Some(reason);
        self
    }

    fn outside(mut self) -> Verdict {
        self.outside = true;
        self
    }

    fn healthy(mut self) -> Verdict {
        self.bottleneck = false;
        self
    }
}

fn found(looked_at: String, applies: bool, verdict: impl FnOnce() -> Verdict) -> Found {
    Found {
        looked_at,
        verdict: applies.then(verdict),
    }
}

/// `, most of it in f (61 to 64 % of active time)`.
fn mostly(by: Option<&Cause>) -> String {
    by.map_or_else(String::new, |c| {
        let through = if c.through == c.function {
            String::new()
        } else {
            format!(", through {}", c.through)
        };
        format!(
            "; most of it by way of {}{through} ({} of active time, thread {}{})",
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

fn empty(e: &Evidence<'_>) -> Found {
    let threads = e.recording.contexts.len();
    found(format!("{threads} threads"), threads == 0, || {
        Verdict::new("No thread of the target existed in the window".into()).healthy()
    })
}

fn unseen(e: &Evidence<'_>) -> Found {
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

fn idle(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let l = &b.ledger;
    let work = l.state_ns(State::OnCpu) + l.state_ns(State::Runnable);
    let cpus = work as f64 / b.window_ns.max(1) as f64;
    let waits = e.share(e.main_wait().1);
    found(
        format!(
            "computing or ready to: {:.2} % of one CPU; waits that others end: {} of active time",
            cpus * 100.0,
            words::share(waits)
        ),
        b.active_ns() == 0 || (cpus < 0.01 && waits < 0.20),
        || {
            let all = if b.active_ns() == 0 {
                ": not one of them left the place where it waits, so if a request is stuck, nothing \
                 came that could end its wait"
            } else {
                ""
            };
            Verdict::new(format!(
                "No bottleneck found: the process is idle; its threads wait for work, for events \
                 or for a time that they chose themselves{all}"
            ))
            .healthy()
        },
    )
}

fn quota(e: &Evidence<'_>) -> Found {
    let ns = e.bottleneck.ledger.runnable.throttled;
    let share = e.share(ns);
    let group = e
        .host("cpu quota")
        .map_or_else(String::new, |r| format!(" ({})", r.saturation));
    found(
        format!("throttled: {}{group}", words::share(share)),
        share >= 0.05,
        || {
            Verdict::new(format!(
                "The cause is the CPU quota of its cgroup{group}: it held ready threads back for {} \
                 of active time",
                words::share(share)
            ))
            .outside()
            .of(e, State::Runnable, ns, None)
            .because("throttled")
        },
    )
}

fn shortage(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let ns = b.ledger.runnable.woken + b.ledger.runnable.preempted;
    let (share, computing) = (e.share(ns), b.on_cpu());
    let host = e.host("cpu").and_then(|r| r.utilisation);
    let cpus = f64::from(b.cpus.max(1));
    let own = b.busy_cpus() / cpus;
    found(
        format!(
            "waiting for a CPU: {}, computing: {}; own {:.0} % of all CPUs{}",
            words::share(share),
            words::share(computing),
            own * 100.0,
            host.map_or_else(String::new, |u| format!(", everybody {:.0} %", u * 100.0))
        ),
        share >= 0.25 && share >= computing / 2.0,
        || {
            let by = largest(e.causes, State::Runnable, None);
            let others = host.map(|u| (u - own).max(0.0));
            let (whose, outside) = match (host, others) {
                (Some(u), Some(o)) if u > 0.85 && o > own => (
                    "others on this machine use the CPUs: the cause is outside this process",
                    true,
                ),
                (Some(u), _) if u < 0.85 => (
                    "the machine has CPU time left: these threads are confined to fewer CPUs \
                     (affinity, cpuset), or come in bursts",
                    false,
                ),
                _ => ("it has more busy threads than CPUs", false),
            };
            let v = Verdict::new(format!(
                "Threads that are ready wait for a CPU {} of active time: {whose}{}",
                words::share(share),
                mostly(by)
            ))
            .of(e, State::Runnable, ns, by);
            if outside { v.outside() } else { v }
        },
    )
}

fn computing(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let ns = b.ledger.state_ns(State::OnCpu);
    let waits = e.share(e.main_wait().1);
    let looked_at = format!(
        "computing: {} of active time, {:.2} CPUs; waits that others end: {}",
        words::share(b.on_cpu()),
        b.busy_cpus(),
        words::share(waits)
    );
    let applies = b.on_cpu() > CPU_FIRST || (b.busy_cpus() >= 0.95 && waits < 0.20);
    found(looked_at, applies, || {
        let by = largest(e.causes, State::OnCpu, None);
        let hot = by.is_some_and(|c| c.ns as f64 >= 0.3 * ns as f64);
        let kind = if hot {
            "one hot spot"
        } else {
            "no single hot spot: its on-CPU profile is flat"
        };
        let kernel = b.ledger.on_cpu.kernel as f64 / ns.max(1) as f64;
        let kernel = if kernel >= 0.3 {
            format!(", {:.0} % of that in the kernel", kernel * 100.0)
        } else {
            String::new()
        };
        Verdict::new(format!(
            "It computes {} of active time{kernel}, with {kind}{}; whether it waits for memory \
             while it computes cannot be told without hardware counters",
            words::share(b.on_cpu()),
            mostly(by)
        ))
        .of(e, State::OnCpu, ns, by)
    })
}

fn waiting(e: &Evidence<'_>) -> Found {
    let (reason, ns) = e.main_wait();
    let share = e.share(ns);
    found(
        format!("most on {}: {}", words::reason(reason), words::share(share)),
        share >= 0.20,
        || {
            let by = largest(e.causes, State::Blocked, Some(reason));
            let what = by
                .and_then(|c| c.resource.as_deref())
                .map_or_else(String::new, |r| format!(" ({r})"));
            let host = match reason {
                BlockReason::Disk => e.host.iter().find(|r| r.name.starts_with("disk ")),
                BlockReason::PageFault | BlockReason::Memory => e.host("memory"),
                BlockReason::Network => e.host("network"),
                _ => None,
            };
            let host = host
                .filter(|r| r.level == Level::Saturated)
                .map_or_else(String::new, |r| {
                    format!(
                        "; the {} is saturated ({})",
                        r.name,
                        [r.saturation.as_str(), r.errors.as_str()]
                            .into_iter()
                            .filter(|s| !s.is_empty())
                            .collect::<Vec<_>>()
                            .join(", ")
                    )
                });
            Verdict::new(format!(
                "It waits for {}{what} {} of active time{}{host}",
                words::reason(reason),
                words::share(share),
                mostly(by)
            ))
            .because(reason.name())
            .of(e, State::Blocked, ns, by)
        },
    )
}

fn sleeping(e: &Evidence<'_>) -> Found {
    let ns = e.blocked(BlockReason::Timer);
    let share = e.share(ns);
    found(
        format!("sleeping: {}", words::share(share)),
        share >= 0.5,
        || {
            let by = largest(e.causes, State::Blocked, Some(BlockReason::Timer));
            let mut v = Verdict::new(format!(
            "It sleeps by its own clock {} of active time{}: harmless in a thread that only ticks, \
             the cause if a request waits for it",
            words::share(share),
            mostly(by)
        ))
        .because(BlockReason::Timer.name())
        .of(e, State::Blocked, ns, by);
            v.confidence += "; suspected: who waits for these sleeps is not known";
            v
        },
    )
}

fn events(e: &Evidence<'_>) -> Found {
    let ns = e.blocked(BlockReason::Poll);
    let share = e.share(ns);
    found(
        format!("waiting for events: {}", words::share(share)),
        share >= 0.5,
        || {
            let by = largest(e.causes, State::Blocked, Some(BlockReason::Poll));
            let mut v = Verdict::new(format!(
                "It waits for events {} of active time{}: for replies of others if requests are in \
                 flight, for work if not",
                words::share(share),
                mostly(by)
            ))
            .because(BlockReason::Poll.name())
            .of(e, State::Blocked, ns, by);
            v.confidence += "; suspected: which of the two is not known";
            v
        },
    )
}

fn spread(e: &Evidence<'_>) -> Found {
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
