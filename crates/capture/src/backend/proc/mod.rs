//! The ledger with nothing but `/proc` and `process_vm_readv`.
//!
//! ```text
//! mod.rs              the order of things: prepare, go live, wait, stop
//! target_tracker.rs   processes and threads under watch, as they come and go; tracked_process.rs, thread.rs:
//!                     one of them; subreaper.rs: children after their parent's end
//! poller.rs           the poller's state; poll_round.rs: its rounds; pace.rs: how often
//! wait_probe.rs       one poll of one thread; wait_observation.rs: what it learns of a wait
//! waiting.rs          reason and stack of a waiting thread, read without stopping it;
//!                     call_site_check.rs: whether a stack that was copied too late is that of the wait
//! stop.rs             short stops of running threads, where they are permitted; stop_sampling.rs: their
//!                     stacks; pending_stop.rs, last_ran.rs: what a thread did at a poll
//! connections.rs      peers of connections, and requests in flight; connection.rs: one connection
//! counters.rs         a thread's time by the scheduler's counters
//! thread_ledger.rs    a thread's time by slice; time_kind.rs: its kinds; spans.rs: single intervals
//! samples.rs          stacks and the time they stand for
//! assemble.rs         all of it -> the recording; domain.rs: the measurement domain in words
//! prompt.rs           scheduling of the poller itself
//! refusal.rs          what cannot be measured
//! ```
//!
//! Every round each thread's `schedstat` is read. One that has not run since the last round still
//! does what it did, which costs no further reading; after a while it is looked at every eighth
//! round only. One that ran and now waits is asked for its system call and its stack.
//!
//! With perf events ([`super::perf`]) the totals come from recorded switches, running threads are
//! sampled too, and preemption is told apart. Without them it does not see the stacks of running
//! threads, which would have to be stopped for that, nor kernel stacks, nor wakers; threads that
//! live less than a listing are seen as CPU time of their process.

mod assemble;
mod call_site_check;
mod connection;
mod connections;
pub(crate) mod counters;
mod domain;
mod last_ran;
mod lent;
mod pace;
mod pending_stop;
mod poll_round;
pub(crate) mod poller;
mod prompt;
mod refusal;
mod round_robin;
pub(crate) mod samples;
pub(crate) mod spans;
mod stop;
mod stop_sampling;
mod subreaper;
pub(crate) mod target_tracker;
pub(crate) mod thread;
pub(crate) mod thread_ledger;
pub(crate) mod time_kind;
pub(crate) mod tracked_process;
pub(crate) mod wait_observation;
mod wait_probe;
pub(crate) mod waiting;

use std::time::Duration;

use wallscope_model::{ContextId, Cost, Recording, Slices, Window};
use wallscope_unwind::native::MemoryTables;

use super::perf::{DATA_PAGES, EventSampler, ThreadEvents};
use crate::{
    Error,
    ahead::Ahead,
    clock, cpus,
    session::{
        self, Captured, Live, Look, Observer, Options, Progress, Stop,
        cost::{self, CostMeter, thread_cpu_ns},
        events::{Event, Events},
        files::Files,
        host_log::HostLog,
        processes::Processes,
        snapshot::{self, SnapshotWindow},
    },
    slices,
    target::{Held, Target},
};
use assemble::Assembled;
use connections::Connections;
use pace::{Pace, Used, Waking};
use poll_round::{LATE, TickLateness};
use poller::ProcPoller;
use prompt::InLine;
use stop::Stopper;
use subreaper::Subreaper;

/// Between two searches for new threads and processes, ns.
const FOLLOW: u64 = 100_000_000;
/// Where there are births, so many times what a search takes.
const SOONER: u64 = 300;
/// Between two searches where births are recorded, and between two readings of all counters, ns.
const REVIEW: u64 = 1_000_000_000;
/// Descriptors that are left to what is not a thread's.
const RESERVED: usize = 128;
/// Files that are kept open for a thread.
const FILES_EACH: usize = 5;

/// Whether to use perf events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerfEvents {
    /// They are what was asked for.
    Must,
    /// Where they are allowed.
    May,
    /// Only `/proc`.
    Not,
}

