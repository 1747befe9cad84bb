//! Folded stacks: one line a stack, for flame graph scripts and for `grep`.
//!
//! Root first, `;` between frames, a space, integer nanoseconds. The grammar is the contract's.

use std::collections::HashMap;
use std::io::{self, Write};

use wallscope_model::scale::{NOT_SAMPLED, Scaled};
use wallscope_model::{BlockReason, ContextId, Part, Recording, State, UnknownCause, View};

use crate::name;
use crate::view::{Analysis, Idle};

/// What becomes of a stack's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which time.
    pub view: View,
    /// A frame with the thread's name at the root.
    pub with_thread: bool,
    /// A frame with the state near the leaf.
    pub with_state: bool,
    /// A frame with the reason at the leaf.
    pub with_reason: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            view: View::Wall,
            with_thread: false,
            with_state: false,
            with_reason: false,
        }
    }
}

/// Every name that a reason may have: block reasons, parts, causes of not being seen.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    BlockReason::ALL
        .iter()
        .map(|r| r.name())
        .chain(Part::ALL.iter().map(|p| p.name()))
        .chain(UnknownCause::ALL.iter().map(|c| c.name()))
}

impl Options {
    /// The line's stack, from the frames between.
    pub(super) fn line(
        &self,
        rec: &Recording,
        context: ContextId,
        state: State,
        reason: Option<&str>,
        frames: &str,
    ) -> String {
        let mut line = String::new();
        if self.with_thread {
            let c = &rec.contexts[context.0 as usize];
            if c.name.is_empty() {
                push(&mut line, &format!("[thread {}]", c.tid));
            } else {
                push(&mut line, &c.name);
            }
            line.push(';');
        }
        line.push_str(frames);
        if self.with_state {
            line.push(';');
            line.push_str(state.name());
        }
        if let Some(reason) = reason.filter(|_| self.with_reason) {
            line.push(';');
            line.push_str(reason);
        }
        line
    }
}

/// A name within a line: what would end a frame or the line is replaced.
pub(super) fn push(line: &mut String, name: &str) {
    line.extend(name.chars().map(|c| match c {
        ';' => ':',
        '\n' | '\r' => ' ',
        c => c,
    }));
}

/// Writes the stacks of `recording`.
///
/// # Errors
/// What `out` returns.
pub fn write(recording: &Recording, options: &Options, mut out: impl Write) -> io::Result<()> {
    let analysis = Analysis::new(recording, Idle::Show);
    let scaled: &Scaled = &analysis.scaled;
    let mut stacks: Vec<Option<String>> = vec![None; recording.stacks.len()];
    let mut lines: HashMap<String, u64> = HashMap::new();
    for p in &scaled.pieces {
        let s = &recording.samples[p.sample as usize];
        let reason = s.reason_name();
        if !options.view.includes(s.state) {
            continue;
        }
        let frames = stacks[s.stack.0 as usize].get_or_insert_with(|| {
            let stack = &recording.stacks[s.stack.0 as usize];
            let mut line = String::new();
            if stack.frames.is_empty() {
                return name::no_frames(stack.end);
            }
            if !stack.end.is_whole() {
                line.push_str(&name::truncated(stack.end));
            }
            for f in analysis.frames(stack).iter().rev() {
                if !line.is_empty() {
                    line.push(';');
                }
                push(&mut line, &f.function.name);
                line.push_str(f.suffix());
            }
            line
        });
        let line = options.line(recording, p.context, s.state, reason, frames);
        *lines.entry(line).or_default() += p.ns;
    }
    for u in &scaled.unsampled {
        if options.view.includes(u.state) {
            let line = options.line(recording, u.context, u.state, u.reason, NOT_SAMPLED);
            *lines.entry(line).or_default() += u.ns;
        }
    }
    // The order is that of whole lines, which differs from that of stacks where a name ends in a
    // space and digits.
    let mut lines: Vec<String> = lines
        .into_iter()
        .map(|(stack, ns)| format!("{stack} {ns}\n"))
        .collect();
    lines.sort_unstable();
    for line in lines {
        out.write_all(line.as_bytes())?;
    }
    out.flush()
}
