//! Reads a running process's memory.

/// Reader of a process's memory: each read is complete or fails.
pub(super) struct Memory<'r>(pub(super) &'r mut dyn FnMut(u64, &mut [u8]) -> bool);

impl Memory<'_> {
    /// Reads a word of eight bytes.
    pub(super) fn word(&mut self, at: u64) -> Option<u64> {
        let mut bytes = [0u8; 8];
        self.bytes(at, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Reads a word of four bytes.
    pub(super) fn half(&mut self, at: u64) -> Option<u32> {
        let mut bytes = [0u8; 4];
        self.bytes(at, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// Fills all of `to`.
    pub(super) fn bytes(&mut self, at: u64, to: &mut [u8]) -> Option<()> {
        // No object lies in the first page, or above the user address range.
        ((0x1000..1 << 47).contains(&at) && self.0(at, to)).then_some(())
    }
}
