//! One recording from start to finish.
//!
//! ```text
//! mod.rs        the order of things: prepare, go live, wait, stop, assemble
//! events.rs     what the wait loop wakes up for
//! intake.rs     ring records  -> accounts.rs (threads, ledgers, slices), samples.rs, stacks
//! managed.rs    runtimes of managed code, and the names of its functions; java.rs: of Java's;
//!               scripts.rs: of JavaScript's
//! jit.rs        perf maps and jitdumps, as they are written
//! advice.rs     which flags make a runtime tell its code
//! tasks/        goroutines and asyncio's tasks, looked at by a thread of its own
//! peers.rs      requests in flight on connections, and with whom
//! hits.rs       stacks at events by name
//! timeline.rs   the single intervals, where they are wanted
//! shapes.rs     how long the single intervals were
//! chains.rs     who ended waits, and what that one did meanwhile; parts.rs: the tree of that;
//!               resources.rs: what for
//! gil.rs        who had an interpreter's lock, and when
//! waits.rs      these two -> hops, lock waits and labels of the recording
//! look.rs       what was added so far, for live views
//! late.rs       stacks whose code was too new to be unwound at once
//! upkeep.rs     births, execs and new mappings, in the order in which they came to pass
//! processes.rs  who runs what: unwind tables, open files for the symboliser; space.rs: mappings
//! cost.rs       what measuring costs; pace.rs: slowing down to keep the limit
//! host_log.rs   facts about the host, each second
//! files.rs      the files behind mappings; command.rs: those a command is going to map
//! build.rs      hashes and words -> stacks of the recording; build/frames.rs: their frames
//! domain.rs     what was measured, how, and what could not be seen
//! ```
//!
//! Everything that can be prepared is prepared before the first record exists; everything that
//! can wait (names, scaling, formats) happens after the last, and elsewhere.

mod accounts;
pub(crate) mod advice;
pub(crate) mod build;
mod chains;
pub(crate) mod command;
pub(crate) mod cost;
pub(crate) mod domain;
pub(crate) mod events;
pub(crate) mod files;
mod gil;
mod hits;
pub(crate) mod host_log;
mod intake;
pub(crate) mod java;
mod jit;
mod late;
pub(crate) mod look;
pub(crate) mod managed;
mod pace;
mod parts;
pub(crate) mod peers;
pub(crate) mod processes;
pub(crate) mod resources;
mod samples;
pub(crate) mod scripts;
mod shapes;
mod space;
pub(crate) mod tasks;
mod timeline;
mod upkeep;
mod waits;

use std::{cell::RefCell, fs, fs::File, rc::Rc, sync::Arc, time::Duration};

use rustc_hash::FxHashMap;
use wallscope_model::within::Moment;
use wallscope_model::{Cost, Ledger, Limit, ModuleId, Recording, Slices, WaitSeen, Window};
use wallscope_object::{cgroup, kallsyms, process};
use wallscope_symbolize::Sources;

use crate::{
    Error,
    backend::ebpf::{
        Kernel, Mechanism, Programs, Settings, Visit,
        sideband::Sideband,
        timer::{Timer, parse_cpu_list},
    },
    backend::{
        Backend,
        proc::{self, PerfEvents},
    },
    counter::EventSpec,
    event::{self, LockSum},
    places::{Interrupts, Places},
    probe,
    target::{CommandEnd, Held, Target, cgroup_members, refuse_32_bit, watch, with_descendants},
};
use build::{Stacks, Whose};
use cost::CostMeter;
pub(crate) use domain::privilege;
use events::{Event, Events};
pub use events::{Signals, Stopper};
use host_log::HostLog;
use intake::Intake;
pub use look::Look;
use look::Stretch;
use pace::Pace;
use processes::Processes;
use timeline::{LOOK_EVERY, Turns};
use upkeep::Upkeep;

