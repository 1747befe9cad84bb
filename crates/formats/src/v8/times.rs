//! Samples with the times between them → intervals.
//!
//! V8 writes a sample's distance from the one before it, in µs. Distances may be negative, because samples
//! are not written in the order in which they were taken. So the distances are summed to times, and samples
//! are sorted by time. Each sample lasts until the next one, so all of them add up to the time from the first
//! sample to the end. A sample without a time has no length, and the one before it no end.

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
    /// Intervals from the `deltas` between samples. The profile begins at `start`, and ends at `end` where the file
    /// tells it. All in µs.
    pub(crate) fn from_deltas(
        nodes: &[i64],
        deltas: &[f64],
        (start, end): (f64, Option<f64>),
    ) -> Times {
        let mut at = start;
        let times: Vec<f64> = (deltas.iter())
            .map(|delta| {
                at += delta;
                at
            })
            .collect();
        Times::from_times(nodes, &times, end)
    }

    /// Intervals from the samples' `times`, µs. Without an `end`, one time more than there are samples is the end.
    pub(crate) fn from_times(nodes: &[i64], times: &[f64], end: Option<f64>) -> Times {
        let known = nodes.len().min(times.len());
        let mut order: Vec<usize> = (0..known).collect();
        order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
        // Samples without a time follow the last one that has a time, so the end of that one is not known.
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
    pub(crate) fn without_length(&self) -> u64 {
        let open = self.samples.iter().filter(|s| s.end.is_none()).count();
        open as u64 + self.untimed
    }

    /// The first time, µs.
    pub(crate) fn first(&self) -> Option<f64> {
        self.samples.first().map(|s| s.start)
    }

    /// End of the last sample, µs; its start where the end is not known.
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
        let t = Times::from_deltas(
            &[1, 2, 3, 4],
            &[10.0, 100.0, -40.0, 90.0],
            (1000.0, Some(1200.0)),
        );
        let nodes: Vec<i64> = t.samples.iter().map(|s| s.node).collect();
        assert_eq!(nodes, [1, 3, 2, 4]);
        assert_eq!((total(&t), t.without_length()), (190.0, 0));
    }

    #[test]
    fn lengths_that_the_file_does_not_tell_are_not_made_up() {
        let short = Times::from_deltas(&[1, 2, 3, 4], &[0.0, 10.0], (0.0, Some(500.0)));
        assert_eq!((total(&short), short.without_length()), (10.0, 3));
        let open = Times::from_deltas(&[1, 2], &[0.0, 10.0], (0.0, None));
        assert_eq!((total(&open), open.without_length()), (10.0, 1));
        let early = Times::from_deltas(&[1, 2], &[0.0, 10.0], (0.0, Some(5.0)));
        assert_eq!((total(&early), early.without_length()), (10.0, 1));
        let one_more = Times::from_deltas(&[1, 2], &[0.0, 10.0, 7.0], (0.0, None));
        assert_eq!((total(&one_more), one_more.without_length()), (17.0, 0));
    }
}
