//! The view `blame` as folded stacks: each blocked stack, then the stack of the root of the wait.
//!
//! Root first: the waiter's stack, one frame that names the root and its state, then the root's stack
//! from its own root to its leaf. A chain that was not followed ends in `[not followed: CAUSE]`. A
//! wait that is an end of its own (a disk, a timer) has the waiter's stack and that frame. The view
//! sums to blocked time.

use std::collections::HashMap;
use std::io::{self, Write};

use wallscope_analysis::blame::{Blame, Root};
use wallscope_analysis::view::{Analysis, Idle};
use wallscope_formats::folded::{Options, TimeKind, push};
use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{Recording, Sample, StackId, State, name};

/// Writes the blocked stacks of `recording` with those of their roots; the view in `options` is
/// ignored.
///
/// # Errors
/// Errors of `out`.
pub fn write(recording: &Recording, options: &Options, mut out: impl Write) -> io::Result<()> {
    let analysis = Analysis::new(recording, Idle::Show);
    let blame = Blame::new(recording, &analysis.scaled);
    let mut lines: HashMap<String, u64> = HashMap::new();
    for part in &blame.parts {
        let sample = &recording.samples[part.sample as usize];
        let frames = frames(&analysis, sample, blame.root(part));
        let line = options.line(recording, &TimeKind::of(sample), &frames);
        *lines.entry(line).or_default() += part.ns;
    }
    for u in &blame.unsampled {
        let line = options.line(recording, &TimeKind::unsampled(u), NOT_SAMPLED);
        *lines.entry(line).or_default() += u.ns;
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_unstable();
    for (line, ns) in lines {
        writeln!(out, "{line} {ns}")?;
    }
    Ok(())
}

/// The waiter's stack and that of its root, root first.
fn frames(analysis: &Analysis<'_>, sample: &Sample, root: &Root) -> String {
    let mut line = String::new();
    add_stack(&mut line, analysis, sample.stack);
    let own = root.is_own(sample.context) && root.state == State::Blocked;
    if !own {
        let state = match root.reason {
            Some(reason) => reason.name(),
            None => root.part.map_or(root.state.name(), |part| part.name()),
        };
        add(
            &mut line,
            &format!("[because of {}: {state}]", analysis.root_actor(root.actor)),
        );
        if let Some(stack) = root.stack {
            add_stack(&mut line, analysis, stack);
        }
    }
    if let Some(open) = root.open {
        add(&mut line, &open.frame());
    }
    line
}

fn add_stack(line: &mut String, analysis: &Analysis<'_>, id: StackId) {
    let stack = &analysis.recording.stacks[id.0 as usize];
    if stack.frames.is_empty() || !stack.end.is_whole() {
        add(line, &name::no_frames(stack.end));
    }
    for frame in analysis.folded_frames(id).iter().rev() {
        add(line, frame);
    }
}

fn add(line: &mut String, frame: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    push(line, frame);
}
