//! The answer for the terminal: one line that names the limit, then a table.

use std::fmt::Write as _;

use wallscope_analysis::queueing::Estimate;
use wallscope_analysis::queueing::predict::{GROWTH, Method, Outcome};
use wallscope_analysis::queues::{Absent, Queue, QueueKind, Queues, System};
use wallscope_model::printable::printable;
use wallscope_model::units;

use super::{Findings, change, ends, number, scaling, time, what_if};
use crate::text::layout::{clean, pad, paragraph};

/// Widths of the columns; all are right-aligned.
const COLUMNS: [(&str, isize); 9] = [
    ("λ", -9),
    ("S", -9),
    ("cs²", -6),
    ("ρ", -8),
    ("wait", -9),
    ("model", -9),
    ("+10 %", -9),
    ("+20 %", -9),
    ("+50 %", -9),
];
const _: () = assert!(GROWTH.len() == 3, "three columns of growth");

/// Width of a line of notes without a terminal.
const WIDTH: usize = 100;
/// Longest name of a queue.
const NAME: usize = 72;
/// Other work is named from this share on.
const NOTABLE: f64 = 0.1;
/// From this growth on, a limit is far away.
const FAR: f64 = 9.0;
/// So many queues are shown at least, far from their limits or not.
const FEWEST: usize = 3;

/// The findings as text, in lines of `width` cells where that is known.
pub fn text(findings: &Findings, width: Option<usize>) -> String {
    let mut out = String::new();
    let width = width.unwrap_or(WIDTH).clamp(40, 140);
    for answer in &findings.what_if {
        what_if::answer(&mut out, answer, width);
    }
    if let Some(scaling) = &findings.scaling {
        scaling::scaling(&mut out, scaling);
    }
    if let Some(queues) = &findings.queues {
        if !findings.file.is_empty() {
            let _ = writeln!(out, "Queues of {}:", printable(&findings.file));
        }
        table(&mut out, queues, width);
    }
    out
}

fn table(out: &mut String, queues: &Queues, width: usize) {
    let _ = writeln!(out, "{}", limit(queues));
    if !queues.rows.is_empty() {
        out.push('\n');
        let head: Vec<String> = COLUMNS.iter().map(|(name, w)| pad(name, *w)).collect();
        let _ = writeln!(out, "  {}", head.concat());
    }
    let far = |(i, row): &(usize, &Queue)| *i >= FEWEST && row.headroom.value >= FAR;
    let rows: Vec<&Queue> = (queues.rows.iter().enumerate())
        .filter(|row| !far(row))
        .map(|(_, row)| row)
        .collect();
    let shared = shared_notes(&rows);
    for row in &rows {
        queue(out, row, &shared, width);
    }
    if rows.len() < queues.rows.len() {
        let more = queues.rows.len() - rows.len();
        let _ = writeln!(out, "{more} more, far from their limits (--json has all)\n");
    }
    for (i, note) in shared.iter().enumerate() {
        paragraph(out, &format!("[{}] {note}.", i + 1), 0, width);
    }
    if !rows.is_empty() {
        paragraph(out, LEGEND, 0, width);
    }
    absent(out, &queues.absent, width);
}

const LEGEND: &str = "λ: arrivals a second. S: mean service time. cs²: squared coefficient of variation of S. \
     ρ: utilisation, the share of time in which a server is busy. wait: mean time before service, measured. \
     model: that wait as predicted at the recorded load; then at 10, 20 and 50 % more load. – : not known. \
     The lines ≥ and ≤ are the ends of 95 % intervals.";

/// The line that names the resource that limits.
fn limit(queues: &Queues) -> String {
    let Some(first) = queues.rows.first() else {
        return "No queue of this recording can be described.".into();
    };
    let name = called(first);
    match first.headroom {
        e if e.value <= 0.0 && first.others >= NOTABLE => format!(
            "The limit is {name}: it is full at the recorded load, and other work uses {} of it.",
            units::share(first.others)
        ),
        e if e.value <= 0.0 => format!("The limit is {name}: it is full at the recorded load."),
        e if e.value >= FAR => format!(
            "No queue is near its limit. The nearest is {name}, full at {} times the load.",
            number(e.value + 1.0)
        ),
        e => format!(
            "The first limit is {name}: it is full from {} load on {}.",
            change(e.value),
            ends(&e, change)
        ),
    }
}

