//! Samples of threads that end before they have computed for a sampling period.
//!
//! A thread inherits its maker's clock event, and the kernel lets that begin with a whole period. A thread
//! that computes for less is never sampled, and one that computes for a little more always at the same age.
//! So, while such threads come and go, each poll opens one more event, a *window*: on one of the threads
//! that make them, on one CPU, with a period drawn between 0 and the longest of these lives. Threads born until
//! the next poll inherit it, and its first sample meets each of them at that age. Successive windows fill the
//! range of ages, and take makers and CPUs in turn. Half of them fill it evenly, half of them by the time that was
//! computed at each age: a few long lives would otherwise leave few windows to the many short ones. A sample stands for
//! makers × CPUs over the density of its age. The window is closed with all that was inherited when
//! these threads have ended or been met, and [`HOLD`] later at the latest: a thread with a short period that
//! lives on costs no more than that.
//!
//! The kernel exchanges the events of two threads at a switch if both inherited all of them from the same
//! thread. A short thread would then take its maker's period with it when it ends: neither of them would ever
//! be sampled. A *guard*, an event of the maker that is not inherited, makes their events differ.
//!
//! *Assumes* that a thread reaches the drawn age within [`HOLD`] of its birth.

use std::{
    ops::{Range, RangeInclusive},
    os::fd::OwnedFd,
    time::Duration,
};

use rustc_hash::FxHashMap;

use super::{Record, perf_attr::SAMPLE_BYTES, record::FirstSample};

/// How long a window stays open after its last birth, ns: a life of 1 to 2 ms fits in, on a busy machine too.
const HOLD: u64 = 50_000_000;
/// Time after its opening for which the records of a window are taken, ns.
const KEEP: u64 = 1_000_000_000;
/// Fewest short lives in about a second that are worth windows. Each of them is shorter than one period.
const MIN_LIVES: u64 = 16;
/// Interval after which the counts of lives are halved, and makers without births are dropped, ns.
const REVIEW: u64 = 1_000_000_000;
/// Most makers that are remembered.
const MAX_MAKERS: usize = 64;
/// Shortest period that the kernel's clock events keep, ns.
const MIN_PERIOD: u64 = 10_000;
/// The octave up to 16 µs: ages below it are not distinguished.
const FIRST_OCTAVE: usize = 13;
/// Bytes of stack that a window's samples copy for each microsecond of the age: a young thread's stack is short. A
/// thread writes a sample at each multiple of the age, and the kernel reserves all of these bytes each time: this
/// limits how fast the threads of a window fill a ring (38 MB/s from an age of 32 µs on).
const STACK_BYTES_PER_US: u64 = 32;
/// Fewest and most bytes of stack with a window's sample. Of samples with 512 bytes, one in ten ended before the root.
const STACK_BYTES: RangeInclusive<u64> = 1024..=8192;
/// A listening reader is not woken again by samples of a thread that has computed for less than this since, ns.
const MIN_WAKING: u64 = 250_000;
/// One part in so many of the time computed in short lives may lie in lives longer than the range.
const BEYOND_RANGE: u64 = 50;
/// The golden section, as a fraction of 2⁶⁴: its multiples fill a range evenly, and so do those of any progression.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Lives shorter than a period, by octave of the time that they computed. The first octave begins at 0.
#[derive(Debug)]
struct ShortLives {
    octaves: [Octave; 64],
}

#[derive(Clone, Copy, Debug, Default)]
struct Octave {
    lives: u64,
    computed_ns: u64,
}

impl Default for ShortLives {
    fn default() -> ShortLives {
        ShortLives {
            octaves: [Octave::default(); 64],
        }
    }
}

impl ShortLives {
    fn add(&mut self, computed_ns: u64) {
        let octave = &mut self.octaves[computed_ns.max(1 << FIRST_OCTAVE).ilog2() as usize];
        octave.lives += 1;
        octave.computed_ns += computed_ns;
    }

