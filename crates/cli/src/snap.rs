//! `wallscope snap`: the last minutes that an agent has recorded, as one recording.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use wallscope_agent::config::DEFAULT_FILE;
use wallscope_agent::run::{Status, ask_flight, close_window};
use wallscope_agent::store::{self, Selected, TimeRange};
use wallscope_analysis::select::Selection;
use wallscope_capture::session::{FlightMemory, parse_duration};
use wallscope_model::Recording;

use crate::agent;
use crate::failure::Failure;
use crate::record;

/// Write the last minutes, which an agent has recorded, up to this moment
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope snap -o slow.pb.gz                           the last two minutes of the machine
  wallscope snap --last 90s --service checkout -o slow.pb.gz
  wallscope report slow.pb.gz

The agent closes its open window, so that the snap ends now. Windows are never divided: the snap may
begin up to one window earlier. Single intervals are of the last two minutes (snaps.length and
snaps.memory in the configuration). Exit code 4: no agent runs here (start one: wallscope agent).")]
pub struct Args {
    /// How far back
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_duration)]
    last: Duration,
    /// Only this service
    #[arg(long, value_name = "NAME")]
    service: Vec<String>,
    /// Only this process
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Where to write, - for standard output; default: a file named after the time
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The agent's configuration
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let config = agent::read(&args.config)?;
    let output = record::output(args.output.as_deref())?;
    let asked_ns = now_unix_ns();
    let status = close_window(&config.agent.run_dir).map_err(|e| agent::silent(&config, &e))?;
    if let Some(text) = lateness(&status, asked_ns) {
        eprintln!("wallscope: warning: {text}");
    }
    let from_ns = asked_ns.saturating_sub(args.last.as_nanos() as u64);
    let ms = |ns: u64| i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX);
    let range = TimeRange {
        from_ms: ms(from_ns),
        // The last window has just ended; the next one has not.
        until_ms: ms(status.last_window_unix_ns.max(asked_ns)),
    };
    let Selected {
        recording,
        windows,
        warnings,
    } = store::merged(&status.store_dir, range).map_err(|e| Failure::unreadable(e.to_string()))?;
    for warning in warnings {
        eprintln!("wallscope: warning: {warning}");
    }
    let mut snap = select(&args, recording)?;
    let intervals = match ask_flight(&config.agent.run_dir) {
        Ok(flight) => flight.map(|f| f.put_into(&mut snap, FlightMemory::Unlimited)),
        Err(e) => {
            eprintln!("wallscope: warning: the snap has no single intervals: {e}");
            None
        }
    };
    let length = snap.window.length_ns() as f64 / 1e9;
    snap.domain.notes.insert(
        0,
        format!("snap of an agent's last {windows} windows, {length:.1} s"),
    );
    let path = record::write(output, &snap).map_err(anyhow::Error::from)?;
    eprintln!("wallscope: {windows} windows, {length:.1} s");
    if let Some(flown) = intervals {
        let seconds = flown.covered_ns as f64 / 1e9;
        let n = flown.intervals;
        eprintln!("wallscope: {n} single intervals of the last {seconds:.1} s");
    }
    eprintln!("wallscope: {}", record::written(&path));
    Ok(())
}

/// The part of a recording that was asked for.
fn select(args: &Args, recording: Recording) -> Result<Recording, Failure> {
    let selection = Selection {
        services: args.service.clone(),
        processes: args.pid.iter().map(u32::to_string).collect(),
        ..Selection::default()
    };
    let selected = (selection.apply(recording)).map_err(|e| Failure::usage(e.to_string()))?;
    match selected.unmet.first() {
        Some(condition) => Err(Failure::of(
            4,
            anyhow!(
                "nothing in the last windows is of this {condition}; `wallscope agent status` names the store, `wallscope report DIR` its services"
            ),
        )),
        None => Ok(selected.recording),
    }
}

/// Says if the last window ended before the snap was asked for.
fn lateness(status: &Status, asked_ns: u64) -> Option<String> {
    let late_ns = asked_ns.checked_sub(status.last_window_unix_ns)?;
    (late_ns > 0).then(|| {
        let seconds = late_ns as f64 / 1e9;
        format!("the agent did not close its window in time: the snap ends {seconds:.1} s ago")
    })
}

fn now_unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |d| d.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_window_is_told() {
        let status = |last_window_unix_ns| Status {
            last_window_unix_ns,
            ..Status::default()
        };
        assert_eq!(lateness(&status(7), 5), None);
        assert_eq!(lateness(&status(5), 5), None);
        let text = lateness(&status(5_000_000_000), 7_500_000_000).unwrap();
        assert!(text.ends_with("ends 2.5 s ago"), "{text}");
    }
}
