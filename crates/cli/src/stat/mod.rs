//! `wallscope stat`: totals without stacks: the ledger, the scheduler's counts, counters of the kernel
//! and of the CPU.
//!
//! ```text
//! mod.rs      the verb: one session a run, counters beside it
//! figures.rs  the results of a run: figures by name, with their units; means of several runs
//! sums.rs     ledgers added up
//! show.rs     as text and as JSON
//! ```
//!
//! The totals by state come from the same session as a recording's, which takes no stacks here.

mod figures;
mod show;
mod sums;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use wallscope_capture::backend::Backend;
use wallscope_capture::counter::{
    Count, Counters, EventSpec, Reading, Scope, Usage, topdown, usage_of_children,
};
use wallscope_capture::session::{
    self, Control, Live, Method, Observer, Options, Progress, Snapshot, Stop, parse_duration,
};
use wallscope_capture::target::Target;
use wallscope_procfs::cgroup;

use crate::failure::Failure;
use crate::target_args::TargetArgs;
use crate::{events, output};
use figures::{Figures, Run};
use show::{Form, Show};
use sums::Sums;

/// Count: time by state, switches, faults, and hardware counters where there are any; of a command,
/// process, cgroup or the machine
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope stat -- make -j4                what a command's time went into
  wallscope stat -r 5 -- ./bench            five runs, with their variation
  wallscope stat -p 1234 -d 10 -I 1s        a process, line by line each second
  wallscope stat -a -d 5 --json             the machine
  wallscope stat -e cycles:u,LLC-load-misses,sched:sched_migrate_task -- ./bench

Totals by state are counted at each switch where eBPF or perf events are allowed, else taken from the
kernel's counters; the first line says which. With a command the results go to standard error, as
standard output is the command's, or to -o FILE. The exit code is the command's (of several runs the
first that is not 0).")]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// How long: seconds, or with a unit; default: until the target ends or Ctrl-C
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Count these events instead of the usual ones: software, hardware, raw (r1a8), a device's
    /// (cpu/event=0x3c/), tracepoints (sched:sched_switch); :u and :k for user mode or kernel only
    #[arg(short, long, value_name = "EVENT,…")]
    event: Vec<String>,
    /// Run the command so many times, and tell means with their variation
    #[arg(short, long, value_name = "TIMES", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Also print the totals of each stretch of this length
    #[arg(short = 'I', long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    /// As JSON (schema wallscope.stat/1); with -I, before it one object a line for each interval
    #[arg(long)]
    json: bool,
    /// Write the results here, - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How to measure; default: the best that is allowed here
    #[arg(long, value_enum, value_name = "HOW")]
    backend: Option<Backend>,
}

/// Parses the length of intervals. Shorter ones would measure mostly our own work.
fn interval(text: &str) -> Result<Duration, String> {
    let length = parse_duration(text)?;
    if length < Duration::from_millis(10) {
        return Err("10ms at least".into());
    }
    Ok(length)
}

/// Events that are counted by default.
const USUAL: &[&str] = &[
    "page-faults",
    "major-faults",
    "cpu-migrations",
    "cycles",
    "instructions",
    "branches",
    "branch-misses",
    "cache-references",
    "cache-misses",
    "dTLB-load-misses",
];

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let target = args.target.target().ok_or_else(|| {
        Failure::usage("stat needs a target: -p PID, --cgroup PATH, -a, or -- CMD ARGS…")
    })?;
    let is_command = matches!(target, Target::Command(_));
    if args.repeat > 1 && !is_command {
        return Err(Failure::usage(
            "-r repeats a command: name one after --, or use -I for a target that runs already",
        ));
    }
    let events = events(&args.event)?;
    let method = Method {
        duration: args.duration,
        backend: args.backend,
        ..Method::default()
    };
    let options = Options {
        stacks: false,
        snapshot_every: args.interval,
        ..Options::new(target, method)
    };
    let mut show = Show::new(
        if args.json { Form::Json } else { Form::Text },
        match &args.output {
            Some(path) if path == Path::new("-") => Box::new(std::io::stdout()),
            Some(path) => Box::new(File::create(path).with_context(|| {
                format!(
                    "cannot write '{}'; choose another place with -o",
                    path.display()
                )
            })?),
            None if is_command => Box::new(std::io::stderr()),
            None => Box::new(std::io::stdout()),
        },
        args.output.is_none().then(output::width).flatten(),
    );
    let mut runs = Vec::new();
    let mut status = 0;
    for _ in 0..args.repeat {
        let run = one(&options, &events, &mut show)?;
        if status == 0 {
            status = run.status;
        }
        let stopped = run.stop != Stop::TargetEnded;
        runs.push(run);
        if stopped {
            break;
        }
    }
    show.whole(&options, &runs)?;
    match status {
        0 => Ok(()),
        status => Err(Failure::told(status)),
    }
}

/// The events that were asked for, or the usual ones that this machine may have.
fn events(asked: &[String]) -> Result<Vec<EventSpec>, Failure> {
    let mut all = events::named(asked)?;
    if !all.is_empty() {
        return Ok(all);
    }
    all = USUAL
        .iter()
        .map(|name| events::one(name))
        .collect::<Result<_, _>>()?;
    all.extend(topdown::events());
    Ok(all)
}

