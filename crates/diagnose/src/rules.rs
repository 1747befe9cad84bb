//! The rules, most urgent first.

use wallscope_model::{BlockReason, State};

use crate::{Evidence, ladder, words};

/// A named rule.
pub struct Rule {
    /// Its name, as reports print it.
    pub name: &'static str,
    /// When it speaks, in words.
    pub when: &'static str,
    /// What it takes for granted beyond the sums; `None`: it is arithmetic on them and as sure as
    /// they are. A verdict that takes something for granted is a suspicion.
    pub assumes: Option<&'static str>,
    /// What it says of the evidence, if anything: a clause without a full stop.
    pub speaks: fn(&Evidence) -> Option<String>,
}

/// Sums say how long threads waited, not for whom.
const WHO_WAITS: &str =
    "what is waited for is no computing of the program's own: sums do not say who waits for whom";

/// Every rule; the first that speaks ends the sentence.
pub const RULES: &[Rule] = &[
    Rule {
        name: "empty",
        when: "no thread existed in the window",
        assumes: None,
        speaks: empty,
    },
    Rule {
        name: "unseen",
        when: "5 % of the time or more was not seen",
        assumes: None,
        speaks: unseen,
    },
    Rule {
        name: "mostly_unattributed",
        when: "threads too short to be seen computed more than all that were seen, and 5 % of the time or more",
        assumes: None,
        speaks: mostly_unattributed,
    },
    Rule {
        name: "throttled",
        when: "5 % of the time or more was lost to a CPU quota",
        assumes: None,
        speaks: throttled,
    },
    Rule {
        name: "held_back",
        when: "threads waited for a CPU 5 % of the time or more, how much of that for a CPU quota is not told apart, \
               and the quota ran out in a quarter of its periods or more",
        assumes: None,
        speaks: held_back,
    },
    Rule {
        name: "starved",
        when: "threads waited for a CPU a quarter of the time or more, and half as long as they computed",
        assumes: Some(
            "with CPUs enough, these threads would run at once and wait for nothing else instead",
        ),
        speaks: starved,
    },
    Rule {
        name: "computing",
        when: "threads computed half of the time or more",
        assumes: None,
        speaks: computing,
    },
    Rule {
        name: "busy_beside_waiting",
        when: "most time is blocked, yet at least 80 % of a CPU was kept busy throughout",
        assumes: Some(WHO_WAITS),
        speaks: busy_beside_waiting,
    },
    Rule {
        name: "blocked",
        when: "blocked time is the largest part",
        assumes: Some(WHO_WAITS),
        speaks: blocked,
    },
    Rule {
        name: "mixed",
        when: "no part is the largest by these measures",
        assumes: Some(WHO_WAITS),
        speaks: mixed,
    },
    Rule {
        name: "unattributed",
        when: "threads too short to be seen used 1 % of the time or more",
        assumes: None,
        speaks: unattributed,
    },
    Rule {
        name: "peer",
        when: "a tenth of the time of requests or more waits for one peer",
        assumes: None,
        speaks: peer,
    },
    Rule {
        name: "tasks",
        when: "one task or more of a runtime's (goroutines, asyncio's tasks, virtual threads) has something to \
               do at any time, and a quarter of their time or more is waiting for one thing",
        assumes: None,
        speaks: tasks,
    },
    Rule {
        name: "spinning",
        when: "5 % of the on-CPU time or more is in functions that are known to spin or yield",
        assumes: Some("what these functions wait for would have come no later without spinning"),
        speaks: spinning,
    },
];

fn empty(e: &Evidence) -> Option<String> {
    (e.total.wall_ns == 0)
        .then(|| "No thread existed here: the target had none while this was recorded, or what was selected of it has none".to_string())
}

fn unseen(e: &Evidence) -> Option<String> {
    let share = e.share(e.total.unknown_ns());
    (share >= 0.05).then(|| {
        format!(
            "{} could not be seen, so nothing firm can be said of the rest",
            words::share(share)
        )
    })
}

fn mostly_unattributed(e: &Evidence) -> Option<String> {
    let seen = e.total.state_ns(State::OnCpu);
    (e.unattributed_ns > seen && e.share(e.unattributed_ns) >= 0.05).then(|| {
        format!(
            "threads that lived too short to be seen computed for {} beside that, more than all that were seen, and may be \
             what these waited for",
            words::time(e.unattributed_ns)
        )
    })
}

fn throttled(e: &Evidence) -> Option<String> {
    let share = e.share(e.total.runnable.throttled);
    (share >= 0.05).then(|| {
        format!(
            "{} was lost to {}; raising it, or less CPU work, would give that back",
            words::share(share),
            quota(e)
        )
    })
}

fn quota(e: &Evidence) -> String {
    match e.quota_cpus {
        Some(q) => format!("its CPU quota ({})", words::cpus(q)),
        None => "its CPU quota".to_string(),
    }
}

