//! Ages of stacks and resources that the kernel programs send once.
//!
//! A session that never ends would keep all of them. So one that no sample has used for [`KEPT_WINDOWS`] windows is
//! forgotten. The kernel programs forget it first, and send it anew when they meet it again. Samples with it may
//! still be on the way then, so it stays here for one more window, and stays for good if it comes back.

use rustc_hash::{FxHashMap, FxHashSet};

/// Windows without use after which something is forgotten: a minute of windows of 10 s.
const KEPT_WINDOWS: u32 = 6;

/// When each hash was used last.
#[derive(Default)]
pub struct SentOnce {
    window: u32,
    used: FxHashMap<u64, u32>,
    /// Forgotten by the kernel programs at the end of the last window.
    leaving: FxHashSet<u64>,
}

/// Hashes that the end of a window forgets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Hashes that the kernel programs are to forget.
    pub stale: Vec<u64>,
    /// Hashes that nothing will name any more.
    pub gone: FxHashSet<u64>,
}

impl SentOnce {
    /// The kernel programs sent `hash`, or a sample uses it.
    pub fn used(&mut self, hash: u64) {
        if hash != 0 {
            self.leaving.remove(&hash);
            self.used.insert(hash, self.window);
        }
    }

    /// Ends a window.
    pub fn end_window(&mut self) -> Forgotten {
        self.window += 1;
        let oldest = self.window.saturating_sub(KEPT_WINDOWS);
        let gone = std::mem::take(&mut self.leaving);
        let stale = self.used.extract_if(|_, last| *last < oldest);
        let stale: Vec<u64> = stale.map(|(hash, _)| hash).collect();
        self.leaving.extend(&stale);
        Forgotten { stale, gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_forgets_first_and_use_keeps() {
        let mut all = SentOnce::default();
        (1..=3).for_each(|hash| all.used(hash));
        for _ in 0..KEPT_WINDOWS {
            all.used(3);
            assert_eq!(all.end_window(), Forgotten::default());
        }
        all.used(3);
        let mut stale = all.end_window().stale;
        stale.sort_unstable();
        assert_eq!(stale, [1, 2]);
        // It was sent again, or a sample on the way has it.
        all.used(2);
        let forgotten = all.end_window();
        assert_eq!(forgotten.gone, FxHashSet::from_iter([1]));
        assert_eq!(forgotten.stale, []);
    }
}
