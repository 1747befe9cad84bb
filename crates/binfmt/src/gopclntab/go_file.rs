//! The file that the table lies in, and bounded reads of its bytes.

/// Access to the file that contains the table.
pub trait GoFile<'d> {
    /// Virtual address and bytes of a section that is not compressed.
    fn section(&self, name: &str) -> Option<(u64, &'d [u8])>;
    /// Whether `address` is in a segment that is mapped executable.
    fn is_code(&self, address: u64) -> bool;
}

pub(super) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

pub(super) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The text at `at`, up to its zero, if that is within 4 KiB.
pub(super) fn text_at(data: &[u8], at: usize) -> Option<&[u8]> {
    let rest = data.get(at..)?;
    let rest = &rest[..rest.len().min(1 << 12)];
    let end = rest.iter().position(|b| *b == 0)?;
    Some(&rest[..end])
}
