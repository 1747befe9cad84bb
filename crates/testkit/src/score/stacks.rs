//! Rows on stacks: whether they are whole, and whether whole ones are true.
//!
//! A stack is *wrong but complete* when it claims to have reached its root and that root is not
//! the thread's, or when it holds a function for which the program wrote the stack down by glibc's
//! `backtrace()` and the frames above that function are not those. Frames of the C library, and
//! others that the dynamic symbol table does not name, are compared by number and, where wallscope
//! does not name them either, by module and place.

use std::collections::BTreeMap;

use super::{Row, Scorecard};
use crate::folded::Line;
use crate::truth::{ChainTruth, FrameTruth, Truth};

/// Names that the outermost frame of a native thread goes by.
const ROOTS: &[&str] = &[
    "_start",
    "clone3",
    "__clone3",
    "clone",
    "__clone",
    "__GI___clone3",
    // Of a coroutine.
    "__start_context",
];

/// Rows: the share of sampled time with a user stack that reached the root, by state, over threads for
/// which `keep` holds, and the share of all time that no sample fell into.
pub fn whole(lines: &[Line], keep: impl Fn(&str) -> bool, limit_percent: f64) -> Scorecard {
    let mut card = Scorecard::default();
    let ours: Vec<&Line> = lines.iter().filter(|line| keep(&line.thread)).collect();
    let total: u64 = ours.iter().map(|line| line.ns).sum();
    for state in ["on_cpu", "blocked", "runnable"] {
        let sampled = ours
            .iter()
            .filter(|line| line.state == state && !line.is_unsampled());
        let (mut all, mut reached) = (0u64, 0u64);
        let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
        for line in sampled {
            all += line.ns;
            match &line.truncated {
                None => reached += line.ns,
                Some(cause) => *causes.entry(cause).or_default() += line.ns,
            }
        }
        let percent = |ns: u64| ns as f64 * 100.0 / all as f64;
        let why: Vec<String> = causes
            .iter()
            .map(|(cause, ns)| format!(" ({cause} {:.3}%)", percent(*ns)))
            .collect();
        let what = format!("stacks that reach the root, {state}{}", why.concat());
        // A state that hardly occurred may have no sample; one that did may not.
        let time: u64 = ours.iter().filter(|l| l.state == state).map(|l| l.ns).sum();
        if all > 0 || time * 100 > total {
            card.at_least(what, percent(reached), limit_percent, "%");
        }
    }
    let bare: u64 = ours
        .iter()
        .filter(|line| line.is_unsampled())
        .map(|line| line.ns)
        .sum();
    card.at_most(
        "time without any sample",
        bare as f64 * 100.0 / total as f64,
        1.0,
        "%",
    );
    card
}

/// Whether a frame's name can be the frame that the program wrote down.
fn same_frame(measured: &str, truth: &FrameTruth) -> bool {
    match measured.split_once("+0x") {
        // Not resolved: the module and the place in it must be right. A return address is shown
        // as itself or, as it lies within the call, as the one before.
        Some((module, offset)) if !module.is_empty() => {
            let offset = u64::from_str_radix(offset, 16).unwrap_or(u64::MAX);
            module == truth.module && (offset == truth.offset || offset + 1 == truth.offset)
        }
        // The C library's functions go by several names each, by which table one asks.
        _ => {
            let unsure = truth.name.is_empty() || truth.module.starts_with("libc.");
            unsure || plain(measured) == plain(&truth.name)
        }
    }
}

/// A function's name without its parameters and without the suffix that the compiler appended to a part of
/// it.
fn plain(name: &str) -> &str {
    let name = name.split('(').next().unwrap_or(name);
    name.strip_suffix(".cold").unwrap_or(name)
}

