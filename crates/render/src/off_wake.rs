//! The view `off-wake` as folded stacks: blocked stacks with their wakers' stacks on top.
//!
//! Root first: the blocked stack, then one frame that names the waker, then the waker's stack from
//! its leaf down to its root, so that the two leaves meet. Blocked time without a sample or without
//! a known waker has lines of its own: the view sums to blocked time.

use std::collections::HashMap;
use std::io::{self, Write};

use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{Recording, State};

use wallscope_analysis::view::{Analysis, Idle};
use wallscope_formats::folded::{Options, TimeKind, push};
use wallscope_model::name;

/// Writes the blocked stacks of `recording` with their wakers'; of `options` the view is ignored.
///
/// # Errors
/// Errors of `out`.
pub fn write(recording: &Recording, options: &Options, mut out: impl Write) -> io::Result<()> {
    let analysis = Analysis::new(recording, Idle::Show);
    let waits = analysis.waits();
    let mut lines: HashMap<String, u64> = HashMap::new();
    for (i, s) in recording.samples.iter().enumerate() {
        if s.state != State::Blocked || waits.sample_ns[i] == 0 {
            continue;
        }
        let stack = &recording.stacks[s.stack.0 as usize];
        let mut frames = String::new();
        if stack.frames.is_empty() || !stack.end.is_whole() {
            push(&mut frames, &name::no_frames(stack.end));
        }
        for frame in analysis.folded_frames(s.stack).iter().rev() {
            add(&mut frames, frame);
        }
        let mut left = waits.sample_ns[i];
        let mut give = |frames: &str, ns: u64| {
            if ns > 0 {
                let line = options.line(recording, &TimeKind::of(s), frames);
                *lines.entry(line).or_default() += ns;
            }
        };
        for hop in &waits.below_sample[i] {
            let ns = waits.ns[*hop as usize];
            let h = &recording.hops[*hop as usize];
            let mut with = frames.clone();
            add(&mut with, &analysis.ender(h));
            for frame in h.stack.map_or(Vec::new(), |s| analysis.folded_frames(s)) {
                add(&mut with, &frame);
            }
            give(&with, ns);
            left = left.saturating_sub(ns);
        }
        let mut with = frames.clone();
        add(&mut with, "[waker not seen]");
        give(&with, left);
    }
    for u in &analysis.scaled.unsampled {
        if u.state == State::Blocked {
            let line = options.line(recording, &TimeKind::unsampled(u), NOT_SAMPLED);
            *lines.entry(line).or_default() += u.ns;
        }
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_unstable();
    for (line, ns) in lines {
        writeln!(out, "{line} {ns}")?;
    }
    Ok(())
}

fn add(line: &mut String, frame: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    push(line, frame);
}