/// Measures `options.target` by looking at `/proc`. `reason`: why by this backend.
///
/// # Errors
/// No such target, or not even its books can be read; nothing was recorded then.
pub(crate) fn record(
    options: &Options,
    mut reason: String,
    perf: PerfEvents,
    observer: &mut dyn Observer,
) -> Result<Captured, Error> {
    if perf == PerfEvents::Not {
        refusal::of_stacks_at(&options.events, &reason)?;
    }
    refusal::of_foreign_proc()?;
    let descriptors = most_descriptors();
    let mut held = match &options.target {
        Target::Command(argv) => Some(Held::start(argv, options.command_output.as_deref())?),
        _ => None,
    };
    let chosen = session::resolve_target(&options.target, held.as_ref())?;
    let mut processes = Processes::over(Files::over(MemoryTables::new())?);
    processes.managed_mut().look_at_tasks(options.max_overhead);
    if let (Target::Command(argv), Some(held)) = (&options.target, &held) {
        processes.prepare_command(held.pid(), &argv[0]);
    }
    for pid in &chosen.pids {
        processes.found(*pid);
    }
    let mut host = HostLog::open(&chosen.pids);
    let mut events = Events::new(&chosen.watch, options.duration)?;
    let start_ns = clock::now();
    let start_unix_ns = clock::unix_now();
    let grid = Slices {
        start_ns,
        width_ns: slices::first_width_ns(options.duration),
        count: 0,
    };
    let room = descriptors.saturating_sub(RESERVED) / (2 * FILES_EACH);
    let mut looker = ProcPoller::new(processes, grid, room);
    looker.interpreter_frames = options.interpreter_frames;
    for pid in &chosen.pids {
        looker.watch.process(*pid, None, clock::now());
    }
    if let (Some(pid), true) = (chosen.pids.first(), looker.watch.threads.is_empty()) {
        let gone = chosen.gone(&options.target);
        return Err(gone.unwrap_or_else(|| refusal::of_books(*pid)));
    }
    if perf != PerfEvents::Not {
        match open_clock(&mut looker, options, descriptors) {
            Ok(cpus) => {
                if let (Some(clock), false) = (&looker.clock, options.events.is_empty()) {
                    let (hz, gap) = (options.hz, options.event_period);
                    let kernel = clock.with_kernel;
                    let hits =
                        EventSampler::open(&options.events, gap, hz, &cpus, descriptors, kernel)?;
                    looker.hits = Some(hits);
                }
                join_all(&mut looker);
                let clock = looker.clock.iter().flat_map(ThreadEvents::descriptors);
                for fd in clock.chain(looker.hits.iter().flat_map(EventSampler::descriptors)) {
                    events.sideband(fd)?;
                }
                if options.timeline.is_some() {
                    looker.watch.keep_spans();
                }
            }
            Err(e) if perf == PerfEvents::Must => return Err(refusal::of_events(&e)),
            Err(e) => {
                reason = format!("{reason}; perf events are refused: {e}");
                refusal::of_stacks_at(&options.events, &reason)?;
            }
        }
    }
    prompt::ask_for_short_turns();
    if let (Some(held), None) = (&held, &looker.clock) {
        looker.orphans = Subreaper::of(held.pid());
    }
    if options.allow_stop && looker.clock.is_none() {
        looker.stopper = Some(Stopper::new());
    }
    if options.stacks {
        let pids: Vec<u32> = looker.watch.processes.keys().copied().collect();
        looker.connections = Some(Connections::begin(&pids, clock::now()));
    }
    host.take_all();
    // Everybody is read once before it counts: that opens their files and fills the tables.
    looker.round(
        clock::now(),
        TickLateness::InTime,
        1_000_000_000 / u64::from(options.hz),
        1,
        true,
    );
    observer.live(&Live {
        target: options.target.describe(),
        threads: looker.watch.live.len(),
        event: format!("{} backend, {reason}; looks", looker.name()),
        hz: options.hz,
        backend: looker.name(),
        pids: chosen.pids.clone(),
        control: events.control(),
    });
    let meter = CostMeter::start();
    let mut pace = Pace::new(options.hz, options.max_overhead, clock::now(), 0);
    if let Some(held) = &mut held {
        // It stood at our gate until now, which is none of its own time.
        looker.rebase();
        held.release()?;
    }
    if let Some(hits) = &mut looker.hits {
        hits.begin();
    }

    let mut notes = Vec::new();
    if let Some(every) = options.looks {
        events.view_every(every)?;
    }
    let mut looked = start_ns;
    let (mut followed, mut reviewed) = (clock::now(), clock::now());
    let (mut looks_ns, mut searching_ns, mut due) = (0, 0, 0);
    let mut waking = Waking::default();
    let ahead = Ahead::of_others();
    let in_line = InLine::of_own_thread();
    let stop = loop {
        let cpu = thread_cpu_ns();
        if due == 0 {
            let now = clock::now();
            let wait = pace.next_ns();
            if let Err(e) = events.tick_every(now, wait) {
                notes.push(e.to_string());
                break Stop::Signal;
            }
            due = now + wait;
        }
        let longest = match (&looker.clock, &looker.hits) {
            (Some(clock), None) => {
                let now = clock::now();
                looker.attention.before(&events, clock, now, due)
            }
            _ => None,
        };
        let (waits, stood) = (clock::now(), in_line.ns());
        let event = events.wait_for(longest);
        // Waking up is a part of what it was for; emptying the rings in time is for neither.
        let price = waking.of(thread_cpu_ns() - cpu);
        // Late for want of a CPU, or by what we did, as when samples came just then; or the machine woke us late.
        let comes = if clock::now() <= due + LATE {
            TickLateness::InTime
        } else if waits > due
            || (stood.zip(in_line.ns())).is_none_or(|(before, now)| now > before + LATE)
        {
            TickLateness::Late
        } else {
            TickLateness::WokenLate
        };
        let (came, counted) = (looker.tally.came, looker.tally.counted);
        if matches!(event, Event::News | Event::Tick | Event::Look) {
            looker.drain(followed, clock::now());
        }
        match event {
            Event::Tick => looks_ns += price,
            Event::News if longest.is_none() => {
                // For those that count.
                let (came, counted) = (looker.tally.came - came, looker.tally.counted - counted);
                looker.sampling_ns += (price * counted).checked_div(came).unwrap_or(price);
            }
            _ => {}
        }
        match event {
            Event::News | Event::Clock => {}
            Event::Look => {
                let stretch = SnapshotWindow {
                    start: start_ns,
                    last: looked,
                    now: clock::now(),
                };
                looked = stretch.now;
                observer.look(look(&mut looker, stretch, followed));
            }
            Event::Tick => {
                let now = clock::now();
                looker.stay_near(now, due);
                let review = now >= reviewed + REVIEW;
                if review {
                    reviewed = now;
                    if let Some(limit) = options.timeline {
                        looker.watch.keep_spans_within(limit);
                    }
                }
                let cpu = thread_cpu_ns();
                if let Some(clock) = &mut looker.clock {
                    clock.sample_newborns(now);
                }
                looker.round(due, comes, pace.period_ns(), pace.stride(), false);
                looks_ns += thread_cpu_ns() - cpu;
                looker.ration(followed);
                due = 0;
                let now = clock::now();
                if slices::is_too_fine(&looker.grid, now) {
                    looker.coarsen();
                }
                // A thread without further records tells of no new threads either.
                let told = looker.clock.is_some() && looker.tally.deaf == 0;
                let every = if told && !looker.relist {
                    REVIEW
                } else {
                    FOLLOW
                };
                let sooner = now >= followed + SOONER * searching_ns;
                if now >= followed + every
                    || (every == FOLLOW && sooner && looker.watch.has_births(now))
                {
                    looker.relist = false;
                    looker.follow(&options.target, followed, now);
                    followed = now;
                    searching_ns = clock::now() - now;
                    observer.progress(&Progress {
                        elapsed: Duration::from_nanos(now - start_ns),
                        threads: looker.watch.live.len(),
                        stacks: looker.samples.distinct(),
                    });
                }
                if host.tick(now) {
                    looker.watch.read_clocks();
                }
                let used = Used {
                    cpu_ns: meter.own_ns(),
                    looks_ns: looks_ns + looker.stopper.as_ref().map_or(0, |s| s.cpu_ns),
                    samples_ns: looker.sampling_ns,
                    sampled_ns: looker.sampled_ns,
                    threads: looker.watch.live.len(),
                };
                if pace.check(now, used)
                    && let Some(clock) = &mut looker.clock
                {
                    clock.set_period(pace.sample_ns());
                }
                if let Some(hits) = &mut looker.hits {
                    hits.adapt(1_000_000_000 / pace.sample_ns().max(1), now);
                }
            }
            Event::Duration => break Stop::Duration,
            Event::TargetEnded => break Stop::TargetEnded,
            Event::Signal => break Stop::Signal,
        }
    };

    observer.over();
    looker.nearby.leave();
    looker.finish(followed, pace.period_ns(), stop == Stop::TargetEnded);
    drop(ahead);
    let end_ns = clock::now();
    let own_cpu_ns = meter.own_ns();
    looker.watch.read_clocks();
    for t in &mut looker.watch.threads {
        t.catch_up(end_ns);
    }
    let stopper = looker.stopper.take();
    let (stopped_ns, stops) = stopper.as_ref().map_or((0, 0), |s| (s.stopped_ns, s.stops));
    let refused = stopper.as_ref().and_then(|s| s.refused.clone());
    // A thread that is still to stop is let go as soon as it does.
    drop(stopper);
    host.finish();
    let facts = host.take();
    let command_end = held.as_mut().and_then(|h| stop.finish(h));
    let mut recording = Recording {
        window: Window {
            start_ns,
            end_ns,
            clock: "CLOCK_MONOTONIC".into(),
            start_unix_ns,
        },
        host: facts,
        cost: Cost {
            bpf_ns: 0,
            own_cpu_ns,
            rss_bytes: cost::peak_rss_bytes(),
            kernel_bytes: looker.clock.as_ref().map_or(0, ThreadEvents::bytes)
                + looker.hits.as_ref().map_or(0, EventSampler::bytes),
            target_stopped_ns: stopped_ns,
        },
        ..Recording::default()
    };
    let window_ns = (end_ns - start_ns).max(1);
    if stop == Stop::TargetEnded {
        notes.extend(session::ended_early(
            &options.target,
            options.duration,
            window_ns,
        ));
    }
    if let (Some(limit), true) = (options.timeline, looker.clock.is_some()) {
        looker.watch.keep_spans_within(limit);
        let spans = (0..).map(ContextId).zip(&looker.watch.threads);
        let spans = spans.filter_map(|(context, t)| Some((context, t.book.spans.as_ref()?)));
        recording.timeline = Some(spans::timeline(spans, limit));
    }
    notes.extend(looker.processes.several_programs());
    looker.processes.jit_mut().follow();
    notes.extend(looker.processes.jit().notes());
    notes.extend(looker.processes.undescribed());
    recording.domain = domain::describe(domain::Facts {
        reason,
        timeline: recording.timeline.as_ref(),
        timeline_asked: options.timeline.is_some(),
        target: options.target.describe(),
        descends: matches!(options.target, Target::Pids(_) | Target::Command(_)),
        asked_hz: options.hz,
        hz: pace.look_hz(window_ns),
        sample_hz: pace.sample_hz(end_ns, window_ns),
        unreadable: looker
            .watch
            .processes
            .values()
            .filter(|p| !p.readable)
            .count() as u64,
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        stops: options.allow_stop.then_some(domain::Stops {
            count: stops,
            ns: stopped_ns,
            refused,
        }),
        looker: &looker,
        notes,
        runtimes: looker.processes.managed().describe(),
    });
    let Assembled { jit, seen } = assemble::assemble(&mut looker, &mut recording, true);
    Ok(Captured {
        recording,
        sources: looker.processes.into_sources(&jit),
        seen,
        moments: Vec::new(),
        stop,
        command_end,
        log: None,
        signals: events.into_signals(),
    })
}

