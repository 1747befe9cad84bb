//! The options that select a part of a recording: the same for every verb.

use std::ops::Range;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use regex::Regex;
use wallscope_analysis::select::Selection;
use wallscope_formats::folded;
use wallscope_model::{Recording, State};

use crate::failure::Failure;

/// What to select.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Select")]
pub struct SelectArgs {
    /// Only threads with this name
    #[arg(long, value_name = "NAME")]
    thread: Vec<String>,
    /// Only processes with this name or id
    #[arg(long, value_name = "NAME|PID")]
    process: Vec<String>,
    /// Only this state
    #[arg(long, value_parser = states(), hide_possible_values = true)]
    state: Vec<State>,
    /// Only this block reason or part of a state: lock, disk, preempted…
    #[arg(long, value_parser = reasons(), hide_possible_values = true)]
    reason: Vec<&'static str>,
    /// Only this label beyond the above: a request's endpoint, a tenant…
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Only this window, in seconds after the start, such as 2..7.5 or 30..; to the slice
    #[arg(long, value_name = "FROM..TO", value_parser = time)]
    time: Option<Range<u64>>,
    /// Only stacks with a function of such a name
    #[arg(long, value_name = "REGEX")]
    function: Option<Regex>,
    /// Only stacks with code of such a module
    #[arg(long, value_name = "REGEX")]
    module: Option<Regex>,
    /// Only stacks with such a function, source file or module, as in pprof
    #[arg(long, value_name = "REGEX")]
    focus: Option<Regex>,
    /// Not stacks with such a function, source file or module, as in pprof
    #[arg(long, value_name = "REGEX")]
    ignore: Option<Regex>,
    /// Leave such frames out of stacks, as in pprof
    #[arg(long, value_name = "REGEX")]
    hide: Option<Regex>,
    /// Leave out the callers above such a frame, as in pprof
    #[arg(long, value_name = "REGEX")]
    show_from: Option<Regex>,
    /// Show a function that calls itself once
    #[arg(long)]
    collapse_recursion: bool,
}

fn states() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::ALL.iter().map(|s| s.name()))
        .map(|name| State::from_name(&name).unwrap_or(State::Unknown))
}

fn reasons() -> impl TypedValueParser<Value = &'static str> {
    PossibleValuesParser::new(folded::reasons()).try_map(|name| {
        folded::reasons()
            .find(|r| *r == name)
            .ok_or("no such reason")
    })
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_string(), value.to_string()))
}

/// `FROM..TO` in seconds, either end left out.
fn time(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text
        .split_once("..")
        .ok_or("write it as FROM..TO in seconds, such as 2..7.5, 30.. or ..10")?;
    let second = |text: &str, otherwise: u64| match text.trim().trim_end_matches('s') {
        "" => Ok(otherwise),
        text => text
            .parse::<f64>()
            .ok()
            .filter(|v| v.is_finite() && *v >= 0.0)
            .map(|v| (v * 1e9) as u64)
            .ok_or(format!("'{text}' is no number of seconds")),
    };
    // Far beyond any recording, yet safe to add to.
    let range = second(from, 0)?..second(to, u64::MAX / 4)?;
    if range.is_empty() {
        return Err("its end is not after its start".to_string());
    }
    Ok(range)
}

impl SelectArgs {
    /// The selection that was asked for.
    pub fn selection(&self) -> Selection {
        Selection {
            threads: self.thread.clone(),
            processes: self.process.clone(),
            services: Vec::new(),
            states: self.state.clone(),
            reasons: self.reason.clone(),
            labels: self.label.clone(),
            time: self.time.clone(),
            function: self.function.clone(),
            module: self.module.clone(),
            focus: self.focus.clone(),
            ignore: self.ignore.clone(),
            hide: self.hide.clone(),
            show_from: self.show_from.clone(),
            collapse_recursion: self.collapse_recursion,
        }
    }

    /// Whether it leaves out a part of the time.
    pub fn selects_time(&self) -> bool {
        self.time.is_some()
    }

    /// The selected part of `recording`; conditions that match nothing are reported on stderr.
    pub fn of(&self, recording: Recording) -> Result<Recording, Failure> {
        let selected = self.selection().apply(recording).map_err(|e| {
            Failure::usage(format!(
                "cannot select from this recording: {e}; change or leave out --time"
            ))
        })?;
        for name in selected.unmet {
            eprintln!("wallscope: warning: --{name} meets nothing in this recording");
        }
        Ok(selected.recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_with_open_ends() {
        assert_eq!(time("2..7.5"), Ok(2_000_000_000..7_500_000_000));
        assert_eq!(time("..10s"), Ok(0..10_000_000_000));
        assert_eq!(time("30..").map(|r| r.start), Ok(30_000_000_000));
        for wrong in ["5", "7..2", "-1..2", "a..b", "nan.."] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
