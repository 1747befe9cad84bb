//! Stacks of runnable threads that were woken.
//!
//! The kernel tells where a blocked thread stands; of one that was woken it says only that it "runs". But that
//! one still stands where it blocked, and nothing on its stack has changed. So the stack is unwound from each
//! of the places where the thread was seen to wait lately: from where it stands it is what it was then, and
//! from where it has been since, a caller's call is another. Where two places fit none is taken. That it
//! had been woken, and had no CPU yet when it was read, its switch records tell afterwards.
//!
//! Such looks tell how the time that threads wait for a CPU is divided among their stacks.

use std::hash::Hasher as _;

use rustc_hash::FxHasher;
use wallscope_model::BlockReason;

use crate::backend::proc::waiting::Call;

/// Places that are kept of a thread.
const PLACES: usize = 16;
/// Of so many that differ in where the thread stands its stack is looked for, the latest.
const STANDS: usize = 8;
/// Stacks that are looked for in a round; of more, one of every so many.
const IN_A_ROUND: u32 = 8;
/// So many periods a wait is followed to its end, by more looks. Longer ones say nothing of how long wake-ups wait:
/// in the last of many periods a look would stand for too much.
pub(super) const FOLLOWED: u64 = 2;

/// Where a thread was seen to wait, in whichever way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub pc: u64,
    /// What tells its native frames from others.
    pub frames: u64,
    /// The call that it was in last there.
    pub call: Option<Call>,
    /// What it waited for, by its call; `None`: it was put off its CPU there.
    pub reason: Option<BlockReason>,
    /// The stack, as an index of the samples' stacks.
    pub stack: u32,
}

/// The places of one thread, the latest last.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Place>);

impl Places {
    /// A thread was seen to wait here.
    pub fn note(&mut self, place: Place) {
        let whole = |p: &Place| (p.sp, p.pc, p.frames);
        let same = |p: &Place| whole(p) == whole(&place);
        if let Some(known) = self.0.iter().position(same) {
            self.0.remove(known);
        } else if self.0.len() == PLACES {
            self.0.remove(0);
        }
        self.0.push(place);
    }

    /// Whether it was seen to wait for `reason`.
    pub fn has(&self, reason: BlockReason) -> bool {
        self.0.iter().any(|p| p.reason == Some(reason))
    }

    /// Nobody has seen it wait.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of each place to stand at, the latest first.
    pub(super) fn stands(&self) -> Vec<Place> {
        let mut all: Vec<Place> = Vec::new();
        for place in self.0.iter().rev() {
            let is_known = all.iter().any(|p| (p.sp, p.pc) == (place.sp, place.pc));
            if !is_known && all.len() < STANDS {
                all.push(*place);
            }
        }
        all
    }

    /// The latest one there with these frames.
    pub(super) fn like(&self, stands: &Place, frames: u64) -> Option<Place> {
        let whole = (stands.sp, stands.pc, frames);
        (self.0.iter().rfind(|p| (p.sp, p.pc, p.frames) == whole)).copied()
    }

    /// The one with this stack.
    pub fn with(&self, stack: u32) -> Option<Place> {
        self.0.iter().rfind(|p| p.stack == stack).copied()
    }
}

/// How many of the stacks that could be looked for are, so that a crowd of threads does not cost as much.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd {
    /// Met in this round.
    met: u32,
    /// In the last.
    before: u32,
    /// Rounds.
    rounds: u32,
}

impl Crowd {
    /// A round begins.
    pub fn turn(&mut self) {
        (self.before, self.met) = (self.met, 0);
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Another one: how many it stands for, if its turn has come.
    pub(super) fn meet(&mut self) -> Option<u64> {
        self.met += 1;
        let every = (self.before / IN_A_ROUND).max(1);
        (self.met.wrapping_add(self.rounds))
            .is_multiple_of(every)
            .then(|| every.into())
    }
}

/// What tells native frames from others.
pub(in crate::backend) fn told_apart(frames: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = FxHasher::default();
    frames.for_each(|w| hasher.write_u64(w));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(sp: u64, stack: u32) -> Place {
        Place {
            sp,
            pc: 1,
            frames: 1,
            call: None,
            reason: Some(BlockReason::Timer),
            stack,
        }
    }

    #[test]
    fn the_latest_places_are_kept() {
        let mut places = Places::default();
        for sp in 0..PLACES as u64 {
            places.note(place(sp, 0));
        }
        places.note(place(0, 7));
        places.note(place(100, 0));
        let kept: Vec<u64> = places.0.iter().map(|p| p.sp).collect();
        let later: Vec<u64> = (2..PLACES as u64).chain([0, 100]).collect();
        assert_eq!(kept, later);
        assert_eq!(places.0[PLACES - 2].stack, 7);
    }

    #[test]
    fn callers_that_stand_alike_are_told_apart() {
        let mut places = Places::default();
        let called = |frames, stack| Place {
            frames,
            ..place(64, stack)
        };
        places.note(called(1, 10));
        places.note(called(2, 20));
        places.note(place(128, 30));
        let stands = places.stands();
        assert_eq!(stands.iter().map(|p| p.sp).collect::<Vec<_>>(), [128, 64]);
        let of = |frames| places.like(&stands[1], frames).map(|p| p.stack);
        assert_eq!([of(1), of(2), of(3)], [Some(10), Some(20), None]);
        (0..PLACES as u64).for_each(|n| places.note(place(256 + n, 0)));
        assert_eq!(places.stands().len(), STANDS);
    }

    #[test]
    fn of_a_crowd_one_of_so_many_is_looked_for() {
        let mut crowd = Crowd::default();
        let mut round = |n: u32| {
            crowd.turn();
            (0..n).filter_map(|_| crowd.meet()).sum::<u64>()
        };
        assert_eq!(round(3), 3);
        assert_eq!(round(10 * IN_A_ROUND), 80, "nobody knew");
        // What is left out is stood for.
        assert_eq!(round(80), 80);
        assert_eq!(round(3), 0);
        let some: u64 = (0..10).map(|_| round(3)).sum();
        assert_eq!(some, 30);
    }
}
