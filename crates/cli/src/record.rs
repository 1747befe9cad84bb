//! `wallscope record`: measure, name, write.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use wallscope_capture::counter::EventSpec;
use wallscope_capture::session::{self, Live, Log, Method, Observer, Options, Progress, Stop};
use wallscope_capture::target::Target;
use wallscope_formats::pprof;
use wallscope_model::printable::printable;
use wallscope_model::scale::scale;
use wallscope_model::{Process, Recording, WaitSeen};
use wallscope_observe::{CountedLoss, Counter, LogFile, LogWriter, Observation, Spool, Unresolved};
use wallscope_render::text;

use crate::failure::Failure;
use crate::output::{self, Output, Readers, give_to_caller};
use crate::spool;
use crate::target_args::TargetArgs;

/// Measure a process, command, cgroup or the machine, and write the recording.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wallscope record -p 1234 -d 10            ten seconds of a running process
  wallscope record -o run.pb.gz -- make -j4 a command from start to end
  wallscope record --cgroup /sys/fs/cgroup/system.slice/nginx.service -d 30
  wallscope record -a -d 5                  everything on the machine
  wallscope record --timeline -p 1234 -d 60 every interval of every thread
  wallscope record -e page-faults,syscalls:sys_enter_write -p 1234 -d 10
  wallscope record --keep-log run.log -p 1234 -d 10

The line with `recording` on standard error appears exactly when measuring is live.
Then: wallscope report FILE")]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,

    /// Where to write, - for standard output; default: a dated name in this folder
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    method: Method,

    /// Stacks at these events too: software (page-faults), tracepoints (syscalls:sys_enter_write),
    /// hardware counters where there are any; `report --value EVENT` shows them
    #[arg(short = 'e', long = "event", value_name = "EVENT,…")]
    events: Vec<String>,

    /// Also keep the observations that the recording is made from; `wallscope replay LOG` makes it
    /// again without root. Readable by you alone: it holds command lines, paths and addresses, and no
    /// stack memory
    #[arg(long, value_name = "LOG")]
    keep_log: Option<PathBuf>,

    /// Keep in that log, too, the stack memory that was copied to be unwound: passwords and keys may be in it.
    /// For a look into a stack that is wrong; the log grows by up to 32 KiB a sample
    #[arg(long, requires = "keep_log")]
    keep_memory: bool,

    /// Most of the spool, the log beside the output from which `wallscope recover` makes the recording
    /// if this process is killed; it goes when the recording is written. 0: no spool
    #[arg(long, value_name = "MIB", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(0..=1_048_576))]
    spool_limit: u64,
}

impl Args {
    /// The session's options; the log is opened later.
    fn options(&self) -> Result<Options, Failure> {
        let target = self.target.target().ok_or_else(|| {
            Failure::usage("record needs a target: -p PID, --cgroup PATH, -a, or -- CMD ARGS…")
        })?;
        Ok(Options {
            events: events(&self.events)?,
            ..Options::new(target, self.method.clone())
        })
    }
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut options = args.options()?;
    warn_of_aliasing(args.method.hz);
    if args.output.as_deref() == Some(Path::new("-")) {
        if matches!(options.target, Target::Command(_)) {
            return Err(Failure::usage(
                "-o - would mix the recording with the command's own output: name a file",
            ));
        }
        if crate::output::is_terminal() {
            return Err(Failure::usage(
                "a recording is binary and would garble the terminal: name a file with -o, or pipe it",
            ));
        }
    }
    let kept = (args.keep_log.as_deref()).map(|path| kept_log(path, args.keep_memory));
    let kept = kept.transpose()?;
    let output = output(args.output.as_deref())?;
    options.log = match kept {
        Some(kept) => Some(Log::Kept(kept)),
        None => spool::beside(&output, args.spool_limit << 20).map(Log::Spool),
    };
    let Recorded {
        recording,
        path,
        log,
        outcome,
        ..
    } = measure(&options, output)?;
    let sentence = wallscope_diagnose::finding(&recording).sentence;
    eprintln!("wallscope: {}", printable(&sentence));
    eprintln!("wallscope: {}", written(&path));
    if let Some(log) = log {
        eprintln!("wallscope: {log}");
    }
    outcome
}

