//! The verdict that the page opens with.
//!
//! It is written as HTML before the page's data, so a browser shows it while the data still arrives,
//! and without any script. The script later gives its buttons a meaning: each stands for a
//! [`Choice`], the time that a statement rests on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;
use wallscope_model::{Recording, Sample, State, View};

use super::html::escape;

/// Most letters of one statement: a name in it may be as long as the target likes.
const MAX_LETTERS: usize = 600;

/// Share of a basis's time that the chosen threads, and the chosen part of the recording, hold.
const NEARLY_ALL: f64 = 0.98;
/// The recording is narrowed to a part that is no longer than this share of it.
const SHORT_PART: f64 = 0.7;
/// More threads than these are not chosen one by one: the page's address would name all of them.
const MAX_THREADS: usize = 64;

/// A verdict in words, with the time that its statements rest on.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Lines, each with its name; the first is the cause.
    pub lines: Vec<(&'static str, String)>,
    /// The thing to change.
    pub advice: Option<String>,
    /// The command that shows more.
    pub command: Option<String>,
    /// Assumption beyond the counted sums: with one, the verdict is a suspicion.
    pub assumes: Option<&'static str>,
    /// Where the wall time went, in one sentence.
    pub sentence: String,
    /// Facts behind the lines: a name (may be empty) and a text.
    pub details: Vec<(&'static str, String)>,
    /// Time that the evidence is of.
    pub evidence: Option<Choice>,
    /// Roots of the waits in words, each with its own time, largest share first.
    pub roots: Vec<(String, Option<Choice>)>,
}

/// A part of the recording, in the terms of the page's filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Choice {
    /// View, by the contract's name.
    pub view: &'static str,
    /// Block reasons or parts of a state; empty: all.
    pub reasons: Vec<&'static str>,
    /// Threads, as indices of contexts; empty: all.
    pub threads: Vec<u32>,
    /// First slice and the slice after the last; `None`: the whole recording.
    pub time: Option<(u32, u32)>,
    /// Whether idle time is part of it.
    pub idle: bool,
    /// The function that its stacks lead through.
    pub function: Option<String>,
    /// Whether stacks without that function are left out.
    pub only: bool,
    /// Whether it is time of a runtime's tasks, and not of threads.
    pub tasks: bool,
}

impl Choice {
    /// Time in `state`, for one reason if there is one.
    pub fn of_state(state: Option<State>, reason: Option<&'static str>) -> Choice {
        Choice {
            view: view_of(state).name(),
            // Samples do not always tell the parts of on-CPU time.
            reasons: reason
                .filter(|_| state != Some(State::OnCpu))
                .into_iter()
                .collect(),
            ..Choice::default()
        }
    }

    /// Time of tasks, in stacks that lead through `function` if there is one.
    pub fn of_tasks(function: Option<&str>) -> Choice {
        let tasks = Choice {
            tasks: true,
            ..Choice::of_state(None, None)
        };
        tasks.through(function)
    }

    /// The states, reasons, threads and part of the recording that `samples` lie in.
    pub fn of_samples(recording: &Recording, samples: &[u32]) -> Choice {
        let samples: Vec<&Sample> = samples
            .iter()
            .filter_map(|i| recording.samples.get(*i as usize))
            .collect();
        let states: BTreeSet<u8> = samples.iter().map(|s| s.state as u8).collect();
        let state = samples.first().filter(|_| states.len() == 1);
        let reasons: BTreeSet<&'static str> = (samples.iter())
            .filter(|s| s.state == State::Blocked)
            .filter_map(|s| s.reason_name())
            .collect();
        Choice {
            view: view_of(state.map(|s| s.state)).name(),
            reasons: reasons.into_iter().collect(),
            threads: main_threads(recording, &samples),
            time: main_part(recording, &samples),
            idle: samples.iter().any(|s| s.idle),
            ..Choice::default()
        }
    }

