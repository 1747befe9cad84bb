//! A counter that threads share.

use std::os::fd::OwnedFd;

/// A descriptor, and what it had counted when the recording began.
pub struct Counter {
    pub fd: OwnedFd,
    pub base: u64,
}

impl Counter {
    /// What it has counted so far.
    pub fn value(&self) -> u64 {
        let mut word = [0u8; 8];
        match rustix::io::read(&self.fd, &mut word) {
            Ok(8) => u64::from_ne_bytes(word),
            _ => self.base,
        }
    }

    /// Hits since its base.
    pub fn hits(&self) -> u64 {
        self.value().saturating_sub(self.base)
    }
}
