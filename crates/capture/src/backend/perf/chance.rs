//! How likely a wait shorter than the time between two looks was to be seen.
//!
//! A look sees a wait if it begins in it and is over before its end. Two parts of the interval that
//! the records tell are blind: the last moments, in which a look begins but is overtaken, and those in
//! which the thread has been woken but is not yet on its CPU (in a virtual machine some 20 µs and
//! more, of which its queueing by the counters is only a part). Both cost each wait about the same,
//! so that without them short waits would seem rarer, beside long ones, than they are. How long they
//! are together is counted: by the looks that fell into short waits and saw none.

/// Looks and short waits of all threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chance {
    /// Short waits that the records told of.
    waits: u64,
    /// Looks that fell into one of them and saw nothing.
    blind: u64,
}

impl Chance {
    /// More than this is no blind moment but queueing, which is different for each wait, ns.
    const MOST: u64 = 100_000;
    /// Waits that are enough to tell.
    const ENOUGH: u64 = 200;

    /// Takes a short wait. `tried`: a look began in it; `seen`: and saw it.
    pub fn add(&mut self, tried: bool, seen: bool) {
        self.waits += 1;
        self.blind += u64::from(tried && !seen);
    }

    /// Of a wait of `length` ns when looks are `spacing` ns apart, one of which took `took` ns.
    pub fn of(&self, length: u64, took: u64, spacing: u64) -> f64 {
        let blind = if self.waits < Chance::ENOUGH {
            took
        } else {
            (self.blind * spacing / self.waits).min(Chance::MOST)
        };
        // Most of it was visible in any case, or it would hardly have been seen.
        let width = length.saturating_sub(blind).max(length / 4).max(1);
        (width as f64 / spacing.max(1) as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_miss_makes_short_waits_as_frequent_as_they_are() {
        // Each wait has 50 µs in which nothing can be seen; looks are 10 ms apart. Of 10,000 waits
        // of 0.3 ms and of 4 ms each one look in so many hits one, and 250 in 300 of them see it.
        let (spacing, blind) = (10_000_000, 50_000);
        let mut chance = Chance::default();
        let mut seen = [0.0; 2];
        for (kind, length) in [300_000, 4_000_000].into_iter().enumerate() {
            for at in (0..spacing).step_by(10_000) {
                chance.add(at < length, at < length - blind);
            }
            seen[kind] = (length - blind) as f64 / 10_000.0;
        }
        let whole = |kind: usize, length: u64| {
            seen[kind] * length as f64 / chance.of(length, 20_000, spacing)
        };
        let ratio = whole(1, 4_000_000) / whole(0, 300_000);
        assert!(
            (ratio / (4_000_000.0 / 300_000.0) - 1.0).abs() < 0.01,
            "{ratio}"
        );
    }

    #[test]
    fn with_few_waits_the_look_itself_is_what_is_known() {
        let chance = Chance::default();
        assert_eq!(chance.of(1_000_000, 250_000, 1_000_000), 0.75);
        assert_eq!(chance.of(1_000_000, 990_000, 1_000_000), 0.25);
        assert_eq!(chance.of(3_000_000, 0, 1_000_000), 1.0);
    }
}
