//! The sentences at the end of a recording: where the wall time went, and the conclusion of the
//! verdict.
//!
//! The first part divides the active time by state; the conclusion comes from the same rules as the
//! ladder's verdict ([`crate::rules`]). All shares of both are of active time, as on the ladder.

use wallscope_model::{BlockReason, Recording, State};

use crate::evidence::{Evidence, ledger};
use crate::rules::{self, NOTES, TASKS_LOCK, Verdict};
use crate::thresholds::{MENTIONED_SHARE, ONE_REASON};
use crate::words;

/// A recording in two or three sentences, with its basis.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Where the active time went, and the part that faster code cannot reduce.
    pub sentence: String,
    /// The rule that gave the verdict.
    pub rule: &'static str,
    /// When that rule speaks, in words.
    pub when: &'static str,
    /// Assumption beyond the counted sums: with one, the verdict is a suspicion.
    pub assumes: Option<&'static str>,
    /// The figures that it rests on, in words.
    pub evidence: Vec<(&'static str, String)>,
    /// Other findings, each with the name of its rule.
    pub also: Vec<(&'static str, String)>,
    /// The verdict in full; `None`: the file holds nothing to judge.
    pub verdict: Option<Verdict>,
}

/// The finding on a recording.
///
/// ```
/// let recording = wallscope_synthetic::recording(8);
/// let finding = wallscope_diagnose::finding(&recording);
/// assert!(!finding.sentence.is_empty());
/// assert!(finding.verdict.is_some(), "{finding:?}");
/// ```
pub fn finding(recording: &Recording) -> Finding {
    if recording.domain.is_import() {
        return of_import(recording);
    }
    if !recording.domain.unit.is_time() {
        return of_events(recording);
    }
    let e = Evidence::new(recording);
    let judgement = rules::judge(&e);
    let verdict = judgement.verdict;
    let sentence = match e.totals.ledger.wall_ns {
        0 => format!("{}.", judgement.conclusion),
        // Where tasks are the finding, they lead: threads only carry them.
        _ if verdict.rule == TASKS_LOCK => format!(
            "{}, {} of {}. Threads: {}.",
            verdict.cause,
            words::share(verdict.share),
            verdict.whole,
            ledger_words(&e)
        ),
        _ => format!("{}. {}.", ledger_words(&e), judgement.conclusion),
    };
    let mut evidence = figures(&e);
    if let Some(tried) = judgement.tried.into_iter().find(|tried| tried.spoke) {
        evidence.push(("the rule's own figures", tried.looked_at));
    }
    let notes = NOTES.iter();
    let notes: Vec<_> = notes
        .filter_map(|note| Some((note.name, (note.says)(&e)?)))
        .collect();
    // A note says more of its subject than the rule of that name.
    let mut also = judgement.also;
    also.retain(|(name, _)| notes.iter().all(|(note, _)| note != name));
    also.extend(notes);
    Finding {
        sentence,
        rule: verdict.rule,
        when: judgement.when,
        assumes: verdict.assumes,
        evidence,
        also,
        verdict: Some(verdict),
    }
}

/// Time of each state in the active time, ns.
struct States {
    on_cpu: u64,
    /// Ready to run, without a CPU.
    runnable: u64,
    /// The part of it that a CPU quota caused, as far as it is told apart.
    throttled: u64,
    blocked: u64,
    unseen: u64,
}

impl States {
    fn of(e: &Evidence<'_>) -> States {
        let l = &e.bottleneck.ledger;
        States {
            on_cpu: l.state_ns(State::OnCpu),
            runnable: l.state_ns(State::Runnable),
            throttled: l.runnable.throttled,
            blocked: e.bottleneck.blocked_ns(),
            unseen: l.unknown_ns(),
        }
    }
}

/// Where the active time went.
fn ledger_words(e: &Evidence<'_>) -> String {
    let b = &e.bottleneck;
    if b.active_ns() == 0 {
        return no_active_time(e);
    }
    let states = States::of(e);
    let mut parts = [
        (states.on_cpu, "was computing".to_string()),
        (states.runnable, "waited for a CPU".to_string()),
        (states.blocked, blocked_words(e, states.blocked)),
        (states.unseen, "was not seen".to_string()),
    ];
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let whole = whole_words(e);
    let told = parts
        .iter()
        .filter(|(ns, _)| e.share(*ns) >= MENTIONED_SHARE);
    let told = told.enumerate().map(|(i, (ns, did))| {
        let share = words::share(e.share(*ns));
        match i {
            0 => format!("{share} of {whole} {did}"),
            _ => format!("{share} {did}"),
        }
    });
    let told: Vec<String> = told.collect();
    match told.is_empty() {
        true => format!("Nothing was seen of {whole}"),
        false => words::list(&told),
    }
}

/// `35.7 s of active time (8 of 12 threads; 36.3 s idle or parked left out)`.
fn whole_words(e: &Evidence<'_>) -> String {
    let (b, all) = (&e.bottleneck, e.totals.threads);
    let threads = match (b.active_threads, all) {
        (1, 1) => "one thread".to_string(),
        (active, all) if active == all => format!("{all} threads"),
        (active, all) => format!("{active} of {all} threads"),
    };
    let active = b.active_ns();
    let idle = match e.totals.ledger.wall_ns.saturating_sub(active) {
        0 => String::new(),
        ns => format!("; {} idle or parked left out", words::time(ns)),
    };
    format!("{} of active time ({threads}{idle})", words::time(active))
}

/// No thread did anything but rest.
fn no_active_time(e: &Evidence<'_>) -> String {
    let threads = match e.totals.threads {
        1 => "one thread".to_string(),
        n => format!("{n} threads"),
    };
    let all = words::time(e.totals.ledger.wall_ns);
    format!("No thread did anything in {all} of wall time ({threads})")
}

/// Blocked for `ns`, with the main reason.
fn blocked_words(e: &Evidence<'_>, ns: u64) -> String {
    let enough = ONE_REASON * ns as f64;
    match main_reason(e, ns) {
        Some((reason, of_it)) if of_it as f64 >= enough => {
            format!("was blocked on {}", words::reason(reason))
        }
        Some((reason, of_it)) => format!(
            "was blocked ({} on {})",
            words::share(e.share(of_it)),
            words::reason(reason)
        ),
        None => "was blocked".to_string(),
    }
}

/// The largest block reason in the active time, and its time, ns; at most the `blocked` of all of them.
fn main_reason(e: &Evidence<'_>, blocked: u64) -> Option<(BlockReason, u64)> {
    let reasons = BlockReason::ALL.iter().map(|r| (*r, e.blocked(*r)));
    let main = reasons
        .filter(|(_, ns)| *ns > 0)
        .max_by_key(|(_, ns)| *ns)?;
    Some((main.0, main.1.min(blocked)))
}

/// The figures in words, without those that are zero. Shares are of active time.
fn figures(e: &Evidence<'_>) -> Vec<(&'static str, String)> {
    let of_active = |ns: u64| format!("{}, {}", words::time(ns), words::share(e.share(ns)));
    let (b, states) = (&e.bottleneck, States::of(e));
    let mut out = vec![("active time", words::time(b.active_ns()))];
    let rows = [
        ("computing", states.on_cpu),
        ("waiting for a CPU", states.runnable - states.throttled),
        ("held back by a CPU quota", states.throttled),
        ("blocked", states.blocked),
        ("not seen", states.unseen),
        ("threads too short to be seen", e.totals.unattributed_ns),
    ];
    let present = rows.iter().filter(|(_, ns)| *ns > 0);
    out.extend(present.map(|(what, ns)| (*what, of_active(*ns))));
    let idle = e.totals.ledger.wall_ns.saturating_sub(b.active_ns());
    if idle > 0 {
        out.push(("idle, left out", words::time(idle)));
    }
    if let Some((reason, ns)) = main_reason(e, states.blocked) {
        let main = format!("{} for {}", words::reason(reason), of_active(ns));
        out.push(("blocked most on", main));
    }
    if b.window_ns > 0 {
        let busy = b.load(e.totals.on_cpu_ns());
        let cpus = match b.cpus {
            0 => String::new(),
            n => format!(" of {n}"),
        };
        out.push(("CPUs kept busy", format!("{busy:.2}{cpus}")));
    }
    if let Some(quota) = e.totals.quota_cpus {
        out.push(("CPU quota", words::cpus(quota)));
    }
    out
}

/// The finding on events that were chosen in the place of time: their number.
fn of_events(recording: &Recording) -> Finding {
    let (total, name) = (ledger(recording).wall_ns, recording.domain.unit.name());
    bare(
        format!(
            "{total} {name}, by the place where they happened: an event has no time and no state."
        ),
        "event",
        "an event of the recording was chosen in the place of its time",
    )
}

/// The finding on another tool's file: its content. Totals are sums of samples there, so nothing may
/// be concluded from missing time.
fn of_import(recording: &Recording) -> Finding {
    let (unit, ledger) = (&recording.domain.unit, ledger(recording));
    let states = State::ALL.iter().map(|s| (*s, ledger.state_ns(*s)));
    let known: Vec<String> = states
        .filter(|(_, ns)| *ns > 0)
        .map(|(state, ns)| {
            let says = match state {
                State::OnCpu => "computing",
                State::Runnable => "waiting for a CPU",
                State::Blocked => "blocked",
                State::Unknown => "in an unknown state",
            };
            format!("{} {says}", words::time(ns))
        })
        .collect();
    let content = match (unit.is_time(), known.is_empty()) {
        (false, _) => format!("{} {}", ledger.wall_ns, unit.name()),
        (true, true) => "no time".to_string(),
        (true, false) => words::list(&known),
    };
    bare(
        format!(
            "The file holds {content}, sampled by another tool; time that it did not sample is missing."
        ),
        "import",
        "the recording was made from another tool's file",
    )
}

/// A finding that no rule made.
fn bare(sentence: String, rule: &'static str, when: &'static str) -> Finding {
    Finding {
        sentence,
        rule,
        when,
        assumes: None,
        evidence: Vec::new(),
        also: Vec::new(),
        verdict: None,
    }
}

#[cfg(test)]
#[path = "sentence_tests.rs"]
mod tests;
