//! Windows of this machine, by the eBPF tier.
//!
//! One session measures the whole machine and hands over a window at each multiple of the length.
//! A second thread names the frames of a window and marks its idle waits, so that measuring never
//! waits for that. A window holds ledgers and stacks. It has no wakers, no holders, no lengths of
//! waits and no time slices, which its domain says.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wallscope_capture::backend::Backend;
use wallscope_capture::session::{
    self, Captured, Control, Live, Look, Observer, Options, Progress,
};
use wallscope_capture::target::Target;
use wallscope_model::Recording;
use wallscope_symbolize::Names;

use super::{Next, SourceError, WindowSource};
use crate::config::Config;

/// The session of this machine.
pub struct LiveSource {
    windows: Receiver<Result<Recording, SourceError>>,
    session: Option<Session>,
    options: Options,
    /// Windows of a session that a changed configuration ended.
    earlier: Vec<Recording>,
}

/// The threads of a session.
struct Session {
    control: Control,
    measures: JoinHandle<()>,
    names: JoinHandle<()>,
}

/// News of the measuring thread.
type News = Result<Look, SourceError>;

impl LiveSource {
    /// Starts to measure; returns when nothing is missed any more.
    ///
    /// # Errors
    /// The eBPF tier is not allowed or does not work here; the sentence says why and what remains.
    pub fn start(config: &Config) -> Result<LiveSource, SourceError> {
        let options = options(config);
        let (session, windows) = begin(&options)?;
        Ok(LiveSource {
            windows,
            session: Some(session),
            options,
            earlier: Vec::new(),
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

/// What a session measures.
fn options(config: &Config) -> Options {
    Options {
        backend: Some(Backend::Ebpf),
        hz: *config.windows.on_cpu_hz.get_ref(),
        off_cpu_period: config.windows.off_cpu_period.0,
        max_overhead: config.budget.max_overhead.0 * 100.0,
        max_total_overhead: (config.budget.max_total_overhead).map(|share| share.0 * 100.0),
        looks: Some(config.windows.length.get_ref().0),
        windows: true,
        ..Options::new(Target::All)
    }
}

/// Starts the threads of a session.
fn begin(
    options: &Options,
) -> Result<(Session, Receiver<Result<Recording, SourceError>>), SourceError> {
    let failed = |e: std::io::Error| SourceError(format!("cannot start a thread: {e}"));
    let (to_names, unnamed) = channel();
    let (to_agent, windows) = channel();
    let (to_start, live) = channel();
    let own = options.clone();
    let measures = thread::Builder::new().name("windows".into());
    let measures = measures
        .spawn(move || measure(&own, to_names, to_start))
        .map_err(failed)?;
    let names = thread::Builder::new().name("names".into());
    let names = names
        .spawn(move || name(&unnamed, &to_agent))
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

    fn look(&mut self, look: Look) {
        self.last_end_ns = Some(look.recording.window.end_ns);
        let _ = self.to_names.send(Ok(look));
    }
}

impl Feeder {
    /// What came after the last window.
    fn last(&self, captured: Captured) -> Look {
        let mut recording = captured.recording;
        let window = &mut recording.window;
        if let Some(start_ns) = self.last_end_ns {
            window.start_unix_ns += start_ns.saturating_sub(window.start_ns);
            window.start_ns = start_ns;
        }
        Look {
            elapsed: Duration::from_nanos(recording.window.length_ns()),
            recording,
            sources: captured.sources,
            seen: captured.seen,
        }
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

/// Names windows in their order.
fn name(unnamed: &Receiver<News>, to_agent: &Sender<Result<Recording, SourceError>>) {
    let mut names = Names::default();
    let mut cpu_ns = own_cpu_ns();
    for news in unnamed {
        let closed = news.map(|mut window| {
            names.name(&mut window.recording, window.sources);
            wallscope_diagnose::lock_names::name(&mut window.recording);
            wallscope_diagnose::idle::mark(&mut window.recording, &window.seen);
            wallscope_diagnose::collections::mark(&mut window.recording);
            let so_far = own_cpu_ns();
            window.recording.cost.own_cpu_ns = so_far.saturating_sub(cpu_ns);
            cpu_ns = so_far;
            window.recording
        });
        if to_agent.send(closed).is_err() {
            return;
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

    fn close_window(&mut self) {
        if let Some(session) = &self.session {
            session.control.close_window();
        }
    }

    /// Rates belong to a session, so changed ones begin a new one. Between the two some hundred
    /// milliseconds are not measured; no time is measured twice.
    fn reload(&mut self, config: &Config) -> Result<(), SourceError> {
        let options = options(config);
        if rates(&options) == rates(&self.options) {
            return Ok(());
        }
        self.earlier = self.end()?;
        let (session, windows) = begin(&options)?;
        (self.session, self.windows, self.options) = (Some(session), windows, options);
        Ok(())
    }
}

/// The options that a configuration changes.
fn rates(options: &Options) -> (u32, Duration, [Option<f64>; 2], Option<Duration>) {
    (
        options.hz,
        options.off_cpu_period,
        [Some(options.max_overhead), options.max_total_overhead],
        options.looks,
    )
}
