//! Tasks that runtimes schedule themselves: goroutines, asyncio tasks, virtual threads. A thread of its own polls
//! them without stopping any process.
//!
//! A poll reads the runtime's list of tasks, the state of each task, and the stacks of those that do not run. It
//! stands for the time from half-way since the previous poll to half-way to the next. Polls come at random intervals,
//! so that no periodic activity can hide between them. The intervals are long enough to keep the polls within their
//! share of the overhead.
//!
//! ```text
//! watch.rs     one process: its polls, and their sums
//! observe.rs   polls → observations, with reasons and stacks
//! assemble.rs  observations → the recording
//! ```

pub mod assemble;
pub mod observe;
mod watch;

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use watch::Watch;
pub use watch::{PolledTasks, Subject, TargetMemory, TaskSource};

/// Share of the overhead limit (percent of a CPU) that polls may take, wake-ups included.
const SHARE: f64 = 0.25;

enum Word {
    Begin(Box<Subject>),
    Gone(u32),
    End,
}

/// The thread that polls tasks.
pub struct Tasks {
    to: Sender<Word>,
    thread: Option<JoinHandle<Vec<PolledTasks>>>,
}

impl Tasks {
    /// Starts the thread. `limit`: the most that measuring may cost, percent of one CPU.
    pub fn start(limit: f64) -> Tasks {
        let (to, from) = channel();
        // Signals are for the thread that waits for them; the new one inherits the signals that are blocked here.
        // SAFETY: both sets are ours, and initialised before they are read.
        let spawned = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            let spawned = std::thread::Builder::new()
                .name("tasks".into())
                .spawn(move || run(&from, limit));
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            spawned
        };
        Tasks {
            to,
            thread: spawned.ok(),
        }
    }

    /// Polls this process from now on.
    pub fn begin(&self, subject: Subject) {
        let _ = self.to.send(Word::Begin(Box::new(subject)));
    }

    /// Process `pid` is gone, or runs something else.
    pub fn gone(&self, pid: u32) {
        let _ = self.to.send(Word::Gone(pid));
    }

    /// Ends the thread and returns its observations.
    pub fn finish(&mut self) -> Vec<PolledTasks> {
        let _ = self.to.send(Word::End);
        let thread = self.thread.take();
        thread.and_then(|t| t.join().ok()).unwrap_or_default()
    }
}

fn run(from: &Receiver<Word>, limit: f64) -> Vec<PolledTasks> {
    const IDLE: Duration = Duration::from_secs(3600);
    let mut done = Vec::new();
    let mut watched: Vec<Watch> = Vec::new();
    let mut spent = watch::own_cpu();
    loop {
        let next = watched.iter().map(|w| w.next).min();
        let rest = next.map_or(IDLE, |at| at.saturating_duration_since(Instant::now()));
        match from.recv_timeout(rest) {
            Ok(Word::Begin(subject)) => watched.extend(Watch::new(*subject)),
            Ok(Word::Gone(pid)) => {
                let gone = watched.extract_if(.., |w| w.pid() == pid);
                done.extend(gone.map(Watch::finish));
            }
            Err(RecvTimeoutError::Timeout) => {
                let served = watched.iter().filter(|w| w.is_served()).count().max(1);
                let now = Instant::now();
                for watch in watched.iter_mut().filter(|w| w.next <= now) {
                    spent = watch.poll(limit * SHARE / served as f64, spent);
                }
            }
            Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    done.extend(watched.into_iter().map(Watch::finish));
    done
}
