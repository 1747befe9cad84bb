//! One recording by kernel programs: prepare, go live, follow, end.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use libbpf_rs::RingBuffer;
use wallscope_binfmt::kallsyms;
use wallscope_model::{Cost, FrameKind, Limit, Recording};
use wallscope_observe::{Begin, Counter, DescribedDomain, LogWriter, Mark, Observation};
use wallscope_symbolize::{KernelSymbols, Sources};

mod described;
mod economy;
mod facts;
mod setup;
mod window_sums;

use setup::{Setup, read_ring};
use window_sums::WindowSums;

use super::{
    Captured, Live, Observer, Options, Progress, Stop,
    answers::Logged,
    assemble::{Assembled, Snapshots},
    budget::Budget,
    collected_names::Host,
    cost::{self, CostMeter},
    deferred_unwind::Due,
    early_names::EarlyNames,
    estimator::Estimator,
    event_dispatch::EventDispatcher,
    event_merger::{Collector, EventMerger},
    event_sampling,
    events::{Event, Events},
    flight::FlightWriter,
    host_log::HostLog,
    interface, jit,
    last_values::LastValues,
    naming::Names,
    pace::Pace,
    process_news::observe_processes,
    processes::Processes,
    snapshot::{self, SnapshotWindow},
    target_resolve::{ResolvedTarget, ended_early, resolve_target},
    tasks,
};
use crate::{
    Error,
    backend::ebpf::{IterOrder, KernelFeatures, sideband::Sideband, timer::Timer},
    clock::{now, unix_at},
    cpus,
    priority::NiceGuard,
    slices,
    target::{Held, Target},
};

/// Longest wait at the end for the last switches of dying threads.
const LAST_SWITCHES: Duration = Duration::from_millis(300);
/// Longest time that observations wait in memory for the log, ns.
const LOG_EVERY: u64 = 500_000_000;

/// Measures by kernel programs.
///
/// # Errors
/// No such target, no privilege, programs that the kernel refuses; nothing was recorded then.
pub(super) fn record(
    options: &Options,
    kernel: &KernelFeatures,
    observer: &mut dyn Observer,
) -> Result<Captured, Error> {
    let mut course = Recorder::prepare(options, kernel)?;
    course.go_live(observer)?;
    // From here on nothing may be lost: every failure ends the recording, and it is still written.
    course.cost.meter = CostMeter::start();
    course.begin_budget();
    let stop = course.follow(observer);
    observer.over();
    course.take_last();
    let end_ns = now();
    Ok(course.end(stop, end_ns))
}

/// Cost of measuring, and its limits.
struct CostControl {
    meter: CostMeter,
    /// Limit for the samplers.
    pace: Pace,
    /// Limit for all of it, where there is one.
    budget: Option<Budget>,
}

/// Moments of a recording, ns.
struct RecordingTime {
    start_ns: u64,
    /// Time from one tick of the clock to the next.
    tick_ns: u64,
    /// Time of the last snapshot, or the start.
    last_snapshot_ns: u64,
}

/// A recording under way.
struct Recorder<'o> {
    setup: Setup<'o>,
    chosen: ResolvedTarget,
    /// The command, if the target is one.
    held: Option<Held>,
    collector: Collector,
    intake: Rc<RefCell<EventDispatcher>>,
    ring: RingBuffer<'static>,
    events: Events,
    host: HostLog,
    cost: CostControl,
    upkeep: EventMerger,
    last_values: LastValues,
    early_names: EarlyNames,
    time: RecordingTime,
    /// Sums of the kernel programs at the last window.
    window_sums: WindowSums,
    /// Notes on failures and changes during the recording.
    notes: Vec<String>,
}