    /// Share of the time of `samples` in the time that their threads spent in their state.
    pub fn share_of_state(recording: &Recording, samples: &[u32]) -> f64 {
        let of = |i: &u32| recording.samples.get(*i as usize);
        let chosen: Vec<&Sample> = samples.iter().filter_map(of).collect();
        let Some(state) = chosen.first().map(|s| s.state) else {
            return 0.0;
        };
        let threads: BTreeSet<u32> = chosen.iter().map(|s| s.context.0).collect();
        let all = recording.samples.iter();
        let all = all.filter(|s| s.state == state && threads.contains(&s.context.0));
        let whole: u64 = all.map(|s| s.ns).sum();
        chosen.iter().map(|s| s.ns).sum::<u64>() as f64 / whole.max(1) as f64
    }

    /// All stacks, with those marked that lead through `function`.
    pub fn marking(mut self, function: Option<&str>) -> Choice {
        // A marker in brackets is no function to look for.
        let named = function.filter(|f| !f.is_empty() && !f.starts_with('['));
        self.function = named.map(str::to_owned);
        self
    }

    /// Only stacks that lead through `function`.
    pub fn through(self, function: Option<&str>) -> Choice {
        let marked = self.marking(function);
        let only = marked.function.is_some();
        Choice { only, ..marked }
    }
}

fn view_of(state: Option<State>) -> View {
    match state {
        Some(State::OnCpu) => View::OnCpu,
        Some(State::Runnable) => View::RunQueue,
        Some(State::Blocked) => View::OffCpu,
        Some(State::Unknown) | None => View::Wall,
    }
}

/// Threads with nearly all of the samples' time; empty: all threads, or too many.
fn main_threads(recording: &Recording, samples: &[&Sample]) -> Vec<u32> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for sample in samples {
        *sums.entry(sample.context.0).or_default() += sample.ns;
    }
    let whole: u64 = sums.values().sum();
    let mut by_time: Vec<(u32, u64)> = sums.into_iter().collect();
    by_time.sort_by_key(|(thread, ns)| (std::cmp::Reverse(*ns), *thread));
    let mut told = 0;
    let mut out = Vec::new();
    for (thread, ns) in by_time {
        if told as f64 >= NEARLY_ALL * whole as f64 {
            break;
        }
        told += ns;
        out.push(thread);
    }
    out.sort_unstable();
    match out.len() {
        n if n > MAX_THREADS || n == recording.contexts.len() => Vec::new(),
        _ => out,
    }
}

/// The shortest part of the recording with nearly all of the samples' time, if it is short.
fn main_part(recording: &Recording, samples: &[&Sample]) -> Option<(u32, u32)> {
    let slices = recording.slices.count as usize;
    let mut sums = vec![0u64; slices];
    for value in samples.iter().flat_map(|s| &s.slices) {
        if let Some(sum) = sums.get_mut(value.slice as usize) {
            *sum += value.ns;
        }
    }
    let enough = NEARLY_ALL * sums.iter().sum::<u64>() as f64;
    let mut best: Option<(usize, usize)> = None;
    let (mut from, mut held) = (0, 0u64);
    for to in 0..slices {
        held += sums[to];
        while from <= to && (held - sums[from]) as f64 >= enough && held > sums[from] {
            held -= sums[from];
            from += 1;
        }
        let shorter = best.is_none_or(|(a, b)| to + 1 - from < b - a);
        if held > 0 && held as f64 >= enough && shorter {
            best = Some((from, to + 1));
        }
    }
    let (from, to) = best?;
    let short = (to - from) as f64 <= SHORT_PART * slices as f64;
    short.then_some((from as u32, to as u32))
}

/// Choices of the buttons, by the number that each button has.
pub(super) fn choices(verdict: &Verdict) -> Vec<&Choice> {
    let roots = verdict.roots.iter().map(|(_, choice)| choice.as_ref());
    std::iter::once(verdict.evidence.as_ref())
        .chain(roots)
        .flatten()
        .collect()
}

