//! `wallscope diff BASE… -- NEW…`.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use wallscope_analysis::diff::{
    Condition, Metric, Normal, Options, Outcome, Verdict, compare, served as served_of,
};
use wallscope_model::{Recording, View};
use wallscope_render::diff::{self, Shown};

use crate::failure::Failure;
use crate::output::{Output, Readers};
use crate::report::{IdleArg, style};
use crate::select::SelectArgs;
use crate::{input, output};

/// Compare recordings, and tell real changes from noise
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope diff before.pb.gz -- after.pb.gz
  wallscope diff base-*.pb.gz -- new-*.pb.gz           several runs tell how much runs differ
  wallscope diff a.pb.gz -- b.pb.gz --per request         as served while recording
  wallscope diff a.pb.gz -- b.pb.gz --per request --base-requests 12000 --new-requests 11800
  wallscope diff a.pb.gz -- b.pb.gz --fail-if 'on-cpu:+2%' --fail-if 'wall@reserve:+10%'
  wallscope diff a.pb.gz -- b.pb.gz --format html -o diff.html
  wallscope diff a.pb.gz -- b.pb.gz --format folded | flamegraph.pl --countname ns
  wallscope diff a.pb.gz -- b.pb.gz --resolve 1        how much longer to record for 1 %

Options go before BASE or after NEW. One run a side can only judge by blocks of time within it: record
several runs of each side, in turn. DiffArgs differences are judged: docs/accuracy.md.
Exit code 10: a --fail-if fired.")]
pub struct Args {
    /// Recordings before the change
    #[arg(required = true, value_name = "BASE")]
    base: Vec<PathBuf>,
    /// Recordings after it, and further options
    #[arg(
        last = true,
        required = true,
        allow_hyphen_values = true,
        value_name = "NEW"
    )]
    new: Vec<String>,
    #[command(flatten)]
    how: DiffArgs,
}

/// The options, which may also follow NEW.
#[derive(clap::Args, Clone, Debug)]
pub struct DiffArgs {
    /// How to write it
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    /// Short for --format json (schema wallscope.diff/1)
    #[arg(long, conflicts_with_all = ["format", "md"])]
    json: bool,
    /// Short for --format md: a comment for a pull request
    #[arg(long, conflicts_with = "format")]
    md: bool,
    /// Where to write; without it, standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Which time
    #[arg(long, value_parser = views(), default_value = "wall")]
    view: View,
    /// What values are divided by
    #[arg(long, value_enum, default_value_t = Per::Second)]
    per: Per,
    /// Requests served in each base run, one count or one for each file
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = positive)]
    base_requests: Vec<f64>,
    /// Requests served in each new run
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = positive)]
    new_requests: Vec<f64>,
    /// The unit that a stack's time is given to
    #[arg(long, value_enum, default_value_t = FunctionRole::Program)]
    by: FunctionRole,
    /// At most this share of reported functions may be chance, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    fdr: f64,
    /// List so many functions that did not change
    #[arg(long, value_name = "N", default_value_t = 8)]
    noise: usize,
    /// Say how many recordings it takes to find a change of this many percent of the base's time
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    resolve: Option<f64>,
    /// Exit with 10 where this grew (or shrank) beyond noise: WHAT[@FUNCTION]:+AMOUNT
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// What to do with idle time
    #[arg(long, value_enum, default_value_t = IdleArg::Hide)]
    idle: IdleArg,
    #[command(flatten)]
    reading: input::Reading,
    #[command(flatten)]
    select: SelectArgs,
}

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table for the terminal
    Text,
    /// Everything, schema wallscope.diff/1
    Json,
    /// Markdown, for a pull request
    Md,
    /// The --fail-if conditions as test cases
    Junit,
    /// Two columns as difffolded.pl writes them
    Folded,
    /// New less base, as pprof -base computes it
    Pprof,
    /// A differential flame graph in one file
    Html,
}

