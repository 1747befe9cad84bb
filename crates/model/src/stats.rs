//! Confidence intervals of shares, from time blocks.
//!
//! A function's share of a view is estimated from samples. Samples of one thread are not
//! independent: a thread that is in `f` now was probably in `f` one sample ago, and a loop that
//! beats with the sampling clock is sampled at the same place for a while. A binomial interval is
//! then too narrow. So the recording is divided into blocks of time that are long against such
//! correlations, and the share is a ratio estimator over them. With `x` the function's and `y` all
//! sampled time of a block, `p = Σx / Σy`. With the residuals `r = x − p·y` of neighbouring blocks,
//! `var(p) = B/(B−1) · Σ(r' − r)²/2 / (Σy)²`. Neighbours are compared, and not each block with the
//! mean, because the share is this recording's: a difference between the program's phases is no
//! measurement error.
//!
//! Blocks alone fail for a function that was seen in none, all, or few of them. So that variance is
//! converted to an effective number of independent samples, never above the true number. The
//! interval is Wilson's for that number, with Student's t for the few blocks. Next to 0 and 1 its
//! ends are widened to Poisson's, because Wilson's are too narrow there. It never has width zero.
//!
//! The state totals are exact, so for the wall view the states' intervals are joined, each weighted
//! by its exact time ([`join`]).
//!
//! It cannot detect a program locked in step with the sampling clock. The domain warns of such
//! rates; for a loop within 1 % of the sampling period the coverage is about 90 %, not 95 %. It
//! says nothing about time that is `[not sampled]`.

/// A 95 % confidence interval of a share, both ends within 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The interval without any knowledge.
    pub const UNKNOWN: Interval = Interval {
        low: 0.0,
        high: 1.0,
    };

    /// `high − low`.
    pub fn width(self) -> f64 {
        self.high - self.low
    }
}

/// Maximum blocks of a recording. More blocks would be shorter than the correlations that they must
/// outlast; fewer reduce the precision of the variance.
pub const MAX_BLOCKS: usize = 20;

/// Minimum blocks: with fewer, the variance between them is too uncertain.
const MIN_BLOCKS: f64 = 4.0;

/// Assumed ratio of the variance to the binomial one if there are too few blocks.
const ASSUMED_DESIGN_EFFECT: f64 = 2.0;

/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_985;

/// Returns the interval of the share `Σpart / Σwhole`.
///
/// `part` and `whole` hold sampled time by block (any unit, the same number of blocks). `samples`
/// is the number of samples behind them; for samples of different weights, Kish's `(Σw)² / Σw²`.
/// Without any time the result is [`Interval::UNKNOWN`].
///
/// ```
/// use wallscope_model::stats::share_interval;
///
/// // Ten blocks of time, in each of which some 30 of 100 ms were spent in a function.
/// let part = [30.0, 28.0, 33.0, 29.0, 31.0, 30.0, 27.0, 32.0, 30.0, 30.0];
/// let share = share_interval(&part, &[100.0; 10], 1_000.0);
/// assert!(share.low < 0.3 && 0.3 < share.high, "{share:?}");
/// ```
pub fn share_interval(part: &[f64], whole: &[f64], samples: f64) -> Interval {
    let y: f64 = whole.iter().sum();
    let x: f64 = part.iter().sum();
    if y <= 0.0 || samples <= 0.0 {
        return Interval::UNKNOWN;
    }
    let p = but_for_rounding((x / y).clamp(0.0, 1.0));
    let samples = samples.max(1.0);
    let blocks = y * y / whole.iter().map(|y| y * y).sum::<f64>();
    if blocks < MIN_BLOCKS {
        return wilson(p, samples / ASSUMED_DESIGN_EFFECT, Z);
    }
    let residuals = || part.iter().zip(whole).map(|(x, y)| x - p * y);
    let squares: f64 = residuals()
        .zip(residuals().skip(1))
        .map(|(a, b)| (b - a).powi(2) / 2.0)
        .sum();
    let variance = blocks / (blocks - 1.0) * squares / (y * y);
    // For a share of 0 or 1, blocks differ at most by the order of summation.
    let independent = if variance > 0.0 && p > 0.0 && p < 1.0 {
        (p * (1.0 - p) / variance).clamp(1.0, samples)
    } else {
        samples
    };
    wilson(p, independent, student(blocks - 1.0))
}

/// Removes rounding errors next to 0 and 1.
fn but_for_rounding(p: f64) -> f64 {
    /// Far below the share of one sample, and far above the rounding error of a sum.
    const ROUNDING: f64 = 1e-11;
    match p {
        p if p < ROUNDING => 0.0,
        p if p > 1.0 - ROUNDING => 1.0,
        p => p,
    }
}

/// Returns the interval of a share in a view of several states with exact totals.
///
/// Each item is (the state's exact part of the view, the share within the state, its interval); the
/// parts sum to at most 1. Errors of the states are independent, so distances from the estimate add
/// in squares.
pub fn join(states: &[(f64, f64, Interval)]) -> Interval {
    let (mut p, mut down, mut up) = (0.0, 0.0, 0.0);
    for (weight, share, interval) in states {
        p += weight * share;
        down += (weight * (share - interval.low)).powi(2);
        up += (weight * (interval.high - share)).powi(2);
    }
    Interval {
        low: (p - down.sqrt()).clamp(0.0, 1.0),
        high: (p + up.sqrt()).clamp(0.0, 1.0),
    }
}

/// The smallest share that `samples` can resolve: something with this share is seen at least once
/// with 95 % probability (about 3/n). A smaller share may be missed.
pub fn smallest_share(samples: f64) -> f64 {
    if samples < 1.0 {
        return 1.0;
    }
    1.0 - 0.05f64.powf(1.0 / samples)
}

/// The number of samples that can resolve `share`: the inverse of [`smallest_share`].
pub fn samples_for(share: f64) -> f64 {
    0.05f64.ln() / (1.0 - share.clamp(1e-9, 0.999)).ln()
}

/// Wilson's interval for `n` independent samples at `quantile`, with its ends next to 0 and 1
/// widened.
fn wilson(p: f64, n: f64, quantile: f64) -> Interval {
    let q2 = quantile * quantile;
    let centre = (p + q2 / (2.0 * n)) / (1.0 + q2 / n);
    let half = quantile / (1.0 + q2 / n) * (p * (1.0 - p) / n + q2 / (4.0 * n * n)).sqrt();
    let poisson_low = |p: f64| poisson_low(p * n, quantile) / n;
    Interval {
        low: (centre - half).min(poisson_low(p)).clamp(0.0, p),
        high: (centre + half)
            .max(1.0 - poisson_low(1.0 - p))
            .clamp(p, 1.0),
    }
}

/// Lower bound of a Poisson mean if `x` events were seen (Wilson and Hilferty's approximation), for
/// few events; infinite where Wilson's interval suffices.
fn poisson_low(x: f64, quantile: f64) -> f64 {
    if x > 5.0 {
        return f64::INFINITY;
    }
    if x <= 0.0 {
        return 0.0;
    }
    x * (1.0 - 1.0 / (9.0 * x) - quantile / (3.0 * x.sqrt()))
        .max(0.0)
        .powi(3)
}

/// Student's two-sided 95 % quantile for `df >= 3` degrees of freedom (Cornish and Fisher's
/// expansion; within 0.8 % of the exact value).
fn student(df: f64) -> f64 {
    let z3 = Z.powi(3);
    let z5 = Z.powi(5);
    let z7 = Z.powi(7);
    Z + (z3 + Z) / (4.0 * df)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * df.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * df.powi(3))
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