/// The contradiction between a line and the stacks that the program wrote down; `None`: there is none.
fn contradiction(line: &Line, chains: &[&ChainTruth]) -> Option<String> {
    let names = line.user_names();
    for chain in chains {
        let Some(at) = names.iter().position(|name| *name == chain.leaf) else {
            continue;
        };
        // From the leaf outward; a truncated stack may stop early.
        let measured: Vec<&str> = names[..=at].iter().rev().copied().collect();
        let whole = line.truncated.is_none();
        if whole && measured.len() != chain.frames.len() {
            return Some(format!(
                "{} has {} frames down to {}, in truth {}",
                line.thread,
                measured.len(),
                chain.leaf,
                chain.frames.len()
            ));
        }
        if measured.len() > chain.frames.len() {
            return Some(format!("{} has more frames than there are", chain.leaf));
        }
        let wrong = measured
            .iter()
            .zip(&chain.frames)
            .position(|(m, t)| !same_frame(m, t));
        return wrong.map(|place| {
            let truth = &chain.frames[place];
            format!(
                "{}: frame {place} is {}, in truth {} {}+{:#x}",
                chain.leaf, measured[place], truth.name, truth.module, truth.offset
            )
        });
    }
    if line.truncated.is_some() || line.is_unsampled() {
        return None;
    }
    let Some(root) = names.first() else {
        return Some(format!("{}: no user frame, and not truncated", line.thread));
    };
    // Else it must be the one that backtrace() ended in, which says much only of places in the C
    // library, and of names elsewhere.
    let known_root = || {
        let mut roots = chains.iter().filter_map(|chain| chain.frames.last());
        roots.any(|truth| {
            let telling = root.contains("+0x") || !truth.module.starts_with("libc.");
            telling && same_frame(root, truth)
        })
    };
    if ROOTS.contains(root) || known_root() {
        None
    } else {
        Some(format!("{}: the root is {root}", line.thread))
    }
}

/// Rows on stacks that are wrong although they claim to be whole, and on whether each stack that
/// the program wrote down was met at all. Lines that begin or end a thread's life (before its own
/// code runs) only have to have a root.
pub fn chains(truth: &Truth, lines: &[Line]) -> Scorecard {
    let mut card = Scorecard::default();
    let mut wrong_ns = 0u64;
    let mut wrong_lines = 0u64;
    let mut example = String::new();
    for thread in &truth.threads {
        let own: Vec<&ChainTruth> = truth
            .chains
            .iter()
            .filter(|chain| chain.tid == thread.tid)
            .collect();
        for line in lines.iter().filter(|line| line.thread == thread.name) {
            if let Some(why) = contradiction(line, &own) {
                wrong_ns += line.ns;
                wrong_lines += 1;
                if example.is_empty() {
                    example = format!(": {why}");
                }
            }
        }
    }
    card.push(Row {
        what: "wrong but complete stacks".into(),
        truth: "0".into(),
        measured: format!("{wrong_lines} lines, {} µs{example}", wrong_ns / 1000),
        limit: "0".into(),
        pass: wrong_lines == 0,
        ..Row::default()
    });
    let met = |chain: &&ChainTruth| lines.iter().any(|line| line.contains(&chain.leaf));
    let unmet: Vec<&str> = truth
        .chains
        .iter()
        .filter(|chain| !met(chain))
        .map(|chain| chain.leaf.as_str())
        .collect();
    card.push(Row {
        what: "deepest points met".into(),
        truth: truth.chains.len().to_string(),
        measured: format!("{} {}", truth.chains.len() - unmet.len(), unmet.join(" ")),
        limit: "all".into(),
        pass: unmet.is_empty(),
        ..Row::default()
    });
    card
}

#[cfg(test)]
mod tests {
    use super::super::canned;
    use super::*;
    use crate::folded::parse;

    const ROOT: &str = "mix;libc.so.6+0x1098ec;libc.so.6+0x891f5;worker_main;run";

    fn verdict(folded: &str) -> Scorecard {
        let (_, truth, _) = canned::mix();
        chains(&truth, &parse(folded).unwrap())
    }