/// Opens the log that is asked for: before measuring begins.
fn kept_log(path: &Path, with_memory: bool) -> anyhow::Result<LogFile> {
    let log = LogFile::create(path).and_then(|log| {
        give_to_caller(log.file())?;
        Ok(if with_memory { log.with_memory() } else { log })
    });
    log.with_context(|| {
        format!(
            "cannot keep a log in '{}'; choose another place with --keep-log",
            path.display()
        )
    })
}

/// Ends a log, and returns the outcome in words.
fn close(log: LogWriter) -> String {
    let path = log.path().to_path_buf();
    let closed = match log.close() {
        Ok(closed) => closed,
        Err(why) => return why,
    };
    let left_out = match closed.left_out.is_empty() {
        true => String::new(),
        false => format!(
            "; {} wakers and {} samples are not in it, as it grew to its bound",
            closed.left_out.wakes, closed.left_out.samples
        ),
    };
    format!(
        "kept {} KiB of observations in {1}; `wallscope replay {1} -o FILE` makes the recording again\
         {left_out}",
        closed.bytes.div_ceil(1024),
        path.display()
    )
}

/// The message that a recording is in `path` now, with the command that shows it.
pub fn written(path: &Path) -> String {
    if path == Path::new("-") {
        return "wrote the recording to standard output".into();
    }
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return format!("wrote the recording to {}", path.display());
    }
    format!("wrote {0}; `wallscope report {0}` shows it", path.display())
}

/// Output of a recording: `path`, else a file in this folder named after the time.
///
/// # Errors
/// It cannot be written there.
pub fn output(path: Option<&Path>) -> anyhow::Result<Output> {
    if let Some(path) = path {
        return Output::create(path, Readers::Owner);
    }
    Output::create_beside(&dated_name(), Readers::Owner)
}

/// `wallscope-20260131-154500.pb.gz`, local time.
pub fn dated_name() -> PathBuf {
    let time = jiff::Zoned::now()
        .strftime("%Y%m%d-%H%M%S.pb.gz")
        .to_string();
    [output::UNASKED, &time].concat().into()
}

/// A recording that was made now, and written.
pub struct Recorded {
    /// The recording, named.
    pub recording: Recording,
    /// Its file.
    pub path: PathBuf,
    /// Why it stopped.
    pub stop: Stop,
    /// Outcome of the log of observations, in words.
    pub log: Option<String>,
    /// The verb's result after all messages: a command's own status.
    pub outcome: Result<(), Failure>,
}

