//! Bounds of the open files and unwind tables.

/// Most bytes of unwind tables kept.
const TABLE_LIMIT: u64 = 128 << 20;
/// Most bytes of them in a session in windows, a quarter of an agent's memory. Tables of programs that have ended go
/// first.
const WINDOW_TABLE_LIMIT: u64 = 32 << 20;

/// Most files that a session in windows keeps open: some hundred programs and libraries run at a time on a large host.
const WINDOW_OPEN_LIMIT: usize = 512;

/// Bounds of the open files and unwind tables.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// Most bytes of unwind tables.
    pub table_bytes: u64,
    /// Most files open at a time.
    pub open: usize,
}

impl FileLimits {
    /// Bounds of a session in windows.
    pub const WINDOWS: FileLimits = FileLimits {
        table_bytes: WINDOW_TABLE_LIMIT,
        open: WINDOW_OPEN_LIMIT,
    };
    /// Bounds of one recording, which names its frames at the end: all files stay open.
    pub const RECORDING: FileLimits = FileLimits {
        table_bytes: TABLE_LIMIT,
        open: usize::MAX,
    };
}