impl<'o> Recorder<'o> {
    /// Everything that can be done before the first record exists.
    fn prepare(options: &'o Options, kernel: &'o KernelFeatures) -> Result<Recorder<'o>, Error> {
        let held = match &options.target {
            Target::Command(argv) => Some(Held::start(argv, options.command_output.as_deref())?),
            _ => None,
        };
        let chosen = resolve_target(&options.target, held.as_ref())?;
        let cpus = cpus::online().map_err(|e| Error::io("cannot read which CPUs are online", e))?;
        let timer = if options.stacks {
            Timer::open(&cpus, options.method.hz)?
        } else {
            Timer::none()
        };
        let mut setup = Setup {
            options,
            kernel,
            mechanism: options
                .method
                .mechanism
                .unwrap_or_else(|| kernel.mechanism()),
            cpus: cpus.len(),
            timer,
            taps: event_sampling::open(options, &cpus)?,
            kernel_named: false,
        };
        let (mut programs, interrupts) = setup.load()?;
        let failed = "cannot follow new mappings (perf_event_open on every CPU)";
        let sideband = Sideband::open(&cpus).map_err(|e| Error::io(failed, e))?;
        let processes = setup.find_processes(&mut programs, &chosen, held.as_ref())?;
        setup.attach(&mut programs, &cpus)?;
        // A recording of the whole machine needs no list of targets.
        if !matches!(options.target, Target::All) {
            programs.add_targets(&chosen.pids)?;
            programs.add_cgroups(&chosen.cgroups)?;
        }

        let host = HostLog::open(&chosen.pids, &options.target);
        // From here on signals end the recording and not this process. The log must not begin before that.
        let mut events = Events::new(&chosen.watch, options.method.duration)?;
        let slice_ns = match options.windows {
            // Windows are merged: their slices have one width from the beginning.
            true => slices::WINDOW_WIDTH_NS,
            false => slices::first_width_ns(options.method.duration),
        };
        let (log, no_log) = options.begin_log();
        let is_logged = log.is_some();
        let begin = setup.begin(slice_ns, interrupts.codes());
        let start_ns = begin.start_ns;
        let intake = intake(begin, log, options);
        let ring = read_ring(&programs, &intake, options)?;

        let intervals = [setup.timer.vary_every(), is_logged.then_some(LOG_EVERY)];
        wake_for(&mut events, &intervals, &sideband, &ring)?;
        events.tick_every(start_ns, slice_ns)?;

