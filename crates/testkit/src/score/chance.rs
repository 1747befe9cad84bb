//! Sampling error of a function's share, from the recording's own number of samples.
//!
//! A share row holds if it is within the tier's promise plus [`QUANTILE`] standard errors. The standard error
//! is computed for each row. Within a state, one sample stands for `P` nanoseconds: the view's sampled time by
//! its number of samples, both as the recording states them. So a slower rate, or one that the overhead limit
//! lowered, widens the limit by itself.
//!
//! For a function with time `T` in a state, the number of samples has at most the variance
//! `T/P` (each sample falls into it or not, independently). Samples at a regular distance do better: a
//! stretch gets its length by `P`, rounded up or down, which has at most the variance 1/4. [`Part`]
//! counts stretches where the program's truth knows them; jitter of the distance adds [`JITTER`] per sample.
//! The share `p` of a view with exact total `W` then has the variance
//! `P² · ((1 − p)² v + p² Σ v')/W²`, where `v'` are the variances of everything else in the view. States have
//! exact totals each, so their variances add.
//!
//! The normal quantile is wrong for few samples. The first term of the Cornish-Fisher expansion,
//! `(z² − 1)(1 − 2p)/6` samples, corrects it; [`SKEWNESS`] bounds it.

/// Two-sided quantile of the normal distribution for a false alarm in 2,000,000 rows: a whole run of `verify`
/// has some 2,000 rows, and may fail by chance once in 1,000 runs.
pub const QUANTILE: f64 = 5.03;
/// `(QUANTILE² − 1)/6`, samples.
const SKEWNESS: f64 = 4.05;
/// Variance per sample that jitter of the sampling distance adds: uniform within ± 1/4 of it.
const JITTER: f64 = 1.0 / 48.0;
/// Variance of the number of samples in one stretch at a regular distance. The bound is 1/4; a stretch that
/// begins in one function's measured time and ends in another's counts for both.
const PER_STRETCH: f64 = 0.5;

/// Time in one state of a view.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Time of one sample, ns; 0: the state has no samples.
    pub period_ns: f64,
    /// Time of the function, ns.
    pub own_ns: f64,
    /// Stretches of the function, if they are sampled at a regular distance and their number is known.
    pub own_stretches: Option<f64>,
    /// Time of everything else, ns.
    pub other_ns: f64,
    /// Stretches of everything else, as for the function.
    pub other_stretches: Option<f64>,
}

/// Upper bound of the variance of a number of samples.
fn variance(time_ns: f64, stretches: Option<f64>, period_ns: f64) -> f64 {
    let samples = time_ns / period_ns;
    let regular = |stretches: f64| PER_STRETCH * stretches + JITTER * samples;
    samples.min(stretches.map_or(f64::INFINITY, regular))
}

/// Returns the distance, in percentage points of the view's whole time, that a share stays within by chance
/// alone, but for one row in 2,000,000. `parts` are the view's states.
pub fn points(parts: &[Part]) -> f64 {
    let whole: f64 = parts.iter().map(|p| p.own_ns + p.other_ns).sum();
    if whole <= 0.0 {
        return 0.0;
    }
    let (mut squares, mut skewness) = (0.0, 0f64);
    for part in parts {
        let time = part.own_ns + part.other_ns;
        if part.period_ns <= 0.0 || time <= 0.0 {
            continue;
        }
        let p = part.own_ns / time;
        let own = variance(part.own_ns, part.own_stretches, part.period_ns);
        let other = variance(part.other_ns, part.other_stretches, part.period_ns);
        let samples = (1.0 - p).powi(2) * own + p.powi(2) * other;
        // Of all or nothing every sample tells the truth.
        if samples <= 0.0 {
            continue;
        }
        squares += part.period_ns.powi(2) * samples;
        skewness = skewness.max((1.0 - 2.0 * p).abs() * part.period_ns * SKEWNESS);
    }
    100.0 * (QUANTILE * squares.sqrt() + skewness) / whole
}

/// Returns the distance, in percentage points, that a share `p` (0..=1) of `samples` independent samples stays
/// within by chance alone, but for one row in 2,000,000.
pub fn binomial(p: f64, samples: f64) -> f64 {
    points(&[Part {
        period_ns: 1.0,
        own_ns: p * samples,
        other_ns: (1.0 - p) * samples,
        ..Part::default()
    }])
}

/// Returns the distance, in percentage points, that a share `p` (0..=1) of a task's time stays within if `polls`
/// read the runtime's list of tasks: [`binomial`], and the time of one poll at each edge of the task's life.
pub fn polled(p: f64, polls: f64) -> f64 {
    binomial(p, polls) + 2.0 * 100.0 / polls
}