/// Most slices before two become one.
const MOST_SLICES: u32 = 240;
/// How long to wait at the end for the last switches of dying threads.
const LAST_SWITCHES: Duration = Duration::from_millis(300);
/// Longest a slice may become for the number of slices, ns.
const LONGEST_SLICE: u64 = 1_000_000_000;
/// Most rows of threads by slice before two slices become one, however long: some 50 MB.
const MOST_ROWS: usize = 2_000_000;

/// What to record and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom to measure.
    pub target: Target,
    /// How long; `None`: until the target ends or a signal comes.
    pub duration: Option<Duration>,
    /// On-CPU samples a second and CPU.
    pub hz: u32,
    /// Blocked or runnable time per stack.
    pub off_cpu_period: Duration,
    /// Most CPU that measuring may cost, in percent of one CPU.
    pub max_overhead: f64,
    /// The mechanism for stacks of blocked threads; `None`: the better one.
    pub mechanism: Option<Mechanism>,
    /// The way to measure; `None`: the best that is allowed here.
    pub backend: Option<Backend>,
    /// Keep the frames of interpreters beside those of the programs that they run.
    pub interpreter_frames: bool,
    /// Whether running threads may be stopped for a moment where nothing else shows their stacks.
    pub allow_stop: bool,
    /// Memory for single intervals, bytes; `None`: they are not kept.
    pub timeline: Option<u64>,
    /// Events at which stacks are taken too.
    pub events: Vec<EventSpec>,
    /// Hits of them a stack; `None`: as many stacks as `max_overhead` allows.
    pub event_period: Option<u64>,
    /// Where a command's output goes, which then has no input; `None`: all as it is here.
    pub command_output: Option<Arc<File>>,
    /// Whether each sample's moment is wanted (see [`Captured::moments`]).
    pub moments: bool,
    /// Whether stacks are wanted, or ledgers alone.
    pub stacks: bool,
    /// How often the observer gets a [`Look`]; what a look has shown is not in the recording at the
    /// end. `None`: never.
    pub looks: Option<Duration>,
}

impl Options {
    /// What is measured and how unless something else is asked for.
    pub fn new(target: Target) -> Options {
        Options {
            target,
            duration: None,
            hz: 99,
            off_cpu_period: Duration::from_millis(1),
            max_overhead: 1.0,
            mechanism: None,
            backend: None,
            interpreter_frames: false,
            allow_stop: false,
            timeline: None,
            events: Vec::new(),
            event_period: None,
            command_output: None,
            moments: false,
            stacks: true,
            looks: None,
        }
    }
}

/// Told what is going on.
pub trait Observer {
    /// Measuring is live: from now on nothing is missed.
    fn live(&mut self, facts: &Live);
    /// Some time has passed.
    fn progress(&mut self, progress: &Progress);
    /// What came since the last look (see [`Options::looks`]).
    fn look(&mut self, look: Look) {
        let _ = look;
    }
    /// The window has just ended; what was measured is put together next.
    fn over(&mut self) {}
}

/// The state of things when measuring went live.
#[derive(Clone, Debug)]
pub struct Live {
    /// The target in words.
    pub target: String,
    /// Threads found.
    pub threads: usize,
    /// The on-CPU event in words.
    pub event: String,
    /// On-CPU samples a second.
    pub hz: u32,
    /// The contract's name of the backend.
    pub backend: &'static str,
    /// The processes that were found; a command's is held, and has not begun.
    pub pids: Vec<u32>,
    /// Ends the session from elsewhere.
    pub stopper: Stopper,
}

/// How it goes.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Threads alive.
    pub threads: usize,
    /// Distinct stacks so far.
    pub stacks: usize,
}

/// Why measuring stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The duration was over.
    Duration,
    /// The target ended.
    TargetEnded,
    /// A signal asked for it.
    Signal,
}

