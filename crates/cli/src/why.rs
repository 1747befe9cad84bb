//! `wallscope why FILE`, or of a live target.

use wallscope_analysis::view::{Analysis, Idle, Subject};
use wallscope_model::Recording;
use wallscope_render::waits;

use crate::annotate;
use crate::failure::Failure;
use crate::{
    output,
    source::{BRIEFLY, OpenedRecording, Source},
};

/// Follow the waits of a thread or a function to their root: the thread that ended each wait, and its own
/// waits meanwhile, hop by hop
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("subject").required(true),
    after_help = "\
Examples:
  wallscope why rec.pb.gz --thread worker
  wallscope why rec.pb.gz --function handle_request
  wallscope why -p 1234 -d 10 --thread main --json

Parts of a wait sum to it, and no time is counted twice.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// All threads with this name
    #[arg(long, value_name = "NAME", group = "subject")]
    thread: Option<String>,
    /// All stacks with a function of this name
    #[arg(long, value_name = "NAME", group = "subject")]
    function: Option<String>,
    /// Parts smaller than this are left out of the tree and summed, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    least: f64,
    /// As JSON (schema wallscope.why/1), with all parts
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    if !(0.0..=100.0).contains(&args.least) {
        return Err(Failure::usage(format!(
            "--least is a percentage from 0 to 100, not {}",
            args.least
        )));
    }
    let OpenedRecording { recording, .. } = args.source.recording("why", BRIEFLY)?;
    let analysis = Analysis::new(&recording, Idle::Show);
    let subject = match (args.thread, args.function) {
        (Some(name), _) => Subject::Thread(thread(&recording, name)?),
        (_, name) => {
            let found = annotate::find(&analysis, &name.unwrap_or_default())?;
            Subject::Function(found.to_string())
        }
    };
    let text = if args.json {
        waits::why_json(&analysis, &subject)
    } else {
        waits::why_text(&analysis, &subject, args.least / 100.0)
    };
    output::to_stdout(|w| w.write_all(text.as_bytes()))
}

/// The most threads that are named.
const MAX_THREADS: usize = 8;

/// `name`, if a thread is called so.
fn thread(recording: &Recording, name: String) -> Result<String, Failure> {
    if recording.contexts.iter().any(|c| *c.name == *name) {
        return Ok(name);
    }
    let mut names: Vec<&str> = (recording.contexts.iter()).map(|c| &*c.name).collect();
    names.sort_unstable();
    names.dedup();
    let more = if names.len() > MAX_THREADS {
        ", …"
    } else {
        ""
    };
    names.truncate(MAX_THREADS);
    Err(Failure::usage(format!(
        "no thread of this recording is called '{name}'; its threads are: {}{more}",
        names.join(", ").replace('\n', " ")
    )))
}
