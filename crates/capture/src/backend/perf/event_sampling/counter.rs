//! A counter that threads share.

use std::os::fd::OwnedFd;

/// A descriptor, and its count when the recording began.
pub struct Counter {
    pub fd: OwnedFd,
    pub base: u64,
}

impl Counter {
    /// The count of the descriptor so far.
    pub fn value(&self) -> u64 {
        let mut word = [0u8; 8];
        match rustix::io::read(&self.fd, &mut word) {
            Ok(8) => u64::from_ne_bytes(word),
            _ => self.base,
        }
    }

    /// Occurrences since the recording began.
    pub fn hits(&self) -> u64 {
        self.value().saturating_sub(self.base)
    }
}
