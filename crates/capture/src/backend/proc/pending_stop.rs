//! A poll of a runnable thread that still lacks its stack.

use wallscope_observe::RunnablePoll;

/// See the top of this file. The thread has been asked to stop, or the next poll tells what it did.
#[derive(Clone, Copy, Debug)]
pub struct PendingStopSample {
    /// The poll.
    pub poll: RunnablePoll,
    /// Its run-queue latency since the poll before, ns.
    pub queued: u64,
    /// Whether it had waited for other things since then.
    pub waits: bool,
}

impl PendingStopSample {
    /// Index of the thread.
    pub fn index(&self) -> usize {
        self.poll.thread as usize
    }
}
