//! Higher scheduling priority for a thread that reads events.

use rustix::process::{getpriority_process, setpriority_process};

/// Raises this thread's scheduling priority while it lives.
///
/// When many programs start at once, their events overflow the ring buffers before a reader of equal priority
/// runs. The reader's CPU time does not depend on the priority, and it is measured.
pub struct NiceGuard {
    before: i32,
}

/// Nice value of the thread. If it is not permitted, the priority stays as it was.
const AHEAD: i32 = -10;

impl NiceGuard {
    /// Raises the priority of the calling thread.
    pub fn of_others() -> NiceGuard {
        let before = getpriority_process(None).unwrap_or_default();
        let _ = setpriority_process(None, before.min(AHEAD));
        NiceGuard { before }
    }
}

impl Drop for NiceGuard {
    fn drop(&mut self) {
        let _ = setpriority_process(None, self.before);
    }
}
