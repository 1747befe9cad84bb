//! The end of a recording by polls: what is known only then, and the recording itself.

use wallscope_model::Cost;
use wallscope_observe::{LogWriter, Mark, Observation, OtherEnd};
use wallscope_symbolize::Sources;
use zerocopy::IntoBytes;

use super::{
    super::{domain, intake::Intake, poller::ProcPoller},
    Course, PollRecorder,
};
use crate::{
    backend::perf::{EventSampler, ThreadEvents},
    clock,
    session::{
        self, Captured, Stop, answers::Logged, assemble::Assembled, collected_names::HostWhenAsked,
        cost, naming::Names,
    },
    target::Target,
};

impl PollRecorder<'_> {
    /// Takes in what is known only now, and has the recording put together.
    pub(super) fn end(mut self, course: Course, stop: Stop) -> Captured {
        let end_ns = clock::now();
        let own_cpu_ns = course.meter.own_ns();
        let poller = &mut self.poller;
        poller.watch.read_clocks();
        for t in &mut poller.watch.threads {
            t.catch_up(end_ns);
        }
        let stops = self.end_stops();
        let stopped_ns = stops.as_ref().map_or(0, |s| s.ns);
        self.host.finish();
        let command_end = self.held.as_mut().and_then(|h| stop.finish(h));
        let intake = &mut self.poller.intake;
        intake.observe(&Observation::Mark(Mark::End { time: end_ns }));
        for sample in self.host.take() {
            intake.observe(&Observation::Host(Box::new(sample)));
        }
        let clock = &self.poller.clock;
        let hits = &self.poller.hits;
        intake.observe(&Observation::Cost(Cost {
            bpf_ns: 0,
            displaced_ns: 0,
            own_cpu_ns,
            rss_bytes: cost::peak_rss_bytes(),
            kernel_bytes: clock.as_ref().map_or(0, ThreadEvents::bytes)
                + hits.as_ref().map_or(0, EventSampler::bytes),
            target_stopped_ns: stopped_ns,
        }));
        let window_ns = (end_ns - self.start_ns).max(1);
        if stop == Stop::TargetEnded {
            let (target, duration) = (&self.options.target, self.options.duration);
            (self.notes).extend(session::ended_early(target, duration, window_ns));
        }
        self.describe(&course, stops, end_ns);
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

    /// Ends the stops of running threads. A thread that is still to stop is let go as soon as it does.
    fn end_stops(&mut self) -> Option<domain::Stops> {
        let stopper = self.poller.pending.stopper.take();
        self.options.allow_stop.then(|| domain::Stops {
            count: stopper.as_ref().map_or(0, |s| s.stops),
            ns: stopper.as_ref().map_or(0, |s| s.stopped_ns),
            refused: stopper.as_ref().and_then(|s| s.refused.clone()),
        })
    }

    /// Observes the domain.
    fn describe(&mut self, course: &Course, stops: Option<domain::Stops>, end_ns: u64) {
        let (options, poller) = (self.options, &mut self.poller);
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(poller.processes.several_programs());
        poller.processes.jit_mut().follow();
        notes.extend(poller.processes.jit().notes());
        notes.extend(poller.processes.undescribed());
        let log = poller.intake.log.as_ref();
        notes.extend(log.and_then(|log| log.failed()).map(str::to_owned));
        let window_ns = (end_ns - self.start_ns).max(1);
        let processes = poller.watch.processes.values();
        let described = domain::describe(&domain::Facts {
            reason: std::mem::take(&mut self.reason),
            timeline_asked: options.timeline.is_some(),
            target: options.target.describe(),
            descends: matches!(options.target, Target::Pids(_) | Target::Command(_)),
            asked_hz: options.hz,
            hz: course.pace.look_hz(window_ns),
            sample_hz: course.pace.sample_hz(end_ns, window_ns),
            unreadable: processes.filter(|p| !p.readable).count() as u64,
            cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
            stops,
            looker: poller,
            notes,
            runtimes: poller.processes.managed().describe(),
        });
        (self.poller.intake).observe(&Observation::Domain(described));
    }

    /// Observes everything else that is known at the end only. `window_ns`: length of the recording.
    fn tell_rest(&mut self, window_ns: u64) {
        let poller = &mut self.poller;
        poller.processes.managed_mut().thread_names.read_all();
        poller.tell_counted_events();
        poller.tell_tasks_and_losses(window_ns);
        poller.tell_facts();
        let intake = &mut poller.intake;
        let Some(connections) = poller.connections.take() else {
            return;
        };
        let found = connections.finish();
        for (cookie, process) in found.others {
            intake.observe(&Observation::OtherEnd(OtherEnd {
                cookie,
                process: Some(process),
                before: true,
            }));
        }
        for socket in found.all {
            intake.observe(&Observation::Socket(socket.as_bytes()));
        }
    }
}

/// A recording with the names that are known here.
struct Named {
    assembled: Assembled,
    sources: Sources,
    log: Option<LogWriter>,
}

/// Has the recording put together. A log keeps the answers about names.
fn named(poller: ProcPoller) -> Named {
    let ProcPoller {
        intake, processes, ..
    } = poller;
    let Intake { estimator, log } = intake;
    let names = Names {
        code: &processes,
        host: &HostWhenAsked::default(),
    };
    let (assembled, log) = match log {
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
