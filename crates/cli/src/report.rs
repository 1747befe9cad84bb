//! `wallscope report FILE`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, ValueEnum};
use wallscope_analysis::inflation::{is_instrumented, view_of};
use wallscope_analysis::view::{Analysis, Idle, groups};
use wallscope_diagnose::finding;
use wallscope_model::{Recording, View};
use wallscope_render::text::{Headline, Style};
use wallscope_render::{inflation, json, markdown, text};

use crate::failure::Failure;
use crate::select::SelectArgs;
use crate::{annotate, input, output};

/// Show where the wall time went: a sentence, the ledger, functions, stacks, and how far to trust
/// them
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("form"),
    group = ArgGroup::new("viewed"),
    after_help = "\
Examples:
  wallscope report rec.pb.gz                 the report, as wide as the terminal
  wallscope report rec.pb.gz --json | jq '.threads[] | {name, blocked_ns}'
  wallscope report rec.pb.gz --md >> ticket.md
  wallscope report - < rec.pb.gz             from standard input
  wallscope report rec.pb.gz --focus reserve --time 2..7.5
  wallscope report rec.pb.gz --by endpoint   time by the values of a label
  wallscope report rec.pb.gz --annotate parse --view on-cpu   its lines and instructions
  wallscope report prof.pstats --beside rec.pb.gz             what instrumentation inflates

Colour is used on a terminal unless NO_COLOR is set; COLUMNS overrides its width."
)]
pub struct Args {
    /// A recording, or a profile of another tool (see export --help); - reads standard input
    file: PathBuf,
    #[command(flatten)]
    reading: input::Reading,
    /// Everything as JSON (schema wallscope.report/1); never hides idle time
    #[arg(long, group = "form")]
    json: bool,
    /// As Markdown, for a ticket
    #[arg(long, group = "form")]
    md: bool,
    /// What to do with idle time (blocked while no request is in flight)
    #[arg(long, value_enum, default_value_t = IdleArg::Hide)]
    idle: IdleArg,
    /// Instead, a table of time by thread, process, state, reason, cpu, or a label of the file's own
    #[arg(long, value_name = "KEY", group = "form")]
    by: Option<String>,
    /// Instead, a function line by line and instruction by instruction, with shares; where several
    /// are called so, their names
    #[arg(long, value_name = "FUNCTION", groups = ["form", "viewed"])]
    annotate: Option<String>,
    /// Instead, of a profile by instrumentation (Python's or gprof's): how many times its shares are
    /// those of this sampled profile of the same program
    #[arg(long, value_name = "SAMPLED", groups = ["form", "viewed"])]
    beside: Option<PathBuf>,
    /// With --annotate and --beside: which time [default: wall; beside gprof's on-cpu]
    #[arg(long, requires = "viewed", value_parser = view())]
    view: Option<View>,
    #[command(flatten)]
    select: SelectArgs,
}

/// A view by its name.
fn view() -> impl TypedValueParser<Value = View> {
    PossibleValuesParser::new(View::ALL.iter().map(|v| v.name()))
        .map(|name| View::from_name(&name).unwrap_or(View::Wall))
}

/// `--idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleArg {
    /// Like any other time
    Show,
    /// Left out, and said how much
    Hide,
    /// Nothing else
    Only,
}

impl From<IdleArg> for Idle {
    fn from(arg: IdleArg) -> Idle {
        match arg {
            IdleArg::Show => Idle::Show,
            IdleArg::Hide => Idle::Hide,
            IdleArg::Only => Idle::Only,
        }
    }
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let recording = args
        .select
        .of(input::recording(&args.file, &args.reading)?)?;
    let headline = headline(&recording);
    let out = if let Some(sampled) = &args.beside {
        if !is_instrumented(&recording) {
            return Err(Failure::usage(format!(
                "'{}' is no profile by instrumentation: --beside is for Python's (cProfile) and \
                 gprof's; compare sampled ones with wallscope diff",
                args.file.display()
            )));
        }
        let sampled = input::recording(sampled, &args.reading)?;
        let view = args.view.unwrap_or(view_of(&recording));
        inflation::text(&recording, &sampled, view)
    } else if args.json {
        json::render(&Analysis::new(&recording, Idle::Show), &headline)
    } else {
        let analysis = Analysis::new(&recording, args.idle.into());
        if let Some(function) = &args.annotate {
            annotate::text(
                &analysis,
                function,
                args.view.unwrap_or(View::Wall),
                &input::owner(&args.file),
            )?
        } else if let Some(key) = &args.by {
            let unit = &recording.domain.unit;
            let rows = groups(&analysis, key);
            if rows.iter().all(|row| row.value.is_none()) {
                eprintln!(
                    "wallscope: warning: --by {key} meets nothing in this recording; it has {}",
                    keys(&recording).join(", ")
                );
            }
            text::groups_text(&rows, key, unit, usize::MAX - 1)
        } else if args.md {
            markdown::render(&analysis, &headline)
        } else {
            text::render(&analysis, &headline, &style())
        }
    };
    output::to_stdout(|w| w.write_all(out.as_bytes()))
}

/// Keys by which time can be grouped: the contract's own, then the file's labels.
fn keys(recording: &Recording) -> Vec<&str> {
    let mut labels: Vec<&str> = (recording.label_sets.iter().flatten())
        .map(|label| &*label.key)
        .collect();
    labels.sort_unstable();
    labels.dedup();
    let own = ["thread", "process", "state", "reason", "cpu"];
    own.into_iter().chain(labels).collect()
}

/// The sentence on top, and its evidence.
pub fn headline(recording: &Recording) -> Headline {
    let finding = finding(recording);
    let verdict = finding.verdict.into_iter();
    let root = verdict
        .filter_map(|v| v.parts.root)
        .map(|root| format!("because of: {root}"));
    let also = finding.also.into_iter();
    let also = also.map(|(rule, says)| format!("also: {says} [{rule}]"));
    Headline {
        sentence: finding.sentence,
        because: root.chain(also).collect(),
    }
}

/// The style that fits standard output and the environment.
pub fn style() -> Style {
    let env = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|n| env(n));
    let utf8 = |l: String| {
        let l = l.to_ascii_lowercase();
        l.contains("utf-8") || l.contains("utf8")
    };
    Style {
        width: output::width(),
        colour: output::is_terminal()
            && env("NO_COLOR").is_none()
            && env("TERM").is_none_or(|t| t != "dumb"),
        // Without a locale we assume UTF-8, which terminals of today read.
        unicode: locale.is_none_or(utf8),
    }
}
