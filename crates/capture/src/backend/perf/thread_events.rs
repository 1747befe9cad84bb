//! The events of all watched threads, and their rings.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use rustc_hash::FxHashMap;

use super::{
    newborns::{Newborns, Plan},
    perf_attr::{RESERVED, ask_for_stack, attributes, open, stack_bytes},
    preempt_samples::{self, CROWD, PreemptSampling},
    record::{self, Record},
};
use crate::{
    backend::ring::Ring,
    clock,
    period_jitter::{self, PeriodJitter},
};

/// Data pages of one CPU's ring: with the first page exactly the memory that an ordinary user may lock.
pub const DATA_PAGES: usize = 128;

/// Fewest that are worth having: some dozen samples.
const MIN_PAGES: usize = 32;

/// Why there is no ring.
const NO_RING: &str = "no memory may be locked for their records (kernel.perf_event_mlock_kb)";

/// Most samples of a thread at the same distance. The distance is changed right after a sample, because a distance
/// begins anew then.
const SAME: u32 = 32;

/// Longest that records may wait for something that takes time: their rings would overflow.
const MAX_RECORD_WAIT: Duration = Duration::from_millis(5);

/// Part of a ring that may fill between two readings, if it fills as fast as before.
const FILLED: f64 = 0.125;

/// Part of a ring that the threads of a window may fill meanwhile, if they compute all the time. The rest is for
/// other records, and for a reader that has to wait for a CPU.
const FILLED_BY_NEWBORNS: f64 = 0.3;

/// Longest time for which rings are left alone.
const REST: Duration = Duration::from_millis(50);

/// The events of a thread.
struct Joined {
    /// One for each ring, in their order.
    events: Vec<Ticks>,
    /// Those that count its switches, if it has any.
    leaving: Vec<OwnedFd>,
    /// Fraction of time in which this thread is recorded; scales its sampling period.
    share: f64,
    /// Another thread has inherited them.
    inherited: bool,
}

/// One event of a thread.
struct Ticks {
    event: OwnedFd,
    /// The time between two of its samples, ns.
    distance: u64,
    /// Samples that came since that was set.
    same: u32,
}

impl Ticks {
    /// Sets how far apart its samples are from now on.
    fn tell(&mut self, distance: u64) {
        self.same = 0;
        // SAFETY: the ioctl reads one u64 that outlives the call.
        let told =
            unsafe { perf::ioctls::PERIOD(self.event.as_raw_fd(), &raw const distance as u64) };
        if told == 0 {
            self.distance = distance;
        }
    }
}

/// The events and their rings.
pub struct ThreadEvents {
    rings: Vec<(u32, Ring)>,
    /// The events that were opened for a thread by its id; those it inherited are not ours to hold.
    events: FxHashMap<u32, Joined>,
    /// How many more may be opened.
    room: usize,
    /// Records that were written while the last ones were taken.
    held: Vec<(u64, Record)>,
    /// When the rings were emptied last.
    emptied: Instant,
    /// Time for which they may be left alone, by the rate at which they filled lately.
    rest: Duration,
    /// Whether samples fall on the kernel too.
    pub with_kernel: bool,
    /// Time between two samples of a running thread that are of use, ns.
    pub period_ns: u64,
    /// Mean time between two samples that are made, ns.
    told_ns: u64,
    /// Bytes of stack with each sample.
    stack_bytes: u32,
    uneven: PeriodJitter,
    leaving: PreemptSampling,
    /// Threads that compute for less than a period.
    pub newborns: Newborns,
    /// Threads with refused events.
    pub left_out: u64,
    /// Records that did not fit.
    pub lost: u64,
}

impl ThreadEvents {
    /// Makes a ring for each of `cpus`, of at most `pages` data pages; samples will come at `hz`.
    /// `descriptors`: how many files may be open.
    ///
    /// # Errors
    /// No event of our own is allowed, or no ring.
    pub fn open(
        cpus: &[u32],
        hz: u32,
        descriptors: usize,
        pages: usize,
    ) -> io::Result<ThreadEvents> {
        let mut rings = Vec::new();
        for cpu in cpus {
            // An event of our own thread, never switched on, that the ring hangs on: it stays
            // whichever thread of the target ends.
            let mut a = attributes(b::PERF_COUNT_SW_DUMMY);
            a.set_disabled(1);
            a.set_exclude_kernel(1);
            match open(&mut a, 0, *cpu) {
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                event => rings.push((*cpu, ring(event?, pages)?)),
            }
        }
        let period_ns = 1_000_000_000 / u64::from(hz.max(1));
        let smallest = rings.iter().map(|(_, ring)| ring.bytes()).min();
        Ok(ThreadEvents {
            room: descriptors.saturating_sub(RESERVED + rings.len()) / 2,
            rings,
            events: FxHashMap::default(),
            held: Vec::new(),
            emptied: Instant::now(),
            rest: Duration::ZERO,
            with_kernel: true,
            period_ns,
            told_ns: period_ns,
            stack_bytes: stack_bytes(period_ns, smallest.unwrap_or_default()),
            uneven: PeriodJitter::seeded(clock::now()),
            leaving: PreemptSampling::new(hz),
            newborns: Newborns::default(),
            left_out: 0,
            lost: 0,
        })
    }