/// The result of measuring.
pub struct Captured {
    /// The recording; frames have no names yet.
    pub recording: Recording,
    /// What a symboliser needs, by module.
    pub sources: Sources,
    /// What was seen of connections in the waits of each sample, by index; empty: of none.
    pub seen: Vec<WaitSeen>,
    /// When each sample was taken, where that is wanted; by the ebpf backend only.
    pub moments: Vec<Moment>,
    /// Why it stopped.
    pub stop: Stop,
    /// For a command: how it ended.
    pub command_end: Option<CommandEnd>,
    /// To be kept until the recording is safe: a second Ctrl-C is to lose nothing.
    pub signals: Signals,
}

/// Measures `options.target` and returns everything that was seen.
///
/// # Errors
/// No such target, no privilege, a kernel that lacks what is needed; nothing was recorded then.
pub fn record(options: &Options, observer: &mut dyn Observer) -> Result<Captured, Error> {
    refuse_32_bit(&options.target)?;
    let kernel = || Kernel::inspect()?.with_all_that_is_needed();
    let lower = |why, perf, observer| proc::record(options, why, perf, observer);
    match options.backend {
        Some(Backend::Ebpf) => by_ebpf(options, &kernel()?, observer),
        Some(Backend::Perf) => lower("as asked".into(), PerfEvents::Must, observer),
        Some(Backend::Proc) => lower("as asked".into(), PerfEvents::Not, observer),
        None => {
            if let Some(why) = probe::ebpf_refused() {
                return lower(why, PerfEvents::May, observer);
            }
            match kernel().and_then(|kernel| by_ebpf(options, &kernel, observer)) {
                // Both are found out before anything is measured.
                Err(e @ (Error::NotSupported { .. } | Error::Bpf { .. })) => {
                    lower(format!("not by eBPF: {e}"), PerfEvents::May, observer)
                }
                other => other,
            }
        }
    }
}