/// `--per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Per {
    /// Seconds of recording
    Second,
    /// Seconds of on-CPU time
    CpuSecond,
    /// All time: shares
    Total,
    /// Requests served over sockets, or as --base-requests and --new-requests say
    Request,
    /// Nothing: the time of a run
    Raw,
}

/// `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FunctionRole {
    /// The innermost function of the program; kernel and libraries of the language count for it
    Program,
    /// The innermost function, whatever it is
    Own,
    /// Every function on the stack
    Total,
}

fn views() -> impl TypedValueParser<Value = View> {
    PossibleValuesParser::new(View::ALL.iter().map(|v| v.name()))
        .map(|name| View::from_name(&name).unwrap_or(View::Wall))
}

fn percent(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.trim_end_matches('%').trim().parse().ok();
    value
        .filter(|v| *v > 0.0 && *v < 100.0)
        .map(|v| v / 100.0)
        .ok_or("it must be a percentage above 0 and below 100".to_string())
}

fn positive(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.parse().ok();
    value
        .filter(|v| *v > 0.0 && v.is_finite())
        .ok_or("it must be a count above 0".to_string())
}

/// Options that follow NEW: a command line of their own.
#[derive(clap::Parser)]
#[command(name = "wallscope diff BASE… --", no_binary_name = true)]
struct After {
    #[arg(required = true, value_name = "NEW")]
    new: Vec<PathBuf>,
    #[command(flatten)]
    how: DiffArgs,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let (new, how) = new_and_how(args.new, args.how);
    let mut options = options(&how, args.base.len(), new.len())?;
    let form = match (how.json, how.md) {
        (true, _) => Form::Json,
        (_, true) => Form::Md,
        _ => how.format,
    };
    if form == Form::Junit && how.fail_if.is_empty() {
        return Err(Failure::usage(
            "--format junit reports conditions: add at least one, such as --fail-if 'on-cpu:+2%'",
        ));
    }
    let place = output::file(how.output.as_deref());
    if form == Form::Pprof && place.is_none() && output::is_terminal() {
        return Err(Failure::usage(
            "pprof is binary and would garble the terminal: add -o FILE, or pipe it",
        ));
    }
    // The place is tried before the work is done.
    let file = place
        .map(|path| Output::create(path, Readers::Umask))
        .transpose()?;
    let read = |files: &[PathBuf]| -> Result<Vec<Recording>, Failure> {
        files
            .iter()
            .map(|f| how.select.of(input::recording(f, &how.reading)?))
            .collect()
    };
    let (base, new_recordings) = (read(&args.base)?, read(&new)?);
    if how.per == Per::Request && options.base_requests.is_empty() {
        options.base_requests = served(&args.base, &base)?;
        options.new_requests = served(&new, &new_recordings)?;
        options.requests_served = true;
    }
    let comparison = compare(&base, &new_recordings, &options)
        .map_err(|e| Failure::usage(format!("cannot compare these files: {e}")))?;
    for condition in &how.fail_if {
        condition.fits(&comparison).map_err(Failure::usage)?;
    }
    let outcomes: Vec<Outcome> = (how.fail_if.iter()).map(|c| c.judge(&comparison)).collect();
    let write = |w: &mut dyn std::io::Write| -> std::io::Result<()> {
        let text = match form {
            Form::Text => {
                let shown = Shown {
                    noise: how.noise,
                    resolve: how.resolve,
                };
                diff::text(&comparison, &outcomes, shown, &style())
            }
            Form::Json => diff::json(&comparison, &outcomes),
            Form::Md => diff::markdown(&comparison, &outcomes),
            Form::Junit => diff::junit(&outcomes),
            Form::Folded => return diff::write_folded(&comparison, &base, &new_recordings, w),
            Form::Pprof => return diff::write_pprof(&comparison, &base, &new_recordings, w),
            Form::Html => {
                let mut w = w;
                let title = format!("{} → {}", named(&args.base), named(&new));
                return diff::write_page(&comparison, [&base, &new_recordings], &title, &mut w);
            }
        };
        w.write_all(text.as_bytes())
    };
    match file {
        None => output::to_stdout(write)?,
        Some(mut out) => {
            write(&mut out)
                .map_err(|e| anyhow::Error::new(e).context(output::unwritable(out.path())))?;
            out.finish()?;
        }
    }
    fail_if_fired(&outcomes)
}

