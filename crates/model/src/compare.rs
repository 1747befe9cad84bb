//! Tests whether a difference is real: compares estimates of one quantity from runs of two sides.
//!
//! **Within a run** a quantity is a ratio `V = Σx / Σn` over blocks of time (`x` is the quantity's
//! time, `n` its normaliser). Its error has two measures ([`Estimate`]). *Sampling* comes from
//! residuals of neighbouring blocks and is never below that of independent samples. *Blocks* comes
//! from residuals about the mean, and so includes the program's own unsteadiness.
//!
//! **Between runs.** With one run a side, nothing shows how much runs differ. The blocks' error
//! stands in for it. If a quantity follows the time that threads wait for a CPU from block to block
//! ([`crate::contention`]), a difference in that waiting explains part of the difference. With more
//! runs, two causes make runs of a side differ. One is their sampling error. The other is common to
//! all functions, as on a machine that was slower in one run ([`Prior::common`]: the relative
//! variance of the whole, which is exact). The variance between runs, divided by this expectation,
//! is the dispersion. Few runs estimate it badly for one function, but all functions together show
//! its usual value. So the dispersions are moderated by empirical Bayes ([`Prior`]; Smyth,
//! *Statistical Applications in Genetics and Molecular Biology* 3, 2004; as a quasi-likelihood
//! dispersion, Lund et al., same journal 11, 2012). Student's t gets the degrees of freedom of
//! both, except for the common part, which has those of the runs (Satterthwaite, *Biometrics
//! Bulletin* 2, 1946). A dispersion below 1 counts as 1.
//!
//! **Many functions.** [`adjust`] controls the false discovery rate by Benjamini and Hochberg's
//! procedure (*Journal of the Royal Statistical Society* B 57, 1995). Where nothing changed, that
//! rate is the probability of any report at all. It holds for tests with positive dependence, as
//! those of callers and callees. Shares of one whole also have negative dependence. At worst the
//! rate is then larger by the sum of 1/i over the tests, some five times for a hundred (Benjamini
//! and Yekutieli, *Annals of Statistics* 29, 2001). Dividing by that sum hides real changes, and of
//! 100 live pairs of equals one had a report without it.

use crate::contention::{Contention, Elasticity, accounts_for};
use crate::special_functions::{digamma, student_p, student_quantile, trigamma, trigamma_inverse};

/// An estimate of a quantity in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Variance of the value by sampling alone.
    pub sampling: f64,
    /// Variance of the value over repeated recordings of the program; not below `sampling`.
    pub blocks: f64,
    /// Degrees of freedom of these variances.
    pub df: f64,
    /// Dependence on the time that threads wait for a CPU.
    pub contention: Contention,
}

/// Minimum blocks: with fewer, the variance between them is too uncertain.
const MIN_BLOCKS: f64 = 4.0;

/// With too few blocks, the assumed variance in multiples of that of independent samples, and the
/// number of blocks behind this assumption. The 95 % range is 1.2 to 4.2 times.
const ASSUMED_DESIGN_EFFECT: f64 = 2.0;
const ASSUMED_BLOCKS: f64 = 20.0;

/// Estimates `Σx / Σn`. `floor` is the variance of independent samples.
///
/// `x` and `n` are by block of time, of equal length. If all of `n` is 0, the value is 0.
pub fn estimate(x: &[f64], n: &[f64], floor: f64) -> Estimate {
    let whole: f64 = n.iter().sum();
    if whole <= 0.0 {
        return Estimate::default();
    }
    let value = x.iter().sum::<f64>() / whole;
    let blocks = whole * whole / n.iter().map(|n| n * n).sum::<f64>();
    if blocks < MIN_BLOCKS {
        let variance = floor * ASSUMED_DESIGN_EFFECT;
        return Estimate {
            value,
            sampling: variance,
            blocks: variance,
            df: ASSUMED_BLOCKS,
            contention: Contention::default(),
        };
    }
    let residuals: Vec<f64> = x.iter().zip(n).map(|(x, n)| x - value * n).collect();
    let scale = blocks / (blocks - 1.0) / (whole * whole);
    let successive: f64 = residuals
        .windows(2)
        .map(|r| (r[1] - r[0]).powi(2) / 2.0)
        .sum();
    let sampling = (scale * successive).max(floor);
    // Slow changes make neighbouring blocks alike; longer blocks show how much.
    let about_mean = |length: usize| -> f64 {
        let sums = residuals.chunks_exact(length);
        let count = sums.len() as f64;
        let squares: f64 = sums.map(|c| c.iter().sum::<f64>().powi(2)).sum();
        count / (count - 1.0) * squares / (whole * whole)
    };
    let mut long_run = about_mean(1);
    if residuals.len() >= 16 {
        long_run = long_run.max((about_mean(2) + about_mean(4)) / 2.0);
    }
    Estimate {
        value,
        sampling,
        blocks: long_run.max(sampling),
        df: blocks - 1.0,
        contention: Contention::default(),
    }
}

