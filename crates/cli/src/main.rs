//! wallscope: the command line. Arguments in, exit code out; the only crate that prints or exits.
//!
//! One file a verb, one row each in [`Verb`]. Errors reach the user once, as `wallscope: …` with
//! the cause, the value at fault and the next step ([`failure`]).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[macro_use]
mod stderr;

mod agent;
mod annotate;
mod calibrate;
mod completions;
mod count;
mod diff;
mod doctor;
mod events;
mod export;
mod failure;
mod import_postprocess;
mod input;
mod ladder;
mod latency;
mod locks;
mod man;
mod output;
mod probe_steps;
mod queues;
mod record;
mod recover;
mod replay;
mod report;
mod select;
mod slow;
mod snap;
mod source;
mod spool;
mod stat;
mod target_args;
mod top;
mod verdict;
mod view;
mod why;
mod windows;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Where did the wall time go? All of it, for every thread: computing, waiting for a CPU, or
/// blocked, each with stacks, and the parts add up to the whole.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 not permitted or not supported here, 4 no such target,
5 input unreadable, 10 a --fail-if fired."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs.
#[derive(Subcommand)]
enum Verb {
    Record(record::Args),
    Replay(replay::Args),
    Recover(recover::Args),
    Report(report::Args),
    View(view::Args),
    Export(export::Args),
    Ladder(Box<ladder::Args>),
    Calibrate(Box<calibrate::Args>),
    Stat(stat::Args),
    Top(top::Args),
    Locks(locks::Args),
    Queues(Box<queues::Args>),
    Why(why::Args),
    Diff(Box<diff::Args>),
    Count(count::Args),
    Latency(latency::Args),
    Agent(agent::Args),
    Snap(snap::Args),
    Doctor(doctor::Args),
    Man(man::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    // Without a handler the signal would end us. With a handler the write fails, and we can report that. A
    // command that is started has the signal's default action.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => return asked_or_wrong(&message),
    };
    let result = match cli.verb {
        Verb::Record(args) => record::run(args),
        Verb::Replay(args) => replay::run(args),
        Verb::Recover(args) => recover::run(args),
        Verb::Report(args) => report::run(args),
        Verb::View(args) => view::run(args),
        Verb::Export(args) => export::run(args),
        Verb::Ladder(args) => ladder::run(*args),
        Verb::Calibrate(args) => calibrate::run(*args),
        Verb::Top(args) => top::run(args),
        Verb::Stat(args) => stat::run(args),
        Verb::Locks(args) => locks::run(args),
        Verb::Queues(args) => queues::run(*args),
        Verb::Why(args) => why::run(args),
        Verb::Diff(args) => diff::run(*args),
        Verb::Count(args) => count::run(args),
        Verb::Latency(args) => latency::run(args),
        Verb::Agent(args) => agent::run(args),
        Verb::Snap(args) => snap::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Man(args) => man::run(args, Cli::command()),
        Verb::Completions(args) => completions::run(args, Cli::command()),
    };
    match result {
        Ok(()) if input::was_cut() => failure::Failure::told(5).report(),
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints clap's output: the help that was asked for, or the fault in the arguments.
fn asked_or_wrong(message: &clap::Error) -> ExitCode {
    let said = message.print().and_then(|()| std::io::stdout().flush());
    match said {
        Ok(()) => ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(1)),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {
            failure::Failure::reader_gone().report()
        }
        Err(e) => {
            failure::Failure::from(anyhow::Error::new(e).context("cannot write to standard output"))
                .report()
        }
    }
}
