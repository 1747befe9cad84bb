//! Windows of this machine, by the eBPF tier.
//!
//! One session measures the whole machine and hands over a window at each multiple of the length.
//! A second thread names the frames of a window and marks its idle waits, so that measuring never
//! waits for that. It waits for new names no longer than [`WAIT`], so that a window is on the disk soon
//! after its end. A window holds ledgers by second, stacks, wakers of waits and lengths of intervals. It has
//! no exact waits by lock, which its domain says. A flight recorder keeps the single intervals of the last minutes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wallscope_capture::backend::Backend;
use wallscope_capture::session::{
    self, Captured, Control, FlightLimits, FlightRecorder, Live, Method, Observer, Options,
    Progress, Snapshot,
};
use wallscope_capture::target::Target;
use wallscope_model::{Recording, SliceValue};
use wallscope_symbolize::Names;

use super::host_lock::HostLock;
use super::memory::{self, MemoryStep};
use super::{AgentError, Next, SourceError, WindowSource};
use crate::config::Config;

/// The session of this machine.
pub struct LiveSource {
    windows: Receiver<Result<Recording, SourceError>>,
    session: Option<Session>,
    options: Options,
    /// Windows of a session that a changed configuration ended.
    earlier: Vec<Recording>,
    /// Whether caches of names are dropped after each window.
    drops_names: Arc<AtomicBool>,
    _lock: HostLock,
}

/// The threads of a session.
struct Session {
    control: Control,
    measures: JoinHandle<()>,
    names: JoinHandle<()>,
}

/// News of the measuring thread.
type News = Result<Snapshot, SourceError>;

impl LiveSource {
    /// Starts to measure; returns when nothing is missed any more.
    ///
    /// # Errors
    /// Another agent measures this host. Or the eBPF tier is not allowed or does not work here; the sentence gives the
    /// reason and the alternatives.
    pub fn start(config: &Config) -> Result<LiveSource, AgentError> {
        let lock = HostLock::take()?;
        memory::bound_arenas();
        let options = options(config, flight_limits(config).map(FlightRecorder::new));
        let drops_names = Arc::default();
        let (session, windows) = begin(&options, &drops_names)?;
        Ok(LiveSource {
            windows,
            session: Some(session),
            options,
            earlier: Vec::new(),
            drops_names,
            _lock: lock,
        })
    }

    /// Ends the session; the windows that are left.
    fn end(&mut self) -> Result<Vec<Recording>, SourceError> {
        let mut left = std::mem::take(&mut self.earlier);
        if let Some(session) = self.session.take() {
            session.control.stop();
            left.extend(self.windows.iter().filter_map(Result::ok));
            let joined = session.measures.join().and_then(|()| session.names.join());
            joined.map_err(|_| SourceError("a thread of the recorder ended early".into()))?;
        }
        Ok(left)
    }
}

/// Limits of the flight recorder; `None`: there is none.
fn flight_limits(config: &Config) -> Option<FlightLimits> {
    let limits = FlightLimits {
        length: config.snaps.length.0,
        bytes: config.snaps.memory.0,
    };
    (limits.bytes > 0).then_some(limits)
}

/// Options of a session.
fn options(config: &Config, flight: Option<FlightRecorder>) -> Options {
    let method = Method {
        backend: Some(Backend::Ebpf),
        hz: *config.windows.on_cpu_hz.get_ref(),
        off_cpu_period: config.windows.off_cpu_period.0,
        max_overhead: config.budget.max_overhead.0 * 100.0,
        max_total_overhead: (config.budget.max_total_overhead).map(|share| share.0 * 100.0),
        ..Method::default()
    };
    Options {
        flight,
        snapshot_every: Some(config.windows.length.get_ref().0),
        windows: true,
        ..Options::new(Target::All, method)
    }
}

/// Starts the threads of a session.
fn begin(
    options: &Options,
    drops_names: &Arc<AtomicBool>,
) -> Result<(Session, Receiver<Result<Recording, SourceError>>), SourceError> {
    let failed = |e: std::io::Error| SourceError(format!("cannot start a thread: {e}"));
    let (to_names, unnamed) = channel();
    let (to_agent, windows) = channel();
    let (to_start, live) = channel();
    let (own, drops_names) = (options.clone(), Arc::clone(drops_names));
    let measures = thread::Builder::new().name("windows".into());
    let measures = measures
        .spawn(move || measure(&own, to_names, to_start))
        .map_err(failed)?;
    let known = Names::new().map_err(failed)?;
    let names = thread::Builder::new().name("names".into());
    let names = names
        .spawn(move || name(&unnamed, &to_agent, (known, &drops_names)))
        .map_err(failed)?;
    match live.recv() {
        Ok(control) => {
            let session = Session {
                control,
                measures,
                names,
            };
            Ok((session, windows))
        }
        // It ended before it was live, and said why.
        Err(_) => match windows.recv() {
            Ok(Err(why)) => Err(why),
            _ => Err(SourceError("the recorder ended before it was live".into())),
        },
    }
}

/// Takes windows from the session.
struct Feeder {
    to_names: Sender<News>,
    live: Option<Sender<Control>>,
    /// End of the last window, ns.
    last_end_ns: Option<u64>,
}

impl Observer for Feeder {
    fn live(&mut self, facts: &Live) {
        if let Some(live) = self.live.take() {
            let _ = live.send(facts.control.clone());
        }
    }

    fn progress(&mut self, _: &Progress) {}

    fn snapshot(&mut self, snapshot: Snapshot) {
        self.last_end_ns = Some(snapshot.recording.window.end_ns);
        let _ = self.to_names.send(Ok(snapshot));
    }
}

