//! Scope of an address: a process, and the version of its run-time code.

/// Process, and version of its run-time code, that give an address its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressScope {
    /// The process.
    pub pid: u32,
    /// The version of the meaning of addresses of run-time code there (see `jit.rs`).
    pub code: u64,
}

impl AddressScope {
    /// Process `pid`, as it was last.
    pub fn last(pid: u32) -> AddressScope {
        AddressScope {
            pid,
            code: u64::MAX,
        }
    }
}
