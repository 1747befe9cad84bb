//! Waits for a lock that another thread has to give up.

use wallscope_model::{BlockReason, FrameKind, Recording, Sample};

use crate::frames::{Side, frames, functions_on, in_python_library, passes, script_name, scripts};
use crate::knowledge::{Known, LOCK_FUNCTIONS, RUBY_LOCKS, SCRIPT_LOCKS, knows, own_lock_of};

/// Whether a wait is for a lock, and not at a condition or semaphore, where a thread may well wait
/// for want of work.
pub(crate) fn takes_a_lock(recording: &Recording, sample: &Sample) -> bool {
    if sample.idle {
        return false;
    }
    if sample.reason != Some(BlockReason::Lock) {
        return own_lock(recording, sample).is_some();
    }
    if takes_ruby_lock(recording, sample) {
        return true;
    }
    // Python's library takes locks inside its queues and events; few of its locks are held across work.
    let script = scripts(recording, sample.stack).next();
    if script.is_some_and(|f| knows(SCRIPT_LOCKS, &script_name(f))) {
        return true;
    }
    !script.is_some_and(in_python_library)
        && passes(recording, sample.stack, Side::User, LOCK_FUNCTIONS)
}

/// The server's own lock, built from other calls, that a sample waits for. Only the server itself knows which of its
/// threads holds it.
pub(crate) fn own_lock(recording: &Recording, sample: &Sample) -> Option<&'static Known> {
    if sample.reason != Some(BlockReason::Poll) {
        return None;
    }
    functions_on(recording, sample.stack, Side::User).find_map(own_lock_of)
}

/// Whether a Ruby thread waits to be given a mutex or a monitor. The kernel sees it wait at a condition of its own;
/// Ruby's innermost method shows the lock.
pub(crate) fn takes_ruby_lock(recording: &Recording, sample: &Sample) -> bool {
    let method = frames(recording, sample.stack)
        .find(|frame| frame.kind == FrameKind::Ruby && !frame.lines.is_empty())
        .map(|frame| &*recording.functions[frame.lines[0].function.0 as usize].name);
    sample.reason == Some(BlockReason::Lock)
        && method
            .is_some_and(|name| knows(RUBY_LOCKS, name.strip_prefix("Thread::").unwrap_or(name)))
}
