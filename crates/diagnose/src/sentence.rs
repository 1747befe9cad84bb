//! The sentence at the end of a recording: where the wall time went, and the conclusion of the
//! verdict.
//!
//! The first part describes the ledger of all threads; the conclusion comes from the same rules as
//! the ladder's verdict ([`crate::rules`]).

use wallscope_model::{Recording, State};

use crate::evidence::{Evidence, Totals, ledger};
use crate::rules::{self, NOTES, TASKS_LOCK, Verdict};
use crate::thresholds::{MENTIONED_SHARE, ONE_REASON};
use crate::words;

/// A recording in one sentence, with its basis.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Where the wall time went, and the part that faster code cannot reduce.
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
            "{}, {} of {}; of the threads' time, {}.",
            verdict.cause,
            words::share(verdict.share),
            verdict.whole,
            ledger_words(&e.totals)
        ),
        _ => format!("{}: {}.", ledger_words(&e.totals), judgement.conclusion),
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

/// Where the wall time of all threads went.
fn ledger_words(t: &Totals) -> String {
    let l = &t.ledger;
    let mut parts = [
        (l.state_ns(State::OnCpu), "was computing".to_string()),
        (l.state_ns(State::Runnable), "waited for a CPU".to_string()),
        (t.blocked_ns(), blocked_words(t)),
        (l.unknown_ns(), "was not seen".to_string()),
    ];
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let threads = match t.threads {
        1 => "one thread".to_string(),
        n => format!("{n} threads"),
    };
    let idle = match l.idle_ns {
        0 => String::new(),
        ns => format!(", without {} of idle time", words::time(ns)),
    };
    let whole = format!(
        "{} of wall time ({threads}{idle})",
        words::time(t.busy_ns())
    );
    let told = parts
        .iter()
        .filter(|(ns, _)| t.share(*ns) >= MENTIONED_SHARE);
    let told = told.enumerate().map(|(i, (ns, did))| {
        let share = words::share(t.share(*ns));
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

/// Blocked, with the main reason.
fn blocked_words(t: &Totals) -> String {
    let enough = ONE_REASON * t.blocked_ns() as f64;
    match t.main_reason() {
        Some((reason, ns)) if ns as f64 >= enough => {
            format!("was blocked on {}", words::reason(reason))
        }
        Some((reason, ns)) => format!(
            "was blocked (most on {}: {})",
            words::reason(reason),
            words::share(t.share(ns))
        ),
        None => "was blocked".to_string(),
    }
}

/// The figures in words, without those that are nothing.
fn figures(e: &Evidence<'_>) -> Vec<(&'static str, String)> {
    let t = &e.totals;
    let of_all = |ns: u64| format!("{}, {}", words::time(ns), words::share(t.share(ns)));
    let l = &t.ledger;
    let mut out = vec![("wall time that was not idle", words::time(t.busy_ns()))];
    let states = [
        ("computing", t.on_cpu_ns()),
        (
            "waiting for a CPU",
            l.state_ns(State::Runnable) - l.runnable.throttled,
        ),
        ("held back by a CPU quota", l.runnable.throttled),
        ("blocked", t.blocked_ns()),
        ("not seen", l.unknown_ns()),
        ("threads too short to be seen", t.unattributed_ns),
    ];
    let present = states.iter().filter(|(_, ns)| *ns > 0);
    out.extend(present.map(|(what, ns)| (*what, of_all(*ns))));
    if l.idle_ns > 0 {
        out.push(("idle, left out", words::time(l.idle_ns)));
    }
    if let Some((reason, ns)) = t.main_reason() {
        let main = format!("{} for {}", words::reason(reason), of_all(ns));
        out.push(("blocked most on", main));
    }
    let b = &e.bottleneck;
    if b.window_ns > 0 {
        let busy = b.load(t.on_cpu_ns());
        let cpus = match b.cpus {
            0 => String::new(),
            n => format!(" of {n}"),
        };
        out.push(("CPUs kept busy", format!("{busy:.2}{cpus}")));
    }
    if let Some(quota) = t.quota_cpus {
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
