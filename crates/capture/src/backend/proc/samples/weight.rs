//! What the time of a poll stands for, and what polls add up to.

use wallscope_model::{BlockReason, Part, SliceValue, State, WaitSeen};

use crate::backend::perf::waits::Waits;

/// Thread, stack, state, reason, part, how the time was come by, and what was seen of connections.
pub(super) type Key = (
    u32,
    u32,
    State,
    Option<BlockReason>,
    Option<Part>,
    Weight,
    WaitSeen,
);

/// How a look's time was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weight {
    /// It is the time that is meant, or a period of it.
    Own,
    /// It stands for the thread's waits of its class.
    Wait {
        /// By length.
        class: u8,
        /// The look came late.
        late: bool,
    },
    /// It stands for what the thread waited since being put off the CPU, of time on it like this.
    PutOff,
    /// It stands for what the thread waited to get a CPU once it was woken from waits of its class.
    Wakeup {
        /// By length.
        class: u8,
    },
    /// Of a wait that was over before its callers were read.
    Innermost {
        /// Its stack pointer: who waits there again comes from the same callers.
        sp: u64,
        /// How the time was come by.
        of: Meant,
    },
}

/// Fewest looks in time that are enough for a thread's waits of a class.
pub(super) const ENOUGH: u64 = 20;

/// Samples of time that ended with being put off the CPU say as much of where that happens as all
/// samples of computing do if there are so many; and looks at waiting for a CPU as much as numbers of wake-ups.
pub(super) const AS_MUCH: u64 = 4;

/// What one stack in one state adds up to.
#[derive(Default)]
pub(super) struct Sum {
    /// Polls.
    pub count: u64,
    /// Time, ns.
    pub ns: u64,
    /// The same by slice.
    pub slices: Vec<SliceValue>,
}

impl Sum {
    /// The same looks for `share` of `whole` ns.
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

    /// Adds what another one adds up to.
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

/// What is known of a thread's time exactly and is to be given to what was sampled of it, ns.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Waits.
    pub waits: &'a Waits,
    /// Waiting for a CPU since being woken.
    pub woken: u64,
    /// Waiting for a CPU since being put off it.
    pub preempted: u64,
}

/// What the time of a wait is of which the innermost frame was seen: the same as in [`Weight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Meant {
    /// Its own.
    Own,
    /// That of a class.
    Wait {
        /// By length.
        class: u8,
        /// The look came late.
        late: bool,
    },
    /// Waiting for a CPU since.
    Wakeup {
        /// By length.
        class: u8,
    },
}

impl Meant {
    /// By length of the wait; 0: not known.
    pub(super) fn class(self) -> u8 {
        match self {
            Meant::Own => 0,
            Meant::Wait { class, .. } | Meant::Wakeup { class } => class,
        }
    }
}

impl From<Meant> for Weight {
    fn from(meant: Meant) -> Weight {
        match meant {
            Meant::Own => Weight::Own,
            Meant::Wait { class, late } => Weight::Wait { class, late },
            Meant::Wakeup { class } => Weight::Wakeup { class },
        }
    }
}
