//! In which process, and when, an address has its meaning.

/// In whose memory addresses mean something, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Whose {
    /// The process.
    pub pid: u32,
    /// The version of what addresses of code made at run time mean there (see `jit.rs`).
    pub code: u64,
}

impl Whose {
    /// Process `pid`, as it was last.
    pub fn last(pid: u32) -> Whose {
        Whose {
            pid,
            code: u64::MAX,
        }
    }
}