fn held_back(e: &Evidence) -> Option<String> {
    let runnable = e.total.state_ns(State::Runnable);
    let untold = e.total.runnable.throttled == 0 && e.quota_ran_out >= ladder::BINDING;
    (untold && e.share(runnable) >= 0.05).then(|| {
        format!(
            "{} ran out in {} of its periods; raising it, or less CPU work, would give back up to {}",
            quota(e),
            words::share(e.quota_ran_out),
            words::share(e.share(runnable))
        )
    })
}

fn starved(e: &Evidence) -> Option<String> {
    let runnable = e.total.state_ns(State::Runnable) - e.total.runnable.throttled;
    let on_cpu = e.total.state_ns(State::OnCpu);
    let speaks = e.share(runnable) >= 0.25 && runnable >= on_cpu / 2 && held_back(e).is_none();
    speaks.then(|| {
        format!(
            "there are too few CPUs for its threads; more of them, or less work beside it, would \
             save up to {}",
            words::share(e.share(runnable))
        )
    })
}

fn computing(e: &Evidence) -> Option<String> {
    let share = e.share(e.total.state_ns(State::OnCpu));
    (share >= 0.5).then(|| match e.share(e.blocked_ns()) {
        b if b < 0.01 => "a CPU profile tells nearly all of it".to_string(),
        b => format!(
            "faster code is what helps; {} no CPU work could save",
            words::share(b)
        ),
    })
}

fn busy_beside_waiting(e: &Evidence) -> Option<String> {
    let on_cpu = e.total.state_ns(State::OnCpu);
    let computed = on_cpu + e.unattributed_ns;
    let speaks = e.threads > 1
        && e.share(on_cpu) < 0.5
        && e.blocked_ns() > on_cpu
        && computed as f64 >= 0.8 * e.window_ns as f64;
    speaks.then(|| {
        format!(
            "{} no CPU work could save, unless the waiting is for the threads that compute",
            words::share(e.share(e.blocked_ns()))
        )
    })
}

fn blocked(e: &Evidence) -> Option<String> {
    let blocked = e.blocked_ns();
    let largest = blocked > e.total.state_ns(State::OnCpu)
        && blocked > e.total.state_ns(State::Runnable)
        && busy_beside_waiting(e).is_none();
    // Waiting for events or for the time to come is often waiting for work.
    let parked = [BlockReason::Poll, BlockReason::Timer];
    let note = match e.main_reason() {
        Some((r, ns)) if parked.contains(&r) && ns * 2 > e.total.blocked_ns() => {
            " (some of it may be waiting for work)"
        }
        _ => "",
    };
    largest.then(|| {
        format!(
            "{} no CPU work could save{note}; a CPU profile would show only {}",
            words::share(e.share(blocked)),
            words::share(e.share(e.total.state_ns(State::OnCpu) + e.unattributed_ns))
        )
    })
}

fn mixed(e: &Evidence) -> Option<String> {
    let speaks = e.total.wall_ns > 0
        && throttled(e).is_none()
        && held_back(e).is_none()
        && computing(e).is_none()
        && starved(e).is_none()
        && busy_beside_waiting(e).is_none()
        && blocked(e).is_none();
    speaks.then(|| {
        format!(
            "{} no CPU work could save",
            words::share(e.share(e.blocked_ns()))
        )
    })
}

fn peer(e: &Evidence) -> Option<String> {
    let (name, share) = e.peer.as_ref().filter(|(_, share)| *share >= 0.1)?;
    Some(format!(
        "{} of request time waits for {name}",
        words::share(*share)
    ))
}

fn tasks(e: &Evidence) -> Option<String> {
    let t = e.tasks.as_ref()?;
    let place = match &*t.function {
        "" => String::new(),
        function => format!(", most in {function}"),
    };
    let reason = match &*t.reason {
        "lock" | "mutex" => "locks",
        "timer" => "timers",
        "network" => "the network",
        "channel" => "channels",
        other => other,
    };
    (t.at_once >= 1.0 && t.share >= 0.25).then(|| {
        format!(
            "of the time of {}s ({:.1} of them at any time) {} is waiting for {reason}{place}",
            t.kind,
            t.at_once,
            words::share(t.share)
        )
    })
}

fn spinning(e: &Evidence) -> Option<String> {
    let (ns, most) = e.spinning.as_ref()?;
    let share = *ns as f64 / e.total.state_ns(State::OnCpu).max(1) as f64;
    (share >= 0.05).then(|| {
        format!(
            "suspected: {} of the on-CPU time ({}) is in functions that spin or yield, most in {most}",
            words::share(share),
            words::time(*ns)
        )
    })
}

fn unattributed(e: &Evidence) -> Option<String> {
    let share = e.share(e.unattributed_ns);
    (share >= 0.01 && mostly_unattributed(e).is_none()).then(|| {
        format!(
            "threads that lived too short to be seen computed for {} more",
            words::time(e.unattributed_ns)
        )
    })
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
