//! `wallscope agent`: always on.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use wallscope_agent::config::{Config, ConfigError, DEFAULT_FILE};
use wallscope_agent::run::{
    Agent, AgentError, LiveSource, MemoryStatus, Signals, Status, ask_status,
};

use crate::failure::Failure;
use crate::output;

/// Always on: record the whole machine in windows, and keep the last ones on disk
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope agent --config my.toml            record until SIGTERM; SIGHUP reads the file again
  wallscope agent check                       check /etc/wallscope/agent.toml
  wallscope agent status
  wallscope report DIR --from 14:00 --until 14:05 --service checkout   an agent's windows

The agent needs the ebpf backend: root, or CAP_BPF and CAP_PERFMON. Exit code 5: the configuration
cannot be read, or a line of it is wrong.")]
pub struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE, global = true)]
    config: PathBuf,
    #[command(subcommand)]
    action: Option<Action>,
}

/// Something else than recording.
#[derive(Subcommand)]
enum Action {
    /// Read the configuration and name the line, the key and the allowed values of a mistake
    Check,
    /// Ask the running agent for its windows, store and deliveries
    Status,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let config = read(&args.config)?;
    match args.action {
        None => record(&args.config),
        Some(Action::Check) => check(&args.config, &config),
        Some(Action::Status) => status(&config),
    }
}

/// Reads an agent's configuration.
pub fn read(file: &Path) -> Result<Config, Failure> {
    Config::read(file).map_err(|e| {
        let next = match &e {
            ConfigError::Unreadable { .. } => "; name another with --config FILE",
            ConfigError::Wrong { .. } => "",
        };
        Failure::unreadable(format!("{e}{next}"))
    })
}

/// Records until a signal ends it.
fn record(file: &Path) -> Result<(), Failure> {
    let signals = Signals::of_process().map_err(ended)?;
    let mut store = PathBuf::new();
    let mut length_s = 0;
    let agent = Agent::start(file, |config| {
        store.clone_from(&config.store.dir);
        length_s = config.windows.length.get_ref().0.as_secs();
        LiveSource::start(config)
    })
    .map_err(not_started)?;
    let address = agent.metrics_address();
    eprintln!(
        "wallscope: recording the machine in windows of {length_s} s into '{}'{}",
        store.display(),
        address.map_or(String::new(), |a| format!(
            "; metrics at http://{a}/metrics"
        ))
    );
    let mut log = |line: &str| eprintln!("wallscope: {line}");
    agent.run(&signals, &mut log).map_err(ended)
}

/// A running agent ended by a fault, or nothing was measured yet: exit code 1.
fn ended(e: AgentError) -> Failure {
    Failure::of(1, anyhow::anyhow!(e.to_string()))
}

/// The agent did not start. Exit code 3: the host does not permit to measure.
fn not_started(e: AgentError) -> Failure {
    match e {
        AgentError::Source(e) => Failure::of(
            3,
            anyhow::anyhow!(
                "{e}; `wallscope doctor` says what is allowed, and `wallscope record` may work without eBPF"
            ),
        ),
        e => ended(e),
    }
}

fn check(file: &Path, config: &Config) -> Result<(), Failure> {
    let summary = format!(
        "{}: fine. Windows of {} s in '{}', {} targets, {} triggers, {} rules\n",
        file.display(),
        config.windows.length.get_ref().0.as_secs(),
        config.store.dir.display(),
        config.targets.len(),
        config.triggers.len(),
        config.services.rules.len()
    );
    output::to_stdout(|w| w.write_all(summary.as_bytes()))
}

fn status(config: &Config) -> Result<(), Failure> {
    let status = ask_status(&config.agent.run_dir).map_err(|e| silent(config, &e))?;
    output::to_stdout(|w| w.write_all(text(&status).as_bytes()))
}

/// No agent answers on its socket: exit code 4.
pub fn silent(config: &Config, error: &io::Error) -> Failure {
    let place = config.agent.run_dir.display();
    let text = format!("no agent answers in '{place}' ({error}); start one: wallscope agent");
    Failure::of(4, anyhow::anyhow!(text))
}

/// The status as lines for people.
fn text(status: &Status) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |d| d.as_nanos() as u64);
    let last = match status.last_window_unix_ns {
        0 => "none closed yet".to_owned(),
        end => format!("the last closed {} ago", age(now.saturating_sub(end))),
    };
    let mut text = format!(
        "agent {}, running for {}: {} windows, {last}\n\
         store '{}': {} windows, {:.1} MiB\n{}",
        status.version,
        age(now.saturating_sub(status.epoch)),
        status.windows,
        status.store_dir.display(),
        status.store_windows,
        status.store_bytes as f64 / (1 << 20) as f64,
        memory_text(&status.memory),
    );
    text += &format!("control group: {}\n", status.cgroup);
    for (name, target) in &status.targets {
        text += &format!(
            "target {name}: {} windows delivered, {} waiting, {} refused, {} failed attempts\n",
            target.delivered, target.pending, target.refused, target.failures
        );
        if target.maybe_twice > 0 {
            let n = target.maybe_twice;
            text += &format!("target {name}: {n} windows may have counted twice\n");
        }
        if let Some(error) = &target.error {
            text += &format!("target {name}, last error: {error}\n");
        }
    }
    if status.failed_windows > 0 {
        text += &format!("{} windows could not be written\n", status.failed_windows);
    }
    if let Some(error) = &status.error {
        text += &format!("last error: {error}\n");
    }
    text
}

fn memory_text(memory: &MemoryStatus) -> String {
    let used = memory.used_bytes >> 20;
    let of_limit = match memory.limit_bytes >> 20 {
        0 => String::new(),
        limit => format!(" of {limit}"),
    };
    let recorder = memory.flight_bytes >> 20;
    let given_up = match memory.given_up.as_str() {
        "" => String::new(),
        step => format!("memory is short: {step}\n"),
    };
    format!(
        "memory {used}{of_limit} MiB, kernel maps included; flight recorder {recorder} MiB\n{given_up}"
    )
}

/// A length of time in its largest fitting unit, from nanoseconds.
fn age(ns: u64) -> String {
    match ns / 1_000_000_000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}