/// The verdict as HTML.
pub(super) fn html(verdict: &Verdict) -> String {
    let mut buttons = 0;
    let mut out = String::from("<section id=\"verdict\" aria-labelledby=\"cause\">\n");
    let mut lines = verdict.lines.iter();
    if let Some((_, cause)) = lines.next() {
        let _ = write!(out, "<h2 id=\"cause\"><bdi>{}</bdi>", told(cause));
        if verdict.assumes.is_some() {
            out.push_str(" <span class=\"badge suspected\">suspected</span>");
        }
        out.push_str("</h2>\n");
    }
    let mut rows = String::new();
    for (name, says) in lines {
        let choice = verdict.evidence.as_ref().filter(|_| *name == "Evidence");
        let button = button(choice, &mut buttons, name);
        rows.push_str(&row(name, &format!("<bdi>{}</bdi>{button}", told(says))));
    }
    // Where no line holds the figures, the button stands alone.
    if buttons == 0 && verdict.evidence.is_some() {
        let button = button(verdict.evidence.as_ref(), &mut buttons, "Evidence");
        rows.push_str(&row("Evidence", &button));
    }
    rows.push_str(&next(verdict));
    out.push_str(&list(&rows));
    out.push_str(&details(verdict, &mut buttons));
    out.push_str("</section>\n");
    out
}

/// A row of a list of names and texts; the text is HTML.
fn row(name: &str, html: &str) -> String {
    format!("<dt>{}</dt><dd>{html}</dd>\n", escape(name))
}

/// A list of rows; empty: there are none.
fn list(rows: &str) -> String {
    match rows.is_empty() {
        true => String::new(),
        false => format!("<dl>\n{rows}</dl>\n"),
    }
}

/// A statement as text of HTML.
fn told(text: &str) -> String {
    match text.char_indices().nth(MAX_LETTERS) {
        None => escape(text),
        Some((end, _)) => format!("{}…", escape(&text[..end])),
    }
}

/// A button that the script brings to life; empty: there is nothing to choose.
fn button(choice: Option<&Choice>, buttons: &mut usize, subject: &str) -> String {
    if choice.is_none() {
        return String::new();
    }
    let number = *buttons;
    *buttons += 1;
    format!(
        " <button type=\"button\" data-choice=\"{number}\" aria-label=\"show below: {}\" \
         hidden>show it</button>",
        told(subject)
    )
}

fn next(verdict: &Verdict) -> String {
    let advice = verdict.advice.iter().map(|says| told(says));
    let command = verdict.command.iter().map(|command| {
        format!(
            "<code>{}</code> <button type=\"button\" data-copy hidden>copy</button>",
            escape(command)
        )
    });
    let parts: Vec<String> = advice.chain(command).collect();
    match parts.is_empty() {
        true => String::new(),
        false => row("Next", &parts.join("; ")),
    }
}

/// The rest, behind a disclosure.
fn details(verdict: &Verdict, buttons: &mut usize) -> String {
    let mut out = String::from("<details><summary>Details</summary>\n");
    if !verdict.sentence.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", told(&verdict.sentence));
    }
    if !verdict.roots.is_empty() {
        out.push_str("<h3>Because of</h3>\n<ul>\n");
        for (says, choice) in &verdict.roots {
            let button = button(choice.as_ref(), buttons, says);
            let _ = writeln!(out, "<li><bdi>{}</bdi>{button}</li>", told(says));
        }
        out.push_str("</ul>\n");
    }
    let (unnamed, named): (Vec<_>, Vec<_>) =
        (verdict.details.iter()).partition(|(name, _)| name.is_empty());
    for (_, says) in unnamed {
        let _ = writeln!(out, "<p>{}</p>", told(says));
    }
    let rows = named.into_iter();
    let rows: String = rows
        .map(|(name, says)| row(name, &format!("<bdi>{}</bdi>", told(says))))
        .collect();
    out.push_str(&list(&rows));
    out.push_str("</details>\n");
    out
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
