//! `wallscope export FILE…`.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use wallscope_formats::{Format, WriteOptions, folded};
use wallscope_model::{Recording, View, merge};
use wallscope_render::export::{Export, ExportOptions};
use wallscope_render::{blame, off_wake, tasks};

use crate::failure::Failure;
use crate::output::Readers;
use crate::select::SelectArgs;
use crate::{input, output, report, verdict};

/// Write a recording in another format; several files are merged first
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub struct Args {
    /// Recordings, or profiles of other tools (see below); - reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    reading: input::Reading,
    /// The format
    #[arg(long, value_parser = formats())]
    format: String,
    /// Which time: the view's stacks (not for formats that hold all of them) [default: wall]
    #[arg(long, value_parser = views())]
    view: Option<ExportedView>,
    /// Where to write; without it, standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Frames to add: thread at the root, state and reason at the leaf (folded only)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LABEL,…")]
    with: Vec<FrameLabel>,
    #[command(flatten)]
    select: SelectArgs,
}

const EXAMPLES: &str = "\
Examples:
  wallscope export rec.pb.gz --format folded --view off-cpu | flamegraph.pl --countname ns
  wallscope export rec.pb.gz --format folded --with thread,state,reason -o all.folded
  wallscope export rec.pb.gz --format folded --thread worker --reason lock
  wallscope export rec.pb.gz --format folded --view off-wake -o off-wake.folded
  wallscope export rec.pb.gz --format folded --view blame -o blame.folded
  wallscope export rec.pb.gz --format folded --view tasks --with state,reason -o tasks.folded
  wallscope export rec.pb.gz --format svg --view off-cpu --focus 'cache|store' -o off-cpu.svg
  wallscope export monday.pb.gz tuesday.pb.gz --format pprof -o both.pb.gz

Values are nanoseconds, scaled so that a view's stacks sum to the ledger. Idle time is not hidden.";

/// A label that may become a frame.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FrameLabel {
    Thread,
    State,
    Reason,
}

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(Export::all().map(|e| PossibleValue::new(e.name()).help(e.about())))
}

/// The end of the help: the formats that can be read.
fn after_help() -> String {
    let mut help = EXAMPLES.to_string();
    help.push_str("\n\nReads, whatever the file is called:\n");
    let width = Format::read().map(|f| f.name.len()).max().unwrap_or(0);
    for f in Format::read() {
        help.push_str(&format!("  {:width$}  {}\n", f.name, f.reads));
    }
    help
}

/// A view that can be exported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExportedView {
    View(View),
    /// Blocked stacks with their wakers'.
    OffWake,
    /// Blocked stacks with those of the roots of their waits.
    Blame,
    /// Stacks of tasks that a runtime schedules.
    Tasks,
}

const OFF_WAKE: &str = "off-wake";
const BLAME: &str = "blame";
const TASKS: &str = "tasks";

fn views() -> impl TypedValueParser<Value = ExportedView> {
    let names = View::ALL
        .iter()
        .map(|v| v.name())
        .chain([OFF_WAKE, BLAME, TASKS]);
    PossibleValuesParser::new(names).map(|name| match (View::from_name(&name), &*name) {
        (Some(view), _) => ExportedView::View(view),
        (None, BLAME) => ExportedView::Blame,
        (None, TASKS) => ExportedView::Tasks,
        _ => ExportedView::OffWake,
    })
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let Some(format) = Export::named(&args.format) else {
        return Err(Failure::usage(format!("no format {}", args.format)));
    };
    if format.name() != "folded" && !args.with.is_empty() {
        return Err(Failure::usage(
            "--with is for --format folded: leave it out; other formats keep labels beside stacks",
        ));
    }
    let folded_only = match args.view {
        Some(ExportedView::OffWake) => Some(OFF_WAKE),
        Some(ExportedView::Blame) => Some(BLAME),
        Some(ExportedView::Tasks) => Some(TASKS),
        _ => None,
    };
    if let Some(view) = folded_only.filter(|_| format.name() != "folded") {
        return Err(Failure::usage(format!(
            "--view {view} is for --format folded: draw it with flamegraph.pl, inferno or speedscope"
        )));
    }
    if !format.is_one_view() && args.view.is_some() {
        return Err(Failure::usage(format!(
            "--view is not for --format {}, which holds every view: leave it out, and choose in \
             the reader (go tool pprof -sample_index=blocked)",
            format.name()
        )));
    }
    let place = output::file(args.output.as_deref());
    if place.is_none() && format.is_binary() && output::is_terminal() {
        return Err(Failure::usage(format!(
            "{} is binary and would garble the terminal: add -o FILE, or pipe it",
            args.format
        )));
    }
    // The place is tried before the work is done.
    let readers = match format.name() == "pprof" {
        true => Readers::Owner,
        false => Readers::Umask,
    };
    let create = |path| output::Output::create(path, readers);
    let file = place.map(create).transpose()?;
    let recording = args.select.of(recording(&args.files, &args.reading)?)?;
    match file {
        None => output::to_stdout(|w| write(format, &args, &recording, w)),
        Some(mut out) => {
            write(format, &args, &recording, &mut out)
                .map_err(|e| anyhow::Error::new(e).context(output::unwritable(out.path())))?;
            out.finish()?;
            Ok(())
        }
    }
}

/// The recording, or several as one.
fn recording(files: &[PathBuf], reading: &input::Reading) -> Result<Recording, Failure> {
    let mut recordings = files
        .iter()
        .map(|f| input::recording(f, reading))
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

fn write(
    format: Export,
    args: &Args,
    recording: &Recording,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let view = match args.view {
        Some(ExportedView::View(view)) => view,
        _ => View::Wall,
    };
    let found = wallscope_diagnose::finding(recording);
    let files: Vec<String> = args.files.iter().map(|f| f.display().to_string()).collect();
    let verdict = verdict::of_page(recording, &found, &files.join(" "));
    let options = ExportOptions {
        format: WriteOptions {
            view,
            folded: folded::Options {
                view,
                with_thread: args.with.contains(&FrameLabel::Thread),
                with_state: args.with.contains(&FrameLabel::State),
                with_reason: args.with.contains(&FrameLabel::Reason),
            },
        },
        headline: report::headline(recording),
        verdict: Some(&verdict),
    };
    match args.view {
        Some(ExportedView::OffWake) => {
            return off_wake::write(recording, &options.format.folded, out);
        }
        Some(ExportedView::Blame) => return blame::write(recording, &options.format.folded, out),
        Some(ExportedView::Tasks) => return tasks::write(recording, &options.format.folded, out),
        _ => {}
    }
    for lost in format.write(recording, &options, out)? {
        eprintln!("wallscope: not in {}: {lost}", format.name());
    }
    Ok(())
}