/// Measures, names and writes.
pub fn measure(options: &Options, output: Output) -> Result<Recorded, Failure> {
    let mut teller = Teller {
        terminal: io::stderr().is_terminal(),
        shown: false,
    };
    let spool = match &options.log {
        Some(Log::Spool(spool)) => Some(spool),
        Some(Log::Kept(_)) | None => None,
    };
    let captured = session::record(options, &mut teller).map_err(|e| {
        // Nothing was recorded.
        spool.inspect(|spool| spool.remove());
        Failure::of(e.exit_code(), anyhow::Error::new(e))
    })?;
    let mut recording = captured.recording;
    let mut log = captured.log;
    let unresolved = log.is_some().then(|| Unresolved::of(&recording));
    let unnamed = wallscope_symbolize::resolve(&mut recording, captured.sources);
    let mut keep = |observation: Observation<'_>| {
        if let Some(log) = &mut log {
            log.append(&observation);
        }
    };
    if let Some(unresolved) = unresolved {
        unresolved.found(&recording).for_each(&mut keep);
    }
    for loss in &unnamed {
        keep(Observation::Loss(CountedLoss {
            by: Counter::Symboliser,
            cause: loss.cause.clone(),
            count: loss.count,
        }));
    }
    recording.losses.extend(unnamed);
    mark(&mut recording, &captured.seen);
    let command = matches!(options.target, Target::Command(_));
    let left = (command && captured.stop == Stop::TargetEnded).then(|| left_behind(&recording));
    let left = left.flatten();
    if let Some(left) = &left {
        keep(Observation::Note(left.as_str().into()));
    }
    recording.domain.notes.extend(left.clone());
    let no_spool = spool::none(options.log.as_ref(), &output);
    recording.domain.notes.extend(no_spool);
    let written = write(output, &recording);
    match (spool, &written) {
        (Some(spool), Err(NotWritten { saved: None, .. })) => say_that_it_stays(spool),
        (Some(spool), _) => spool.remove(),
        (None, _) => {}
    }
    let path = written?;
    let log = log.map(close);
    drop(captured.signals);
    teller.clear();
    if let Some(left) = left {
        eprintln!("wallscope: {left}");
    }
    if command && captured.stop != Stop::TargetEnded {
        eprintln!(
            "wallscope: the recording ended before the command, which was ended too (SIGTERM)"
        );
    }
    let outcome = match (captured.stop, captured.command_end) {
        (Stop::Duration, _) | (_, None) => Ok(()),
        (_, Some(end)) if end.exit_code() == 0 => Ok(()),
        (_, Some(end)) => Err(Failure::told(end.exit_code())),
    };
    Ok(Recorded {
        recording,
        path,
        stop: captured.stop,
        log,
        outcome,
    })
}

/// Prints that a lost recording can be made from its spool.
fn say_that_it_stays(spool: &Spool) {
    if let Some(path) = spool.path() {
        eprintln!(
            "wallscope: `wallscope recover {} -o FILE` makes the recording from its spool",
            path.display()
        );
    }
}

/// Marks waits by names and connections: locks that are none, and idle time.
pub fn mark(recording: &mut Recording, seen: &[WaitSeen]) {
    wallscope_diagnose::lock_names::name(recording);
    wallscope_diagnose::idle::mark(recording, seen);
    wallscope_diagnose::collections::mark(recording);
}

/// The message that a command has ended while processes that it started still run, as those of a daemon.
fn left_behind(recording: &Recording) -> Option<String> {
    let lives = |p: &&Process| {
        let stat = wallscope_procfs::process::stat(p.pid);
        stat.is_ok_and(|s| !matches!(s.state, 'Z' | 'X'))
    };
    let left: Vec<&Process> = recording.processes.iter().filter(lives).collect();
    let first = left.first()?;
    let names: Vec<String> = (left.iter().take(3))
        .map(|p| format!("{} ({})", p.name, p.pid))
        .collect();
    let more = if left.len() > names.len() {
        ", …"
    } else {
        ""
    };
    Some(format!(
        "the command has ended, and with it the recording; what it started still runs: {}{more}; \
         `wallscope record -p {}` follows that",
        names.join(", "),
        first.pid
    ))
}

