//! `wallscope top`: live view of time by thread or by function.
//!
//! ```text
//! mod.rs      the verb; a session with snapshots, and the threads around it
//! rows.rs     a snapshot -> lines by thread, by function, stacks
//! app.rs      the shown state of them, and the effect of keys
//! screen.rs   drawing
//! ```
//!
//! One session like that of `record`, with a snapshot at each interval. The session itself does not keep the
//! content of a snapshot. Naming and drawing have threads of their own, so that neither keeps events waiting.

mod app;
mod rows;
mod screen;

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use wallscope_capture::backend::Backend;
use wallscope_capture::session::{
    self, Captured, Live, Method, Observer, Options, Progress, Signals, Snapshot, Stop,
    parse_duration,
};
use wallscope_capture::target::{CommandEnd, Target};
use wallscope_diagnose::idle;
use wallscope_symbolize::Names;

use crate::failure::Failure;
use crate::output;
use crate::report::IdleArg;
use crate::target_args::TargetArgs;
use app::{App, Frame, Header, LineKind, Sort};

/// Live view: where the wall time of each thread or function goes, in the terminal
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope top -p 1234             a process, its threads and children
  wallscope top -a --by functions   the machine, by function
  wallscope top -p 1234 --once      one interval as plain text, for scripts
  wallscope top -- ./bench          a command; its output goes to a file that is named at the end

Keys: t threads, f functions, Enter stacks of the selected line, Esc back, s what to sort by, / filter,
Space pause, i idle time, ? help, q quit. Idle time (no request in flight) is hidden unless asked for,
and said how much it was.")]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// How long each interval is
    #[arg(short = 'I', long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// What the lines are
    #[arg(long, value_enum, default_value_t = LineKind::Threads)]
    by: LineKind,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Sort::Wall)]
    sort: Sort,
    /// Only lines with this text in the name
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// What to do with idle time (blocked while no request is in flight)
    #[arg(long, value_enum, default_value_t = IdleArg::Hide)]
    idle: IdleArg,
    /// On-CPU samples a second on each CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = Method::HZ,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frequency: u32,
    /// Print one interval as plain text, and end; needs no terminal
    #[arg(long)]
    once: bool,
    /// How to measure; default: the best that is allowed here
    #[arg(long, value_enum, value_name = "HOW")]
    backend: Option<Backend>,
}

/// Parses the length of intervals. Shorter ones are unreadable, and drawing them would cost more than measuring.
fn interval(text: &str) -> Result<Duration, String> {
    let length = parse_duration(text)?;
    if length < Duration::from_millis(200) {
        return Err("200ms at least".into());
    }
    Ok(length)
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let target = args.target.target().ok_or_else(|| {
        Failure::usage("top needs a target: -p PID, --cgroup PATH, -a, or -- CMD ARGS…")
    })?;
    let on_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !(args.once || on_terminal) {
        return Err(Failure::usage(
            "top needs a terminal for its output and keys; --once prints one interval without",
        ));
    }
    // The terminal serves one program only: a command writes elsewhere.
    let said = match &target {
        Target::Command(_) => Some(command_output()?),
        _ => None,
    };
    let method = Method {
        hz: args.frequency,
        backend: args.backend,
        ..Method::default()
    };
    let options = Options {
        command_output: said.as_ref().map(|(_, file)| Arc::clone(file)),
        snapshot_every: Some(args.interval),
        ..Options::new(target, method)
    };
    let app = App::new(args.by, args.sort, args.idle.into(), args.filter);
    let mut feeder = Feeder {
        app: Some(app),
        once: args.once,
        snapshots: None,
        has_snapshot: false,
        threads: None,
        quit: Arc::default(),
    };
    let outcome = session::record(&options, &mut feeder);
    let outcome = outcome.map(|captured| feeder.rest(captured));
    // After the end of the target its last snapshot stays on the screen; a signal ends the view too.
    if !matches!(&outcome, Ok(ended) if ended.stop == Stop::TargetEnded) {
        feeder.quit.store(true, Ordering::Relaxed);
    }
    // No more snapshots: the threads finish their work.
    drop(feeder.snapshots.take());
    let shown = match feeder.threads.take() {
        Some(threads) => threads.join(),
        None => Ok(()),
    };
    let ended = outcome.map_err(|e| Failure::of(e.exit_code(), anyhow::Error::new(e)))?;
    if let Some((path, file)) = said {
        let written = file.metadata().map_or(0, |m| m.len());
        if written > 0 {
            eprintln!("wallscope: the command's output is in {}", path.display());
        } else {
            // An empty file is of no use.
            let _ = std::fs::remove_file(path);
        }
    }
    shown?;
    match (ended.stop, ended.command_end) {
        (Stop::TargetEnded, Some(end)) if end.exit_code() != 0 => {
            Err(Failure::told(end.exit_code()))
        }
        _ => Ok(()),
    }
}

/// A file that a command's output goes to, and stays in.
fn command_output() -> anyhow::Result<(PathBuf, Arc<File>)> {
    let file = tempfile::Builder::new()
        .prefix("wallscope-top-")
        .suffix(".log")
        .tempfile()
        .context("cannot make a file for the command's output; set TMPDIR to a folder with room")?;
    let (file, path) = file
        .keep()
        .context("cannot keep the file of the command's output")?;
    Ok((path, Arc::new(file)))
}

