//! The length that one interval of a turn must have for the turn to be kept.
//!
//! Zero while the bytes of a second fit its share of the ring. Beyond, it is the smallest power of two at which
//! the turns of the last second would have fitted. It falls by half, down to zero, after some chunks that took less
//! than a quarter of their share. Turns that the kernel programs held back come again then, and it may have to rise at
//! once. In that case it waits longer before it falls again.

use crate::event::Turn;

/// Smallest threshold above zero, ns: the shortest turns of a 2-CPU machine take about that (measured on a
/// pipe ping-pong).
const FIRST_NS: u64 = 1024;
/// Part of a second's share at which a threshold that is exceeded within the second rises again.
const STEP: u64 = 8;

/// Chunks with room to spare before the threshold falls the first time.
const PATIENCE: u32 = 4;
/// Chunks with room to spare before it falls, at most.
const MAX_PATIENCE: u32 = 64;
/// Shortest chunk that tells a rate, ns.
const MIN_CHUNK_NS: u64 = 500_000_000;

/// Threshold, and the lengths of the turns since it was set last.
#[derive(Debug)]
pub(super) struct Threshold {
    /// In force now, ns.
    ns: u64,
    /// Largest threshold since the end of the last chunk, ns.
    largest_ns: u64,
    /// Share of a second, bytes.
    share: u64,
    /// Bytes of this chunk at which the threshold doubles.
    next_rise: u64,
    /// Chunks in a row with room to spare.
    calm: u32,
    /// Chunks with room to spare before it falls.
    patience: u32,
    /// Whether it fell at the end of the last chunk.
    fell: bool,
    /// Bytes of turns by ⌊log₂⌋ of their longest interval.
    by_length: [u64; 64],
}

/// Longest interval of a turn, ns.
fn longest(t: &Turn) -> u64 {
    t.stretch.max(t.block).max(t.waited)
}

impl Threshold {
    pub fn new(share: u64) -> Threshold {
        Threshold {
            ns: 0,
            largest_ns: 0,
            share,
            next_rise: share,
            calm: 0,
            patience: PATIENCE,
            fell: false,
            by_length: [0; 64],
        }
    }

    /// The length in force, ns.
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// Whether the turn is kept.
    pub fn keeps(&self, t: &Turn) -> bool {
        longest(t) >= self.ns
    }

    /// Counts a turn that took `bytes` and is kept; `chunk`: the bytes of its chunk so far.
    pub fn took(&mut self, t: &Turn, bytes: u64, chunk: u64) {
        self.by_length[longest(t).max(1).ilog2() as usize] += bytes;
        if chunk >= self.next_rise {
            self.next_rise = chunk + self.share / STEP;
            self.ns = (2 * self.ns).max(FIRST_NS);
            self.largest_ns = self.ns;
        }
    }

    /// Ends a chunk of `length_ns`; returns the largest threshold in it, and sets that of the next. `share`: bytes
    /// of a second from here on.
    pub fn end_chunk(&mut self, length_ns: u64, share: u64) -> u64 {
        self.share = share;
        let per_second = |bytes: u64| {
            let ns = u128::from(length_ns.max(MIN_CHUNK_NS));
            (u128::from(bytes) * 1_000_000_000 / ns) as u64
        };
        let largest = std::mem::replace(&mut self.largest_ns, 0);
        let all = per_second(self.by_length.iter().sum());
        if all > self.share {
            let mut over = all;
            let fits = |(at, bytes): (usize, &u64)| {
                over = over.saturating_sub(per_second(*bytes));
                (over <= self.share).then(|| 2u64.saturating_pow(at as u32 + 1))
            };
            let fitting = self.by_length.iter().enumerate().find_map(fits);
            self.ns = self.ns.max(fitting.unwrap_or(u64::MAX));
        }
        self.fall(all);
        self.by_length = [0; 64];
        self.next_rise = self.share;
        self.largest_ns = self.ns;
        largest
    }

    /// Falls by half after enough chunks with room to spare; `bytes`: those of the last chunk, a second.
    fn fall(&mut self, bytes: u64) {
        if std::mem::take(&mut self.fell) {
            self.patience = match bytes > self.share {
                true => (2 * self.patience).min(MAX_PATIENCE),
                false => (self.patience / 2).max(1),
            };
        }
        let has_room = bytes < self.share / 4;
        self.calm = if has_room { self.calm + 1 } else { 0 };
        if self.ns > 0 && self.calm >= self.patience {
            self.ns /= 2;
            if self.ns < FIRST_NS {
                self.ns = 0;
            }
            (self.calm, self.fell) = (0, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    /// Feeds a second of `n` turns of 16 bytes that block for `block_ns`. Returns the turns that were kept, and the
    /// largest threshold.
    fn second(threshold: &mut Threshold, turns: &[(u64, u64)]) -> [u64; 2] {
        let (mut kept, mut bytes) = (0, 0);
        for (n, block_ns) in turns {
            let mut t = Turn::new_zeroed();
            t.block = *block_ns;
            for _ in 0..*n {
                if threshold.keeps(&t) {
                    bytes += 16;
                    kept += 1;
                    threshold.took(&t, 16, bytes);
                }
            }
        }
        [kept, threshold.end_chunk(1_000_000_000, threshold.share)]
    }

    #[test]
    fn it_is_zero_while_turns_fit_and_rises_beyond() {
        let mut threshold = Threshold::new(16 * 5_000);
        for _ in 0..3 {
            assert_eq!(second(&mut threshold, &[(4_999, 2_000)]), [4_999, 0]);
        }
        let busy = [(40_000, 3_000), (1_000, 70_000)];
        let [kept, largest] = second(&mut threshold, &busy);
        assert!(kept < 10_000 && largest > 2_048, "{kept} {largest}");
        // From the second one on only long ones are told, all of them.
        for _ in 0..3 {
            let [kept, largest] = second(&mut threshold, &busy);
            assert_eq!(kept, 1_000);
            assert!((3_000..70_000).contains(&largest), "{largest}");
        }
    }

    #[test]
    fn it_falls_to_zero_again() {
        let mut threshold = Threshold::new(16 * 5_000);
        second(&mut threshold, &[(60_000, 1_000_000)]);
        assert!(threshold.ns() > 1_000_000);
        for _ in 0..20 {
            second(&mut threshold, &[(10, 1_000)]);
        }
        assert_eq!(threshold.ns(), 0);
    }

    #[test]
    fn below_its_first_step_it_is_zero_and_a_full_share_is_no_reason_to_wait_longer() {
        let mut threshold = Threshold::new(1_000);
        (threshold.ns, threshold.calm) = (FIRST_NS + FIRST_NS / 2, PATIENCE);
        threshold.fall(0);
        assert_eq!((threshold.ns(), threshold.patience), (0, PATIENCE));
        threshold.fall(1_000);
        assert_eq!(threshold.patience, PATIENCE / 2);
        threshold.fell = true;
        threshold.fall(1_001);
        assert_eq!(threshold.patience, PATIENCE / 2 * 2);
    }

    #[test]
    fn turns_of_any_length_do_not_break_it() {
        let mut threshold = Threshold::new(1);
        second(&mut threshold, &[(10, u64::MAX), (10, 0)]);
        assert_eq!(threshold.ns(), u64::MAX);
    }
}
