//! `wallscope locks FILE`, or of a live target.

use wallscope_analysis::view::{Analysis, Idle};
use wallscope_render::waits;

use crate::failure::Failure;
use crate::{
    output,
    source::{BRIEFLY, OpenedRecording, Source},
};

/// Which locks were waited for, where, and how their holders spent the time
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope locks rec.pb.gz
  wallscope locks -p 1234 -d 10          measure ten seconds of a process first
  wallscope locks rec.pb.gz --json | jq '.locks[0].holders'

Totals, longest waits and counts of user-space locks are exact, from every wait. The
place of a wait, the thread that ended it, and the work of that thread meanwhile come from the waits that were
charged to a stack.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// As JSON (schema wallscope.locks/1)
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let OpenedRecording { recording, .. } = args.source.recording("locks", BRIEFLY)?;
    let analysis = Analysis::new(&recording, Idle::Show);
    let text = if args.json {
        waits::locks_json(&analysis)
    } else {
        waits::locks_text(&analysis)
    };
    output::to_stdout(|w| w.write_all(text.as_bytes()))
}