/// By kernel programs.
fn by_ebpf(
    options: &Options,
    kernel: &Kernel,
    observer: &mut dyn Observer,
) -> Result<Captured, Error> {
    let mut held = match &options.target {
        Target::Command(argv) => Some(Held::start(argv, options.command_output.as_deref())?),
        _ => None,
    };
    let chosen = choose(&options.target, held.as_ref())?;
    let cpus = parse_cpu_list(
        &fs::read_to_string("/sys/devices/system/cpu/online")
            .map_err(|e| Error::io("cannot read which CPUs are online", e))?,
    );
    let mechanism = options.mechanism.unwrap_or_else(|| kernel.mechanism());
    let timer = if options.stacks {
        Timer::open(&cpus, options.hz)?
    } else {
        Timer::none()
    };
    let taps = hits::open(options, &cpus)?;
    // What cannot be read tells nothing, which the domain says.
    let symbols = kallsyms::read().unwrap_or_default();
    let interrupts = Interrupts::parse(&symbols);
    let settings = Settings {
        hz: options.hz,
        off_cpu_period: if options.stacks {
            options.off_cpu_period
        } else {
            Duration::ZERO
        },
        mechanism,
        all: matches!(options.target, Target::All),
        places: Places::parse(&symbols),
        timeline: options.timeline.is_some(),
        events: hits::kinds(&taps),
    };
    let named = !settings.places.ranges.is_empty();
    let mut programs = Programs::load(kernel, &settings)?;
    let mut sideband = Sideband::open(&cpus).map_err(|e| {
        Error::io(
            "cannot follow new mappings (perf_event_open on every CPU)",
            e,
        )
    })?;

    let mut processes = Processes::new(&programs)?;
    processes.managed_mut().look_at_tasks(options.max_overhead);
    if !options.stacks {
        processes.keep_facts_only();
    }
    for pid in &chosen.pids {
        processes.found(*pid);
    }
    if let (Target::Command(argv), Some(held)) = (&options.target, &held) {
        processes.prepare_command(held.pid(), &argv[0]);
    }
    programs.set_managed(processes.managed().processes());
    let java = &mut processes.managed_mut().java;
    java.look_at_threads();
    programs.add_java_threads(&java.take_threads());
    programs.attach(&timer.events)?;
    programs.set_event_pace(&taps, options.max_overhead / 100.0, cpus.len());
    let taps = programs.attach_taps(taps)?;
    programs.add_targets(&chosen.pids)?;
    programs.add_cgroups(&chosen.cgroups)?;

    let mut host = HostLog::open(&chosen.pids);
    let mut events = Events::new(&chosen.watch, options.duration)?;
    for fd in sideband.descriptors() {
        events.sideband(fd)?;
    }
    let slice_ns = first_slice(options.duration);
    let start_ns = now();
    let start_unix_ns = unix_now();
    let intake = Rc::new(RefCell::new(Intake::new(start_ns, slice_ns, interrupts)));
    let ring = {
        let (intake, turns) = (Rc::clone(&intake), Rc::clone(&intake));
        programs.ring(
            move |bytes| intake.borrow_mut().take(bytes),
            options
                .timeline
                .map(|_| move |bytes: &[u8]| turns.borrow_mut().turn(bytes)),
        )?
    };
    if options.moments {
        intake.borrow_mut().samples.each = Some(Vec::new());
    }
    if let Some(limit) = options.timeline {
        intake.borrow_mut().turns = Some(Turns::new(limit));
    }
    if options.timeline.is_some() {
        events.look_every(LOOK_EVERY)?;
    }
    events.ring(ring.epoll_fd())?;
    events.tick_every(start_ns, slice_ns)?;

    {
        let peers = &mut intake.borrow_mut().samples.peers;
        peers.followed = kernel.has_hook("ws_sent");
        peers.begin(&mut programs, &chosen.pids, now());
    }
    programs.visit(Visit::Begin, None, |_| {})?;
    ring.consume()
        .map_err(Error::bpf("cannot read the event ring"))?;
    host.take_all();
    observer.live(&Live {
        target: options.target.describe(),
        threads: intake.borrow().accounts.len(),
        event: timer.describe().into(),
        hz: options.hz,
        backend: "ebpf",
        pids: chosen.pids.clone(),
        stopper: events.stopper(),
    });
    if let Some(held) = &mut held {
        intake.borrow_mut().accounts.begins(held.pid(), now());
        held.release()?;
    }

    let meter = CostMeter::start();

    // From here on nothing may be lost: every failure ends the recording, and it is still written.
    let mut pace = Pace::new(options);
    let mut upkeep = Upkeep::default();
    let mut notes = Vec::new();
    if let Some(every) = options.looks {
        events.view_every(every)?;
    }
    let mut looked = start_ns;
    let mut dates = false;
    let stop = loop {
        let event = events.wait();
        upkeep.follow(
            &mut programs,
            &mut sideband,
            Some(&ring),
            &mut processes,
            &intake,
        );
        if !dates && processes.jit().follows() {
            // What is written without times is dated by when it is seen.
            dates = true;
            events
                .look_every(jit::LOOK_EVERY)
                .unwrap_or_else(|e| notes.push(e.to_string()));
        }
        match event {
            Event::News => {}
            Event::Look => {
                // Of a thread that has not moved since the start nothing is known before the first.
                let order = if looked == start_ns {
                    Visit::All
                } else {
                    Visit::Dump
                };
                let few = intake.borrow().accounts.few_processes();
                let visit = programs.visit(order, few.as_deref(), |v| {
                    intake.borrow_mut().visited(&v, false);
                });
                if let Err(e) = visit {
                    notes.push(format!("a look could not be taken: {e}"));
                }
                let _ = ring.consume();
                let stretch = Stretch {
                    start: start_ns,
                    last: looked,
                    now: now(),
                };
                looked = stretch.now;
                let mut intake = intake.borrow_mut();
                intake.accounts.tick(stretch.now);
                let look = look::take(stretch, &mut intake, &processes, options);
                drop(intake);
                observer.look(look);
            }
            Event::Tick => {
                let few = intake.borrow().accounts.few_processes();
                let visit = programs.visit(Visit::Dump, few.as_deref(), |v| {
                    intake.borrow_mut().visited(&v, false);
                });
                if let Err(e) = visit {
                    notes.push(format!("a time slice could not be closed: {e}"));
                }
                let time = now();
                let mut intake = intake.borrow_mut();
                intake.accounts.tick(time);
                processes.managed_mut().java.count();
                if options.looks.is_none() {
                    intake.settle(time);
                }
                let grid = intake.accounts.grid();
                if too_many_slices(&grid, time) || intake.accounts.rows() > MOST_ROWS {
                    intake.coarsen();
                    events
                        .tick_every(grid.start_ns, grid.width_ns * 2)
                        .unwrap_or_else(|e| notes.push(e.to_string()));
                }
                host.tick(time);
                if options.stacks {
                    notes.extend(pace.check(&mut programs, &timer, time - start_ns));
                }
                observer.progress(&Progress {
                    elapsed: Duration::from_nanos(time - start_ns),
                    threads: intake.accounts.alive(),
                    stacks: intake.user.len() + intake.kernel.len(),
                });
            }
            Event::Duration => break Stop::Duration,
            Event::TargetEnded => break Stop::TargetEnded,
            Event::Signal => break Stop::Signal,
        }
    };

    observer.over();
    if let Err(e) = programs.visit(Visit::End, None, |v| intake.borrow_mut().visited(&v, true)) {
        notes.push(format!(
            "the last figures of living threads could not be read: {e}"
        ));
    }
    // A dying thread that no list shows any more still has its last switch before it.
    for _ in 0..LAST_SWITCHES.as_millis() {
        let _ = ring.consume();
        if intake.borrow().accounts.all_done() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let end_ns = now();
    let own_cpu_ns = meter.own_ns();
    programs.detach();
    let _ = ring.consume();
    intake.borrow_mut().shapes.all = programs.shapes();
    let counted = programs.hits();
    intake.borrow_mut().samples.peers.open = programs.sockets();
    drop(ring);
    upkeep.follow(&mut programs, &mut sideband, None, &mut processes, &intake);
    let seen_tasks = processes.managed_mut().finish_tasks();
    let facts = host.finish();
    let command_end = held
        .as_mut()
        .and_then(|h| h.finish(stop == Stop::TargetEnded));

    let most_alive = intake.borrow().accounts.most_alive();
    let mut recording = Recording {
        window: Window {
            start_ns,
            end_ns,
            clock: "CLOCK_MONOTONIC".into(),
            start_unix_ns,
        },
        host: facts,
        cost: Cost {
            bpf_ns: programs.run_time().total_ns(),
            own_cpu_ns,
            rss_bytes: cost::peak_rss_bytes(),
            kernel_bytes: programs.map_bytes(most_alive)
                + processes.table_bytes()
                + sideband.bytes(),
            target_stopped_ns: 0,
        },
        ..Recording::default()
    };
    let mut intake = Rc::try_unwrap(intake)
        .unwrap_or_else(|_| unreachable!("the ring held the only other handle"))
        .into_inner();
    let mut losses: Vec<(String, u64)> = event::LOSSES
        .iter()
        .zip(programs.losses())
        .map(|(cause, count)| ((*cause).to_owned(), count))
        .collect();
    processes.unwind_late(&mut intake, true);
    notes.extend(intake.samples.peers.problem.take());
    notes.extend(processes.managed().java.notes());
    let programs_of = processes.several_programs();
    notes.extend(programs_of.map(|note| note + "; the label `program` tells which one it was"));
    notes.extend(processes.managed().scripts.notes());
    notes.extend(processes.jit().notes());
    let mut stacks = Stacks::new(&processes, options.interpreter_frames);
    let of_tasks = tasks::assemble(
        &mut recording,
        &mut stacks,
        seen_tasks,
        &processes,
        &mut losses,
    );
    recording.events = hits::assemble(&taps, &counted, &intake.accounts);
    let Assembled {
        jit,
        seen,
        moments,
        unnamed,
    } = assemble(
        &mut recording,
        &mut intake,
        &processes,
        &programs.lock_waits(),
        &mut losses,
        stacks,
        options,
    );
    recording.domain = domain::describe(&domain::Facts {
        kernel,
        options,
        timeline: recording.timeline.as_ref(),
        mechanism,
        timer: timer.describe(),
        cpus: cpus.len() as u32,
        pace: &pace,
        taps: &taps,
        kernel_named: named,
        notes,
        runtimes: processes.managed().describe(),
    });
    recording.domain.limits.extend(unnamed);
    for (note, limit) in of_tasks {
        recording.domain.notes.push(note);
        recording.domain.limits.push(limit);
    }
    losses.extend(processes.losses());
    recording.losses = losses
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| wallscope_model::Loss { cause, count })
        .collect();
    Ok(Captured {
        recording,
        sources: processes.into_sources(&jit),
        seen,
        moments,
        stop,
        command_end,
        signals: events.into_signals(),
    })
}

