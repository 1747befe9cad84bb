//! Tasks that a runtime schedules itself: a common interface to snapshots of them.
//!
//! A waiting task has no thread, so no kernel event shows it. Its runtime keeps a list of tasks. A
//! [`TaskReader`] reads that list, each task's status and its stack. The process runs meanwhile: tasks
//! that change during the read are left out and counted.

use super::Facts;
pub use super::process_memory::Memory;

/// A label that the program gave a task: key and value.
pub type Label = (String, String);

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskStatus {
    /// Waiting to be run by the runtime.
    Runnable,
    /// Running on a thread.
    Running,
    /// Its thread is in a system call.
    Syscall,
    /// Waiting, with the runtime's number for the reason.
    Waiting(u32),
}

/// A task at the time of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Identifies the task.
    pub id: u64,
    /// The function it started with, as an address for [`TaskReader::name`].
    pub start: u64,
    /// Its status.
    pub status: TaskStatus,
    /// Its stack, innermost first, in the runtime's words; `None` if it runs or could not be read.
    pub stack: Option<Vec<u64>>,
    /// Address of its labels; 0: none.
    pub labels: u64,
}

/// Result of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSnapshot {
    /// All unfinished tasks.
    Tasks(Vec<Task>),
    /// The program has no tasks (yet).
    None,
    /// The list should exist but was not found.
    Lost,
    /// The list could not be read this time.
    Missed,
}

/// Takes snapshots of the tasks of one process.
pub trait TaskReader: Send {
    /// Returns all unfinished tasks. `facts` are those the value was created with.
    fn snapshot(&mut self, facts: &Facts, memory: &mut dyn Memory) -> TaskSnapshot;

    /// Returns the labels of a task.
    fn labels(&mut self, facts: &Facts, memory: &mut dyn Memory, task: &Task) -> Vec<Label>;

    /// Returns the name of the function at this address.
    fn name(&self, facts: &Facts, start: u64) -> String;

    /// Number of stacks so far that could not be followed to their end.
    fn broken(&self) -> u64;

    /// Frees memory that only one snapshot and its labels need.
    fn release(&mut self) {}

    /// Whether no snapshot can ever succeed.
    fn is_impossible(&self) -> bool {
        false
    }
}