/// Usual values, from all quantities of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// Relative variance between runs of a side that all quantities share.
    pub common: f64,
    /// The usual dispersion.
    pub dispersion: f64,
    /// Degrees of freedom of that dispersion.
    pub df: f64,
    /// With one run a side: usual dependence of quantities on waiting for a CPU.
    pub elasticity: Option<Elasticity>,
}

impl Prior {
    /// No prior knowledge.
    pub const NONE: Prior = Prior {
        common: 0.0,
        dispersion: 1.0,
        df: 0.0,
        elasticity: None,
    };

    /// Estimates the prior from `quantities` (base runs, new runs) of a `whole` with the same runs.
    pub fn of<'a>(
        whole: [&[Estimate]; 2],
        quantities: impl Iterator<Item = (&'a [Estimate], &'a [Estimate])>,
    ) -> Prior {
        let quantities: Vec<_> = quantities.collect();
        let common = common(whole);
        let alone = |(base, new): &(&[Estimate], &[Estimate])| match (base, new) {
            ([b], [n]) => Some(((b.value + n.value) / 2.0, b.contention, n.contention)),
            _ => None,
        };
        let prior = Prior {
            common,
            elasticity: Elasticity::of(quantities.iter().filter_map(alone)),
            ..Prior::NONE
        };
        let mut df = 0.0;
        let logs: Vec<f64> = (quantities.iter())
            .filter_map(|(base, new)| {
                let (dispersion, d) = dispersion(base, new, common)?;
                df = d;
                // A dispersion below the first percentile of chance does not come from sampling
                // error, as for a function that takes all time. It says nothing about the others.
                let rare = 1.0 - 2.0 / (9.0 * d) - 2.33 * (2.0 / (9.0 * d)).sqrt();
                Some(dispersion.max(rare.max(0.01).powi(3)).ln())
            })
            .collect();
        if logs.len() < 3 {
            return prior;
        }
        // Moments of the logarithm of an F variable (Smyth 2004, section 6.2).
        let centre = digamma(df / 2.0) - (df / 2.0).ln();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64 - centre;
        let spread = logs
            .iter()
            .map(|l| (l - centre - mean).powi(2))
            .sum::<f64>()
            / (logs.len() - 1) as f64;
        let excess = spread - trigamma(df / 2.0);
        // All other quantities together have only their own degrees of freedom.
        let most = df * (logs.len() - 1) as f64;
        let (prior_df, log) = if excess > 0.0 {
            let half = trigamma_inverse(excess);
            (2.0 * half, mean + digamma(half) - half.ln())
        } else {
            (f64::INFINITY, mean)
        };
        Prior {
            dispersion: log.exp().max(1.0),
            df: prior_df.min(most),
            ..prior
        }
    }
}

/// The variance between runs of a side in multiples of the expected one, and its degrees of
/// freedom; `None` with one run a side or nothing sampled.
fn dispersion(base: &[Estimate], new: &[Estimate], common: f64) -> Option<(f64, f64)> {
    let df = (base.len() + new.len()).checked_sub(2)? as f64;
    let (mut sum, mut known) = (0.0, 0.0);
    for side in [base, new] {
        let sampling = mean(side, |e| e.sampling);
        if sampling <= 0.0 {
            continue;
        }
        let centre = mean(side, |e| e.value);
        let expected = sampling + common * centre * centre;
        sum += side.iter().map(|e| (e.value - centre).powi(2)).sum::<f64>() / expected;
        known += side.len() as f64 - 1.0;
    }
    (df > 0.0 && known > 0.0).then(|| (sum / known, df))
}

/// The relative variance between runs of a side.
fn common(whole: [&[Estimate]; 2]) -> f64 {
    let (mut sum, mut known) = (0.0, 0.0);
    for side in whole {
        let centre = mean(side, |e| e.value);
        if centre > 0.0 {
            let relative = |e: &Estimate| (e.value / centre - 1.0).powi(2);
            sum += side.iter().map(relative).sum::<f64>();
            known += side.len() as f64 - 1.0;
        }
    }
    if known > 0.0 { sum / known } else { 0.0 }
}

fn mean(side: &[Estimate], of: impl Fn(&Estimate) -> f64) -> f64 {
    side.iter().map(of).sum::<f64>() / side.len().max(1) as f64
}

/// The comparison of two sides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Mean of the base runs.
    pub base: f64,
    /// Mean of the new runs.
    pub new: f64,
    /// `new − base`.
    pub delta: f64,
    /// Standard error of the difference.
    pub error: f64,
    /// Its degrees of freedom.
    pub df: f64,
    /// Share of the error's variance that longer runs would reduce, 0..=1. The rest is the
    /// difference between runs, which only more runs reduce.
    pub sampled: f64,
    /// Lower end of the 95 % interval of the difference.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Two-sided p-value under no difference.
    pub p: f64,
}