    fn halve(&mut self) {
        for octave in &mut self.octaves {
            octave.lives /= 2;
            octave.computed_ns /= 2;
        }
    }

    fn count(&self) -> u64 {
        self.octaves.iter().map(|o| o.lives).sum()
    }

    /// An age that hardly any of these lives exceeds, ns.
    fn range_ns(&self) -> u64 {
        let whole: u64 = self.octaves.iter().map(|o| o.computed_ns).sum();
        let mut beyond = 0;
        for (number, octave) in self.octaves.iter().enumerate().rev() {
            beyond += octave.computed_ns;
            if beyond > whole / BEYOND_RANGE {
                return 2u64.saturating_pow(number as u32 + 1);
            }
        }
        0
    }

    /// The ages of each octave up to `range_ns`, and the time that was computed at them, ns.
    fn computed_at(&self, range_ns: u64) -> Vec<(Range<u64>, f64)> {
        let mut longer = self.count();
        let begins = |number: usize| {
            if number == FIRST_OCTAVE {
                0
            } else {
                1 << number
            }
        };
        (FIRST_OCTAVE..63)
            .take_while(|number| begins(*number) < range_ns)
            .map(|number| {
                let (ages, octave) = (begins(number)..1 << (number + 1), self.octaves[number]);
                longer -= octave.lives;
                let ended = octave.computed_ns.saturating_sub(octave.lives * ages.start);
                let all = ended + longer * (ages.end - ages.start);
                let met = ages.start..ages.end.min(range_ns);
                let part = (met.end - met.start) as f64 / (ages.end - ages.start) as f64;
                (met, all as f64 * part)
            })
            .collect()
    }

    /// The age at `part` (0 to 1) of the distribution described at the top, in ns, and its density per ns. Some
    /// lives are known.
    fn age_at(&self, part: f64, range_ns: u64) -> (u64, f64) {
        let octaves = self.computed_at(range_ns);
        let whole: f64 = octaves.iter().map(|(_, ns)| ns).sum();
        let (mut below, mut drawn) = (0.0, (range_ns, 1.0 / range_ns as f64));
        for (ages, ns) in octaves {
            let width = (ages.end - ages.start) as f64;
            let density = 0.5 / range_ns as f64 + 0.5 * ns / (whole.max(1.0) * width);
            drawn = (ages.start + ((part - below) / density) as u64, density);
            below += density * width;
            if part < below {
                break;
            }
        }
        drawn
    }
}

/// A thread that makes others.
struct Maker {
    tid: u32,
    /// When its last thread was born, ns.
    born_ns: u64,
    guard: Option<OwnedFd>,
}

/// The next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The thread to open it on.
    pub maker: u32,
    /// The ring of its CPU.
    pub ring: usize,
    /// Age at which threads are met, ns; no other event has this period.
    pub age_ns: u64,
    /// Time that a sample stands for, ns.
    stands_for_ns: u64,
    /// Whether the maker's events need a guard first.
    pub needs_guard: bool,
    opens_ns: u64,
}

impl Plan {
    /// Bytes of stack that each sample copies.
    pub fn stack_bytes(&self) -> u32 {
        let bytes = self.age_ns * STACK_BYTES_PER_US / 1000 / 8 * 8;
        bytes.clamp(*STACK_BYTES.start(), *STACK_BYTES.end()) as u32
    }

    /// Samples after which a reader that listens is woken.
    pub fn samples_each_waking(&self) -> u32 {
        (MIN_WAKING / self.age_ns).max(1) as u32
    }

    /// Bytes that a thread writes while it computes, per second.
    fn bytes_per_second(&self) -> f64 {
        (SAMPLE_BYTES + u64::from(self.stack_bytes())) as f64 * 1e9 / self.age_ns as f64
    }
}

