//! Recording → folded stacks, sorted, equal ones summed.

use std::io::{self, Write};

use wallscope_model::scale::{NOT_SAMPLED, Unsampled, scale};
use wallscope_model::{BlockReason, ContextId, Part, Recording, Sample, State, UnknownCause, View};

use super::lines::{Around, FoldedRow, Lines, within_line};

/// Content of a stack's line.
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

/// Thread, state and reason of a line's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeKind<'a> {
    /// The thread.
    pub context: ContextId,
    /// Its state.
    pub state: State,
    /// Reason of the state, if there is one.
    pub reason: Option<&'a str>,
}

impl<'a> TimeKind<'a> {
    /// That of a sample.
    pub fn of(sample: &'a Sample) -> TimeKind<'a> {
        TimeKind {
            context: sample.context,
            state: sample.state,
            reason: sample.reason_name(),
        }
    }

    /// That of time without a sample.
    pub fn unsampled(time: &Unsampled) -> TimeKind<'a> {
        TimeKind {
            context: time.context,
            state: time.state,
            reason: time.reason,
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
    pub fn line(&self, rec: &Recording, time: &TimeKind<'_>, frames: &str) -> String {
        let TimeKind {
            context,
            state,
            reason,
        } = *time;
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

/// A name within a line: characters that would end a frame or the line are replaced.
pub fn push(line: &mut String, name: &str) {
    line.extend(name.chars().map(within_line));
}

/// Writes the stacks of `recording`.
///
/// # Errors
/// Errors of `out`.
pub fn write(recording: &Recording, options: &Options, mut out: impl Write) -> io::Result<()> {
    let mut lines = Lines::new(recording);
    let unsampled = lines.stack_of(NOT_SAMPLED);
    let threads: Vec<Option<u32>> = (recording.contexts.iter())
        .map(|c| match (options.with_thread, &*c.name) {
            (false, _) => None,
            (true, "") => Some(lines.word(&format!("[thread {}]", c.tid))),
            (true, name) => Some(lines.word(name)),
        })
        .collect();
    let mut around = |context: ContextId, state: State, reason: Option<&str>| {
        let state = options.with_state.then(|| lines.word(state.name()));
        let reason = reason.filter(|_| options.with_reason);
        let reason = reason.map(|r| lines.word(r));
        lines.around(Around {
            before: threads[context.0 as usize].into_iter().collect(),
            after: state.into_iter().chain(reason).collect(),
        })
    };
    let scaled = scale(recording);
    let mut rows = Vec::with_capacity(scaled.pieces.len() + scaled.unsampled.len());
    let mut last = None;
    for p in &scaled.pieces {
        let s = &recording.samples[p.sample as usize];
        if !options.view.includes(s.state) {
            continue;
        }
        // Neighbouring samples mostly have equal words around their stacks.
        let key = (p.context, s.state, s.reason_name());
        let around = match last {
            Some((known, around)) if known == key => around,
            _ => around(p.context, s.state, s.reason_name()),
        };
        last = Some((key, around));
        rows.push(FoldedRow {
            stack: s.stack.0,
            around,
            value: p.ns,
        });
    }
    for u in &scaled.unsampled {
        if options.view.includes(u.state) {
            rows.push(FoldedRow {
                stack: unsampled,
                around: around(u.context, u.state, u.reason),
                value: u.ns,
            });
        }
    }
    drop(scaled);
    lines.sort(&mut rows);
    let mut buffer = Vec::with_capacity(1 << 17);
    lines.texts(&rows, |text, ns| {
        buffer.extend_from_slice(text);
        writeln!(buffer, " {ns}")?;
        if buffer.len() > 1 << 16 {
            out.write_all(&buffer)?;
            buffer.clear();
        }
        io::Result::Ok(())
    })?;
    out.write_all(&buffer)?;
    out.flush()
}