        let problem = setup.observe_connections(&mut programs, &chosen, &intake);
        Ok(Recorder {
            setup,
            chosen,
            held,
            collector: Collector {
                programs,
                sideband,
                processes,
            },
            intake,
            ring,
            events,
            host,
            cost: CostControl {
                meter: CostMeter::start(),
                pace: Pace::new(options),
                budget: None,
            },
            upkeep: EventMerger::new(options.most_copies()),
            last_values: LastValues::default(),
            early_names: EarlyNames::default(),
            time: RecordingTime {
                start_ns,
                tick_ns: slice_ns,
                last_snapshot_ns: start_ns,
            },
            window_sums: WindowSums::default(),
            notes: problem.into_iter().chain(no_log).collect(),
        })
    }

    /// Makes the targets' records, and lets a command begin.
    fn go_live(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        // The sleep causes a switch, from which the programs learn the clock of the scheduler.
        std::thread::sleep(Duration::from_micros(50));
        self.collector
            .programs
            .iterate_tasks(IterOrder::Begin, None, |_| {})?;
        let consumed = self.ring.consume();
        consumed.map_err(Error::bpf("cannot read the event ring"))?;
        if self.intake.borrow().estimator.accounts.len() == 0
            && let Some(gone) = self.chosen.gone(&self.setup.options.target)
        {
            return Err(gone);
        }
        self.host.take_all();
        self.log_first_books();
        observer.live(&Live {
            target: self.setup.options.target.describe(),
            threads: self.intake.borrow().estimator.accounts.len(),
            event: self.setup.timer.describe().into(),
            hz: self.setup.options.method.hz,
            backend: "ebpf",
            pids: self.chosen.pids.clone(),
            control: self.events.control(),
        });
        if let Some(held) = &mut self.held {
            let (pid, time) = (held.pid(), now());
            let mark = Mark::Released { pid, time };
            self.intake.borrow_mut().observe(Observation::Mark(mark));
            held.release()?;
        }
        Ok(())
    }

    /// Takes in events until something ends it.
    fn follow(&mut self, observer: &mut dyn Observer) -> Stop {
        self.ask_for_snapshots();
        let _guard = NiceGuard::of_others();
        let mut dates = false;
        loop {
            let pause = self.collector.processes.pause();
            // Windows end on time, and no copies are unwound between them.
            if let Some(pause) = pause.filter(|_| !self.setup.options.windows) {
                std::thread::sleep(pause);
            }
            let event = self.events.wait();
            self.take_in();
            if let Some(log) = &mut self.intake.borrow_mut().log {
                log.flush_if_due();
            }
            if !dates && self.collector.processes.jit().follows() {
                // Entries that runtimes write without a time are dated by the polls that find them.
                dates = true;
                let set = self.events.wake_every(jit::READ_EVERY);
                self.note(set);
            }
            match event {
                Event::News => self.check_pace_early(),
                Event::Clock => self.vary(now()),
                Event::Snapshot => self.take_snapshot(observer),
                Event::Tick => self.tick(observer),
                Event::Duration => return Stop::Duration,
                Event::TargetEnded => return Stop::TargetEnded,
                Event::Signal => return Stop::Signal,
            }
        }
    }

    /// Slows samplers that cost far too much before the first slice ends.
    fn check_pace_early(&mut self) {
        if self.setup.options.stacks && self.takes_stacks() {
            let elapsed = now() - self.time.start_ns;
            let (programs, timer) = (&mut self.collector.programs, &mut self.setup.timer);
            let note = (self.cost.pace).check_early(programs, timer, elapsed);
            self.notes.extend(note);
        }
    }

    fn ask_for_snapshots(&mut self) {
        let options = self.setup.options;
        let set = match (options.snapshot_every, options.windows) {
            (Some(every), true) => self.events.snapshot_at_multiples(every),
            (Some(every), false) => self.events.snapshot_every(every),
            (None, _) => Ok(()),
        };
        self.note(set);
    }

    fn note(&mut self, done: Result<(), Error>) {
        self.notes.extend(done.err().map(|e| e.to_string()));
    }

    fn take_in(&mut self) {
        self.upkeep
            .follow(&mut self.collector, Some(&self.ring), &self.intake);
        if let Some(flight) = &self.intake.borrow().flight {
            (self.collector.programs).set_turn_threshold(flight.threshold_ns());
        }
    }

    /// Has the task iterator report the figures of threads. `failed`: words for the note about a failure.
    fn iterate_tasks(&mut self, order: IterOrder, failed: &str) {
        let few = self.intake.borrow().estimator.accounts.few_processes();
        // The last iteration covers the whole machine, so that it misses no thread.
        let few = few.filter(|_| order != IterOrder::End);
        let iterated = self
            .collector
            .programs
            .iterate_tasks(order, few.as_deref(), |v| {
                let mut intake = self.intake.borrow_mut();
                intake.take_iterated(&v, order);
            });
        if let Err(e) = iterated {
            self.notes.push(format!("{failed}: {e}"));
        }
    }

    /// Hands the time since the last snapshot to the observer.
    fn take_snapshot(&mut self, observer: &mut dyn Observer) {
        // Before the first snapshot, nothing is known of a thread that has not switched since the start.
        let order = if self.time.last_snapshot_ns == self.time.start_ns {
            IterOrder::All
        } else {
            IterOrder::Dump
        };
        self.iterate_tasks(order, "a snapshot could not be taken");
        let _ = self.ring.consume();
        let stretch = SnapshotWindow {
            start: self.time.start_ns,
            last: self.time.last_snapshot_ns,
            now: now(),
        };
        self.time.last_snapshot_ns = stretch.now;
        let mut intake = self.intake.borrow_mut();
        intake.end_flight(stretch.now);
        intake.estimator.accounts.tick(stretch.now);
        let mut snapshot = snapshot::take(
            stretch,
            &mut intake,
            &mut self.collector.processes,
            (self.setup.options, self.cost.pace.period),
        );
        if self.setup.options.windows {
            self.collector.programs.forget_sent(&intake.end_window());
            self.collector.processes.end_window();
        }
        drop(intake);
        if self.setup.options.windows {
            self.describe_window(&mut snapshot.recording);
            // The wall clock may have been set.
            self.ask_for_snapshots();
        }
        observer.snapshot(snapshot);
    }

    /// The domain as it is now.
    fn described(&self) -> DescribedDomain {
        let entry_ns = self.collector.programs.entry_ns();
        let mut described = (self.setup).domain(
            &self.cost.pace,
            entry_ns,
            &self.notes,
            &self.collector.processes,
        );
        self.describe_budget(&mut described.domain);
        described
    }

    /// Adds to a window the parts of a recording other than its stacks and sums.
    fn describe_window(&mut self, window: &mut Recording) {
        let start = &mut window.window;
        start.start_unix_ns = unix_at(start.start_ns);
        let described = self.described();
        window.domain = described.domain;
        window.domain.limits.push(Limit {
            what: "exact waits by lock, exact lengths of waits by thread, and tasks that runtimes schedule: this is a window of \
                   a session that goes on"
                .into(),
            remedy: "`wallscope record`".into(),
        });
        let intake = self.intake.borrow();
        (window.domain.limits).extend(intake.estimator.accounts.folded_limit());
        drop(intake);
        window.host = self.host.take();
        window.cost.kernel_bytes = self.kernel_bytes();
        self.window_sums.take(&self.collector, window);
    }

    /// Memory of the kernel programs' maps and tables now, bytes.
    fn kernel_bytes(&self) -> u64 {
        let alive = self.intake.borrow().estimator.accounts.alive();
        let Collector {
            programs,
            sideband,
            processes,
        } = &self.collector;
        programs.map_bytes(alive) + processes.table_bytes() + sideband.bytes()
    }

    /// The clock ticks: at the end of a time slice, and once a second where slices are wider.
    fn tick(&mut self, observer: &mut dyn Observer) {
        if self.intake.borrow().estimator.accounts.ends_slice(now()) {
            self.close_slice();
        }
        let time = now();
        let elapsed = time - self.time.start_ns;
        self.vary(time);
        self.host.tick(time);
        if self.setup.options.stacks && self.takes_stacks() {
            let (programs, timer) = (&mut self.collector.programs, &mut self.setup.timer);
            self.notes
                .extend(self.cost.pace.check(programs, timer, elapsed));
        }
        let intake = self.intake.borrow();
        observer.progress(&Progress {
            elapsed: Duration::from_nanos(elapsed),
            threads: intake.estimator.accounts.alive(),
            stacks: intake.estimator.user.len() + intake.estimator.kernel.len(),
        });
        drop(intake);
        self.keep_budget(time);
        self.log_figures(time);
    }

    fn close_slice(&mut self) {
        self.iterate_tasks(IterOrder::Dump, "a time slice could not be closed");
        let time = now();
        self.collector.processes.read_late();
        self.collector.processes.managed_mut().java.count();
        self.log_news(time);
        let mut intake = self.intake.borrow_mut();
        intake.tick(time);
        let forgotten = intake.forget();
        self.collector.processes.forget(&forgotten);
        let grid = intake.estimator.accounts.grid();
        let tick_ns = slices::tick_ns(grid.width_ns);
        if tick_ns != std::mem::replace(&mut self.time.tick_ns, tick_ns) {
            let set = self.events.tick_every(grid.start_ns, tick_ns);
            self.notes.extend(set.err().map(|e| e.to_string()));
        }
    }

    /// Varies the period of on-CPU samples, if it has been the same for a while. Only the clock triggers it: each
    /// change starts a new period, so a change triggered by the program would leave out the time that follows.
    fn vary(&mut self, time: u64) {
        if self.setup.options.stacks && self.takes_stacks() {
            let (programs, timer) = (&mut self.collector.programs, &mut self.setup.timer);
            self.cost
                .pace
                .vary(programs, timer, time - self.time.start_ns);
        }
    }

    /// Charges the intervals that are still open, and reads the last names and owners of locks.
    fn take_last(&mut self) {
        self.iterate_tasks(
            IterOrder::End,
            "the last figures of living threads could not be read",
        );
        // A dying thread is in no list any more, but its last switch is still to come.
        for _ in 0..LAST_SWITCHES.as_millis() {
            let _ = self.ring.consume();
            if self.intake.borrow().estimator.accounts.all_done() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let thread_names = &mut self.collector.processes.managed_mut().thread_names;
        thread_names.read_all();
        let names = thread_names.take_news();
        let mut intake = self.intake.borrow_mut();
        for named in names {
            intake.observe(Observation::ThreadName(named));
        }
        intake.read_owners(&self.collector.processes.managed().java);
    }

    /// Takes in the facts that are known only at the end, and assembles the recording.
    fn end(mut self, stop: Stop, end_ns: u64) -> Captured {
        let own_cpu_ns = self.cost.meter.own_ns();
        self.collector.programs.detach();
        let mark = Mark::End { time: end_ns };
        self.intake.borrow_mut().observe(Observation::Mark(mark));
        let _ = self.ring.consume();
        let Recorder {
            intake,
            ring,
            mut upkeep,
            ..
        } = self;
        self.last_values
            .figures(&self.collector.programs, &mut *intake.borrow_mut());
        let rss_bytes = cost::peak_rss_bytes();
        drop(ring);
        upkeep.follow(&mut self.collector, None, &intake);
        let mut intake = Rc::try_unwrap(intake)
            .unwrap_or_else(|_| unreachable!("the ring held the only other handle"))
            .into_inner();
        if stop == Stop::TargetEnded {
            let (options, ns) = (self.setup.options, end_ns - self.time.start_ns);
            (self.notes).extend(ended_early(&options.target, options.method.duration, ns));
        }
        let tasks = (self.collector.processes.managed_mut()).finish_tasks();
        observe_host(&mut self.host, &mut intake);
        let command_end = (self.held.as_mut()).and_then(|h| stop.finish(h));
        let most_alive = intake.estimator.accounts.most_alive();
        intake.observe(Observation::Cost(Cost {
            own_cpu_ns,
            rss_bytes,
            ..cost_of(&self.collector, most_alive)
        }));
        let Collector {
            programs,
            processes,
            ..
        } = &mut self.collector;
        self.last_values.kernel_losses(programs, &mut intake);
        finish_stacks(processes, &mut intake);
        let (tasks, lost) = tasks::observe::observe(tasks, end_ns - self.time.start_ns, processes);
        self.last_values.losses(Counter::Tasks, lost, &mut intake);
        intake.tasks(tasks);
        let waits = intake.lock_waits(programs.lock_waits(), processes.managed());
        self.last_values.lock_waits(waits, &mut intake);
        self.notes.extend(intake.log_failed());
        let entry_ns = programs.entry_ns();
        let mut domain = (self.setup).domain(&self.cost.pace, entry_ns, &self.notes, processes);
        if let Some(budget) = &self.cost.budget {
            budget.describe(&mut domain.domain, self.time.start_ns);
        }
        intake.observe(Observation::Domain(domain));
        let losses = processes.losses();
        self.last_values
            .losses(Counter::Collector, losses, &mut intake);
        observe_processes(processes, &mut intake);
        let EventDispatcher { estimator, log, .. } = intake;
        let (log, assembled, kallsyms) = named(
            estimator,
            log,
            &self.collector.processes,
            self.setup.options,
        );
        let used = snapshot::used(&assembled.recording);
        self.collector.processes.reopen(&used);
        let sources = Sources {
            kallsyms: kernel_symbols(&assembled.recording, kallsyms),
            ..self.collector.processes.into_sources(&assembled.jit)
        };
        Captured {
            recording: assembled.recording,
            sources,
            seen: assembled.seen,
            moments: assembled.moments,
            stop,
            command_end,
            log,
            signals: self.events.into_signals(),
        }
    }
}

