//! Period jitter: distances in time that vary, so that nothing periodic stays in step with them.
//!
//! If the period of a program equals the sampling period, each sample meets the same place of the program.
//! Then all samples agree, and the 95 % intervals computed from them are narrow and wrong.

/// Distances between samples differ from their mean by at most a quarter of it.
pub const SAMPLE_JITTER_DIVISOR: u64 = 4;
/// Distances between rounds of polls differ from their mean by at most a quarter of it.
pub const POLL_JITTER_DIVISOR: u64 = 4;

/// Generator of jittered distances.
pub struct PeriodJitter(u32);

impl PeriodJitter {
    /// Begins anywhere, by `seed`, such as the time: no program is in step with the first distance of all recordings.
    pub fn seeded(seed: u64) -> PeriodJitter {
        PeriodJitter((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1)
    }

    /// `ns`, give or take one `part`th of it.
    pub fn of(&mut self, ns: u64, part: u64) -> u64 {
        // Xorshift: Marsaglia, "Xorshift RNGs", 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        let range = 2 * (ns / part);
        ns - ns / part + ((u128::from(range) * u128::from(self.0)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_lie_evenly_around_their_mean() {
        let mut uneven = PeriodJitter::seeded(7);
        let all: Vec<u64> = (0..2000).map(|_| uneven.of(8_000_000, 8)).collect();
        assert!(all.iter().all(|ns| (7_000_000..=9_000_000).contains(ns)));
        let mean = all.iter().sum::<u64>() / 2000;
        assert!((7_950_000..8_050_000).contains(&mean), "{mean}");
        let low = all.iter().filter(|ns| **ns < 7_500_000).count();
        assert!(
            (400..600).contains(&low),
            "{low} of 2000 in the lowest quarter"
        );
        assert_eq!(uneven.of(0, 8), 0);
    }
}
