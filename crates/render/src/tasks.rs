//! The view `tasks` as folded stacks: where tasks that a runtime schedules spend their time.
//!
//! Root first. Tasks have a clock of their own: the view sums to the wall time of all tasks, as far
//! as it was seen. A running task has no stack here; the start function stands for it. With labels as
//! frames, the thread is the task's start function, and the reason of an idle helper is `idle`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use wallscope_analysis::view::{Analysis, Idle, is_idle_task};
use wallscope_formats::folded::{Options, push};
use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{Recording, TaskGroup, TaskTime, name};

/// Writes the stacks of tasks of `recording`; of `options` the view is ignored.
///
/// # Errors
/// Errors of `out`.
pub fn write(recording: &Recording, options: &Options, mut out: impl Write) -> io::Result<()> {
    let analysis = Analysis::new(recording, Idle::Show);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for group in &recording.tasks {
        for time in group.times.iter().filter(|time| time.ns > 0) {
            *lines
                .entry(line(&analysis, options, group, time))
                .or_default() += time.ns;
        }
    }
    for (line, ns) in lines {
        writeln!(out, "{line} {ns}")?;
    }
    Ok(())
}

fn line(analysis: &Analysis<'_>, options: &Options, group: &TaskGroup, time: &TaskTime) -> String {
    let mut line = String::new();
    if options.with_thread {
        add(&mut line, &group.name);
    }
    match time.stack {
        Some(id) => {
            let stack = &analysis.recording.stacks[id.0 as usize];
            if stack.frames.is_empty() || !stack.end.is_whole() {
                add(&mut line, &name::no_frames(stack.end));
            }
            for frame in analysis.folded_frames(id).iter().rev() {
                add(&mut line, frame);
            }
        }
        None => {
            add(&mut line, &group.name);
            add(&mut line, NOT_SAMPLED);
        }
    }
    if options.with_state {
        add(&mut line, time.state.name());
    }
    if options.with_reason {
        match is_idle_task(&group.name, &time.reason) {
            true => add(&mut line, "idle"),
            false if !time.reason.is_empty() => add(&mut line, &time.reason),
            false => {}
        }
    }
    line
}

fn add(line: &mut String, frame: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    push(line, frame);
}