/// Channel of snapshots to the thread that names them.
type Snapshots = Sender<Snapshot>;

/// Passes the snapshots of the session on.
struct Feeder {
    app: Option<App>,
    once: bool,
    snapshots: Option<Snapshots>,
    /// Whether a snapshot has been taken.
    has_snapshot: bool,
    threads: Option<Threads>,
    /// The screen is to be given back.
    quit: Arc<AtomicBool>,
}

/// How the session ended.
struct Ended {
    stop: Stop,
    command_end: Option<CommandEnd>,
    /// Kept until the terminal is as it was.
    _signals: Signals,
}

impl Feeder {
    /// Shows the recording of a target that ended within the first interval.
    fn rest(&self, captured: Captured) -> Ended {
        if let (Some(snapshots), Stop::TargetEnded, false) =
            (&self.snapshots, captured.stop, self.has_snapshot)
        {
            let window = &captured.recording.window;
            let elapsed = Duration::from_nanos(window.length_ns());
            // On an error the user has quit, and nothing is left to show.
            let _ = snapshots.send(Snapshot {
                elapsed,
                recording: captured.recording,
                sources: captured.sources,
                seen: captured.seen,
            });
        }
        Ended {
            stop: captured.stop,
            command_end: captured.command_end,
            _signals: captured.signals,
        }
    }
}

/// The threads that name and show.
struct Threads {
    namer: JoinHandle<io::Result<()>>,
    screen: JoinHandle<Result<(), Failure>>,
}

impl Threads {
    fn join(self) -> Result<(), Failure> {
        let gone = |_| anyhow::anyhow!("a thread of top ended early; please report this");
        let named = self.namer.join().map_err(gone)?;
        named.context("cannot start a thread that looks names up")?;
        self.screen.join().map_err(gone)?
    }
}

impl Observer for Feeder {
    /// The threads start only now: signals that end a session are blocked already, here and so in
    /// them, and go to the session alone.
    fn live(&mut self, facts: &Live) {
        let Some(mut app) = self.app.take() else {
            return;
        };
        app.header = Header {
            target: facts.target.clone(),
            backend: facts.backend,
        };
        let (to_namer, snapshots) = channel();
        let (to_screen, frames) = channel();
        let wait = match self.once {
            true => COMPLETE,
            false => PROMPT,
        };
        let namer = thread::spawn(move || name(&snapshots, &to_screen, wait));
        let (once, control, quit) = (self.once, facts.control.clone(), self.quit.clone());
        let screen = thread::spawn(move || {
            let shown = if once {
                print_one(app, &frames)
            } else {
                match screen::run(app, &frames, &quit) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(nothing_seen()),
                    Err(e) => Err(anyhow::Error::new(e)
                        .context("cannot use the terminal")
                        .into()),
                }
            };
            // The user pressed q, or nothing can be shown: there is no reason to measure on.
            control.stop();
            shown
        });
        self.snapshots = Some(to_namer);
        self.threads = Some(Threads { namer, screen });
    }

    fn progress(&mut self, _: &Progress) {}

    fn snapshot(&mut self, snapshot: Snapshot) {
        self.has_snapshot = true;
        // The receiver goes away when the user quits, which stops the session too.
        if let Some(snapshots) = &self.snapshots {
            let _ = snapshots.send(snapshot);
        }
    }
}

/// Longest wait for names of a snapshot on the screen. Functions without a name by then have one in a later
/// snapshot.
const PROMPT: Duration = Duration::from_secs(1);
/// Longest wait for names of the one snapshot that is printed.
const COMPLETE: Duration = Duration::from_secs(60);

/// Names the newest snapshot and leaves out older ones. A snapshot waits for names at most `wait`.
fn name(
    snapshots: &Receiver<Snapshot>,
    frames: &Sender<Arc<Frame>>,
    wait: Duration,
) -> io::Result<()> {
    let mut names = Names::new()?;
    while let Ok(mut snapshot) = snapshots.recv() {
        let mut skipped = 0;
        while let Ok(newer) = snapshots.try_recv() {
            snapshot = newer;
            skipped += 1;
        }
        names.name(&mut snapshot.recording, snapshot.sources, wait);
        idle::mark(&mut snapshot.recording, &snapshot.seen);
        let frame = Frame {
            recording: snapshot.recording,
            elapsed: snapshot.elapsed,
            skipped,
        };
        if frames.send(Arc::new(frame)).is_err() {
            break;
        }
    }
    Ok(())
}

/// The target was gone too soon.
fn nothing_seen() -> Failure {
    anyhow::anyhow!("the target ended before one interval was over; choose a shorter one with -I")
        .into()
}

/// The first interval as text.
fn print_one(mut app: App, frames: &Receiver<Arc<Frame>>) -> Result<(), Failure> {
    let Ok(frame) = frames.recv() else {
        return Err(nothing_seen());
    };
    app.take(frame);
    let text = screen::as_text(&mut app, output::width().unwrap_or(110));
    output::to_stdout(|w| w.write_all(text.as_bytes()))
}
