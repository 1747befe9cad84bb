//! `wallscope replay`: a kept log of observations → its recording.

use std::path::PathBuf;

use wallscope_capture::session::replay;
use wallscope_observe::LogReader;

use crate::{
    failure::Failure,
    output::{Output, Readers},
    record,
};

/// Make the recording of a kept log again: without root, on any machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wallscope record --keep-log run.log -o run.pb.gz -p 1234 -d 10
  wallscope replay run.log -o again.pb.gz      the same recording, byte for byte
  head -n 6 run.log                            what a log contains

A log that has no end, or is damaged, gives no recording: it says where it ends, and why.")]
pub struct Args {
    /// A log that `record --keep-log` made
    log: PathBuf,

    /// Where to write, - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let log = args.log.display();
    let mut reader = LogReader::open(&args.log)
        .map_err(|e| Failure::unreadable(format!("cannot replay '{log}': {e}")))?;
    let output = Output::create(&args.output, Readers::Owner)?;
    let mut replayed = replay::replay(&mut reader)
        .map_err(|e| Failure::unreadable(format!("cannot replay '{log}': {e}")))?;
    record::mark(&mut replayed.recording, &replayed.seen);
    replayed.recording.domain.notes.extend(replayed.notes);
    let path = record::write(output, &replayed.recording)?;
    eprintln!("wallscope: {}", record::written(&path));
    Ok(())
}