    /// Opens the events of a thread that is recorded in `share` of the time only: its samples come more often by as
    /// much.
    ///
    /// # Errors
    /// They are not allowed, the thread is gone, or there are too many.
    pub fn join(&mut self, tid: u32, share: f64) -> io::Result<()> {
        if self.room < self.rings.len() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let mean = period(self.told_ns, share);
        let first = self.uneven.of(mean, period_jitter::SAMPLE_JITTER_DIVISOR);
        let mut events = Vec::with_capacity(self.rings.len());
        for index in 0..self.rings.len() {
            let cpu = self.rings[index].0;
            let event = match self.event(tid, cpu, first) {
                Err(e) if self.with_kernel && self.events.is_empty() && is_refusal(&e) => {
                    self.with_kernel = false;
                    self.event(tid, cpu, first)?
                }
                other => other?,
            };
            self.write_to(&event, index)?;
            events.push(Ticks {
                event,
                distance: first,
                same: 0,
            });
        }
        self.leaving.crowd |= self.events.len() >= CROWD;
        // If a thread switches too often for a record of each switch, copies would cost too much as well.
        let leaving = if share < 1.0 || self.leaving.crowd {
            Vec::new()
        } else {
            let opened = self.tell_leaving(tid, events.len());
            self.leaving.complete &= opened.is_some();
            opened.unwrap_or_default()
        };
        self.room -= events.len() + leaving.len();
        let joined = Joined {
            events,
            leaving,
            share,
            inherited: false,
        };
        self.events.insert(tid, joined);
        Ok(())
    }

    /// A thread that is often preempted was met computing: from now on it is sampled at switches, if it is not yet.
    pub fn is_put_off(&mut self, tid: u32) {
        let lacks = |j: &&Joined| j.share >= 1.0 && j.leaving.is_empty();
        let Some(others) = (self.events.get(&tid).filter(lacks)).map(|j| j.events.len()) else {
            return;
        };
        if self.leaving.complete {
            // It may be gone by now; that is no sign that other threads cannot have these events.
            let leaving = self.tell_leaving(tid, others).unwrap_or_default();
            self.room -= leaving.len();
            if let Some(joined) = self.events.get_mut(&tid) {
                joined.leaving = leaving;
            }
        }
    }

    /// Stops sampling a thread at switches, because it is hardly ever preempted. The events stay if other
    /// threads inherited them.
    pub fn stays(&mut self, tid: u32) {
        let own = |j: &&mut Joined| !j.inherited && !j.leaving.is_empty();
        if let Some(joined) = self.events.get_mut(&tid).filter(own) {
            self.room += joined.leaving.len();
            joined.leaving.clear();
            self.leaving.selective = true;
        }
    }

    /// Another thread has inherited the events of `tid`.
    pub fn was_inherited(&mut self, tid: u32) {
        if let Some(joined) = self.events.get_mut(&tid) {
            joined.inherited = true;
        }
    }

    /// Opens the events that count a thread's switches, beside `others`, if they can be had.
    fn tell_leaving(&self, tid: u32, others: usize) -> Option<Vec<OwnedFd>> {
        if !self.with_kernel || self.room < others + self.rings.len() {
            return None;
        }
        let each = self.rings.iter().enumerate().map(|(index, (cpu, _))| {
            let event = self.leaving.event(tid, *cpu)?;
            self.write_to(&event, index).map(|()| event)
        });
        each.collect::<io::Result<Vec<OwnedFd>>>().ok()
    }

