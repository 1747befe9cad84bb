//! Memory of a running process, as a program outside reads it.

/// Reader of a process's memory: each read is complete or fails.
pub trait Memory {
    /// Fills `to` from `at` on.
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool;

    /// Fills `to` from the pieces `wanted` (address, bytes), one after the other; returns whether
    /// each could be read.
    fn read_all(&mut self, wanted: &[(u64, usize)], to: &mut [u8]) -> Vec<bool> {
        let mut rest = to;
        let mut done = Vec::with_capacity(wanted.len());
        for (at, bytes) in wanted {
            let (piece, more) = rest.split_at_mut(*bytes);
            done.push(self.read(*at, piece));
            rest = more;
        }
        done
    }

    /// Whether thread `tid`, by the id within its process, is blocked in the kernel; `None`:
    /// unknown.
    fn sleeps(&mut self, tid: u32) -> Option<bool> {
        let _ = tid;
        None
    }
}