/// The events of these lists.
fn events(lists: &[String]) -> Result<Vec<EventSpec>, Failure> {
    let mut specs: Vec<EventSpec> = Vec::new();
    for spec in crate::events::named(lists)? {
        if spec.is_time {
            return Err(Failure::usage(format!(
                "{} is the clock by which stacks are taken already: leave it out; -F sets its rate",
                spec.name
            )));
        }
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    Ok(specs)
}

/// The common clock rate that `hz` divides, or else is a multiple of.
fn in_step_with(hz: u32) -> Option<u32> {
    const CLOCKS: [u32; 3] = [100, 250, 1000];
    let divides = CLOCKS.into_iter().find(|clock| clock.is_multiple_of(hz));
    let multiple = || (CLOCKS.into_iter().rev()).find(|clock| hz.is_multiple_of(*clock));
    divides.or_else(multiple)
}

/// Warns of a rate that divides a common clock rate: it samples in step with timers and misses their work.
fn warn_of_aliasing(hz: u32) {
    if let Some(clock) = in_step_with(hz) {
        eprintln!(
            "wallscope: warning: {hz} Hz runs in step with timers of {clock} Hz and may miss or \
             favour what they start; {} Hz does not",
            if hz > 1 { hz - 1 } else { 2 }
        );
    }
}

/// The error that a recording was not written to its place.
pub struct NotWritten {
    /// Why.
    error: anyhow::Error,
    /// The file that has it instead.
    saved: Option<PathBuf>,
}

impl From<NotWritten> for anyhow::Error {
    fn from(not: NotWritten) -> anyhow::Error {
        not.error
    }
}

impl From<NotWritten> for Failure {
    fn from(not: NotWritten) -> Failure {
        not.error.into()
    }
}

/// Writes the recording; returns its file. If that fails, as on a full disk, the recording goes to the folder for
/// temporary files, and the error names its place. So the measurement need not be repeated.
pub fn write(output: Output, recording: &Recording) -> Result<PathBuf, NotWritten> {
    let named = (output.is_file()).then(|| output.path().file_name().map(PathBuf::from));
    let refuge = std::env::temp_dir().join(named.flatten().unwrap_or_else(dated_name));
    let error = match write_to(output, recording) {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    let saved = Output::create_beside(&refuge, Readers::Owner)
        .and_then(|output| write_to(output, recording));
    Err(match saved {
        Ok(refuge) => NotWritten {
            error: error.context(format!(
                "the recording was saved as '{}' instead",
                refuge.display()
            )),
            saved: Some(refuge),
        },
        Err(also) => NotWritten {
            error: error.context(format!(
                "the recording is lost, as '{}' cannot be written either ({also:#})",
                refuge.display()
            )),
            saved: None,
        },
    })
}

fn write_to(mut output: Output, recording: &Recording) -> anyhow::Result<PathBuf> {
    pprof::write(recording, &scale(recording), &mut output)
        .context("cannot write the recording; make room, or choose another place with -o")?;
    output.finish()
}

/// Says on standard error how it goes.
struct Teller {
    terminal: bool,
    shown: bool,
}

impl Teller {
    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Observer for Teller {
    fn live(&mut self, facts: &Live) {
        eprintln!(
            "wallscope: recording {} ({} {}; {} at {} Hz; Ctrl-C ends it)",
            text::clean(&facts.target),
            facts.threads,
            if facts.threads == 1 {
                "thread"
            } else {
                "threads"
            },
            facts.event,
            facts.hz
        );
    }

    fn progress(&mut self, p: &Progress) {
        if self.terminal {
            eprint!(
                "\r\x1b[K{:6.1} s  {} threads  {} stacks",
                p.elapsed.as_secs_f64(),
                p.threads,
                p.stacks
            );
            let _ = io::stderr().flush();
            self.shown = true;
        }
    }

    fn over(&mut self) {
        if self.terminal {
            // From here on Ctrl-C would only lose the measured data.
            eprint!("\r\x1b[Knaming and writing what was recorded (Ctrl-\\ gives it up)");
            let _ = io::stderr().flush();
            self.shown = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_not_given_leave_the_defaults_of_the_library() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: Args,
        }
        let command = <Command as clap::Parser>::parse_from(["record", "-a"]);
        let asked = command.args.options().unwrap();
        let plain = Options::new(asked.target.clone(), Method::default());
        assert_eq!(format!("{asked:?}"), format!("{plain:?}"));
    }

    #[test]
    fn rates_in_step_with_clocks_are_told_with_the_clock() {
        let told = [50, 100, 125, 250, 500, 1000, 2000, 300].map(in_step_with);
        let clocks = [100, 100, 250, 250, 1000, 1000, 1000, 100];
        assert_eq!(told, clocks.map(Some));
        assert_eq!([99, 49, 997, 333].map(in_step_with), [None; 4]);
    }
}
