//! `wallscope replay`: a kept log of observations → its recording.

use std::path::PathBuf;

use wallscope_capture::session::replay::{self, ReplayError, Replayed};
use wallscope_observe::LogReader;

use crate::{
    failure::Failure,
    output::{Output, Readers},
    record::{self, NotWritten},
};

/// Make the recording of a kept log again: without root, on any machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wallscope record --keep-log run.log -o run.pb.gz -p 1234 -d 10
  wallscope replay run.log -o again.pb.gz      the same recording, byte for byte
  head -n 6 run.log                            what a log contains

A log that has no end, or is damaged, gives no recording: it says where it ends, and why.
`wallscope recover` makes a recording of what it has.")]
pub struct Args {
    /// A log that `record --keep-log` made
    log: PathBuf,

    /// Where to write, - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Do not follow the waits (`xtask bench --blame` measures the cost of following them)
    #[arg(long, hide = true)]
    without_blame: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let log = args.log.display();
    let mut reader = LogReader::open(&args.log)
        .map_err(|e| Failure::unreadable(format!("cannot replay '{log}': {e}")))?;
    let output = Output::create(&args.output, Readers::Owner)?;
    let rebuilt = match args.without_blame {
        true => replay::replay_without_blame(&mut reader),
        false => replay::replay(&mut reader),
    };
    let written = rebuilt.map_err(NotReplayed::Log);
    let written = written.and_then(|replayed| write(replayed, output));
    written.map_err(|e| match e {
        NotReplayed::Log(e) => Failure::unreadable(format!("cannot replay '{log}': {e}")),
        NotReplayed::Output(e) => e.into(),
    })
}

/// Why a log was not replayed.
pub enum NotReplayed {
    /// It gives no recording.
    Log(ReplayError),
    /// The recording cannot be written.
    Output(NotWritten),
}

/// Replays a whole log.
pub fn whole(reader: &mut LogReader, output: Output) -> Result<(), NotReplayed> {
    write(replay::replay(reader).map_err(NotReplayed::Log)?, output)
}

/// Writes the recording of a log.
fn write(mut replayed: Replayed, output: Output) -> Result<(), NotReplayed> {
    record::mark(&mut replayed.recording, &replayed.seen);
    replayed.recording.domain.notes.extend(replayed.notes);
    let path = record::write(output, &replayed.recording).map_err(NotReplayed::Output)?;
    eprintln!("wallscope: {}", record::written(&path));
    Ok(())
}
