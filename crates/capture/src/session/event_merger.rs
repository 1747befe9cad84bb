//! Births, programs, mappings, copied stacks and ends, from two rings, in the order of their times.
//!
//! A child has the mappings that its parent had when it forked. So a server's own new mappings are taken in before
//! the births of its children: it may fork its workers as it starts. A stack that could not be unwound at once has
//! the mappings at the moment of its copy. So stacks of a shell are taken in before the shell becomes another
//! program.
//!
//! Both rings use one clock, so their records are merged by time. A record younger than the begin of the turn
//! may still be missing in one of the rings, and waits for the next turn.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use libbpf_rs::RingBuffer;
use rustc_hash::FxHashMap;
use wallscope_observe::Observation;

use super::{
    copied_stack::CopiedStack,
    deferred_unwind::{self, Due},
    event_dispatch::EventDispatcher,
    processes::Processes,
};
use crate::{
    backend::ebpf::{
        Programs,
        sideband::{Change, Sideband},
    },
    clock::now,
    event::ThreadEvent,
};

/// Most turns in a row: the rest waits for the next event.
const TURNS: usize = 3;

/// Delay until new stacks of managed code are named: while they run code that was not known before, and the
/// longest one. Unknown code may go with its process, or be replaced by other code. Where a thread is born or
/// runs another program, the kernel programs go back to the first delay by themselves.
const NAMED_SOON: Duration = Duration::from_millis(10);
const NAMED_LATE: Duration = Duration::from_millis(160);

/// Longest time that events may wait for other work: their ring would overflow.
const MAX_EVENT_WAIT: Duration = Duration::from_millis(5);

/// An event. Events of one time are taken in this order.
enum Step {
    Change(Change),
    Thread(ThreadEvent),
    Copied(Box<CopiedStack>),
    /// A thread of this process ended.
    Gone(u32),
}

impl Step {
    fn rank(&self) -> u8 {
        match self {
            Step::Change(_) => 0,
            Step::Thread(_) => 1,
            Step::Copied(_) => 2,
            Step::Gone(_) => 3,
        }
    }
}

/// Everything that observes the target.
pub struct Collector {
    /// The kernel programs.
    pub programs: Programs,
    /// Mapping records.
    pub sideband: Sideband,
    /// Processes and their code.
    pub processes: Processes,
}

/// Events that were taken and wait for their turn.
pub struct EventMerger {
    steps: Vec<(u64, Step)>,
    /// Threads that ended, by process: the data of their stacks is kept until the ends have been taken.
    ended: FxHashMap<u32, u32>,
    /// Times in a row that new stacks of managed code ran only known code.
    known: u32,
    /// Most copied stacks that are kept.
    most_copies: usize,
}

impl EventMerger {
    /// Nothing taken yet; at most `most_copies` copied stacks are kept to be unwound.
    pub fn new(most_copies: usize) -> EventMerger {
        EventMerger {
            steps: Vec::new(),
            ended: FxHashMap::default(),
            known: 0,
            most_copies,
        }
    }

    /// Takes all events that came and brings mappings and processes up to date with them. `ring`:
    /// `None` once it is closed and emptied, when nothing more can come.
    pub fn follow(
        &mut self,
        collector: &mut Collector,
        ring: Option<&RingBuffer<'_>>,
        intake: &RefCell<EventDispatcher>,
    ) {
        self.take_events(collector, ring, intake);
        let Collector {
            programs,
            sideband,
            processes,
        } = collector;
        if programs.have_outdated() {
            processes.read_outdated();
        }
        let (steps, most_copies) = (&mut self.steps, self.most_copies);
        let mut drained = Instant::now();
        let mut drain = || {
            if let Some(ring) = ring.filter(|_| drained.elapsed() > MAX_EVENT_WAIT) {
                let changes = sideband.drain().into_iter();
                steps.extend(changes.map(|(time, change)| (time, Step::Change(change))));
                let _ = ring.consume();
                drained = Instant::now();
                let intake = intake.borrow();
                if intake.raws.len() + intake.unseen.copied.len() < most_copies {
                    programs.allow_raw(deferred_unwind::RATION);
                }
            }
        };
        for (pid, threads) in &self.ended {
            processes.ending(*pid, *threads);
        }
        let unnamed = || intake.borrow_mut().settle_resource(processes.managed());
        while unnamed() {
            drain();
        }
        processes.settle(&mut drain);
        let oldest = deferred_unwind::take_oldest(&mut intake.borrow_mut().raws);
        if !oldest.is_empty() {
            let unwound = processes.unwind_oldest(&oldest, &mut drain);
            intake.borrow_mut().deferred(unwound);
        }
        let mut intake = intake.borrow_mut();
        if let Some(new) = name(processes, &mut intake) {
            self.known = if new { 0 } else { self.known + 1 };
            let every = NAMED_SOON * 2u32.saturating_pow(self.known);
            programs.set_managed_every(every.min(NAMED_LATE));
        }
        let thread_names = &mut processes.managed_mut().thread_names;
        thread_names.read_due();
        for named in thread_names.take_news() {
            intake.observe(Observation::ThreadName(named));
        }
        follow_java(programs, processes, &mut intake);
        programs.set_managed(processes.managed().processes(), processes.vms());
        let deferred = processes.unwind_deferred(&mut intake.raws, Due::CannotWait);
        intake.deferred(deferred);
        if intake.raws.len() < most_copies {
            programs.allow_raw(deferred_unwind::RATION);
        }
        for (pid, threads) in self.ended.drain() {
            (0..threads).for_each(|_| processes.thread_gone(pid));
        }
    }