impl Feeder {
    /// The recording after the last window.
    fn last(&self, captured: Captured) -> Snapshot {
        let mut recording = captured.recording;
        let window = &mut recording.window;
        if let Some(start_ns) = self.last_end_ns {
            window.start_unix_ns += start_ns.saturating_sub(window.start_ns);
            window.start_ns = start_ns;
            begin_slices_at(&mut recording, start_ns);
        }
        Snapshot {
            elapsed: Duration::from_nanos(recording.window.length_ns()),
            recording,
            sources: captured.sources,
            seen: captured.seen,
        }
    }
}

/// Has the slices of `recording` begin with that of `start_ns`: the end of a session counts them from its start.
fn begin_slices_at(recording: &mut Recording, start_ns: u64) {
    let slices = &mut recording.slices;
    let after_ns = start_ns.saturating_sub(slices.start_ns);
    let first = after_ns.checked_div(slices.width_ns).unwrap_or(0);
    slices.start_ns += first * slices.width_ns;
    let first = u32::try_from(first).unwrap_or(u32::MAX).min(slices.count);
    slices.count -= first;
    let moved = |slice: u32| slice.saturating_sub(first);
    let rows = std::mem::take(&mut recording.ledger_slices);
    recording.ledger_slices = rows.sorted(|context, slice| (context, moved(slice)));
    for sample in &mut recording.samples {
        let values = sample.slices.iter_mut();
        values.for_each(|v: &mut SliceValue| v.slice = moved(v.slice));
        SliceValue::merge(&mut sample.slices);
    }
}

fn measure(options: &Options, to_names: Sender<News>, live: Sender<Control>) {
    let mut feeder = Feeder {
        to_names,
        live: Some(live),
        last_end_ns: None,
    };
    let last = session::record(options, &mut feeder)
        .map(|captured| feeder.last(captured))
        .map_err(|e| SourceError(e.to_string()));
    let _ = feeder.to_names.send(last);
}

/// Longest wait of a window for names, a tenth of its length within these bounds. `kill -9` loses it until it is on the
/// disk, and a snap waits for it.
const WAIT: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// Names windows in their order, and marks their idle waits.
fn name(
    unnamed: &Receiver<News>,
    to_agent: &Sender<Result<Recording, SourceError>>,
    state: (Names, &AtomicBool),
) {
    let (mut names, drops_names) = state;
    let mut cpu_ns = own_cpu_ns();
    for news in unnamed {
        let closed = news.map(|mut window| {
            let wait = Duration::from_nanos(window.recording.window.length_ns()) / 10;
            names.name(
                &mut window.recording,
                window.sources,
                wait.clamp(WAIT[0], WAIT[1]),
            );
            wallscope_diagnose::lock_names::name(&mut window.recording);
            wallscope_diagnose::idle::mark(&mut window.recording, &window.seen);
            wallscope_diagnose::collections::mark(&mut window.recording);
            let so_far = own_cpu_ns();
            window.recording.cost.own_cpu_ns = so_far.saturating_sub(cpu_ns);
            cpu_ns = so_far;
            window.recording.cost.rss_bytes = memory::resident();
            window.recording
        });
        if to_agent.send(closed).is_err() {
            return;
        }
        if drops_names.load(Ordering::Relaxed) {
            names.forget();
            memory::trim();
        }
    }
}

/// CPU time of this process so far, ns: measuring, naming, keeping and delivery.
fn own_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl WindowSource for LiveSource {
    fn next(&mut self, time: Duration) -> Result<Next, SourceError> {
        if !self.earlier.is_empty() {
            return Ok(Next::Window(Box::new(self.earlier.remove(0))));
        }
        match self.windows.recv_timeout(time) {
            Ok(window) => Ok(Next::Window(Box::new(window?))),
            Err(RecvTimeoutError::Timeout) => Ok(Next::NotYet),
            Err(RecvTimeoutError::Disconnected) => Ok(Next::Ended),
        }
    }

    fn drain(&mut self) -> Result<Vec<Recording>, SourceError> {
        self.end()
    }

    fn flight(&self) -> Option<FlightRecorder> {
        self.options.flight.clone()
    }

    fn save_memory(&mut self, step: MemoryStep) {
        self.drops_names
            .store(step.drops_names(), Ordering::Relaxed);
        if let Some(flight) = &self.options.flight {
            flight.halve(step.halvings());
        }
    }

    fn close_window(&mut self) {
        if let Some(session) = &self.session {
            session.control.close_window();
        }
    }

    /// Rates belong to a session, so changed ones begin a new one. Between the two some hundred
    /// milliseconds are not measured; no time is measured twice.
    fn reload(&mut self, config: &Config) -> Result<(), SourceError> {
        let kept = self.options.flight.clone();
        let limits = flight_limits(config);
        let flight = match kept.as_ref().map(FlightRecorder::limits) == limits {
            true => kept,
            false => limits.map(FlightRecorder::new),
        };
        let options = options(config, flight);
        if rates(&options) == rates(&self.options) {
            return Ok(());
        }
        self.earlier = self.end()?;
        let (session, windows) = begin(&options, &self.drops_names)?;
        (self.session, self.windows, self.options) = (Some(session), windows, options);
        Ok(())
    }
}

/// The options that a configuration changes.
#[derive(PartialEq)]
struct Rates {
    hz: u32,
    off_cpu_period: Duration,
    overhead: [Option<f64>; 2],
    length: Option<Duration>,
    flight: Option<FlightLimits>,
}

fn rates(options: &Options) -> Rates {
    Rates {
        hz: options.method.hz,
        off_cpu_period: options.method.off_cpu_period,
        overhead: [
            Some(options.method.max_overhead),
            options.method.max_total_overhead,
        ],
        length: options.snapshot_every,
        flight: options.flight.as_ref().map(FlightRecorder::limits),
    }
}
