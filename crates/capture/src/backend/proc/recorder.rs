//! One recording by polls: prepare, go live, follow, end.

use std::time::Duration;

use wallscope_model::Slices;
use wallscope_observe::{Begin, Mark, Observation};
use wallscope_unwind::native::MemoryTables;

use super::{
    PerfEvents,
    assemble::{Assembled, Extent},
    connections::Connections,
    pace::{Pace, Used, Waking},
    poll_round::{LATE, PolledThreads, Round, TickLateness},
    poller::ProcPoller,
    refusal,
    sched_slice::{self, RunDelayMeter},
    stop::Stopper,
    subreaper::Subreaper,
};
use crate::{
    Error, clock, open_files,
    priority::NiceGuard,
    session::{
        self, Captured, Live, Observer, Options, Progress, ResolvedTarget, Snapshot, Stop,
        collected_names::HostWhenAsked,
        cost::{CostMeter, thread_cpu_ns},
        events::{Event, Events},
        files::Files,
        host_log::HostLog,
        naming::Names,
        processes::Processes,
        snapshot::{self, SnapshotWindow},
    },
    slices,
    target::{Held, Target},
};

mod ending;
mod facts;
mod logged;
mod switches;

use logged::LoggedFacts;

/// Time between two searches for new threads and processes, ns.
const FOLLOW: u64 = 100_000_000;
/// After births a search may follow sooner: after this many times the duration of the last one.
const SOONER: u64 = 300;
/// Time between two searches if births are recorded, ns.
const REVIEW: u64 = 1_000_000_000;
/// Descriptors that are left free for other files than those of threads.
const RESERVED: usize = 128;
/// Files that are kept open for a thread.
const FILES_EACH: usize = 5;

/// Measures `options.target` by polls of `/proc`. `reason`: why this backend was chosen.
///
/// # Errors
/// There is no such target, or not even its scheduler counters can be read. Nothing was recorded then.
pub(crate) fn record(
    options: &Options,
    reason: String,
    perf: PerfEvents,
    observer: &mut dyn Observer,
) -> Result<Captured, Error> {
    if perf == PerfEvents::Not {
        refusal::of_stacks_at(&options.events, &reason)?;
    }
    refusal::of_foreign_proc()?;
    let descriptors = usize::try_from(open_files::raise_limit()).unwrap_or(usize::MAX);
    let mut recorder = PollRecorder::prepare(options, reason, descriptors)?;
    if perf != PerfEvents::Not {
        recorder.record_switches(perf, descriptors)?;
    }
    recorder.go_live(observer);
    let mut progress = recorder.begin()?;
    let ahead = NiceGuard::of_others();
    progress.run_delay = RunDelayMeter::of_own_thread();
    let stop = recorder.follow(&mut progress, observer);
    observer.over();
    recorder.take_last(&progress, stop);
    drop(ahead);
    Ok(recorder.end(progress, stop))
}

/// A recording under way.
struct PollRecorder<'o> {
    options: &'o Options,
    /// Why this backend was chosen.
    reason: String,
    chosen: ResolvedTarget,
    /// The command, if the target is one.
    held: Option<Held>,
    poller: ProcPoller,
    events: Events,
    host: HostLog,
    start_ns: u64,
    /// Facts that a log has got so far.
    logged: LoggedFacts,
    /// Notes on events during the recording.
    notes: Vec<String>,
}

/// Progress of the polls. Times are ns on the recording's clock.
struct PollProgress {
    meter: CostMeter,
    pace: Pace,
    waking: Waking,
    run_delay: RunDelayMeter,
    /// When the last snapshot was taken; before the first one, the start.
    last_snapshot_ns: u64,
    /// When threads were searched last.
    followed: u64,
    /// When the next round is due; 0: that is not set yet.
    due: u64,
    /// CPU time of rounds so far, ns.
    polls_cpu_ns: u64,
    /// Duration of the last search, ns.
    searching_ns: u64,
}

