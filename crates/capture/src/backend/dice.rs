//! Random distances between looks: what repeats must not fall into step with them.
//!
//! They need to be unlike what a program does, not unforeseeable.

/// A generator of its own (xorshift).
#[derive(Clone, Copy, Debug)]
pub struct Dice(u32);

impl Default for Dice {
    fn default() -> Dice {
        Dice(0x9e37_79b9)
    }
}

impl Dice {
    /// `mean`, give or take up to one `part` of it, all alike.
    pub fn about(&mut self, mean: u64, part: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        let least = mean - mean / part.max(1);
        let width = u128::from(mean / part.max(1)) * 2;
        least + ((width * u128::from(self.0)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_spread_evenly_about_their_mean() {
        for (part, low, high) in [(4, 750, 1250), (2, 500, 1500)] {
            let mut dice = Dice::default();
            let all: Vec<u64> = (0..10_000).map(|_| dice.about(1000, part)).collect();
            assert!(all.iter().all(|d| (low..high).contains(d)));
            let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
            assert!((mean - 1000.0).abs() < 10.0, "{mean}");
            // Each tenth of the range as often as any other.
            let mut tenths = [0; 10];
            for d in &all {
                tenths[((d - low) * 10 / (high - low)) as usize] += 1;
            }
            assert!(tenths.iter().all(|n| (900..1100).contains(n)), "{tenths:?}");
            // And no distance tells the next one.
            let same = all.windows(2).filter(|w| (w[0] < 1000) == (w[1] < 1000));
            assert!((4_700..5_300).contains(&same.count()));
        }
        assert_eq!(Dice::default().about(0, 4), 0);
    }
}
