//! Deep and odd stacks: whole, and true.

use crate::folded::Line;
use crate::score::ledger::{Limits, agrees};
use crate::score::{share, stacks};
use crate::tool::Options;
use crate::{Error, Row, Scorecard, Tool};

use super::shares::WHOLE;
use super::{Length, idle, java, python, shares};

/// Promised of one case alone, percent.
const WHOLE_ALONE: f64 = 97.0;
/// The thread with stacks deeper than any walk has to follow.
const ABYSS: &str = "odd-abyss";
/// Functions that switch stacks or frames. A few of their instructions have no rule, by design (module
/// `stack_switch` of the unwinder). An interrupt meets them so rarely that one wait of some milliseconds there is
/// 0.1 % of all waits for a CPU in 10 s; so each case alone is held to a limit for them.
const SWITCHES: &[&str] = &[
    "swapcontext",
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
    "_Unwind_ForcedUnwind",
];

/// Whether the stack cannot be followed for such an instruction.
fn is_in_switch(line: &Line) -> bool {
    line.truncated.as_deref() == Some("bad_rule")
        && (line.user_names().first()).is_some_and(|outermost| SWITCHES.contains(outermost))
}

pub(super) fn odd(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("odd", &["--seconds", &seconds], &Options::at(997))?;
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    // Twice as deep as that need not be followed, but must be said to be.
    let bounded = |name: &str| name != ABYSS;
    let outside: Vec<Line> = (run.stacks.iter())
        .filter(|line| !is_in_switch(line))
        .cloned()
        .collect();
    card.rows
        .extend(stacks::whole(&outside, bounded, WHOLE).rows);
    let abyss = run.stacks.iter().filter(|line| {
        line.thread == ABYSS
            && (line.contains("odd_abyss_spin") || line.contains("odd_abyss_block"))
    });
    let (mut followed, mut silent, mut least) = (0, 0, usize::MAX);
    for line in abyss {
        followed += 1;
        least = least.min(line.user_names().len());
        if line.truncated.as_deref() != Some("max_frames") && line.user_names().len() < 1300 {
            silent += 1;
        }
    }
    card.at_least("stacks of 1,300 frames met", f64::from(followed), 2.0, "");
    card.at_least("frames kept of 1,300", least as f64, 512.0, "");
    card.at_most(
        "short of them without saying max_frames",
        f64::from(silent),
        0.0,
        "",
    );
    // Each case by itself, so that a broken one shows by name; few samples each, so a lower limit.
    for thread in run.truth.threads.iter().filter(|t| bounded(&t.name)) {
        let own = |name: &str| name == thread.name;
        let alone = stacks::whole(&run.stacks, own, WHOLE_ALONE);
        let failed = |row: &Row| !row.pass && row.what.starts_with("stacks that reach");
        let rows = alone.rows.into_iter().filter(failed).collect();
        card.extend(&thread.name, Scorecard { rows });
    }
    card.rows
        .extend(stacks::chains(&run.truth, &run.stacks).rows);
    Ok(card)
}

/// As on kernels before 6.18, where no task work can be scheduled: everything that rests on threads
/// that read their own stacks, native and managed, blocked ones, wakers and senders.
pub(super) fn by_interrupt(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let tool = tool.recording_with(&["--off-cpu-stacks", "interrupt"]);
    let mut card = Scorecard::default();
    for (name, run) in [
        ("mix", shares::mix as fn(&Tool, Length) -> _),
        ("odd", odd),
        ("upstream", idle::upstream),
        ("python", python::ends_by_ebpf),
        ("java", java::by_ebpf),
    ] {
        match run(&tool, length) {
            Ok(rows) => card.extend(name, rows),
            // Without an interpreter or a VM the others still count.
            Err(Error::CannotRunHere(why)) => eprintln!("skipped {name} by interrupt: {why}"),
            Err(error) => return Err(error),
        }
    }
    Ok(card)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded::parse;

    #[test]
    fn only_functions_that_switch_stacks_may_lack_a_rule() {
        let judged = |folded: &str| is_in_switch(&parse(folded).unwrap()[0]);
        assert!(judged(
            "odd-fiber;[truncated:bad_rule];swapcontext;on_cpu 5"
        ));
        assert!(judged(
            "odd-throw;[truncated:bad_rule];_Unwind_Resume;libgcc_s.so.1+0x14770;runnable 5"
        ));
        assert!(!judged(
            "odd-fiber;[truncated:bad_rule];odd_fiber_body;swapcontext;on_cpu 5"
        ));
        assert!(!judged(
            "odd-fiber;[truncated:unreadable];swapcontext;on_cpu 5"
        ));
    }
}
