//! Waits of which only the innermost frame was seen, and who called.
//!
//! A wait of some microseconds is over before the memory of its thread is copied. What is known of it is its
//! call, the program counter and the stack pointer. Where the same thread was seen at the same place with the
//! stack pointer at the same address, and its callers were read, those are the callers: another way there
//! leaves another depth, but for chance.

use wallscope_model::State;

use super::{Key, Samples, Sum, Weight};

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

impl From<Meant> for Weight {
    fn from(meant: Meant) -> Weight {
        match meant {
            Meant::Own => Weight::Own,
            Meant::Wait { class, late } => Weight::Wait { class, late },
            Meant::Wakeup { class } => Weight::Wakeup { class },
        }
    }
}

impl Meant {
    /// By length of the wait; 0: not known.
    fn class(self) -> u8 {
        match self {
            Meant::Own => 0,
            Meant::Wait { class, .. } | Meant::Wakeup { class } => class,
        }
    }
}

impl Samples {
    /// A thread that waits with stack number `stack` has its stack pointer at `sp`.
    pub fn stands_at(&mut self, thread: usize, stack: u32, sp: u64) {
        self.begin.insert((thread as u32, stack), sp);
    }

    /// Gives waits of which only the innermost frame was seen to the whole stacks that were seen in the same
    /// place of the same thread for the same reason, in waits as long or else about as long. Where there are
    /// none they stay as they are.
    pub(super) fn with_callers(&mut self, own: Vec<Key>) -> Vec<Key> {
        let (lost, mut own): (Vec<Key>, Vec<Key>) = own
            .into_iter()
            .partition(|key| matches!(key.5, Weight::Innermost { .. }));
        let mut found: Vec<(Key, Sum)> = Vec::new();
        for key in lost {
            let Weight::Innermost { sp, of } = key.5 else {
                continue;
            };
            let Some(sum) = self.sums.remove(&key) else {
                continue;
            };
            let innermost = self.stacks[key.1 as usize].1.first();
            let whole = own.iter().filter_map(|k| {
                let (class, reason) = match k.5 {
                    Weight::Own if k.2 == State::Blocked => (0, k.3),
                    Weight::Wait { class, .. } => (class, k.3),
                    Weight::Wakeup { class } => (class, None),
                    _ => return None,
                };
                let same = self.begin.get(&(key.0, k.1)) == Some(&sp)
                    && self.stacks[k.1 as usize].1.first() == innermost
                    && (k.2, reason) == (key.2, key.3);
                let ns = self.sums.get(k).map_or(0, |sum| sum.ns);
                (same && ns > 0).then_some((class.abs_diff(of.class()), k.1, ns))
            });
            let whole: Vec<(u8, u32, u64)> = whole.collect();
            let nearest = whole.iter().map(|(far, ..)| *far).min();
            let whole = whole.iter().filter(|(far, ..)| Some(*far) == nearest);
            let all: u64 = whole.clone().map(|(.., ns)| ns).sum();
            let mut given = false;
            for (_, stack, ns) in whole {
                let to = (key.0, *stack, key.2, key.3, key.4, of.into(), key.6);
                let mut part = sum.times(*ns, all);
                if given {
                    // Its looks count once.
                    part.count = 0;
                    part.slices.iter_mut().for_each(|v| v.count = 0);
                }
                found.push((to, part));
                given = true;
            }
            if !given {
                let to = (key.0, key.1, key.2, key.3, key.4, of.into(), key.6);
                found.push((to, sum));
            }
        }
        for (key, sum) in found {
            if !own.contains(&key) {
                own.push(key);
            }
            self.sums.entry(key).or_default().add(sum);
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{
            perf::waits::Waits,
            proc::samples::{Known, Look},
        },
        session::naming::Whose,
    };
    use wallscope_model::{BlockReason, Slices, StackEnd, WaitSeen};
    use wallscope_unwind::native::FrameWord;

    const GRID: Slices = Slices {
        start_ns: 0,
        width_ns: 1_000_000,
        count: 0,
    };

    fn look(stack: u32, reason: BlockReason, weight: Weight, ns: u64) -> Look {
        Look {
            thread: 0,
            stack,
            state: State::Blocked,
            reason: Some(reason),
            part: None,
            begin: 0,
            end: 100,
            ns,
            weight,
            seen: WaitSeen::default(),
        }
    }

    #[test]
    fn callers_are_those_of_the_same_place_and_depth() {
        let mut s = Samples::default();
        let whose = Whose { pid: 1, code: 0 };
        let mut stack = |words: &[u64], end| {
            let frames = words.iter().map(|w| FrameWord(*w)).collect();
            s.stack(whose, frames, Box::default(), end)
        };
        // Two ways into one function, and the function alone.
        let (one, other) = (
            stack(&[7, 8], StackEnd::Root),
            stack(&[7, 9], StackEnd::Root),
        );
        let alone = stack(&[7], StackEnd::Lost);
        s.stands_at(0, one, 0x100);
        s.stands_at(0, other, 0x200);
        let (short, long) = (14, 22);
        let wait = |class| Meant::Wait { class, late: false };
        let at = |sp, of| Weight::Innermost { sp, of };
        s.add(GRID, &look(one, BlockReason::Disk, wait(short).into(), 100));
        s.add(
            GRID,
            &look(other, BlockReason::Disk, wait(long).into(), 100),
        );
        for (sp, reason, ns) in [
            (0x100, BlockReason::Disk, 300),
            // Its way was seen in long waits only.
            (0x200, BlockReason::Disk, 40),
            // Neither of this depth nor for this reason was one seen whole.
            (0x300, BlockReason::Disk, 5),
            (0x100, BlockReason::Pipe, 6),
        ] {
            s.add(GRID, &look(alone, reason, at(sp, wait(short)), ns));
        }
        s.by_thread();
        let mut waits = Waits::default();
        waits.add(451);
        waits.add(5_000_000);
        let known = Known {
            waits: &waits,
            woken: 0,
            preempted: 0,
        };
        s.settle(0, known);
        let time = |stack, reason| {
            let own = s.sums.iter().filter(|(k, _)| k.1 == stack);
            own.filter(|(k, _)| k.3 == Some(reason))
                .map(|(_, sum)| sum.ns)
                .sum::<u64>()
        };
        assert_eq!(time(one, BlockReason::Disk), 400);
        // What was long stays with who was long, and is not shared.
        assert_eq!(time(other, BlockReason::Disk), 5_000_000 + 40);
        assert_eq!(time(alone, BlockReason::Disk), 5);
        assert_eq!(time(alone, BlockReason::Pipe), 6);
    }

    #[test]
    fn looks_at_counters_find_callers_too() {
        let mut s = Samples::default();
        let whose = Whose { pid: 1, code: 0 };
        let whole = s.stack(
            whose,
            vec![FrameWord(7), FrameWord(8)],
            Box::default(),
            StackEnd::Root,
        );
        let alone = s.stack(whose, vec![FrameWord(7)], Box::default(), StackEnd::Lost);
        s.stands_at(0, whole, 0x100);
        let lost = Weight::Innermost {
            sp: 0x100,
            of: Meant::Own,
        };
        s.add(GRID, &look(whole, BlockReason::Disk, Weight::Own, 10));
        s.add(GRID, &look(alone, BlockReason::Disk, lost, 30));
        s.by_thread();
        let known = Known {
            waits: &Waits::default(),
            woken: 0,
            preempted: 0,
        };
        s.settle(0, known);
        let sums: Vec<(u32, u64)> = s.sums.iter().map(|(k, sum)| (k.1, sum.ns)).collect();
        assert_eq!(sums, [(whole, 40)]);
    }
}