/// Whom the target means, now.
pub(crate) struct Chosen {
    pub pids: Vec<u32>,
    cgroups: Vec<u64>,
    /// Processes whose end ends the recording.
    pub watch: Vec<std::os::fd::OwnedFd>,
}

pub(crate) fn choose(target: &Target, held: Option<&Held>) -> Result<Chosen, Error> {
    let mut chosen = Chosen {
        pids: Vec::new(),
        cgroups: Vec::new(),
        watch: Vec::new(),
    };
    match target {
        Target::Pids(pids) => {
            for pid in pids {
                chosen.watch.push(watch(*pid)?);
            }
            chosen.pids = with_descendants(pids);
        }
        Target::Command(_) => {
            let pid = held.map(Held::pid).unwrap_or_default();
            chosen.watch.push(watch(pid)?);
            chosen.pids.push(pid);
        }
        Target::Cgroup(path) => {
            let group = cgroup::find(path).map_err(|e| Error::NoSuchCgroup {
                path: path.display().to_string(),
                why: e.to_string(),
            })?;
            (chosen.cgroups, chosen.pids) = cgroup_members(&group.dir)?;
        }
        Target::All => {
            chosen.pids = process::processes()
                .map_err(|e| Error::io("cannot list the machine's processes", e))?;
            chosen.pids.retain(|pid| *pid != std::process::id());
        }
    }
    Ok(chosen)
}