impl<'o> PollRecorder<'o> {
    /// Everything that can be done before the first poll.
    fn prepare(
        options: &'o Options,
        reason: String,
        descriptors: usize,
    ) -> Result<PollRecorder<'o>, Error> {
        let held = match &options.target {
            Target::Command(argv) => Some(Held::start(argv, options.command_output.as_deref())?),
            _ => None,
        };
        let chosen = session::resolve_target(&options.target, held.as_ref())?;
        let mut processes = Processes::over(Files::over(MemoryTables::new())?);
        processes
            .managed_mut()
            .poll_tasks(options.method.max_overhead);
        if let (Target::Command(argv), Some(held)) = (&options.target, &held) {
            processes.prepare_command(held.pid(), &argv[0]);
        }
        for pid in &chosen.pids {
            processes.found(*pid);
        }
        let host = HostLog::open(&chosen.pids, &options.target);
        // From here on signals end the recording and not this process. That has to be so before there is a log.
        let events = Events::new(&chosen.watch, options.method.duration)?;
        let start_ns = clock::now();
        let begin = Begin {
            start_ns,
            start_unix_ns: clock::unix_now(),
            slice_ns: slices::first_width_ns(options.method.duration),
            timeline_bytes: options.method.timeline_bytes(),
            interpreter_frames: options.method.interpreter_frames,
            ..Begin::default()
        };
        let room = descriptors.saturating_sub(RESERVED) / (2 * FILES_EACH);
        let (log, no_log) = options.begin_log();
        let mut poller = ProcPoller::new(processes, room, begin, log);
        for pid in &chosen.pids {
            poller.process(*pid, None, clock::now());
        }
        if let (Some(pid), true) = (chosen.pids.first(), poller.watch.threads.is_empty()) {
            let gone = chosen.gone(&options.target);
            return Err(gone.unwrap_or_else(|| refusal::of_books(*pid)));
        }
        Ok(PollRecorder {
            options,
            reason,
            chosen,
            held,
            poller,
            events,
            host,
            start_ns,
            logged: LoggedFacts::default(),
            notes: no_log.into_iter().collect(),
        })
    }

    /// Polls all threads once, and reports that the recording is live.
    fn go_live(&mut self, observer: &mut dyn Observer) {
        let (options, poller) = (self.options, &mut self.poller);
        sched_slice::request_short_slice();
        if let (Some(held), None) = (&self.held, &poller.clock) {
            poller.orphans = Subreaper::of(held.pid());
        }
        if options.method.allow_stop && poller.clock.is_none() {
            poller.pending.stopper = Some(Stopper::new());
        }
        if options.stacks {
            let pids: Vec<u32> = poller.watch.processes.keys().copied().collect();
            poller.connections = Some(Connections::begin(&pids, clock::now()));
        }
        self.host.take_all();
        // All threads are read once before it counts: that opens their files and fills the tables.
        let period_ns = 1_000_000_000 / u64::from(options.method.hz);
        poller.round(&Round::of_all(clock::now(), period_ns));
        observer.live(&Live {
            target: options.target.describe(),
            threads: poller.watch.live.len(),
            event: format!("{} backend, {}; looks", poller.name(), self.reason),
            hz: options.method.hz,
            backend: poller.name(),
            pids: self.chosen.pids.clone(),
            control: self.events.control(),
        });
    }

    /// Releases a command, and starts the meter of our own cost and everything that costs.
    ///
    /// # Errors
    /// The command cannot be released, or a timer cannot be set.
    fn begin(&mut self) -> Result<PollProgress, Error> {
        let options = self.options;
        let meter = CostMeter::start();
        let pace = Pace::new(
            options.method.hz,
            options.method.max_overhead,
            clock::now(),
            0,
        );
        if let Some(held) = &mut self.held {
            // It waited for its release until now, which is none of its own time.
            self.poller.rebase(held.pid());
            held.release()?;
        }
        if let Some(hits) = &mut self.poller.hits {
            hits.begin();
        }
        if let Some(every) = options.snapshot_every {
            self.events.snapshot_every(every)?;
        }
        let now = clock::now();
        Ok(PollProgress {
            meter,
            pace,
            waking: Waking::default(),
            run_delay: RunDelayMeter::of_own_thread(),
            last_snapshot_ns: self.start_ns,
            followed: now,
            due: 0,
            polls_cpu_ns: 0,
            searching_ns: 0,
        })
    }

    /// Polls until an event ends the recording.
    fn follow(&mut self, progress: &mut PollProgress, observer: &mut dyn Observer) -> Stop {
        loop {
            let cpu = thread_cpu_ns();
            if progress.due == 0 {
                let now = clock::now();
                let wait = progress.pace.next_ns();
                if let Err(e) = self.events.tick_every(now, wait) {
                    self.notes.push(e.to_string());
                    return Stop::Signal;
                }
                progress.due = now + wait;
            }
            let (event, comes) = self.wait(progress, cpu);
            if let Some(log) = &mut self.poller.intake.log {
                log.flush_if_due();
            }
            match event {
                Event::News | Event::Clock => {}
                Event::Snapshot => {
                    let stretch = SnapshotWindow {
                        start: self.start_ns,
                        last: progress.last_snapshot_ns,
                        now: clock::now(),
                    };
                    progress.last_snapshot_ns = stretch.now;
                    observer.snapshot(take_snapshot(&mut self.poller, stretch, progress.followed));
                }
                Event::Tick => self.tick(progress, comes, observer),
                Event::Duration => return Stop::Duration,
                Event::TargetEnded => return Stop::TargetEnded,
                Event::Signal => return Stop::Signal,
            }
        }
    }

    /// Waits for the next event, and reads the records of perf events. `cpu`: our CPU time when the wait began.
    /// Returns the event, and whether a round would be late.
    fn wait(&mut self, progress: &mut PollProgress, cpu: u64) -> (Event, TickLateness) {
        let poller = &mut self.poller;
        let due = progress.due;
        let longest = match (&poller.clock, &poller.hits) {
            (Some(clock), None) => {
                let now = clock::now();
                poller
                    .records
                    .ring_wakeups
                    .before(&self.events, clock, now, due)
            }
            _ => None,
        };
        let (waits, stood) = (clock::now(), progress.run_delay.ns());
        let event = self.events.wait_for(longest);
        // A wake-up is charged to the work that it was for: polls or samples. One that only empties the rings in time
        // is charged to neither.
        let price = progress.waking.of(thread_cpu_ns() - cpu);
        // We are late if we waited for a CPU or were busy, for example with samples, or if the machine woke us late.
        let comes = if clock::now() <= due + LATE {
            TickLateness::InTime
        } else if waits > due
            || (stood.zip(progress.run_delay.ns())).is_none_or(|(before, now)| now > before + LATE)
        {
            TickLateness::Late
        } else {
            TickLateness::WokenLate
        };
        let (came, counted) = (poller.tally.came, poller.tally.counted);
        if matches!(event, Event::News | Event::Tick | Event::Snapshot) {
            poller.drain(progress.followed, clock::now());
        }
        match event {
            Event::Tick => progress.polls_cpu_ns += price,
            Event::News if longest.is_none() => {
                // Charged in proportion to the samples that were not left out.
                let (came, counted) = (poller.tally.came - came, poller.tally.counted - counted);
                poller.records.cost_ns += (price * counted).checked_div(came).unwrap_or(price);
            }
            _ => {}
        }
        (event, comes)
    }

    /// Makes one round, and other work that is due.
    fn tick(
        &mut self,
        progress: &mut PollProgress,
        comes: TickLateness,
        observer: &mut dyn Observer,
    ) {
        let poller = &mut self.poller;
        let now = clock::now();
        poller.stay_near(now, progress.due);
        let cpu = thread_cpu_ns();
        if let Some(clock) = &mut poller.clock {
            clock.sample_newborns(now);
        }
        let pace = &mut progress.pace;
        poller.round(&Round {
            due_ns: progress.due,
            lateness: comes,
            period_ns: pace.period_ns(),
            threads: PolledThreads::OneOf(pace.stride()),
        });
        progress.polls_cpu_ns += thread_cpu_ns() - cpu;
        poller.ration(progress.followed);
        progress.due = 0;
        let now = clock::now();
        self.log_news(progress, now);
        let tick = Observation::Mark(Mark::Tick { time: now });
        self.poller.intake.observe(&tick);
        self.log_figures(progress, now);
        self.search(progress, now, observer);
        let poller = &mut self.poller;
        if self.host.tick(now) {
            poller.watch.read_clocks();
        }
        let used = Used {
            cpu_ns: progress.meter.own_ns(),
            polls_ns: progress.polls_cpu_ns
                + poller.pending.stopper.as_ref().map_or(0, |s| s.cpu_ns),
            samples_ns: poller.records.cost_ns,
            sampled_ns: poller.records.sampled_ns,
            threads: poller.watch.live.len(),
        };
        if progress.pace.check(now, used)
            && let Some(clock) = &mut poller.clock
        {
            clock.set_period(progress.pace.sample_ns());
        }
        if let Some(hits) = &mut poller.hits {
            hits.adapt(1_000_000_000 / progress.pace.sample_ns().max(1), now);
        }
    }

    /// Searches for new threads and processes, if it is time to.
    fn search(&mut self, progress: &mut PollProgress, now: u64, observer: &mut dyn Observer) {
        let poller = &mut self.poller;
        // A thread without further records does not show new threads either.
        let told = poller.clock.is_some() && poller.tally.deaf == 0;
        let every = if told && !poller.records.relist {
            REVIEW
        } else {
            FOLLOW
        };
        let sooner = now >= progress.followed + SOONER * progress.searching_ns;
        let is_due = now >= progress.followed + every
            || (every == FOLLOW && sooner && poller.watch.has_births(now));
        if !is_due {
            return;
        }
        poller.records.relist = false;
        poller.follow(&self.options.target, progress.followed, now);
        progress.followed = now;
        progress.searching_ns = clock::now() - now;
        observer.progress(&Progress {
            elapsed: Duration::from_nanos(now - self.start_ns),
            threads: poller.watch.live.len(),
            stacks: poller.intake.estimator.samples.distinct(),
        });
    }

    /// Makes the last poll of all threads.
    fn take_last(&mut self, progress: &PollProgress, stop: Stop) {
        let poller = &mut self.poller;
        poller.records.affinity.leave();
        poller.rounds.target_ended = stop == Stop::TargetEnded;
        poller.finish(progress.followed, progress.pace.period_ns());
    }
}

/// Takes a snapshot of the observations since the last one.
fn take_snapshot(poller: &mut ProcPoller, stretch: SnapshotWindow, followed: u64) -> Snapshot {
    let now = stretch.now;
    // Reads the counters of all threads, also of those that are polled rarely.
    poller.round(&Round::of_all(now, poller.rounds.spacing_ns.max(1)));
    poller.book_open(followed, stretch.last);
    for t in &mut poller.watch.threads {
        t.catch_up(now);
    }
    poller.tell_facts();
    let mut recording = stretch.recording();
    recording.domain.backend = poller.name().into();
    let names = Names {
        code: &poller.processes,
        host: &HostWhenAsked::default(),
    };
    let estimator = &mut poller.intake.estimator;
    let Assembled { jit, seen } = estimator.assemble(&mut recording, Extent::SoFar, names);
    poller.shown();
    recording.losses.clear();
    recording.ledger_slices = Default::default();
    recording.slices = Slices::default();
    snapshot::without_absent(&mut recording);
    Snapshot {
        elapsed: stretch.elapsed(),
        sources: poller
            .processes
            .sources_of(&snapshot::used(&recording), &jit),
        recording,
        seen,
    }
}