/// Has `events` wake us at each of `intervals`, ns, for new mappings and for a full ring.
fn wake_for(
    events: &mut Events,
    intervals: &[Option<u64>],
    sideband: &Sideband,
    ring: &RingBuffer<'_>,
) -> Result<(), Error> {
    for every in intervals.iter().flatten() {
        events.wake_every(*every)?;
    }
    for fd in sideband.descriptors() {
        events.sideband(fd)?;
    }
    events.ring(ring.epoll_fd())
}

/// Takes the last facts about the host.
fn observe_host(host: &mut HostLog, intake: &mut EventDispatcher) {
    host.finish();
    for sample in host.take() {
        intake.observe(Observation::Host(Box::new(sample)));
    }
}

/// Unwinds the stacks that were left for the end, and names the resources of waits.
fn finish_stacks(processes: &mut Processes, intake: &mut EventDispatcher) {
    let deferred = processes.unwind_deferred(&mut intake.raws, Due::All);
    intake.deferred(deferred);
    intake.finish_resources(processes.managed());
}

/// Cost of a collector in the kernel, with `threads` threads at most.
fn cost_of(collector: &Collector, threads: usize) -> Cost {
    let Collector {
        programs,
        processes,
        sideband,
    } = collector;
    let run_time = programs.run_time();
    Cost {
        bpf_ns: run_time.total_ns(),
        displaced_ns: run_time.displaced_ns,
        kernel_bytes: programs.map_bytes(threads) + processes.table_bytes() + sideband.bytes(),
        ..Cost::default()
    }
}

