//! Work done on several CPUs at a time, each piece with everything it starts on one of them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Outcome;

/// More lanes than this would share caches and memory with too many.
const MAX_LANES: usize = 2;

/// The CPUs to work on.
pub(super) struct Lanes {
    cpus: Vec<usize>,
}

impl Lanes {
    /// Those that this process may use, few of them.
    pub(super) fn here() -> Lanes {
        let allowed = sched_getaffinity(None);
        let all = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.as_ref().is_ok_and(|a| a.is_set(*cpu)));
        Lanes {
            cpus: all.take(MAX_LANES).collect(),
        }
    }

    /// Number of pieces of work that are done at a time.
    pub(super) fn count(&self) -> usize {
        self.cpus.len().max(1)
    }

    /// Does each job with `work`, on a lane that is free, and gives the result to `done`, here. What
    /// `work` starts inherits its CPU.
    ///
    /// # Errors
    /// The first of `work`; no further job is begun then.
    pub(super) fn each<J: Send, D: Send>(
        &self,
        jobs: Vec<J>,
        work: impl Fn(&J) -> Outcome<D> + Sync,
        mut done: impl FnMut(D),
    ) -> Outcome<()> {
        let queue = Mutex::new(VecDeque::from(jobs));
        let next = || queue.lock().ok()?.pop_front();
        let (sender, results) = channel();
        thread::scope(|scope| {
            for lane in 0..self.count() {
                let (sender, next, work) = (sender.clone(), &next, &work);
                let cpu = self.cpus.get(lane).copied();
                scope.spawn(move || {
                    if let Some(cpu) = cpu {
                        let mut only = CpuSet::new();
                        only.set(cpu);
                        // Where that is refused the lanes share their CPUs.
                        let _ = sched_setaffinity(None, &only);
                    }
                    while let Some(job) = next() {
                        let result = work(&job).map_err(|e| e.to_string());
                        if sender.send(result).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for result in results {
                match result {
                    Ok(result) => done(result),
                    Err(error) => {
                        if let Ok(mut queue) = queue.lock() {
                            queue.clear();
                        }
                        return Err(error.into());
                    }
                }
            }
            Ok(())
        })
    }
}
