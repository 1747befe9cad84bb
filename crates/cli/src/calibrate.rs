//! `wallscope calibrate`: the CPU-only profile beside the wall-clock profile of the same window.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use wallscope_analysis::view::{Analysis, Idle};
use wallscope_capture::target::Target;
use wallscope_model::Context;
use wallscope_render::calibrate;

use crate::failure::Failure;
use crate::output;
use crate::report::style;
use crate::select::SelectArgs;
use crate::source::{BRIEFLY, OpenedRecording, Source};

/// The CPU-only picture beside the wall picture of the same window: how much of the time a CPU
/// profile shows, and the part that no CPU optimisation can touch
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope calibrate                    the bundled service, which is slow for a reason that no CPU
                                         profile shows
  wallscope calibrate -p 1234            ten seconds of a process
  wallscope calibrate -d 30 -- ./bench   a command, from its start
  wallscope calibrate rec.pb.gz          a recording
  wallscope calibrate rec.pb.gz --thread worker --json

Each stack counts for the innermost of the program's own functions on it. Idle time (no request in
flight) is set apart. Blocked time in which the thread that was waited for computed, as far as chains
of waits were seen, counts as time that CPU work can touch.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    select: SelectArgs,
    /// As JSON (schema wallscope.calibrate/1), all functions
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut service_pid = None;
    let OpenedRecording { recording, .. } = if args.source.is_empty() {
        let service = Service::start(args.source.length(BRIEFLY))?;
        let pid = service.child.id();
        service_pid = Some(pid);
        eprintln!(
            "wallscope: no target was named: measuring the bundled service (pid {pid}); shown are its \
             workers, which serve requests all the time"
        );
        args.source.measured(Target::Pids(vec![pid]), BRIEFLY)?
    } else {
        args.source.recording("calibrate", BRIEFLY)?
    };
    let recording = args.select.of(recording)?;
    // Only the service's workers count. Its upstream and its load generator are separate processes, and
    // its main thread sleeps until the end.
    let wanted =
        |c: &Context| service_pid.is_none_or(|pid| c.pid == pid && c.name.starts_with("worker-"));
    let calibration = Analysis::new(&recording, Idle::Hide).calibration(wanted);
    let out = if args.json {
        calibrate::json(&recording, &calibration)
    } else {
        calibrate::text(&recording, &calibration, &style())
    };
    output::to_stdout(|w| w.write_all(out.as_bytes()))
}

/// The bundled service under way; ended when dropped, with its load and its upstream.
struct Service {
    child: Child,
}

/// Its program, installed beside this one.
const SERVICE: &str = "wallscope-demo";
/// Time that the service lives beyond the measurement, since preparing takes a moment.
const MARGIN: Duration = Duration::from_secs(60);

impl Service {
    fn start(length: Duration) -> Result<Service, Failure> {
        let path = beside(SERVICE)?;
        let seconds = (length + MARGIN).as_secs_f64().min(86_400.0).to_string();
        let mut child = Command::new(&path)
            .args(["--seconds", &seconds])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start the bundled service {}; name a target instead: -p PID, or -- CMD",
                    path.display()
                )
            })?;
        let said = child.stdout.take();
        let service = Service { child };
        let mut line = String::new();
        if let Some(said) = said {
            // This returns in any case: the pipe closes when the service ends.
            let _ = BufReader::new(said).read_line(&mut line);
        }
        if !line.starts_with("READY") {
            return Err(anyhow::anyhow!(
                "the bundled service did not start (it said {:?}); run {} to see why",
                line.trim(),
                path.display()
            )
            .into());
        }
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both have no effect if the service has ended. Its other processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program `name` in the folder of this one.
fn beside(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        return Err(Failure::usage(format!(
            "calibrate needs a recording or a target (-p PID, --cgroup PATH, -a, or -- CMD ARGS…): the \
             bundled service {name} is not installed beside this program ({})",
            own.display()
        )));
    }
    Ok(path)
}