/// Returns the bound of the mean absolute error of polled shares, beside the promise. `shares` are the true
/// ones, 0..=1. An error by chance alone has the mean 0.8 and the standard deviation 0.6 of its standard error.
pub fn mean_of_polled(shares: &[f64], polls: f64) -> f64 {
    let n = shares.len() as f64;
    let errors = shares.iter().map(|p| (p * (1.0 - p) / polls).sqrt());
    let mean = errors.sum::<f64>() / n;
    100.0 * (0.8 + 0.6 * QUANTILE / n.sqrt()) * mean + 2.0 * 100.0 / polls
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in 0..1 that look drawn at random.
    struct Draws(u64);

    impl Draws {
        fn next(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn independent_samples_have_the_binomial_error() {
        let expected = 100.0 * QUANTILE * (0.25f64 / 10_000.0).sqrt();
        assert!((binomial(0.5, 10_000.0) - expected).abs() < 1e-9);
        assert!(
            binomial(1e-6, 1000.0) > 0.1,
            "a rare function may be met once"
        );
        assert_eq!(binomial(0.0, 1000.0), 0.0);
        assert_eq!(points(&[]), 0.0);
    }

    #[test]
    fn long_stretches_have_less_error_and_short_ones_no_more_than_independent_samples() {
        let with = |stretches: f64| {
            points(&[Part {
                period_ns: 1e6,
                own_ns: 5e9,
                own_stretches: Some(stretches),
                other_ns: 5e9,
                other_stretches: Some(stretches),
            }])
        };
        assert!(with(100.0) < 0.25 * binomial(0.5, 10_000.0));
        assert!((with(1e6) - binomial(0.5, 10_000.0)).abs() < 1e-9);
    }

    #[test]
    fn states_with_exact_totals_add_in_squares() {
        let part = |own_ns| Part {
            period_ns: 1e6,
            own_ns,
            other_ns: 10e9 - own_ns,
            ..Part::default()
        };
        let one = points(&[part(5e9)]);
        let both = points(&[part(5e9), part(5e9)]);
        assert!((both - one / 2f64.sqrt()).abs() < 1e-6, "{one} {both}");
    }

    #[test]
    fn polls_add_their_edges_and_a_mean_of_many_errors_is_surer_than_one() {
        assert!((polled(0.5, 400.0) - binomial(0.5, 400.0) - 0.5).abs() < 1e-9);
        let (one, many) = (
            mean_of_polled(&[0.5], 400.0),
            mean_of_polled(&[0.5; 16], 400.0),
        );
        assert!(many < 0.5 * one && many > 0.8 * 2.5, "{one} {many}");
    }

    /// Shares of a program with random stretches, sampled at a jittered distance, stay within the limit; their
    /// spread is a fair part of it, so the limit is not merely large.
    #[test]
    fn simulated_sampling_stays_within_the_limit() {
        let mut draws = Draws(7);
        for stretch_ns in [2e5, 1e6, 5e6] {
            let (mut worst, mut squares) = (0f64, 0.0);
            let mut limit = 0.0;
            const RUNS: usize = 200;
            for _ in 0..RUNS {
                let (mut now, mut next) = (0.0, 1e6 * draws.next());
                let mut time = [0.0; 2];
                let mut samples = [0.0; 2];
                let mut stretches = [0.0; 2];
                while now < 1e9 {
                    let which = usize::from(draws.next() < 0.3);
                    let end = now + stretch_ns * (0.5 + draws.next());
                    while next < end {
                        samples[which] += 1.0;
                        next += 1e6 * (0.75 + 0.5 * draws.next());
                    }
                    time[which] += end - now;
                    stretches[which] += 1.0;
                    now = end;
                }
                let truth = time[1] / (time[0] + time[1]);
                let seen = samples[1] / (samples[0] + samples[1]);
                limit = points(&[Part {
                    period_ns: (time[0] + time[1]) / (samples[0] + samples[1]),
                    own_ns: time[1],
                    own_stretches: Some(stretches[1]),
                    other_ns: time[0],
                    other_stretches: Some(stretches[0]),
                }]);
                let off = 100.0 * (seen - truth);
                worst = worst.max(off.abs());
                squares += off * off;
            }
            let spread = (squares / RUNS as f64).sqrt();
            assert!(worst < limit, "{stretch_ns}: {worst} of {limit}");
            assert!(spread * 15.0 > limit, "{stretch_ns}: {spread} of {limit}");
        }
    }
}
