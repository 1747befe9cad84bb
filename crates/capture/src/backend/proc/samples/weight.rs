//! What the time of a poll stands for, and the sums of polls.

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, Part, SliceValue, Slices, State, WaitSeen};

use crate::{backend::perf::wait_strata::WaitStrata, slices::spread};

/// Thread, stack, state, reason, part, weight, and the connections that it waits for.
pub(super) type Key = (
    u32,
    u32,
    State,
    Option<BlockReason>,
    Option<Part>,
    Weight,
    WaitSeen,
);

/// What the time of a poll stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weight {
    /// The time itself, or a period of it.
    Own,
    /// The thread's waits of its class.
    Wait {
        /// By length.
        class: u8,
        /// The poll came late.
        late: bool,
    },
    /// Run-queue latency after preemptions. The sample itself is of on-CPU time that ended in a preemption.
    PutOff,
    /// Run-queue latency of the thread after wake-ups from waits of its class.
    Wakeup {
        /// By length.
        class: u8,
    },
    /// A wait that was over before its callers were read.
    Innermost {
        /// Its stack pointer: a later wait at this place with the same stack pointer has the same callers.
        sp: u64,
        /// What the time of that wait stands for.
        of: WeightScope,
    },
}

/// Fewest polls in time that are enough for a thread's waits of a class.
pub(super) const ENOUGH: u64 = 20;

/// Number of samples that tell as much as the estimate without them. This many samples that ended in a preemption
/// tell as much about the places of preemptions as all on-CPU samples do. This many polls of runnable threads tell
/// as much as the numbers of wake-ups.
pub(super) const AS_MUCH: u64 = 4;

/// Sum of the polls with one stack in one state.
#[derive(Default)]
pub(super) struct Sum {
    /// Polls.
    pub count: u64,
    /// Time, ns.
    pub ns: u64,
    /// Time by slice.
    pub slices: Vec<SliceValue>,
}

impl Sum {
    /// Scales the time to `share` of `whole` ns; the number of polls stays.
    pub fn times(&self, share: u64, whole: u64) -> Sum {
        let part = |n: u64| (u128::from(n) * u128::from(share) / u128::from(whole.max(1))) as u64;
        let slices: Vec<SliceValue> = self
            .slices
            .iter()
            .map(|v| SliceValue {
                ns: part(v.ns),
                ..*v
            })
            .collect();
        Sum {
            count: self.count,
            ns: slices.iter().map(|v| v.ns).sum(),
            slices,
        }
    }

    /// Adds another sum.
    pub fn add(&mut self, other: Sum) {
        self.count += other.count;
        self.ns += other.ns;
        for v in other.slices {
            match self.slices.iter_mut().find(|own| own.slice == v.slice) {
                Some(own) => {
                    own.count += v.count;
                    own.ns += v.ns;
                }
                None => self.slices.push(v),
            }
        }
        self.slices.sort_unstable_by_key(|v| v.slice);
    }
}

/// One poll of one thread.
pub struct PollSample {
    /// Index of the thread.
    pub thread: u32,
    /// Index of the stack.
    pub stack: u32,
    /// State of the thread.
    pub state: State,
    /// Block reason, for blocked time.
    pub reason: Option<BlockReason>,
    /// Part of the state, for other time.
    pub part: Option<Part>,
    /// Begin of the stretch that the poll stands for, ns on the recording's clock.
    pub begin: u64,
    /// Its end.
    pub end: u64,
    /// The time that it stands for, ns.
    pub ns: u64,
    /// What that time stands for.
    pub weight: Weight,
    /// For blocked time: the connections that it waits for.
    pub seen: WaitSeen,
}

/// Sums of polls by thread, stack and state.
#[derive(Default)]
pub struct Sums {
    /// The sums.
    pub(super) by_key: FxHashMap<Key, Sum>,
}

impl Sums {
    /// Adds one poll.
    pub fn add(&mut self, grid: Slices, p: &PollSample) {
        let key = (
            p.thread, p.stack, p.state, p.reason, p.part, p.weight, p.seen,
        );
        let sum = self.by_key.entry(key).or_default();
        sum.count += 1;
        sum.ns += p.ns;
        for (slice, ns) in spread(grid, p.begin, p.end, p.ns) {
            match sum.slices.last_mut() {
                Some(v) if v.slice == slice => v.ns += ns,
                _ => sum.slices.push(SliceValue {
                    slice,
                    count: 0,
                    ns,
                }),
            }
        }
        if let Some(v) = sum.slices.last_mut() {
            v.count += 1;
        }
    }

    /// Rows by slice.
    pub fn rows(&self) -> usize {
        self.by_key.values().map(|sum| sum.slices.len()).sum()
    }

    /// The slices are twice as wide from here on.
    pub fn coarsen(&mut self) {
        for sum in self.by_key.values_mut() {
            sum.slices.iter_mut().for_each(|v| v.slice /= 2);
            sum.slices.dedup_by(|b, a| {
                let same = a.slice == b.slice;
                if same {
                    a.count += b.count;
                    a.ns += b.ns;
                }
                same
            });
        }
    }
}

/// Exact times of a thread that are to be divided among its samples, ns.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Waits.
    pub waits: &'a WaitStrata,
    /// Run-queue latency after wake-ups.
    pub woken: u64,
    /// Run-queue latency after preemptions.
    pub preempted: u64,
}

/// What the time of a wait with only an innermost frame stands for; see [`Weight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightScope {
    /// Its own.
    Own,
    /// The thread's waits of a class.
    Wait {
        /// By length.
        class: u8,
        /// The poll came late.
        late: bool,
    },
    /// Run-queue latency after wake-ups from waits of a class.
    Wakeup {
        /// By length.
        class: u8,
    },
}

impl WeightScope {
    /// Class of the wait by length; 0: not known.
    pub(super) fn class(self) -> u8 {
        match self {
            WeightScope::Own => 0,
            WeightScope::Wait { class, .. } | WeightScope::Wakeup { class } => class,
        }
    }
}

impl From<WeightScope> for Weight {
    fn from(meant: WeightScope) -> Weight {
        match meant {
            WeightScope::Own => Weight::Own,
            WeightScope::Wait { class, late } => Weight::Wait { class, late },
            WeightScope::Wakeup { class } => Weight::Wakeup { class },
        }
    }
}
