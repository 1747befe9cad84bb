//! Distances between attempts.

use std::time::Duration;

/// Shortest distance.
const FIRST: Duration = Duration::from_secs(1);
/// Longest distance; a receiver that is back is found within it.
const MAX_DISTANCE: Duration = Duration::from_secs(60);
/// Longest distance that a receiver may ask for.
const MAX_ASKED: Duration = Duration::from_secs(300);

/// Doubles with each failure, up to a minute. The distance is random between its half and its whole, so
/// that the agents of a fleet do not return together.
#[derive(Debug)]
pub struct Backoff {
    failures: u32,
    random: fastrand::Rng,
}

impl Backoff {
    /// Starts with `seed` for the random part.
    pub fn new(seed: u64) -> Backoff {
        Backoff {
            failures: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The distance to the next attempt after a failure; at least the time that the receiver asks for.
    pub fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        let longest = doubled.min(MAX_DISTANCE);
        let chosen = longest.mul_f64(0.5 + self.random.f64() / 2.0);
        chosen.max(asked.unwrap_or_default().min(MAX_ASKED))
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_grow_and_differ() {
        let mut b = Backoff::new(1);
        let distances: Vec<f64> = (0..20).map(|_| b.failed(None).as_secs_f64()).collect();
        for (i, d) in distances.iter().enumerate() {
            let longest = f64::from(1 << i.min(10)).min(60.0);
            assert!((longest / 2.0..=longest).contains(d), "{i}: {d}");
        }
        assert_ne!(Backoff::new(2).failed(None), Backoff::new(3).failed(None));
        assert_eq!(b.failed(Some(Duration::from_secs(120))).as_secs(), 120);
        assert_eq!(b.failed(Some(Duration::from_secs(9_000))).as_secs(), 300);
        b.succeeded();
        assert!(b.failed(None) <= FIRST);
    }
}
