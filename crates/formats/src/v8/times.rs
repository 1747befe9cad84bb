//! Samples with the times between them → intervals.
//!
//! V8 writes a sample's distance from the one before it, in µs. Distances may be negative, as samples
//! are written in another order than they were taken. So they are summed to times, samples are
//! sorted by them, and each lasts until the next: the sum of all is the time from the first sample
//! to the end. A sample without a time has no length, and the one before it no end.

/// A sample with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timed {
    pub node: i64,
    /// µs.
    pub start: f64,
    /// µs; `None` where the file does not tell it.
    pub end: Option<f64>,
}

/// The samples of a profile in the order of time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Times {
    pub samples: Vec<Timed>,
    /// Samples without a time.
    pub untimed: u64,
}

impl Times {
    /// Sums `deltas` from `start` on; `end` is the profile's end where the file tells it. All in µs.
    pub(crate) fn of(nodes: &[i64], deltas: &[f64], (start, end): (f64, Option<f64>)) -> Times {
        let mut at = start;
        let times: Vec<f64> = (deltas.iter())
            .map(|delta| {
                at += delta;
                at
            })
            .collect();
        Times::at(nodes, &times, end)
    }

    /// Sums by the samples' times, µs. One time more than there are samples is the end of the last.
    pub(crate) fn at(nodes: &[i64], times: &[f64], end: Option<f64>) -> Times {
        let known = nodes.len().min(times.len());
        let mut order: Vec<usize> = (0..known).collect();
        order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
        // Where later samples have no time, the last one with a time ends before they do.
        let end = match times.get(nodes.len()) {
            _ if known < nodes.len() => None,
            Some(after) if end.is_none() => Some(*after),
            _ => end,
        };
        let samples = (order.iter().enumerate())
            .map(|(i, at)| {
                let start = times[*at];
                let next = order.get(i + 1).map(|next| times[*next]);
                Timed {
                    node: nodes[*at],
                    start,
                    end: next.or(end.filter(|end| *end >= start)),
                }
            })
            .collect();
        Times {
            samples,
            untimed: (nodes.len() - known) as u64,
        }
    }

    /// Samples without a length in the file, those without a time included.
    pub(crate) fn unended(&self) -> u64 {
        let open = self.samples.iter().filter(|s| s.end.is_none()).count();
        open as u64 + self.untimed
    }

    /// The first time, µs.
    pub(crate) fn first(&self) -> Option<f64> {
        self.samples.first().map(|s| s.start)
    }

    /// The last time, µs.
    pub(crate) fn last(&self) -> Option<f64> {
        self.samples.last().map(|s| s.end.unwrap_or(s.start))
    }

    /// Moves all times.
    pub(crate) fn shift(&mut self, by: f64) {
        for s in &mut self.samples {
            s.start += by;
            s.end = s.end.map(|end| end + by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(t: &Times) -> f64 {
        let length = |s: &Timed| s.end.map_or(0.0, |end| end - s.start);
        t.samples.iter().map(length).sum()
    }

    #[test]
    fn negative_deltas_add_up_to_the_window() {
        let t = Times::of(
            &[1, 2, 3, 4],
            &[10.0, 100.0, -40.0, 90.0],
            (1000.0, Some(1200.0)),
        );
        let nodes: Vec<i64> = t.samples.iter().map(|s| s.node).collect();
        assert_eq!(nodes, [1, 3, 2, 4]);
        assert_eq!((total(&t), t.unended()), (190.0, 0));
    }

    #[test]
    fn lengths_that_the_file_does_not_tell_are_not_made_up() {
        let short = Times::of(&[1, 2, 3, 4], &[0.0, 10.0], (0.0, Some(500.0)));
        assert_eq!((total(&short), short.unended()), (10.0, 3));
        let open = Times::of(&[1, 2], &[0.0, 10.0], (0.0, None));
        assert_eq!((total(&open), open.unended()), (10.0, 1));
        let early = Times::of(&[1, 2], &[0.0, 10.0], (0.0, Some(5.0)));
        assert_eq!((total(&early), early.unended()), (10.0, 1));
        let one_more = Times::of(&[1, 2], &[0.0, 10.0, 7.0], (0.0, None));
        assert_eq!((total(&one_more), one_more.unended()), (17.0, 0));
    }
}