impl Difference {
    /// The difference relative to the base; `None` if the base is 0.
    pub fn relative(&self) -> Option<f64> {
        (self.base > 0.0).then(|| self.delta / self.base)
    }

    /// The smallest true difference that such data would detect in four of five attempts, each
    /// tested at 5 %.
    pub fn resolvable(&self) -> f64 {
        if self.error <= 0.0 {
            return 0.0;
        }
        let t = |share| student_quantile(share, self.df);
        (t(0.975) + t(0.8)) * self.error
    }
}

/// Compares the runs of two sides; neither may be empty.
pub fn compare(base: &[Estimate], new: &[Estimate], prior: Prior) -> Difference {
    let (b, n) = (mean(base, |e| e.value), mean(new, |e| e.value));
    let runs = (base.len().max(1) as f64, new.len().max(1) as f64);
    let sampling = (mean(base, |e| e.sampling), mean(new, |e| e.sampling));
    let least = sampling.0 / runs.0 + sampling.1 / runs.1;
    let (variance, df) = match dispersion(base, new, prior.common) {
        Some((own, own_df)) => {
            let common = prior.common * (b * b / runs.0 + n * n / runs.1);
            let df = own_df + prior.df;
            let dispersion = (own_df * own + prior.df * prior.dispersion) / df;
            // Satterthwaite's approximation, of a part with `df` and a part with the runs' own
            // degrees of freedom.
            let part = common / (least + common);
            let df = 1.0 / ((1.0 - part).powi(2) / df + part * part / own_df);
            (dispersion.max(1.0) * (least + common), df)
        }
        None if base.len() + new.len() > 2 => (least, 1.0),
        None => {
            let v = (mean(base, |e| e.blocks), mean(new, |e| e.blocks));
            let d = (mean(base, |e| e.df), mean(new, |e| e.df));
            // Welch and Satterthwaite.
            let parts = v.0 * v.0 / d.0.max(1.0) + v.1 * v.1 / d.1.max(1.0);
            let df = if parts > 0.0 {
                (v.0 + v.1).powi(2) / parts
            } else {
                1.0
            };
            let size = (b + n) / 2.0;
            let contention = match (base, new) {
                ([b], [n]) => accounts_for(size, &b.contention, &n.contention, prior.elasticity),
                _ => 0.0,
            };
            (v.0 + v.1 + contention, df)
        }
    };
    let error = variance.sqrt();
    let delta = n - b;
    let half = student_quantile(0.975, df) * error;
    Difference {
        base: b,
        new: n,
        delta,
        error,
        df,
        // More blocks average out the differences between blocks, but not those between runs.
        sampled: if variance > 0.0 && base.len() + new.len() > 2 {
            least / variance
        } else {
            1.0
        },
        low: delta - half,
        high: delta + half,
        p: match (error > 0.0, delta == 0.0) {
            (true, _) => student_p(delta / error, df),
            (false, true) => 1.0,
            (false, false) => 0.0,
        },
    }
}

/// Compares counted quantities: with several runs, the spread between them is the only error.
pub fn compare_spread(base: &[Estimate], new: &[Estimate]) -> Difference {
    let counted = |side: &[Estimate]| -> Vec<Estimate> {
        let centre = mean(side, |e| e.value);
        let squares: f64 = side.iter().map(|e| (e.value - centre).powi(2)).sum();
        let spread = squares / (side.len() as f64 - 1.0).max(1.0);
        let with = |e: &Estimate| Estimate {
            sampling: if side.len() > 1 { spread } else { e.blocks },
            ..*e
        };
        side.iter().map(with).collect()
    };
    compare(&counted(base), &counted(new), Prior::NONE)
}

/// Adjusts p-values: accepting those at most `q` keeps the false discovery rate at `q`.
pub fn adjust(p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut order: Vec<usize> = (0..m).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut out = vec![1.0; m];
    let mut least = 1.0f64;
    for (i, at) in order.into_iter().enumerate() {
        let rank = (m - i) as f64;
        least = least.min(p[at] * m as f64 / rank);
        out[at] = least;
    }
    out
}

/// The data needed to resolve a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effort {
    /// The present data suffice.
    Enough,
    /// Runs of this many times the length.
    Longer(f64),
    /// This many times as many runs (longer ones would not suffice).
    MoreRuns(f64),
}

/// The data needed for `d` to resolve a difference of `size` in four of five attempts.
pub fn effort(d: &Difference, size: f64) -> Effort {
    let times = (d.resolvable() / size).powi(2);
    if times <= 1.0 {
        return Effort::Enough;
    }
    // The variance must fall to 1/times; the part that does not depend on length stays.
    let left = 1.0 / times - (1.0 - d.sampled);
    if left > 0.0 && d.sampled / left <= 4.0 * times {
        Effort::Longer(d.sampled / left)
    } else {
        Effort::MoreRuns(times)
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
