//! `wallscope export FILE…`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use wallscope_model::scale::scale;
use wallscope_model::{Recording, State, View, merge};
use wallscope_report::format::{FORMATS, folded, pprof, svg};

use crate::failure::Failure;
use crate::{input, output};

/// Write a recording in another format; several files are merged first
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope export rec.pb.gz --format folded --view off-cpu | flamegraph.pl --countname ns
  wallscope export rec.pb.gz --format folded --with thread,state,reason -o all.folded
  wallscope export rec.pb.gz --format folded --thread worker --reason lock
  wallscope export rec.pb.gz --format svg --view off-cpu -o off-cpu.svg
  wallscope export monday.pb.gz tuesday.pb.gz --format pprof -o both.pb.gz

Values are nanoseconds, scaled so that a view's stacks sum to the ledger. Idle time is not hidden.")]
pub struct Args {
    /// Recordings; - reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The format
    #[arg(long, value_parser = formats())]
    format: String,
    /// Which time: the view's stacks (not for pprof, which holds all of them) [default: wall]
    #[arg(long, value_parser = views())]
    view: Option<View>,
    /// Where to write; without it, standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Frames to add: thread at the root, state and reason at the leaf (folded only)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LABEL,…")]
    with: Vec<With>,
    /// Only threads with this name (folded only)
    #[arg(long, value_name = "NAME")]
    thread: Option<String>,
    /// Only this state (folded only)
    #[arg(long, value_parser = states())]
    state: Option<State>,
    /// Only this block reason or part of a state (folded only)
    #[arg(long, value_parser = reasons())]
    reason: Option<&'static str>,
}

/// A label that may become a frame.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum With {
    Thread,
    State,
    Reason,
}

fn formats() -> PossibleValuesParser {
    let value = |f: &wallscope_report::format::Format| PossibleValue::new(f.name).help(f.about);
    PossibleValuesParser::new(FORMATS.iter().map(value))
}

fn views() -> impl TypedValueParser<Value = View> {
    PossibleValuesParser::new(View::ALL.iter().map(|v| v.name()))
        .map(|name| View::from_name(&name).unwrap_or(View::Wall))
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

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let format = FORMATS.iter().find(|f| f.name == args.format);
    if args.format == "svg" {
        let folded_only = [
            ("--with", !args.with.is_empty()),
            ("--thread", args.thread.is_some()),
            ("--state", args.state.is_some()),
            ("--reason", args.reason.is_some()),
        ];
        if let Some((option, _)) = folded_only.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!(
                "{option} is for --format folded: leave it out, or filter in the page (wallscope \
                 view FILE), which saves its picture as SVG too"
            )));
        }
    }
    if args.format == "pprof" {
        let folded_only = [
            ("--view", args.view.is_some()),
            ("--with", !args.with.is_empty()),
            ("--thread", args.thread.is_some()),
            ("--state", args.state.is_some()),
            ("--reason", args.reason.is_some()),
        ];
        if let Some((option, _)) = folded_only.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!(
                "{option} is for --format folded: a pprof file holds every view and label; leave \
                 it out, and choose in the reader (go tool pprof -sample_index=blocked \
                 -tagfocus=reason=lock)"
            )));
        }
    }
    if args.output.is_none() && format.is_some_and(|f| f.binary) && output::is_terminal() {
        return Err(Failure::usage(format!(
            "{} is binary and would garble the terminal: add -o FILE, or pipe it",
            args.format
        )));
    }
    // The place is tried before the work is done.
    let file = args
        .output
        .as_deref()
        .map(output::Output::create)
        .transpose()?;
    let recording = recording(&args.files)?;
    match file {
        None => output::to_stdout(|w| write(&args, &recording, w)),
        Some(mut out) => {
            write(&args, &recording, &mut out)
                .map_err(|e| anyhow::Error::new(e).context(unwritable(args.output.as_deref())))?;
            Ok(out.finish()?)
        }
    }
}

fn unwritable(path: Option<&Path>) -> String {
    format!(
        "cannot write '{}'",
        path.unwrap_or(Path::new("-")).display()
    )
}

/// The recording, or several as one.
fn recording(files: &[PathBuf]) -> Result<Recording, Failure> {
    let mut recordings = files
        .iter()
        .map(|f| input::recording(f))
        .collect::<Result<Vec<_>, _>>()?;
    if recordings.len() == 1 {
        return Ok(recordings.remove(0));
    }
    merge::merge(&recordings).map_err(|e| {
        Failure::usage(format!(
            "cannot merge these files: {e}; export them one by one"
        ))
    })
}

fn write(args: &Args, recording: &Recording, out: &mut dyn Write) -> std::io::Result<()> {
    if args.format == "pprof" {
        return pprof::write(recording, &scale(recording), out).map(|_| ());
    }
    if args.format == "svg" {
        return svg::write(recording, args.view.unwrap_or(View::Wall), out);
    }
    let options = folded::Options {
        view: args.view.unwrap_or(View::Wall),
        with_thread: args.with.contains(&With::Thread),
        with_state: args.with.contains(&With::State),
        with_reason: args.with.contains(&With::Reason),
        thread: args.thread.clone(),
        state: args.state,
        reason: args.reason,
    };
    folded::write(recording, &options, out)
}