    /// Takes events until none are left, a few turns at most.
    fn take_events(
        &mut self,
        collector: &mut Collector,
        ring: Option<&RingBuffer<'_>>,
        intake: &RefCell<EventDispatcher>,
    ) {
        let Collector {
            sideband,
            processes,
            ..
        } = collector;
        for _ in 0..TURNS {
            let upto = ring.map_or(u64::MAX, |_| now());
            // This comes before the samples: changes of code must be known when samples are taken in.
            let jit = processes.jit_mut();
            jit.follow();
            for changes in jit.take_news() {
                (intake.borrow_mut()).observe(Observation::CodeChanges(changes));
            }
            // Mappings before births: the ring then has the birth of every process with a mapping seen here.
            let changes = sideband.drain().into_iter();
            self.steps
                .extend(changes.map(|(time, change)| (time, Step::Change(change))));
            if let Some(ring) = ring {
                let _ = ring.consume();
            }
            self.take(&mut intake.borrow_mut());
            self.tell(upto, processes, &mut intake.borrow_mut());
            if self.steps.is_empty() {
                break;
            }
        }
    }

    /// Takes the records of the event ring.
    fn take(&mut self, intake: &mut EventDispatcher) {
        let threads = intake.unseen.threads.drain(..);
        self.steps
            .extend(threads.map(|e| (e.time, Step::Thread(e))));
        let copied = intake.unseen.copied.drain(..);
        self.steps
            .extend(copied.map(|raw| (raw.time(), Step::Copied(Box::new(raw)))));
        let gone = intake.unseen.gone.drain(..);
        self.steps
            .extend(gone.map(|(time, pid)| (time, Step::Gone(pid))));
    }

    /// Passes on the events until `upto`, in order.
    fn tell(&mut self, upto: u64, processes: &mut Processes, intake: &mut EventDispatcher) {
        self.steps.sort_by_key(|(time, step)| (*time, step.rank()));
        let until = self.steps.partition_point(|(time, _)| *time <= upto);
        for (time, step) in self.steps.drain(..until) {
            match step {
                Step::Change(change) => processes.change(time, change),
                Step::Thread(e) => {
                    // The process id may have been reused by now.
                    let ended = self.ended.remove(&e.pid).unwrap_or(0);
                    (0..ended).for_each(|_| processes.thread_gone(e.pid));
                    processes.news(&e);
                }
                Step::Copied(mut raw) => {
                    raw.mappings = processes.snapshot(raw.pid());
                    intake.raws.push(*raw);
                }
                Step::Gone(pid) => *self.ended.entry(pid).or_default() += 1,
            }
        }
    }
}

/// Passes new waits to the readers of HotSpot VMs, and their findings to the kernel programs and the dispatcher.
fn follow_java(programs: &mut Programs, processes: &mut Processes, intake: &mut EventDispatcher) {
    let java = &mut processes.managed_mut().java;
    intake.tell_java(java);
    programs.add_sleeps(&java.take_sleeps());
    programs.add_vms(&java.new_stops());
    java.read_threads();
    programs.add_java_threads(&java.take_threads());
    intake.tell_owners(java);
}

/// Names the new stacks of managed code. Returns whether one of them ran unknown code; `None`: no stack came in.
fn name(processes: &mut Processes, intake: &mut EventDispatcher) -> Option<bool> {
    let managed = processes.managed_mut();
    let python = std::mem::take(&mut intake.unnamed);
    let vm = std::mem::take(&mut intake.unnamed_vm);
    let mut new = (!python.is_empty() || !vm.is_empty()).then_some(false);
    let mut note = |read: bool| new = new.map(|before| before | read);
    for hash in python {
        if let Some(stack) = intake.estimator.managed.get(&hash) {
            note(managed.name(stack));
        }
    }
    for hash in vm {
        if let Some(stack) = intake.estimator.user.get(&hash) {
            note(managed.java.name(stack.frames.iter().copied(), None));
            note(managed.scripts.name(&stack.frames, None));
        }
    }
    new
}
