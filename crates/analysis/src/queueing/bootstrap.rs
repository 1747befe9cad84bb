//! Intervals from blocks of time (block bootstrap; Carlstein 1986, Künsch 1989).
//!
//! Arrivals come in bursts and waits last, so single jobs are not independent. The recording is divided into blocks
//! that are long against both; blocks are drawn with replacement and the statistic is computed from each draw. The
//! blocks are few, so quantiles are widened as Student's are against the normal ones.

use super::random::Random;
use super::{Estimate, Moments};

/// Number of blocks of a recording, if it has enough jobs.
pub const BLOCKS: usize = 30;
/// Draws. More would not change the second digit of an interval.
const DRAWS: usize = 400;
/// Seed of the draws.
const SEED: u64 = 0x77a1_15c0;

/// Draws of blocks, as sums.
pub fn draws(blocks: &[Moments]) -> Vec<Moments> {
    let mut random = Random::new(SEED);
    let draw = |random: &mut Random| {
        let mut sum = Moments::default();
        for _ in 0..blocks.len() {
            sum.add(&blocks[random.below(blocks.len())]);
        }
        sum
    };
    (0..DRAWS).map(|_| draw(&mut random)).collect()
}

/// The interval of `value` from the statistic's values in the draws of `blocks` blocks. Values that are
/// not numbers are left out; with fewer than two blocks nothing is known, and the interval is
/// everything from 0.
pub fn interval(value: f64, drawn: &[f64], blocks: usize) -> Estimate {
    let mut drawn: Vec<f64> = drawn.iter().copied().filter(|v| !v.is_nan()).collect();
    if blocks < 2 || drawn.is_empty() {
        return Estimate {
            value,
            low: 0.0,
            high: f64::INFINITY,
        };
    }
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn[(share * (drawn.len() - 1) as f64).round() as usize];
    let few = few_blocks(blocks);
    // All values are positive, and errors are mostly factors: widened on the scale of logarithms.
    let widen = |end: f64| match end > 0.0 && value > 0.0 && end.is_finite() {
        true => value * (end / value).powf(few),
        false => end,
    };
    Estimate {
        value,
        low: widen(at(0.025)).min(value),
        high: widen(at(0.975)).max(value),
    }
}

/// The interval of `statistic` over `blocks`.
pub fn of(blocks: &[Moments], statistic: impl Fn(&Moments) -> f64) -> Estimate {
    let value = statistic(&Moments::total(blocks));
    let drawn: Vec<f64> = draws(blocks).iter().map(statistic).collect();
    interval(value, &drawn, blocks.len())
}

/// Student's quantile for the blocks over the normal one, with the correction of the bootstrap's
/// variance.
fn few_blocks(blocks: usize) -> f64 {
    let df = blocks as f64 - 1.0;
    student(df) / student(f64::INFINITY) * (blocks as f64 / df).sqrt()
}

/// Student's two-sided 95 % quantile (Cornish and Fisher's expansion; within 1 % from 3 degrees of
/// freedom on; exact for 1 and 2).
pub fn student(df: f64) -> f64 {
    const Z: f64 = 1.959_963_985;
    match df {
        df if df < 1.5 => return 12.706,
        df if df < 2.5 => return 4.303,
        _ => {}
    }
    let terms = [
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
    ];
    Z + terms[0] / df + terms[1] / df.powi(2) + terms[2] / df.powi(3)
}