fn queue(out: &mut String, row: &Queue, shared: &[String], width: usize) {
    let full = match row.headroom.value {
        v if v <= 0.0 => "full already".to_owned(),
        v => format!("full from {} on", change(v)),
    };
    let _ = writeln!(
        out,
        "{}, {}: {full}",
        called(row),
        match row.system {
            System::Open => "open",
            System::Closed(_) => "closed",
        }
    );
    type End = fn(&Estimate) -> f64;
    let lines: [(&str, End); 3] = [(" ", |e| e.value), ("≥", |e| e.low), ("≤", |e| e.high)];
    for (i, (mark, end)) in lines.into_iter().enumerate() {
        // A value with an interval of no width was counted once, for the whole recording.
        let shown = |e: &Estimate| (i == 0 || e.high > e.low * (1.0 + 1e-6)).then(|| end(e));
        let cells = cells(row, &shown);
        let padded = cells.iter().zip(COLUMNS).map(|(text, (_, w))| pad(text, w));
        let _ = writeln!(out, "{mark} {}", padded.collect::<String>());
    }
    paragraph(out, &about(row, shared), 4, width);
    out.push('\n');
}

/// Notes of several rows, in the order of their first row: they are printed once, below.
fn shared_notes(rows: &[&Queue]) -> Vec<String> {
    let mut shared: Vec<String> = Vec::new();
    for note in rows.iter().flat_map(|row| &row.notes) {
        let of = rows.iter().filter(|row| row.notes.contains(note));
        if of.count() > 1 && !shared.contains(note) {
            shared.push(note.clone());
        }
    }
    shared
}

/// Kind and name of a queue. The name of CPUs says the kind.
fn called(row: &Queue) -> String {
    match row.kind {
        QueueKind::Cpu => name(&row.name),
        kind => format!("{} {}", kind.name(), name(&row.name)),
    }
}

/// A queue's name, truncated at its end: the beginning distinguishes locks.
fn name(name: &str) -> String {
    let name = clean(name);
    match name.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// The model, and the facts that limit it; those of several rows as the numbers of notes.
fn about(row: &Queue, shared: &[String]) -> String {
    let mut parts = vec![row.because.clone()];
    if let Some(prediction) = &row.prediction {
        let formula = prediction.formula.map_or(String::new(), |formula| {
            format!(" (Allen and Cunneen: {})", time(formula))
        });
        parts.push(format!("{}{formula}", method(prediction.method)));
    }
    let number = |note: &String| shared.iter().position(|s| s == note);
    let own = row.notes.iter().filter(|note| number(note).is_none());
    parts.extend(own.cloned());
    let numbers = row.notes.iter().filter_map(number);
    let numbers: String = numbers.map(|i| format!(" [{}]", i + 1)).collect();
    format!("{}.{numbers}", parts.join("; "))
}

/// The values of a row, one end of each.
fn cells(row: &Queue, end: &dyn Fn(&Estimate) -> Option<f64>) -> [String; COLUMNS.len()] {
    let none = || "–".to_owned();
    let value = |e: Option<&Estimate>, show: &dyn Fn(f64) -> String| {
        e.and_then(end).map_or_else(none, show)
    };
    let grown = |i: usize| match row.prediction.as_ref().map(|p| &p.growth[i]) {
        Some(Outcome::Wait(e)) => value(Some(e), &time),
        Some(Outcome::Unstable) => "unstable".into(),
        None => none(),
    };
    [
        value(Some(&row.arrival_rate), &|v| format!("{}/s", number(v))),
        value(Some(&row.service), &time),
        value(row.variation.as_ref(), &number),
        value(Some(&row.utilisation), &|v| units::share(v.min(1.0))),
        value(row.wait.as_ref(), &time),
        value(row.prediction.as_ref().and_then(|p| p.now.as_ref()), &time),
        grown(0),
        grown(1),
        grown(2),
    ]
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Simulation => "waits by simulation of the recorded jobs",
        Method::AllenCunneen => "the measured wait grows as by Allen and Cunneen's formula",
        Method::Formula => "waits by Allen and Cunneen's formula",
        Method::MeanValue => "the measured wait grows as by mean value analysis",
    }
}

fn absent(out: &mut String, absent: &[Absent], width: usize) {
    if absent.is_empty() {
        return;
    }
    out.push_str("\nNot described:\n");
    let mut told: Vec<&Absent> = Vec::new();
    for a in absent {
        let alike = |b: &&Absent| (b.kind, &b.reason) == (a.kind, &a.reason);
        if told.iter().any(alike) {
            continue;
        }
        told.push(a);
        let others = match absent.iter().filter(alike).count() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let name = printable(&a.name);
        let line = format!("{} {name}{others}: {}", a.kind.name(), a.reason);
        paragraph(out, &line.replace(" : ", ": "), 2, width);
    }
}
