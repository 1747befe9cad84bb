//! Threads that are due for a reading of counters though no record of them has come.

/// Number of threads with counters read each second, one after the other.
const A_SECOND: u64 = 200;

/// A turn that goes round among threads, in time.
#[derive(Default)]
pub struct RoundRobin {
    /// Place of the last thread.
    at: usize,
    /// Time that is not a whole turn yet: ns times threads.
    owed: u64,
}

impl RoundRobin {
    /// The places, among `live` threads, of the threads that are due `passed` ns after the last call: all of
    /// them once a second, or `A_SECOND` of them.
    pub fn next(&mut self, live: usize, passed: u64) -> impl Iterator<Item = usize> + use<'_> {
        let among = live as u64;
        let whole = 1_000_000_000 * among.div_ceil(A_SECOND);
        self.owed += among * passed.min(whole);
        std::iter::from_fn(move || {
            // Without threads `whole` is 0, and none is due.
            let left = self.owed.checked_sub(whole).filter(|_| whole > 0)?;
            self.owed = left;
            self.at = (self.at + 1) % live;
            Some(self.at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of `live` had its turn in `rounds` of 10 ms.
    fn turns(turn: &mut RoundRobin, live: usize, rounds: u32) -> Vec<u32> {
        let mut had = vec![0; live];
        for _ in 0..rounds {
            turn.next(live, 10_000_000).for_each(|at| had[at] += 1);
        }
        had
    }

    #[test]
    fn all_threads_have_a_turn_each_second_or_as_many_as_may_be() {
        assert_eq!(turns(&mut RoundRobin::default(), 3, 100), [1; 3]);
        assert_eq!(turns(&mut RoundRobin::default(), 200, 100), [1; 200]);
        assert_eq!(turns(&mut RoundRobin::default(), 1000, 500), [1; 1000]);
    }

    #[test]
    fn without_threads_there_is_no_turn() {
        let mut turn = RoundRobin::default();
        turns(&mut turn, 3, 17);
        assert!(turn.next(0, 10_000_000).next().is_none());
        assert_eq!(turns(&mut turn, 1, 200), [2]);
    }
}
