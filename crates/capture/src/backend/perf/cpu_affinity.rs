//! Moves this thread to the CPU of the threads that it reads from.
//!
//! A sample wakes us on the CPU where it is taken. If another CPU is idle, the scheduler wakes us there: on
//! a virtual machine that takes 0.1 ms and often more, and the sampled thread runs on meanwhile. On its own
//! CPU that thread is preempted for us at once, and does not run while its frames are read. That pays if
//! most urgent reads are of one CPU, as with an interpreter that has one lock.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// We move to a CPU when its recent reads exceed those of all other CPUs by this number.
const MIN_LEAD: u32 = 8;
/// Delay of a poll, ns, that does not occur on a CPU that is shared fairly.
const FORSAKEN: u64 = 20_000_000;
/// How long we stay away after a poll that came late because we were pinned there, ns.
const AWAY: u64 = 10_000_000_000;

/// The CPU of the recent samples that had to be read at once.
#[derive(Debug, Default)]
pub struct CpuAffinity {
    /// The CPU that leads.
    cpu: u32,
    lead: u32,
    /// The CPUs that we may run on otherwise, while we are pinned.
    elsewhere: Option<CpuSet>,
    /// Time before which we are not pinned, ns.
    not_before: u64,
    /// We have been pinned.
    pub went: bool,
}

impl CpuAffinity {
    /// At `now` something had to be read that was sampled on `cpu`.
    pub fn read_from(&mut self, cpu: Option<u32>, now: u64) {
        let Some(cpu) = cpu else { return };
        self.vote(cpu);
        match (&self.elsewhere, self.lead) {
            (Some(_), 0) => self.leave(),
            (None, MIN_LEAD) if now >= self.not_before => self.go(now),
            _ => {}
        }
    }

    fn vote(&mut self, cpu: u32) {
        match (self.cpu == cpu, self.lead) {
            (true, lead) => self.lead = (lead + 1).min(MIN_LEAD),
            (false, 0) if self.elsewhere.is_none() => (self.cpu, self.lead) = (cpu, 1),
            (false, lead) => self.lead = lead.saturating_sub(1),
        }
    }

    fn go(&mut self, now: u64) {
        let mut only = CpuSet::new();
        let fits = (self.cpu as usize) < CpuSet::MAX_CPU;
        if fits {
            only.set(self.cpu as usize);
        }
        match sched_getaffinity(None) {
            Ok(before) if fits && sched_setaffinity(None, &only).is_ok() => {
                self.elsewhere = Some(before);
                self.went = true;
            }
            // We may not run there, or anywhere else.
            _ => self.not_before = now + AWAY,
        }
    }

    /// A poll that was due at `due` begins at `now`. If it is too late, the thread that runs on that CPU may
    /// be keeping us off it: we leave.
    pub fn poll_begins(&mut self, now: u64, due: u64) {
        if now > due + FORSAKEN && self.elsewhere.is_some() {
            self.leave();
            self.not_before = now + AWAY;
        }
    }

    /// Nothing has to be read at once any more.
    pub fn leave(&mut self) {
        self.lead = 0;
        if let Some(before) = self.elsewhere.take() {
            // Refused only where none of these CPUs is left to us; then the kernel has chosen others.
            let _ = sched_setaffinity(None, &before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` in a thread of its own, with the CPUs that it may run on and the first of them.
    fn somewhere(test: impl FnOnce(CpuSet, u32) + Send + 'static) {
        let run = || {
            let all = sched_getaffinity(None).unwrap();
            let one = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
            test(all, one as u32);
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn where_most_is_read_we_run_until_it_is_read_elsewhere() {
        somewhere(|all, one| {
            let mut nearby = CpuAffinity::default();
            for _ in 1..MIN_LEAD {
                nearby.read_from(Some(one), 0);
            }
            assert!(nearby.elsewhere.is_none());
            nearby.read_from(Some(one), 0);
            let now = sched_getaffinity(None).unwrap();
            assert_eq!((now.count(), now.is_set(one as usize)), (1, true));
            for _ in 0..MIN_LEAD {
                nearby.read_from(Some(one + 1), 0);
            }
            assert_eq!(sched_getaffinity(None).unwrap(), all);
            // Even on all: nowhere.
            for cpu in (0..100).map(|n| one + n % 2) {
                nearby.read_from(Some(cpu), 0);
            }
            assert!(nearby.elsewhere.is_none());
        });
    }

    #[test]
    fn we_do_not_stay_where_polls_come_late() {
        somewhere(|all, one| {
            let mut nearby = CpuAffinity::default();
            (0..MIN_LEAD).for_each(|_| nearby.read_from(Some(one), 0));
            assert!(nearby.elsewhere.is_some());
            nearby.poll_begins(FORSAKEN + 6, 6);
            assert!(nearby.elsewhere.is_some());
            nearby.poll_begins(FORSAKEN + 7, 6);
            assert_eq!(sched_getaffinity(None).unwrap(), all);
            (0..2 * MIN_LEAD).for_each(|_| nearby.read_from(Some(one), FORSAKEN + 6 + AWAY));
            assert!(nearby.elsewhere.is_none());
            nearby.read_from(Some(one), FORSAKEN + 7 + AWAY);
            assert!(nearby.elsewhere.is_some());
            nearby.leave();
            assert_eq!(sched_getaffinity(None).unwrap(), all);
        });
    }
}
