//! Going before others.

use rustix::process::{getpriority_process, setpriority_process};

/// While it lives, this thread goes before others where CPUs are short. What a crowd of programs tells
/// as it starts would not fit into the rings by the time that an equal among them had its turn; what
/// following takes of the CPUs is the same, and is measured.
pub struct Ahead {
    before: i32,
}

/// How far, as a nice value; where it is not allowed all stays as it is.
const AHEAD: i32 = -10;

impl Ahead {
    /// From now on.
    pub fn of_others() -> Ahead {
        let before = getpriority_process(None).unwrap_or_default();
        let _ = setpriority_process(None, before.min(AHEAD));
        Ahead { before }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let _ = setpriority_process(None, self.before);
    }
}