/// What putting a recording together gives beside it.
struct Assembled {
    /// Modules of code made at run time, with their processes.
    jit: Vec<(ModuleId, u32)>,
    /// What was seen of connections, by sample.
    seen: Vec<WaitSeen>,
    /// When each sample was taken.
    moments: Vec<Moment>,
    /// What is to be told of code without names.
    unnamed: Vec<Limit>,
}

fn assemble(
    recording: &mut Recording,
    intake: &mut Intake,
    processes: &Processes,
    locks: &[LockSum],
    losses: &mut Vec<(String, u64)>,
    mut stacks: Stacks,
    options: &Options,
) -> Assembled {
    let end_ns = recording.window.end_ns;
    let grid = intake.accounts.grid();
    let last_slice = (end_ns
        .saturating_sub(grid.start_ns)
        .div_ceil(grid.width_ns.max(1)))
    .max(1) as u32
        - 1;
    let mut sums = intake.samples.finish(last_slice);
    intake.settle(u64::MAX);
    intake.resources.finish(processes.managed());
    stacks.kernel_functions(&intake.kernel);
    sums.sort_by_key(|(key, _)| (key.id, key.state, key.detail, key.kernel));
    let peers = std::mem::take(&mut intake.samples.peers);
    let mut seen = Vec::with_capacity(sums.len());
    let mut at = FxHashMap::default();
    for (key, sum) in sums {
        let Some(sample) = stacks.sample(key, sum, intake, processes) else {
            continue;
        };
        if key.state == event::state::HIT {
            if let Some(event) = recording.events.get_mut(usize::from(key.detail)) {
                event.samples.push(sample);
            }
            continue;
        }
        at.insert(key, recording.samples.len() as u32);
        let pid = intake.accounts.pid(sample.context.0);
        seen.push(peers.seen(&key, pid));
        recording.samples.push(sample);
    }
    let moments = (intake.samples.each.take().into_iter().flatten())
        .filter_map(|(key, [begin_ns, end_ns, ns, count])| {
            let sample = *at.get(&key)?;
            Some(Moment {
                sample,
                begin_ns,
                end_ns,
                ns,
                count,
            })
        })
        .collect();
    waits::assemble(recording, &mut stacks, &at, locks, intake, processes);
    recording.label_sets = std::mem::take(&mut stacks.labels.sets);
    losses.push((
        "parts of waits that are not told apart (too many)".into(),
        intake.chains.parts.crowded,
    ));
    recording.peers = peers.finish(end_ns, &intake.accounts, |user, context| {
        let whose = Whose::last(intake.accounts.pid(context));
        stacks.stack(0, user, whose, intake, processes)
    });
    losses.push(("malformed event".into(), intake.malformed));
    losses.push(("user stack never read".into(), intake.samples.unresolved));
    let mut truncated: Vec<_> = stacks.truncated.iter().collect();
    truncated.sort();
    for (end, count) in truncated {
        losses.push((format!("truncated:{}", end.name()), *count));
    }
    let jit = stacks.jit_modules();
    let unnamed = advice::unnamed_code(&stacks, processes);
    recording.modules = stacks.modules;
    recording.frames = stacks.frames;
    recording.functions = stacks.functions;
    recording.stacks = stacks.stacks;
    let shapes = std::mem::take(&mut intake.shapes);
    recording.shapes = shapes.finish(&intake.accounts);
    recording.shapes.append(&mut stacks.lengths);
    recording.timeline = intake.turns.take().map(|turns| {
        let lost = losses.iter().find(|(cause, _)| cause == event::RING_TURN);
        turns.finish(&intake.accounts, lost.map_or(0, |(_, n)| *n))
    });
    let rest = options
        .looks
        .is_some()
        .then(|| intake.accounts.look(end_ns));
    let accounts = std::mem::replace(&mut intake.accounts, accounts::Accounts::new(0, 0));
    (
        recording.contexts,
        recording.slices,
        recording.ledger_slices,
    ) = accounts.finish(end_ns);
    // Looks have shown the rest.
    for context in recording.contexts.iter_mut().filter(|_| rest.is_some()) {
        context.ledger = Ledger::default();
        context.start_ns = context.end_ns;
    }
    for (index, context) in rest.into_iter().flatten() {
        recording.contexts[index as usize] = context;
    }
    // Preparing takes a moment: the window begins with the first thread's books.
    if let (Some(first), None) = (
        recording.contexts.iter().map(|c| c.start_ns).min(),
        options.looks,
    ) {
        let window = &mut recording.window;
        let late = first.saturating_sub(window.start_ns);
        window.start_ns += late;
        window.start_unix_ns += late;
    }
    recording.processes = processes.facts();
    Assembled {
        jit,
        seen,
        moments,
        unnamed,
    }
}

/// Slices are fine for short recordings: some twenty of them.
pub(crate) fn first_slice(duration: Option<Duration>) -> u64 {
    match duration {
        Some(d) => (d.as_nanos() as u64 / 20).clamp(50_000_000, LONGEST_SLICE),
        None => LONGEST_SLICE / 2,
    }
}

/// Whether there are by now so many slices that two should become one.
pub(crate) fn too_many_slices(grid: &Slices, now: u64) -> bool {
    let slices = now.saturating_sub(grid.start_ns) / grid.width_ns.max(1);
    slices >= u64::from(MOST_SLICES) && grid.width_ns < LONGEST_SLICE
}

/// CLOCK_MONOTONIC, ns.
pub(crate) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CLOCK_REALTIME, ns.
pub(crate) fn unix_now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
