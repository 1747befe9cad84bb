//! Stacks of waits that no poll fell into, by the length of the wait.
//!
//! The records tell how long each wait was, polls tell the stack of some. The chance that a poll meets a wait
//! depends on its length, and not only by the number of polls that fit into it. At the end of a wait are moments in
//! which it cannot be met any more (the thread has been woken and is not yet on its CPU, a poll is overtaken), and
//! these are no constant. So waits are put into classes of about equal length, in which all had about the same
//! chance whatever it was. The time of each class, which is exact, is divided among the stacks that were seen in it
//! (post-stratification). A class in which nothing was seen goes to the nearest one.

/// Shorter waits than two to this power, ns, are hardly ever seen.
const SHORTEST: u32 = 14;

/// Sum of the waits of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Time, ns.
    pub ns: u64,
    /// Number.
    pub count: u64,
}

/// The waits of a thread by class.
#[derive(Clone, Debug, Default)]
pub struct WaitStrata(Vec<(u8, Sum)>);

/// The class of a wait of `length` ns.
pub fn class(length: u64) -> u8 {
    length.max(1).ilog2().max(SHORTEST) as u8
}

/// Chance that one of the polls of a thread falls into `width` ns, if they are `spacing` ns apart give or take a
/// quarter.
pub fn chance(width: u64, spacing: u64) -> f64 {
    let x = width.max(1) as f64 / spacing.max(1) as f64;
    let (least, most) = (0.75, 1.25);
    if x <= least {
        x
    } else if x >= most {
        1.0
    } else {
        // The distance between two polls is spread evenly between those bounds.
        least + (most * (x - least) - (x * x - least * least) / 2.0) / (most - least)
    }
}

impl WaitStrata {
    /// Adds a wait of `length` ns.
    pub fn add(&mut self, length: u64) {
        self.put(
            class(length),
            Sum {
                ns: length,
                count: 1,
            },
        );
    }

    fn put(&mut self, class: u8, more: Sum) {
        let at = self.0.iter().position(|(c, _)| *c == class);
        let at = at.unwrap_or_else(|| {
            self.0.push((class, Sum::default()));
            self.0.len() - 1
        });
        let sum = &mut self.0[at].1;
        sum.ns += more.ns;
        sum.count += more.count;
    }

    /// These waits in the classes `seen` only: others go to the nearest of them, or to none where
    /// nothing was seen.
    pub fn among(&self, seen: &[u8]) -> WaitStrata {
        let mut all = WaitStrata::default();
        for (class, sum) in &self.0 {
            let nearest = seen.iter().min_by_key(|s| (s.abs_diff(*class), **s));
            if let Some(nearest) = nearest {
                all.put(*nearest, *sum);
            }
        }
        all
    }

    /// Those of a class.
    pub fn of(&self, class: u8) -> Sum {
        let own = self.0.iter().find(|(c, _)| *c == class);
        own.map_or(Sum::default(), |(_, sum)| *sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_classes() {
        let mut w = WaitStrata::default();
        for length in [0, 1000, 20_000, 300_000, 310_000, 5_000_000] {
            w.add(length);
        }
        assert_eq!(w.of(class(300_000)).count, 2);
        assert_eq!(
            w.of(SHORTEST as u8),
            Sum {
                ns: 21_000,
                count: 3
            }
        );
        let sum = |w: &WaitStrata| {
            w.0.iter()
                .map(|(_, s)| (s.ns, s.count))
                .fold((0, 0), |a, s| (a.0 + s.0, a.1 + s.1))
        };
        let two = w.among(&[class(300_000), class(5_000_000)]);
        assert_eq!(sum(&two), sum(&w));
        assert_eq!(two.of(class(300_000)).count, 5);
        assert_eq!(sum(&w.among(&[])), (0, 0));
    }

    #[test]
    fn chances_are_those_of_polls_at_uneven_distances() {
        // Polls that are 75 to 125 apart, in turn at all these distances.
        let mut polls = vec![0u64];
        for turn in 0..102 {
            for distance in 75..=125 {
                polls.push(polls[polls.len() - 1] + 75 + (distance * 37 + turn) % 51);
            }
        }
        let end = polls[polls.len() - 1];
        for width in [10, 60, 80, 100, 120, 130] {
            let seen = (0..end - 200).filter(|begin| {
                let next = polls.partition_point(|poll| poll < begin);
                polls[next] < begin + width
            });
            let share = seen.count() as f64 / (end - 200) as f64;
            let told = chance(width, 100);
            assert!((share - told).abs() < 0.01, "{width}: {share}, {told}");
        }
    }
}