/// Makes the dispatcher of observations that `options` ask for.
fn intake(begin: Begin, log: Option<LogWriter>, options: &Options) -> Rc<RefCell<EventDispatcher>> {
    let start_ns = begin.start_ns;
    let mut intake = EventDispatcher::new(begin, log);
    let flight = options.flight.clone();
    intake.flight = flight.map(|recorder| FlightWriter::new(recorder, start_ns));
    intake.estimator.samples.each = options.moments.then(Vec::new);
    intake.estimator.follows_waits = options.snapshot_every.is_none();
    if options.windows {
        intake.estimator.make_windows();
    }
    Rc::new(RefCell::new(intake))
}

/// Assembles the recording, with names as the collector knows them. A log keeps the answers. The text of the kernel's
/// symbols is returned if it was needed.
fn named(
    estimator: Estimator,
    log: Option<LogWriter>,
    processes: &Processes,
    options: &Options,
) -> (Option<LogWriter>, Assembled, Option<Arc<str>>) {
    let snapshots = match options.snapshot_every {
        Some(_) => Snapshots::Taken,
        None => Snapshots::None,
    };
    let host = Host::now();
    let names = Names {
        code: processes,
        host: &host,
    };
    let Some(log) = interface::kept(log) else {
        let assembled = estimator.finish(names, snapshots);
        return (None, assembled, host.into_kallsyms());
    };
    let logged = Logged::new(names, log);
    let assembled = estimator.finish(logged.names(), snapshots);
    let log = logged.into_log();
    (Some(log), assembled, host.into_kallsyms())
}

/// The present symbols of the kernel: `read`, if they were read, or if stacks lead through code that was loaded into
/// it. Kernel programs take their names with them when they are unloaded, and ours are unloaded next.
fn kernel_symbols(recording: &Recording, read: Option<Arc<str>>) -> Option<Arc<KernelSymbols>> {
    /// First address of modules and kernel programs on x86-64.
    const LOADED: u64 = 0xffff_ffff_c000_0000;
    let mut frames = recording.frames.iter();
    let any = frames.any(|f| f.kind == FrameKind::Kernel && f.address >= LOADED);
    let text = match read {
        Some(text) => text,
        None if any => kallsyms::read().ok()?.into(),
        None => return None,
    };
    Some(Arc::new(KernelSymbols::new(text)))
}
