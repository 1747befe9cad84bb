//! `wallscope export FILE…`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use wallscope_model::scale::scale;
use wallscope_model::{Recording, View, merge};
use wallscope_report::format::{FORMATS, folded, off_wake, pprof, svg};

use crate::failure::Failure;
use crate::select::SelectArgs;
use crate::{input, output};

/// Write a recording in another format; several files are merged first
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope export rec.pb.gz --format folded --view off-cpu | flamegraph.pl --countname ns
  wallscope export rec.pb.gz --format folded --with thread,state,reason -o all.folded
  wallscope export rec.pb.gz --format folded --thread worker --reason lock
  wallscope export rec.pb.gz --format folded --view off-wake -o off-wake.folded
  wallscope export rec.pb.gz --format svg --view off-cpu --focus 'cache|store' -o off-cpu.svg
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
    view: Option<Which>,
    /// Where to write; without it, standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Frames to add: thread at the root, state and reason at the leaf (folded only)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LABEL,…")]
    with: Vec<With>,
    #[command(flatten)]
    select: SelectArgs,
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

/// A view that can be exported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    View(View),
    /// Blocked stacks with their wakers'.
    OffWake,
}

const OFF_WAKE: &str = "off-wake";

fn views() -> impl TypedValueParser<Value = Which> {
    let names = View::ALL.iter().map(|v| v.name()).chain([OFF_WAKE]);
    PossibleValuesParser::new(names)
        .map(|name| View::from_name(&name).map_or(Which::OffWake, Which::View))
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let format = FORMATS.iter().find(|f| f.name == args.format);
    if args.format != "folded" && !args.with.is_empty() {
        return Err(Failure::usage(
            "--with is for --format folded: leave it out; other formats keep labels beside stacks",
        ));
    }
    if args.format != "folded" && args.view == Some(Which::OffWake) {
        return Err(Failure::usage(
            "--view off-wake is for --format folded: draw it with flamegraph.pl, inferno or speedscope",
        ));
    }
    if args.format == "pprof" && args.view.is_some() {
        return Err(Failure::usage(
            "--view is not for --format pprof, which holds every view: leave it out, and choose in \
             the reader (go tool pprof -sample_index=blocked)",
        ));
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
    let recording = args.select.of(recording(&args.files)?)?;
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
    let view = match args.view {
        Some(Which::View(view)) => view,
        _ => View::Wall,
    };
    if args.format == "svg" {
        return svg::write(recording, view, out);
    }
    let options = folded::Options {
        view,
        with_thread: args.with.contains(&With::Thread),
        with_state: args.with.contains(&With::State),
        with_reason: args.with.contains(&With::Reason),
    };
    if args.view == Some(Which::OffWake) {
        return off_wake::write(recording, &options, out);
    }
    folded::write(recording, &options, out)
}
