//! Answers to what-if, for the terminal.

use std::fmt::Write as _;

use wallscope_analysis::queues::what_if::{Answer, Change};
use wallscope_model::printable::printable;
use wallscope_model::units;

use super::{change, ends, time};
use crate::text::layout::{pad, paragraph, shorten};

/// Threads that are listed.
const MAX_THREADS: usize = 8;

pub(super) fn answer(out: &mut String, a: &Answer, width: usize) {
    let subject = if a.requests {
        "requests"
    } else {
        "the same work"
    };
    let function = printable(&a.question.function).into_owned();
    let faster = match a.question.speedup {
        2.0 => "twice".to_owned(),
        s => format!("{s} times"),
    };
    let sentence = format!(
        "Were `{function}` {faster} as fast, {subject} would take {}.",
        amount(&a.total, a.bound)
    );
    paragraph(out, &sentence, 0, width);
    out.push('\n');
    for c in a.threads.iter().take(MAX_THREADS) {
        let _ = writeln!(
            out,
            "  {} {} {}  {}",
            pad(&shorten(&c.thread, 20), 20),
            pad(&format!("{} ×", c.threads), -5),
            pad(&time(c.before), -8),
            amount(c, a.bound)
        );
    }
    if a.threads.len() > MAX_THREADS {
        let _ = writeln!(
            out,
            "  and {} more names; --json has all",
            a.threads.len() - MAX_THREADS
        );
    }
    let about = format!(
        "Time is that in which threads are not idle, from {} samples with the function. Assumed: {}.",
        units::count(a.samples),
        a.assumptions.join("; ")
    );
    paragraph(out, &about, 2, width);
    out.push('\n');
}

fn amount(c: &Change, bound: bool) -> String {
    match bound {
        true => format!(
            "between {} and {} (bounds)",
            change(c.change.high),
            change(c.change.low)
        ),
        false => format!("{} {}", change(c.change.value), ends(&c.change, change)),
    }
}