    fn write_to(&self, event: &OwnedFd, index: usize) -> io::Result<()> {
        let to = self.rings[index].1.event().as_raw_fd();
        // SAFETY: both descriptors are perf events of ours.
        match unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), to) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether threads are sampled when they are preempted, except those with too many switches.
    pub fn tells_leaving(&self) -> bool {
        self.leaving.complete
    }

    /// Whether thread `tid` is sampled when it is preempted: it has events of its own for that.
    pub fn tells_leaving_of(&self, tid: u32) -> bool {
        let has = |j: &Joined| !j.leaving.is_empty();
        self.leaving.complete && self.events.get(&tid).is_some_and(has)
    }

    /// Whether only threads that are preempted often are sampled at preemptions.
    pub fn is_selective(&self) -> bool {
        self.leaving.selective || self.leaving.crowd
    }

    /// Highest rate of these samples for one thread on one CPU, Hz.
    pub fn leaving_hz(&self) -> u64 {
        self.leaving.hz
    }

    /// Bytes of stack with each sample of a running thread.
    pub fn stack_bytes(&self) -> u32 {
        self.stack_bytes
    }

    /// Closes the events of a thread, and those that its children inherited.
    pub fn leave(&mut self, tid: u32) {
        if let Some(events) = self.events.remove(&tid) {
            self.room += events.events.len() + events.leaving.len();
        }
    }

    /// Prepares the next samples of threads that compute for less than a period; a poll begins at `now`.
    pub fn sample_newborns(&mut self, now: u64) {
        let next = self.newborns.next(now, self.period_ns, self.rings.len());
        let Some(plan) = next else { return };
        match self.open_window(&plan) {
            Ok((event, guard)) => self.newborns.open(plan, event, guard),
            // The maker has ended, or no descriptors are left.
            Err(_) => self.newborns.forget(plan.maker),
        }
    }

    fn open_window(&self, plan: &Plan) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        let cpu = self.rings[plan.ring].0;
        let guard = plan.needs_guard.then(|| {
            let mut a = attributes(b::PERF_COUNT_SW_DUMMY);
            a.set_disabled(1);
            a.set_exclude_kernel(1);
            open(&mut a, plan.maker as i32, cpu)
        });
        let guard = guard.transpose()?;
        let mut a = self.clock_attributes(plan.age_ns);
        a.sample_stack_user = plan.stack_bytes();
        a.__bindgen_anon_2.wakeup_events = plan.samples_each_waking();
        let event = open(&mut a, plan.maker as i32, cpu)?;
        self.write_to(&event, plan.ring)?;
        Ok((event, guard))
    }

    fn clock_attributes(&self, period_ns: u64) -> b::perf_event_attr {
        let mut a = attributes(b::PERF_COUNT_SW_CPU_CLOCK);
        // The records' trailing id must end with the time: no CPU, no id.
        a.sample_type |= u64::from(b::PERF_SAMPLE_PERIOD);
        ask_for_stack(&mut a, self.stack_bytes);
        a.__bindgen_anon_1.sample_period = period_ns;
        // Each sample wakes us, if we listen: data of a running thread outside of the copied part of its stack is
        // read at once.
        a.__bindgen_anon_2.wakeup_events = 1;
        a.set_inherit(1);
        a.set_exclude_kernel((!self.with_kernel).into());
        a
    }

    fn event(&self, tid: u32, cpu: u32, period_ns: u64) -> io::Result<OwnedFd> {
        let mut a = self.clock_attributes(period_ns);
        a.set_context_switch(1);
        a.set_task(1);
        a.set_mmap(1);
        a.set_mmap2(1);
        a.set_comm(1);
        a.set_comm_exec(1);
        open(&mut a, tid as i32, cpu)
    }

    /// Changes the time between samples. Only large changes are passed on to the events, because that takes a call
    /// for each of them. After a small change, and in families of threads that share their events by inheritance
    /// and so keep the old period, samples that come too early are left out.
    pub fn set_period(&mut self, period_ns: u64) {
        self.period_ns = period_ns;
        if (self.told_ns / 2 + 1..self.told_ns * 2).contains(&period_ns) {
            return;
        }
        self.told_ns = period_ns;
        // Inherited events keep the old period. The kernel lets threads that are put on a CPU in turn swap their
        // events, and does not name the thread that has one now. So all events of a family must be as far apart.
        for joined in self.events.values_mut().filter(|j| !j.inherited) {
            let distance = period(period_ns, joined.share);
            joined.events.iter_mut().for_each(|e| e.tell(distance));
        }
    }

    /// Takes the records written up to `now`, and `more`, in time order. One ring is read after the other: records
    /// that come to the later rings meanwhile have to wait for those that come to the earlier ones.
    pub fn drain(&mut self, more: Vec<(u64, Record)>, now: u64) -> Vec<(u64, Record)> {
        self.held.extend(more);
        self.take(now)
    }

    /// Takes all records, and `more`. The events go on: stopping them would take a call for each.
    pub fn drain_all(&mut self, more: Vec<(u64, Record)>) -> Vec<(u64, Record)> {
        self.drain(more, u64::MAX)
    }

    /// Empties the rings if that was not done for a while, and keeps their records. To be called while taking these
    /// has to wait.
    pub fn keep_up(&mut self) {
        if self.emptied.elapsed() > MAX_RECORD_WAIT {
            self.hold();
        }
    }

    /// Time for which the rings need not be emptied: as fast as they filled lately, and as fast as threads that are
    /// sampled by windows can fill them. A window may write fifty times as fast as the one before it.
    pub fn rest(&self) -> Duration {
        let smallest = self.rings.iter().map(|(_, ring)| ring.bytes()).min();
        let bytes = smallest.unwrap_or_default() as f64 * FILLED_BY_NEWBORNS;
        self.rest.min(self.newborns.fills_in(bytes as u64))
    }

    fn hold(&mut self) {
        let since = std::mem::replace(&mut self.emptied, Instant::now()).elapsed();
        let mut fullest = 0.0f64;
        let mut due = Vec::new();
        let ThreadEvents {
            rings,
            held,
            lost,
            events,
            uneven,
            told_ns,
            leaving,
            newborns,
            period_ns,
            ..
        } = self;
        let most = 500_000_000 / (*period_ns).max(1) * rings.len() as u64;
        for (index, (cpu, ring)) in rings.iter_mut().enumerate() {
            let part = ring.drain(|kind, misc, body| {
                let Some((time, mut record)) = record::parse(kind, misc, body) else {
                    return;
                };
                if !newborns.observe(index, time, &mut record) {
                    return;
                }
                match &mut record {
                    Record::Lost(n) => *lost += *n,
                    Record::Sample(r) => {
                        r.cpu = Some(*cpu);
                        let joined = events.get_mut(&r.tid).filter(|_| r.first.is_none());
                        if let Some(ticks) = joined.and_then(|j| j.events.get_mut(index)) {
                            // The record states the first distance, whatever it is by now.
                            r.period_ns = ticks.distance;
                            ticks.same += 1;
                            if ticks.same == SAME {
                                due.push((r.tid, index));
                            }
                        }
                    }
                    _ => {}
                }
                held.push((time, record));
                preempt_samples::settle(held, leaving, most);
            });
            fullest = fullest.max(part);
        }
        // Records of an instant say little about the rate.
        if fullest > FILLED || since > Duration::from_millis(1) {
            self.rest = since.div_f64((fullest / FILLED).max(1e-3)).min(REST);
        }
        for (tid, index) in due {
            if let Some(joined) = events.get_mut(&tid).filter(|j| !j.inherited) {
                let mean = period(*told_ns, joined.share);
                joined.events[index].tell(uneven.of(mean, period_jitter::SAMPLE_JITTER_DIVISOR));
            }
        }
    }

    fn take(&mut self, until: u64) -> Vec<(u64, Record)> {
        self.hold();
        let held = &mut self.held;
        held.sort_by_key(|(time, _)| *time);
        let later = held.split_off(held.partition_point(|(time, _)| *time <= until));
        std::mem::replace(held, later)
    }

    /// Descriptors that become readable when a ring has a sample, or is half full.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.rings.iter().map(|(_, ring)| ring.event())
    }

    /// Bytes of the rings.
    pub fn bytes(&self) -> u64 {
        self.rings.iter().map(|(_, ring)| ring.bytes()).sum()
    }
}

/// The ring of an event, of at most `pages` data pages.
///
/// # Errors
/// So much memory may not be locked.
fn ring(event: OwnedFd, pages: usize) -> io::Result<Ring> {
    Ring::map(event, pages, MIN_PAGES).map_err(|e| match e.raw_os_error() {
        // A refused event has this number too, so the ring's failure gets another kind.
        Some(libc::EPERM) => io::Error::new(io::ErrorKind::OutOfMemory, NO_RING),
        _ => e,
    })
}

/// Time between two samples where they fall into `share` of the time.
fn period(told_ns: u64, share: f64) -> u64 {
    (told_ns as f64 * share) as u64
}

fn is_refusal(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

#[cfg(test)]
mod tests;