/// Threads born from the opening of `plan` on inherit its event.
struct Window {
    plan: Plan,
    /// Threads born later do not count.
    until: Option<u64>,
    /// How long each thread has computed on this CPU.
    ages: FxHashMap<u32, Age>,
    /// Threads that the maker made, and theirs, that may still be met: births less ends, as either may be recorded
    /// first.
    heirs: FxHashMap<u32, i8>,
    /// Closed [`HOLD`] after `until`; its records come a little later.
    event: Option<OwnedFd>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Age {
    ns: u64,
    since: Option<u64>,
}

/// See the top of this file.
#[derive(Default)]
pub struct Newborns {
    lives: ShortLives,
    makers: Vec<Maker>,
    windows: Vec<Window>,
    /// Windows so far.
    opened: u64,
    reviewed_ns: u64,
    /// Samples that met a thread at the drawn age.
    pub met: u64,
}

impl Newborns {
    /// Thread `tid` has made another one at `now`.
    pub fn made(&mut self, tid: u32, now: u64) {
        if let Some(maker) = self.makers.iter_mut().find(|m| m.tid == tid) {
            maker.born_ns = now;
        } else if self.makers.len() < MAX_MAKERS {
            self.makers.push(Maker {
                tid,
                born_ns: now,
                guard: None,
            });
        }
    }

    /// A thread has ended that computed for `computed_ns`; samples are `period_ns` apart.
    pub fn ended(&mut self, tid: u32, computed_ns: u64, period_ns: u64) {
        if computed_ns < period_ns {
            self.lives.add(computed_ns);
        }
        self.forget(tid);
    }

    /// No window can be opened on a thread.
    pub fn forget(&mut self, tid: u32) {
        self.makers.retain(|m| m.tid != tid);
    }

    /// Ages up to here are met by windows, ns; 0: there are none at present. `period_ns`: as above.
    pub fn range_ns(&self, period_ns: u64) -> u64 {
        match self.lives.count() >= MIN_LIVES && !self.makers.is_empty() {
            true => self.lives.range_ns().min(period_ns),
            false => 0,
        }
    }

    /// Closes windows that are over at `now`, and plans the next. There are `rings` CPUs.
    pub fn next(&mut self, now: u64, period_ns: u64, rings: usize) -> Option<Plan> {
        if now >= self.reviewed_ns + REVIEW {
            self.reviewed_ns = now;
            self.lives.halve();
            self.makers.retain(|m| now < m.born_ns + REVIEW);
        }
        for window in &mut self.windows {
            window.until.get_or_insert(now);
        }
        for window in &mut self.windows {
            if window.is_over(now) {
                window.event = None;
            }
        }
        self.windows
            .retain(|w| w.event.is_some() || now < w.plan.opens_ns + KEEP);
        let range_ns = self.range_ns(period_ns);
        if range_ns == 0 || rings == 0 {
            return None;
        }
        let turn = self.opened;
        self.opened += 1;
        let pairs = self.makers.len() as u64 * rings as u64;
        let maker = &self.makers[turn as usize % self.makers.len()];
        let part = turn.wrapping_mul(GOLDEN) as f64 / 2f64.powi(64);
        let (age_ns, density) = self.lives.age_at(part, range_ns);
        let mut age_ns = age_ns.max(MIN_PERIOD);
        // A period names its window.
        while self.windows.iter().any(|w| w.plan.age_ns == age_ns) {
            age_ns += 1;
        }
        Some(Plan {
            maker: maker.tid,
            ring: turn as usize / self.makers.len() % rings,
            age_ns,
            stands_for_ns: (pairs as f64 / density) as u64,
            needs_guard: maker.guard.is_none(),
            opens_ns: now,
        })
    }

