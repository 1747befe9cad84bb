//! Stacks of runnable threads that were woken.
//!
//! For a blocked thread the kernel tells where it waits. For a thread that was woken it says only that the thread
//! is runnable. Until that thread gets a CPU, its stack is unchanged since it blocked. So the stack is unwound from
//! each site at which the thread was lately seen to wait. From the right site the unwinder finds the frames that it
//! found then; from a site that the thread has left, it finds others. If two sites fit, none is taken. The switch
//! records tell afterwards whether the thread had been woken, and had no CPU yet, when its stack was read.
//!
//! These polls tell how run-queue latency is divided among stacks.

use std::hash::Hasher as _;

use rustc_hash::FxHasher;
use wallscope_model::BlockReason;

use crate::backend::proc::waiting::Call;

/// Most sites that are kept for a thread.
const SITES: usize = 16;
/// Most sites, of different stack pointers, from which a stack is unwound: the latest ones.
const STANDS: usize = 8;
/// Stacks that are unwound in a round. If more threads are runnable, one of every few is unwound.
const IN_A_ROUND: u32 = 8;
/// A wait is polled again for so many periods, to see the wake-up at its end. Longer waits are not: a poll in the last
/// of many periods would stand for too much run-queue latency.
pub(super) const FOLLOWED: u64 = 2;

/// A place at which a thread was seen to wait, blocked or preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSite {
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub pc: u64,
    /// Fingerprint of its native frames.
    pub frames: u64,
    /// The call that it was in last there.
    pub call: Option<Call>,
    /// Its block reason, by its call; `None`: it was preempted there.
    pub reason: Option<BlockReason>,
    /// The stack, as an index of the samples' stacks.
    pub stack: u32,
}

/// The sites of one thread, the latest last.
#[derive(Clone, Debug, Default)]
pub struct KnownWaitSites(Vec<WaitSite>);

impl KnownWaitSites {
    /// A thread was seen to wait here.
    pub fn note(&mut self, site: WaitSite) {
        let whole = |p: &WaitSite| (p.sp, p.pc, p.frames);
        let same = |p: &WaitSite| whole(p) == whole(&site);
        if let Some(known) = self.0.iter().position(same) {
            self.0.remove(known);
        } else if self.0.len() == SITES {
            self.0.remove(0);
        }
        self.0.push(site);
    }

    /// Whether it was seen to wait for `reason`.
    pub fn has(&self, reason: BlockReason) -> bool {
        self.0.iter().any(|p| p.reason == Some(reason))
    }

    /// Whether it was never seen to wait.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One site for each stack pointer and program counter, the latest first.
    pub(super) fn stands(&self) -> Vec<WaitSite> {
        let mut all: Vec<WaitSite> = Vec::new();
        for site in self.0.iter().rev() {
            let is_known = all.iter().any(|p| (p.sp, p.pc) == (site.sp, site.pc));
            if !is_known && all.len() < STANDS {
                all.push(*site);
            }
        }
        all
    }

    /// The latest site at that place with these frames.
    pub(super) fn like(&self, stands: &WaitSite, frames: u64) -> Option<WaitSite> {
        let whole = (stands.sp, stands.pc, frames);
        (self.0.iter().rfind(|p| (p.sp, p.pc, p.frames) == whole)).copied()
    }

    /// The site with this stack.
    pub fn with(&self, stack: u32) -> Option<WaitSite> {
        self.0.iter().rfind(|p| p.stack == stack).copied()
    }
}

/// The part of the runnable threads that is unwound, so that many threads cost no more than a few.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunnableSampling {
    /// Threads met in this round.
    met: u32,
    /// Threads met in the last round.
    before: u32,
    /// Number of rounds.
    rounds: u32,
}

impl RunnableSampling {
    /// A round begins.
    pub fn turn(&mut self) {
        (self.before, self.met) = (self.met, 0);
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Counts another thread. Returns the number of threads that it stands for, if it is to be unwound.
    pub(super) fn meet(&mut self) -> Option<u64> {
        self.met += 1;
        let every = (self.before / IN_A_ROUND).max(1);
        (self.met.wrapping_add(self.rounds))
            .is_multiple_of(every)
            .then(|| every.into())
    }
}

/// Fingerprint of native frames, by which they are distinguished from others.
pub(in crate::backend) fn told_apart(frames: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = FxHasher::default();
    frames.for_each(|w| hasher.write_u64(w));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(sp: u64, stack: u32) -> WaitSite {
        WaitSite {
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
        let mut sites = KnownWaitSites::default();
        for sp in 0..SITES as u64 {
            sites.note(site(sp, 0));
        }
        sites.note(site(0, 7));
        sites.note(site(100, 0));
        let kept: Vec<u64> = sites.0.iter().map(|p| p.sp).collect();
        let later: Vec<u64> = (2..SITES as u64).chain([0, 100]).collect();
        assert_eq!(kept, later);
        assert_eq!(sites.0[SITES - 2].stack, 7);
    }

    #[test]
    fn callers_that_stand_alike_are_told_apart() {
        let mut sites = KnownWaitSites::default();
        let called = |frames, stack| WaitSite {
            frames,
            ..site(64, stack)
        };
        sites.note(called(1, 10));
        sites.note(called(2, 20));
        sites.note(site(128, 30));
        let stands = sites.stands();
        assert_eq!(stands.iter().map(|p| p.sp).collect::<Vec<_>>(), [128, 64]);
        let of = |frames| sites.like(&stands[1], frames).map(|p| p.stack);
        assert_eq!([of(1), of(2), of(3)], [Some(10), Some(20), None]);
        (0..SITES as u64).for_each(|n| sites.note(site(256 + n, 0)));
        assert_eq!(sites.stands().len(), STANDS);
    }

    #[test]
    fn of_a_crowd_one_of_so_many_is_looked_for() {
        let mut sampling = RunnableSampling::default();
        let mut round = |n: u32| {
            sampling.turn();
            (0..n).filter_map(|_| sampling.meet()).sum::<u64>()
        };
        assert_eq!(round(3), 3);
        assert_eq!(round(10 * IN_A_ROUND), 80, "nobody knew");
        // The threads that are unwound stand for those that are left out.
        assert_eq!(round(80), 80);
        assert_eq!(round(3), 0);
        let some: u64 = (0..10).map(|_| round(3)).sum();
        assert_eq!(some, 30);
    }
}
