//! The end of a recording by polls: facts that are known only then, and the recording itself.

use wallscope_model::Cost;
use wallscope_observe::{DescribedDomain, LogWriter, Mark, Observation};
use wallscope_symbolize::Sources;

use super::{
    super::{domain, intake::Intake, pace::Pace, poller::ProcPoller},
    PollProgress, PollRecorder,
};
use crate::{
    backend::perf::{EventSampler, ThreadEvents},
    clock,
    session::{
        self, Captured, Stop, answers::Logged, assemble::Assembled, collected_names::HostWhenAsked,
        cost, interface, naming::Names,
    },
    target::Target,
};

impl PollRecorder<'_> {
    /// Takes in the facts that are known only now, and assembles the recording.
    pub(super) fn end(mut self, progress: PollProgress, stop: Stop) -> Captured {
        let end_ns = clock::now();
        let own_cpu_ns = progress.meter.own_ns();
        let poller = &mut self.poller;
        poller.watch.read_clocks();
        for t in &mut poller.watch.threads {
            t.catch_up(end_ns);
        }
        // A thread that has not stopped yet is released as soon as it does.
        let stops = self.stops();
        self.poller.pending.stopper = None;
        self.host.finish();
        let command_end = self.held.as_mut().and_then(|h| stop.finish(h));
        let intake = &mut self.poller.intake;
        intake.observe(&Observation::Mark(Mark::End { time: end_ns }));
        for sample in self.host.take() {
            intake.observe(&Observation::Host(Box::new(sample)));
        }
        let cost = Cost {
            own_cpu_ns,
            target_stopped_ns: stops.as_ref().map_or(0, |s| s.ns),
            ..self.memory()
        };
        (self.poller.intake).observe(&Observation::Cost(cost));
        let window_ns = (end_ns - self.start_ns).max(1);
        if stop == Stop::TargetEnded {
            let (target, duration) = (&self.options.target, self.options.method.duration);
            (self.notes).extend(session::ended_early(target, duration, window_ns));
        }
        self.poller.processes.jit_mut().follow();
        let described = self.described(&progress.pace, stops, end_ns);
        let ProcPoller {
            last_values,
            intake,
            ..
        } = &mut self.poller;
        last_values.domain(described, intake);
        self.tell_rest(end_ns - self.start_ns);
        let events = self.events;
        let Named {
            assembled,
            sources,
            log,
        } = named(self.poller);
        Captured {
            recording: assembled.recording,
            sources,
            seen: assembled.seen,
            moments: assembled.moments,
            stop,
            command_end,
            log,
            signals: events.into_signals(),
        }
    }

    /// Stops of running threads so far, where they were permitted.
    pub(super) fn stops(&self) -> Option<domain::Stops> {
        let stopper = self.poller.pending.stopper.as_ref();
        self.options.method.allow_stop.then(|| domain::Stops {
            count: stopper.map_or(0, |s| s.stops),
            ns: stopper.map_or(0, |s| s.stopped_ns),
            refused: stopper.and_then(|s| s.refused.clone()),
        })
    }

    /// Memory that measuring takes.
    pub(super) fn memory(&self) -> Cost {
        let (clock, hits) = (&self.poller.clock, &self.poller.hits);
        Cost {
            rss_bytes: cost::peak_rss_bytes(),
            kernel_bytes: clock.as_ref().map_or(0, ThreadEvents::bytes)
                + hits.as_ref().map_or(0, EventSampler::bytes),
            ..Cost::default()
        }
    }

    /// The domain as it is at `now`, ns.
    pub(super) fn described(
        &self,
        pace: &Pace,
        stops: Option<domain::Stops>,
        now: u64,
    ) -> DescribedDomain {
        let (options, poller) = (self.options, &self.poller);
        let mut notes = self.notes.clone();
        notes.extend(poller.processes.several_programs());
        notes.extend(poller.processes.jit().notes());
        notes.extend(poller.processes.undescribed());
        let log = poller.intake.log.as_ref();
        notes.extend(log.and_then(|log| log.failed()).map(str::to_owned));
        let window_ns = (now - self.start_ns).max(1);
        let processes = poller.watch.processes.values();
        domain::describe(&domain::Facts {
            reason: self.reason.clone(),
            timeline_asked: options.method.timeline,
            target: options.target.describe(),
            descends: matches!(options.target, Target::Pids(_) | Target::Command(_)),
            asked_hz: options.method.hz,
            hz: pace.poll_hz(window_ns),
            sample_hz: pace.sample_hz(now, window_ns),
            unreadable: processes.filter(|p| !p.readable).count() as u64,
            cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
            stops,
            poller,
            notes,
            runtimes: poller.processes.managed().describe(),
        })
    }

    /// Observes everything else that is known at the end only. `window_ns`: length of the recording.
    fn tell_rest(&mut self, window_ns: u64) {
        let poller = &mut self.poller;
        poller.processes.managed_mut().thread_names.read_all();
        poller.tell_counted_events();
        poller.tell_tasks_and_losses(window_ns);
        poller.tell_facts();
        poller.tell_connections();
    }
}

/// A recording with the names that are known here.
struct Named {
    assembled: Assembled,
    sources: Sources,
    log: Option<LogWriter>,
}

/// Assembles the recording. A log keeps the answers about names.
fn named(poller: ProcPoller) -> Named {
    let ProcPoller {
        intake, processes, ..
    } = poller;
    let Intake { estimator, log } = intake;
    let names = Names {
        code: &processes,
        host: &HostWhenAsked::default(),
    };
    let (assembled, log) = match interface::kept(log) {
        None => (estimator.finish(names), None),
        Some(log) => {
            let logged = Logged::new(names, log);
            let assembled = estimator.finish(logged.names());
            (assembled, Some(logged.into_log()))
        }
    };
    let sources = processes.into_sources(&assembled.jit);
    Named {
        assembled,
        sources,
        log,
    }
}