    /// The window of `plan` is open.
    pub fn open(&mut self, plan: Plan, event: OwnedFd, guard: Option<OwnedFd>) {
        let maker = self.makers.iter_mut().find(|m| m.tid == plan.maker);
        if let (Some(maker), Some(guard)) = (maker, guard) {
            maker.guard = Some(guard);
        }
        self.windows.push(Window {
            plan,
            until: None,
            ages: FxHashMap::default(),
            heirs: FxHashMap::default(),
            event: Some(event),
        });
    }

    /// Time in which a thread that computes all the time fills `bytes` of a ring, if an open window samples it.
    pub fn fills_in(&self, bytes: u64) -> Duration {
        let open = || (self.windows.iter()).filter_map(|w| w.event.is_some().then_some(&w.plan));
        // Threads of different makers take turns on a CPU. Those of one maker inherit all of its windows.
        let with_others = |plan: &Plan| -> f64 {
            let same = |p: &&Plan| (p.maker, p.ring) == (plan.maker, plan.ring);
            open().filter(same).map(Plan::bytes_per_second).sum()
        };
        let fastest = open().map(with_others).fold(0.0, f64::max);
        Duration::try_from_secs_f64(bytes as f64 / fastest).unwrap_or(Duration::MAX)
    }

    /// Takes note of a record of ring number `ring`, and marks a window's first sample of a thread. False: it is
    /// another sample of a window, which is of no use.
    pub fn observe(&mut self, ring: usize, time: u64, record: &mut Record) -> bool {
        match record {
            Record::Born(birth) => {
                (self.windows.iter_mut()).for_each(|w| w.born(birth.tid, birth.parent_tid, time))
            }
            Record::Ended { tid, .. } => self.windows.iter_mut().for_each(|w| w.ended(*tid)),
            _ => {}
        }
        let mut windows = self.windows.iter_mut().filter(|w| w.plan.ring == ring);
        match record {
            Record::In { tid, .. } => windows.for_each(|w| w.comes(*tid, time)),
            Record::Out { tid, .. } => windows.for_each(|w| w.leaves(*tid, time)),
            Record::Sample(r) => {
                let Some(window) = windows.find(|w| w.plan.age_ns == r.period_ns) else {
                    return true;
                };
                r.first = window.first(r.tid, time);
                self.met += u64::from(r.first.is_some());
                return r.first.is_some();
            }
            _ => {}
        }
        true
    }
}

impl Window {
    fn is_over(&self, now: u64) -> bool {
        let Some(until) = self.until.filter(|until| *until < now) else {
            return false;
        };
        now >= until + HOLD || self.heirs.values().all(|n| *n <= 0)
    }

    fn born(&mut self, tid: u32, parent_tid: u32, time: u64) {
        let is_heir = parent_tid == self.plan.maker || self.heirs.contains_key(&parent_tid);
        if is_heir && time < self.until.unwrap_or(u64::MAX) {
            *self.heirs.entry(tid).or_default() += 1;
        }
    }

    fn ended(&mut self, tid: u32) {
        *self.heirs.entry(tid).or_default() -= 1;
    }

    fn comes(&mut self, tid: u32, time: u64) {
        self.ages.entry(tid).or_default().since.get_or_insert(time);
    }

    fn leaves(&mut self, tid: u32, time: u64) {
        if let Some(age) = self.ages.get_mut(&tid)
            && let Some(since) = age.since.take()
        {
            age.ns += time.saturating_sub(since);
        }
    }

    /// A thread was sampled at `time`. Later expiries of the same event are not the first sample.
    fn first(&mut self, tid: u32, time: u64) -> Option<FirstSample> {
        let age = self.ages.get(&tid)?;
        let running = age.since.map_or(0, |since| time.saturating_sub(since));
        let is_first = age.ns + running < self.plan.age_ns + self.plan.age_ns / 2;
        self.heirs.remove(&tid);
        is_first.then_some(FirstSample {
            born_ns: self.plan.opens_ns..self.until.unwrap_or(u64::MAX),
            stands_for_ns: self.plan.stands_for_ns,
        })
    }
}

#[cfg(test)]
mod tests;