/// Measures once.
fn one(options: &Options, events: &[EventSpec], show: &mut Show) -> Result<Run, Failure> {
    let before = usage_of_children();
    let mut watcher = Watcher {
        target: &options.target,
        events,
        show,
        counters: None,
        live: Instant::now(),
        length: None,
        last: Vec::new(),
        final_readings: Vec::new(),
        shown: Sums::default(),
        last_snapshot: Duration::ZERO,
        failure: None,
        control: None,
    };
    let captured = session::record(options, &mut watcher)
        .map_err(|e| Failure::of(e.exit_code(), anyhow::Error::new(e)))?;
    let Watcher {
        length,
        live,
        final_readings,
        mut shown,
        failure,
        ..
    } = watcher;
    if let Some(failure) = failure {
        return Err(failure);
    }
    shown.add(&captured.recording);
    let length = match &options.target {
        // The window of the sums: it began when the first thread was seen, before the counters.
        Target::Pids(_) | Target::Cgroup(_) | Target::All if options.snapshot_every.is_none() => {
            let window = &captured.recording.window;
            Duration::from_nanos(window.length_ns())
        }
        _ => length.unwrap_or_else(|| live.elapsed()),
    };
    let usage = matches!(options.target, Target::Command(_)).then(|| since(&before));
    if let (Target::Command(_), Stop::Duration | Stop::Signal) = (&options.target, captured.stop) {
        eprintln!("wallscope: counting ended before the command, which was ended too (SIGTERM)");
    }
    // A command that we ended has not failed by itself.
    let status = match (captured.stop, captured.command_end) {
        (Stop::Duration, _) | (_, None) => 0,
        (_, Some(end)) => end.exit_code(),
    };
    Ok(Run {
        figures: Figures::new(length, &shown, &final_readings, usage.as_ref()),
        domain: captured.recording.domain,
        status,
        stop: captured.stop,
    })
}

fn since(before: &Usage) -> Usage {
    let now = usage_of_children();
    Usage {
        cpu_ns: (
            now.cpu_ns.0 - before.cpu_ns.0,
            now.cpu_ns.1 - before.cpu_ns.1,
        ),
        faults: (
            now.faults.0 - before.faults.0,
            now.faults.1 - before.faults.1,
        ),
        ..now
    }
}

/// Opens the counters when measuring goes live, and reads them when it is over.
struct Watcher<'a, 'w> {
    target: &'a Target,
    events: &'a [EventSpec],
    show: &'w mut Show,
    counters: Option<Counters>,
    live: Instant,
    length: Option<Duration>,
    /// Readings of the counters at the last snapshot.
    last: Vec<Reading>,
    final_readings: Vec<Reading>,
    shown: Sums,
    /// Time of the last snapshot, after the start.
    last_snapshot: Duration,
    failure: Option<Failure>,
    control: Option<Control>,
}

impl Observer for Watcher<'_, '_> {
    fn live(&mut self, facts: &Live) {
        let scope = match self.target {
            Target::Pids(_) => Ok(Scope::Processes(facts.pids.clone())),
            Target::Command(_) => Ok(Scope::Command(facts.pids.first().copied().unwrap_or(0))),
            Target::All => Ok(Scope::Machine),
            Target::Cgroup(path) => cgroup::find(path)
                .map_err(anyhow::Error::new)
                .and_then(|group| Ok(Counters::cgroup(&group.dir)?)),
        };
        let counters = scope.map(|scope| Counters::open(self.events, &scope));
        self.last = match &counters {
            Ok(counters) => counters.read(),
            Err(_) => Vec::new(),
        };
        self.counters = counters.ok();
        self.control = Some(facts.control.clone());
        // The line by which scripts know that nothing is missed from now on.
        eprintln!(
            "wallscope: counting {} ({} {}, {} backend; no recording is written)",
            wallscope_render::text::clean(&facts.target),
            facts.threads,
            if facts.threads == 1 {
                "thread"
            } else {
                "threads"
            },
            facts.backend
        );
        self.live = Instant::now();
    }

    fn progress(&mut self, _: &Progress) {}

    fn snapshot(&mut self, snapshot: Snapshot) {
        self.shown.add(&snapshot.recording);
        let mut part = Sums::default();
        part.add(&snapshot.recording);
        let now = self
            .counters
            .as_ref()
            .map(Counters::read)
            .unwrap_or_default();
        let readings = difference(&now, &self.last);
        let length = snapshot.elapsed.saturating_sub(self.last_snapshot);
        (self.last, self.last_snapshot) = (now, snapshot.elapsed);
        let figures = Figures::new(length, &part, &readings, None);
        if let Err(failure) = self.show.interval(snapshot.elapsed, &figures) {
            // The reader of the output has gone away.
            self.failure = Some(failure);
            if let Some(control) = &self.control {
                control.stop();
            }
        }
    }

    fn over(&mut self) {
        self.length = Some(self.live.elapsed());
        self.final_readings = self
            .counters
            .as_ref()
            .map(Counters::read)
            .unwrap_or_default();
    }
}

/// Counts between two readings.
fn difference(now: &[Reading], before: &[Reading]) -> Vec<Reading> {
    let pairs = now.iter().zip(before);
    pairs
        .map(|(now, before)| Reading {
            count: match (&now.count, &before.count) {
                (Count::Value { value, share }, Count::Value { value: old, .. }) => Count::Value {
                    value: (value - old).max(0.0),
                    share: *share,
                },
                (count, _) => count.clone(),
            },
            ..now.clone()
        })
        .collect()
}
