//! The end of a wait.

use std::{cell::Cell, sync::Arc};

use crate::{event::Step, session::sample_key::User};

/// The end of a wait, and the thread or interrupt that brought it about.
pub(super) struct Wake {
    /// When, ns.
    pub time: u64,
    /// The waker's record; 0: it is not measured.
    pub waker: u64,
    /// The waker's process.
    pub pid: u32,
    /// The waker's thread.
    pub tid: u32,
    /// The waker's name.
    pub name: Arc<str>,
    /// Hash of the waker's kernel stack.
    pub kernel: u64,
    /// The waker's user stack; known only once it was read.
    pub user: Cell<User>,
    /// The waker's changes of state, oldest first, from the last before the wait on.
    pub steps: Box<[Step]>,
}
