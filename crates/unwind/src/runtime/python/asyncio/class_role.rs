//! Role of a class for the reader of tasks.

/// Role of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassRole {
    /// A task or future; `of_c`: it has the fields of the C implementation.
    Task {
        of_c: bool,
    },
    Future {
        of_c: bool,
    },
    /// A future that waits for several others.
    Gathering {
        of_c: bool,
    },
    /// Neither a task nor a future.
    Other,
}