/// The NEW files, and the options. Everything behind `--` is NEW to the command line; a word there that begins as an
/// option is one.
fn new_and_how(new: Vec<String>, how: DiffArgs) -> (Vec<PathBuf>, DiffArgs) {
    let follows = |a: &String| a.starts_with('-') && a != "-";
    if new.iter().any(follows) {
        let after = <After as clap::Parser>::try_parse_from(&new).unwrap_or_else(|e| e.exit());
        (after.new, after.how)
    } else {
        (new.into_iter().map(PathBuf::from).collect(), how)
    }
}

/// Exit code 10 if a condition holds; a warning for each that cannot be decided.
fn fail_if_fired(outcomes: &[Outcome]) -> Result<(), Failure> {
    for o in outcomes {
        if o.verdict == Verdict::Undecided || o.verdict == Verdict::Nothing {
            eprintln!(
                "wallscope: warning: {} is not decided: {}",
                o.condition, o.says
            );
        }
    }
    let fired: Vec<String> = (outcomes.iter())
        .filter(|o| o.verdict == Verdict::Fired)
        .map(|o| format!("{}: {}", o.condition, o.says))
        .collect();
    if fired.is_empty() {
        return Ok(());
    }
    Err(Failure::of(10, anyhow::Error::msg(fired.join("; "))))
}

/// Requests that each recording saw being served.
fn served(files: &[PathBuf], recordings: &[Recording]) -> Result<Vec<f64>, Failure> {
    let of = |(file, rec): (&PathBuf, &Recording)| match served_of(rec) {
        Some(requests) => Ok(requests as f64),
        None => Err(Failure::usage(format!(
            "no requests to divide by: '{}' saw none being served over sockets, or not each of them (with eBPF \
             they are counted); give counts with --base-requests and --new-requests",
            file.display()
        ))),
    };
    files.iter().zip(recordings).map(of).collect()
}

/// A side in a few words.
fn named(files: &[PathBuf]) -> String {
    let first = files[0].file_name().unwrap_or(files[0].as_os_str());
    match files.len() {
        1 => first.to_string_lossy().into_owned(),
        n => format!("{} and {} more", first.to_string_lossy(), n - 1),
    }
}

fn options(how: &DiffArgs, base: usize, new: usize) -> Result<Options, Failure> {
    let fits = |given: &[f64], files: usize| given.len() == 1 || given.len() == files;
    let counts_given = !how.base_requests.is_empty() || !how.new_requests.is_empty();
    if how.per == Per::Request {
        if counts_given && !(fits(&how.base_requests, base) && fits(&how.new_requests, new)) {
            return Err(Failure::usage(format!(
                "--base-requests and --new-requests go together, each with one count or one for each \
                 file ({base} and {new} here); without both, requests are as served while recording"
            )));
        }
        if !counts_given && how.select.selects_time() {
            return Err(Failure::usage(
                "requests are counted over the whole recording, not over a part of its time: give \
                 counts with --base-requests and --new-requests",
            ));
        }
    } else if counts_given {
        return Err(Failure::usage(
            "--base-requests and --new-requests go with --per request",
        ));
    }
    Ok(Options {
        view: how.view,
        idle: how.idle.into(),
        normal: match how.per {
            Per::Second => Normal::Second,
            Per::CpuSecond => Normal::CpuSecond,
            Per::Total => Normal::Total,
            Per::Request => Normal::Request,
            Per::Raw => Normal::Raw,
        },
        metric: match how.by {
            FunctionRole::Program => Metric::Program,
            FunctionRole::Own => Metric::Own,
            FunctionRole::Total => Metric::Total,
        },
        base_requests: how.base_requests.clone(),
        new_requests: how.new_requests.clone(),
        requests_served: false,
        fdr: how.fdr,
    })
}
