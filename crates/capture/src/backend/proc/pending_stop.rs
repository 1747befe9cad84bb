//! A poll of a runnable thread that still lacks its stack.

use wallscope_observe::RunnablePoll;

/// A poll of a runnable thread without its stack. The thread has been asked to stop, or its next poll shows what it
/// did.
#[derive(Clone, Copy, Debug)]
pub struct PendingStopSample {
    /// The poll.
    pub poll: RunnablePoll,
    /// Its run-queue latency since the poll before, ns.
    pub queued: u64,
    /// Whether it was also blocked since then.
    pub waits: bool,
}

impl PendingStopSample {
    /// Index of the thread.
    pub fn index(&self) -> usize {
        self.poll.thread as usize
    }
}