/// What was seen since the last look.
fn look(looker: &mut ProcPoller, stretch: SnapshotWindow, followed: u64) -> Look {
    let now = stretch.now;
    // Everybody's counters, also of those that are looked at rarely.
    looker.round(now, TickLateness::InTime, looker.spacing_ns.max(1), 1, true);
    looker.book_open(followed, stretch.last);
    for t in &mut looker.watch.threads {
        t.catch_up(now);
    }
    let mut recording = stretch.recording();
    recording.domain.backend = looker.name().into();
    let Assembled { jit, seen } = assemble::assemble(looker, &mut recording, false);
    recording.losses.clear();
    recording.ledger_slices = Default::default();
    recording.slices = Slices::default();
    snapshot::without_absent(&mut recording);
    Look {
        elapsed: stretch.elapsed(),
        sources: looker
            .processes
            .sources_of(&snapshot::used(&recording), &jit),
        recording,
        seen,
    }
}

/// Prepares perf events of every watched thread. Returns the CPUs.
fn open_clock(
    looker: &mut ProcPoller,
    options: &Options,
    descriptors: usize,
) -> std::io::Result<Vec<u32>> {
    let cpus = cpus::online()?;
    // What an ordinary user may lock has to do for stacks at events too.
    let pages = if options.events.is_empty() {
        DATA_PAGES
    } else {
        DATA_PAGES / 2
    };
    let mut clock = ThreadEvents::open(&cpus, options.hz, descriptors, pages)?;
    // The first one decides whether there is any use in it.
    for t in &looker.watch.threads {
        match clock.join(t.tid, 1.0) {
            Ok(()) => {
                clock.leave(t.tid);
                break;
            }
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => return Err(e),
        }
    }
    looker.clock = Some(clock);
    Ok(cpus)
}

/// Opens perf events of every watched thread.
fn join_all(looker: &mut ProcPoller) {
    looker.join(0);
    // Threads that were born meanwhile by one that had its events already are told of by records;
    // the others are found by listing, until there are none.
    for _ in 0..16 {
        let now = clock::now();
        looker.drain(now, now);
        let known = looker.watch.threads.len();
        looker.watch.list_all(now);
        if looker.watch.threads.len() == known {
            break;
        }
        looker.join(known);
    }
}

/// A descriptor or several are kept open for each thread: as many as we may have.
fn most_descriptors() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused: what is allowed now has to do.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    let limit = getrlimit(Resource::Nofile).current;
    usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}