    fn is_true(folded: &str) -> bool {
        verdict(folded).passed()
    }

    #[test]
    fn the_truth_passes() {
        let (_, truth, lines) = canned::mix();
        let card = chains(&truth, &lines);
        assert!(card.passed(), "{card}");
        let card = whole(&lines, |_| true, 99.9);
        assert!(card.passed(), "{card}");
    }

    #[test]
    fn other_names_for_the_same_frames_pass() {
        // Resolved by a richer symbol table, shown by return address or by the call, inlined and
        // kernel frames between.
        assert!(is_true(
            "mix;clone3;start_thread;worker_main;run;pause;blocked 5"
        ));
        assert!(is_true(
            "mix;libc.so.6+0x1098eb;libc.so.6+0x891f4;worker_main;canned+0x12ff;pause;x_[i];nap;sys_[k];blocked 5"
        ));
    }

    #[test]
    fn wrong_stacks_that_claim_to_be_whole_fail() {
        // A frame missing, one too many, another function, another place, another module.
        assert!(!is_true("mix;clone3;worker_main;run;pause;blocked 5"));
        assert!(!is_true(
            "mix;clone3;start_thread;worker_main;run;run;pause;blocked 5"
        ));
        assert!(!is_true(
            "mix;clone3;start_thread;elsewhere;run;pause;blocked 5"
        ));
        assert!(!is_true(
            "mix;libc.so.6+0x1;start_thread;worker_main;run;pause;blocked 5"
        ));
        assert!(!is_true(
            "mix;clone3;start_thread;worker_main;libm.so.6+0x1300;pause;blocked 5"
        ));
    }

    #[test]
    fn a_false_root_fails_without_any_known_function() {
        let good = format!("{ROOT};pause;blocked 5\n");
        assert!(is_true(&good));
        assert!(!is_true(&format!(
            "{good}mix;worker_main;run;compute;on_cpu 5"
        )));
        assert!(!is_true(&format!("{good}mix;sys_[k];on_cpu 5")));
        assert!(is_true(&format!(
            "{good}mix;[truncated:window_end];compute;on_cpu 5"
        )));
    }

    #[test]
    fn a_truncated_stack_must_be_right_as_far_as_it_goes() {
        assert!(is_true(
            "mix;[truncated:window_end];worker_main;run;pause;blocked 5"
        ));
        assert!(!is_true(
            "mix;[truncated:window_end];compute;run;pause;blocked 5"
        ));
    }

    #[test]
    fn a_deepest_point_that_was_never_met_fails() {
        assert!(!is_true(&format!("{ROOT};compute;on_cpu 5")));
    }

    #[test]
    fn truncated_and_missing_stacks_count_by_state() {
        let text = format!(
            "{ROOT};pause;blocked 99000\n{ROOT};compute;on_cpu 500\n\
             mix;[truncated:window_end];pause;blocked 1000\n"
        );
        let card = whole(&parse(&text).unwrap(), |_| true, 99.9);
        assert!(card.rows[0].pass && !card.rows[1].pass, "{card}");
        assert!(card.rows[1].what.contains("window_end 1.000%"), "{card}");
        assert!(whole(&parse(&text).unwrap(), |_| true, 98.9).passed());
        // On-CPU time without a single sample is no hundred percent.
        let none = format!("{ROOT};pause;blocked 99000\n");
        assert!(whole(&parse(&none).unwrap(), |_| true, 99.9).passed());
        let unseen = format!("{none}mix;[not sampled];on_cpu 2000\n");
        let card = whole(&parse(&unseen).unwrap(), |_| true, 99.9);
        assert!(!card.rows[0].pass, "{card}");
        let bare = format!("{none}{ROOT};compute;on_cpu 5\nmix;[not sampled];blocked 2000\n");
        assert!(!whole(&parse(&bare).unwrap(), |_| true, 99.9).passed());
    }
}
