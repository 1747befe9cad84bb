//! Counts over time: the calls of each function in each stretch of time.

use wallscope_model::calls::{CallSlice, Lengths};

use super::programs::Programs;

/// Most stretches before two become one.
const MAX_STRETCHES: usize = 240;

/// The state of one function's counts at the end of the last stretch.
#[derive(Default)]
struct Last {
    entered: u64,
    lengths: Lengths,
}

/// Stretches of time of all functions.
pub struct Steps {
    since: u64,
    last: Vec<Last>,
    slices: Vec<Vec<CallSlice>>,
}

impl Steps {
    /// Begins at `now` with `functions` functions.
    pub fn new(now: u64, functions: usize) -> Steps {
        Steps {
            since: now,
            last: (0..functions).map(|_| Last::default()).collect(),
            slices: vec![Vec::new(); functions],
        }
    }

    /// Ends a stretch at `now`. True if there were too many stretches and each two were joined: the caller
    /// should make them twice as long.
    pub fn end(&mut self, programs: &Programs, now: u64) -> bool {
        for (index, (last, slices)) in self.last.iter_mut().zip(&mut self.slices).enumerate() {
            let entered = programs.tally(index).entered;
            let lengths = programs.lengths(index);
            slices.push(CallSlice {
                start_ns: self.since,
                end_ns: now,
                entered: entered.saturating_sub(last.entered),
                lengths: lengths.since(&last.lengths),
            });
            *last = Last { entered, lengths };
        }
        self.since = now;
        let crowded = self
            .slices
            .first()
            .is_some_and(|s| s.len() >= MAX_STRETCHES);
        if crowded {
            self.slices.iter_mut().for_each(halve);
        }
        crowded
    }

    /// The stretches of a function.
    pub fn of(&self, function: usize) -> &[CallSlice] {
        self.slices.get(function).map_or(&[], Vec::as_slice)
    }
}

/// Joins each two neighbours.
fn halve(slices: &mut Vec<CallSlice>) {
    let old = std::mem::take(slices);
    for (n, slice) in old.into_iter().enumerate() {
        match slices.last_mut() {
            Some(last) if n % 2 == 1 => {
                last.end_ns = slice.end_ns;
                last.entered += slice.entered;
                last.lengths.merge(&slice.lengths);
            }
            _ => slices.push(slice),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_loses_nothing() {
        let slice = |n: u64| {
            let mut s = CallSlice {
                start_ns: n,
                end_ns: n + 1,
                entered: n,
                ..CallSlice::default()
            };
            s.lengths.add(1000, n);
            s
        };
        let mut slices: Vec<_> = (0..5).map(slice).collect();
        halve(&mut slices);
        assert_eq!(slices.len(), 3);
        assert_eq!(slices.iter().map(|s| s.entered).sum::<u64>(), 10);
        assert_eq!(slices.iter().map(|s| s.lengths.count()).sum::<u64>(), 10);
        assert!(slices.windows(2).all(|w| w[0].end_ns == w[1].start_ns));
    }
}
