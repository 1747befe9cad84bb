//! Tasks that a runtime schedules itself, seen from outside: what one look at a process gives,
//! whatever the runtime is.
//!
//! A task that waits has no thread, so no event of the kernel tells of it. Its runtime keeps a list;
//! a [`Looker`] reads that list, what each task does, and where it waits. The process runs on
//! meanwhile: what changed under the reader's eyes is left out and counted.

use super::Facts;

/// Reads memory of a process, whole or not at all.
pub trait Memory {
    /// Fills `to` from `at` on.
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool;

    /// Fills `to`, one piece after the other, from `wanted` (address, bytes); whether each could be
    /// read.
    fn read_all(&mut self, wanted: &[(u64, usize)], to: &mut [u8]) -> Vec<bool> {
        let mut rest = to;
        let mut done = Vec::with_capacity(wanted.len());
        for (at, bytes) in wanted {
            let (piece, more) = rest.split_at_mut(*bytes);
            done.push(self.read(*at, piece));
            rest = more;
        }
        done
    }

    /// Whether thread `tid`, by the id that its process knows it by, waits in the kernel; `None`: not known.
    fn sleeps(&mut self, tid: u32) -> Option<bool> {
        let _ = tid;
        None
    }
}

/// A label that the program gave a task: key and value.
pub type Label = (String, String);

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doing {
    /// Waits for the runtime to run it.
    Runnable,
    /// Is on a thread.
    Running,
    /// Its thread is in a system call.
    Syscall,
    /// Waits, for what the runtime has this number for.
    Waiting(u32),
}

/// A task, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Tells it from others.
    pub id: u64,
    /// The function it began with, by an address that [`Looker::name`] knows.
    pub start: u64,
    /// What it does.
    pub doing: Doing,
    /// Where, innermost first, in words of the runtime; `None` where it runs or could not be read.
    pub stack: Option<Vec<u64>>,
    /// Where its labels are, 0: it has none.
    pub labels: u64,
}

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// All tasks that are not done.
    Tasks(Vec<Task>),
    /// The program has no tasks (yet).
    None,
    /// There should be a list, but it was not found.
    Lost,
    /// What there is could not be seen this time.
    Missed,
}

/// Looks at the tasks of one process.
pub trait Looker: Send {
    /// All tasks but finished ones. `facts` are those that it was made with.
    fn look(&mut self, facts: &Facts, memory: &mut dyn Memory) -> Look;

    /// The labels of a task.
    fn labels(&mut self, facts: &Facts, memory: &mut dyn Memory, task: &Task) -> Vec<Label>;

    /// Name of the function with this address.
    fn name(&self, facts: &Facts, start: u64) -> String;

    /// Stacks so far that could not be followed to their end.
    fn broken(&self) -> u64;

    /// Whether there is nothing to be seen, now or later.
    fn is_hopeless(&self) -> bool {
        false
    }
}
