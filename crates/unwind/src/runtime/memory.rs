//! Memory of a process, as it is now.

/// Reads it, whole or not at all.
pub(super) struct Memory<'r>(pub(super) &'r mut dyn FnMut(u64, &mut [u8]) -> bool);

impl Memory<'_> {
    /// A word of eight bytes.
    pub(super) fn word(&mut self, at: u64) -> Option<u64> {
        let mut bytes = [0u8; 8];
        self.bytes(at, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// A word of four bytes.
    pub(super) fn half(&mut self, at: u64) -> Option<u32> {
        let mut bytes = [0u8; 4];
        self.bytes(at, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// All bytes of `to`.
    pub(super) fn bytes(&mut self, at: u64, to: &mut [u8]) -> Option<()> {
        // No object lies in the first page, and none above what a program may have.
        ((0x1000..1 << 47).contains(&at) && self.0(at, to)).then_some(())
    }
}
