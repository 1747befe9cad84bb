//! The universal scalability law (Gunther, *Guerrilla Capacity Planning*, 2007):
//!
//! `X(N) = γ·N / (1 + σ·(N − 1) + κ·N·(N − 1))`
//!
//! N is the load (concurrent workers), X the throughput. σ is contention: the share of the work that is
//! serial. κ is coherence: the cost of each pair of workers that have to agree. Throughput peaks at
//! `N = √((1 − σ)/κ)`.
//!
//! With `a = 1/γ`, `b = σ/γ`, `c = κ/γ`, the law is linear in N/X. It is fitted by least squares of
//! relative errors, reweighted until it settles, with b and c not negative. Intervals come from draws
//! of a, b, c around the fit without that bound, by Student's distribution.

use super::Estimate;
use super::random::Random;

/// Throughput at one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Load, N; positive.
    pub load: f64,
    /// Throughput, X; positive, in any unit.
    pub throughput: f64,
}

/// A fitted law.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Throughput at load 1.
    pub single: Estimate,
    /// Contention, σ.
    pub contention: Estimate,
    /// Coherence, κ.
    pub coherence: Estimate,
    /// The load at which throughput peaks; infinite if it only flattens.
    pub peak_load: Estimate,
    /// The throughput there, or that which it approaches; infinite without contention.
    pub peak_throughput: Estimate,
    /// Standard deviation of the points around the law, relative; `None` with three points, which the
    /// law meets exactly.
    pub scatter: Option<f64>,
}

/// Reason why points cannot be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Fewer different loads than the law has parameters.
    #[error("the law has three parameters and needs three different loads; there are {0}")]
    TooFewLoads(usize),
    /// A load or throughput that is no positive number.
    #[error("loads and throughputs are positive numbers")]
    NotPositive,
}

/// `1/γ`, `σ/γ`, `κ/γ`.
type Coefficients = [f64; 3];
type Matrix = [[f64; 3]; 3];

/// Rounds of reweighting; two suffice for exact points.
const ROUNDS: usize = 30;
/// Draws for the intervals.
const DRAWS: usize = 2000;
const SEED: u64 = 0x0005_ca1e;

/// Fits the law to `points`.
///
/// # Errors
/// Fewer than three different loads; a value that is not positive.
pub fn fit(points: &[Point]) -> Result<Fit, Error> {
    let positive = |v: f64| v > 0.0 && v.is_finite();
    if !points
        .iter()
        .all(|p| positive(p.load) && positive(p.throughput))
    {
        return Err(Error::NotPositive);
    }
    let mut loads: Vec<f64> = points.iter().map(|p| p.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    if loads.len() < 3 {
        return Err(Error::TooFewLoads(loads.len()));
    }
    let best = bounded(points);
    let free = settled(points, [true; 3]);
    let df = points.len() - 3;
    let scatter = (df > 0).then(|| (errors(points, &best) / df as f64).sqrt());
    let drawn = match df {
        0 => Vec::new(),
        _ => drawn(points, &free, df),
    };
    let estimate = |of: &dyn Fn(&Coefficients) -> f64| {
        let values = drawn.iter().map(of).collect();
        estimate(of(&best), values)
    };
    Ok(Fit {
        single: estimate(&|c| 1.0 / c[0]),
        contention: estimate(&|c| c[1] / c[0]),
        coherence: estimate(&|c| c[2] / c[0]),
        peak_load: estimate(&peak_load),
        peak_throughput: estimate(&peak_throughput),
        scatter,
    })
}

/// The terms of N/X at this load.
fn terms(load: f64) -> Coefficients {
    [1.0, load - 1.0, load * (load - 1.0)]
}

fn value(c: &Coefficients, load: f64) -> f64 {
    terms(load).iter().zip(c).map(|(t, c)| t * c).sum()
}

/// Sum of the squares of the relative errors.
fn errors(points: &[Point], c: &Coefficients) -> f64 {
    let error = |p: &Point| (p.load / p.throughput) / value(c, p.load) - 1.0;
    points.iter().map(|p| error(p).powi(2)).sum()
}

/// The best coefficients of which none is negative.
fn bounded(points: &[Point]) -> Coefficients {
    let sets = [
        [true, true, true],
        [true, true, false],
        [true, false, true],
        [true, false, false],
    ];
    let allowed = |c: &Coefficients| c[0] > 0.0 && c[1] >= 0.0 && c[2] >= 0.0;
    let all = sets.into_iter().map(|set| settled(points, set));
    let best = all
        .filter(allowed)
        .min_by(|a, b| errors(points, a).total_cmp(&errors(points, b)));
    // The constant alone is always allowed.
    best.unwrap_or([points[0].load / points[0].throughput, 0.0, 0.0])
}

/// Least squares of relative errors over the coefficients in `set`.
fn settled(points: &[Point], set: [bool; 3]) -> Coefficients {
    let mut weights: Vec<f64> = points.iter().map(|p| p.throughput / p.load).collect();
    let mut c = [0.0; 3];
    for _ in 0..ROUNDS {
        let (normal, right) = equations(points, &weights, set);
        c = solve(normal, right);
        for (w, p) in weights.iter_mut().zip(points) {
            let y = value(&c, p.load);
            *w = if y > 0.0 {
                1.0 / y
            } else {
                p.throughput / p.load
            };
        }
    }
    c
}

/// The normal equations; coefficients outside of `set` are held at 0.
fn equations(points: &[Point], weights: &[f64], set: [bool; 3]) -> (Matrix, Coefficients) {
    let mut normal = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for (p, w) in points.iter().zip(weights) {
        let t = terms(p.load);
        for i in 0..3 {
            right[i] += w * w * t[i] * p.load / p.throughput;
            for j in 0..3 {
                normal[i][j] += w * w * t[i] * t[j];
            }
        }
    }
    for i in (0..3).filter(|i| !set[*i]) {
        normal[i] = [0.0; 3];
        normal.iter_mut().for_each(|row| row[i] = 0.0);
        (normal[i][i], right[i]) = (1.0, 0.0);
    }
    (normal, right)
}

/// The lower triangle of Cholesky's factor of a symmetric positive matrix.
fn factor(m: &Matrix) -> Matrix {
    let mut l = [[0.0; 3]; 3];
    for i in 0..3 {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            l[i][j] = match i == j {
                true => (m[i][i] - sum).max(f64::MIN_POSITIVE).sqrt(),
                false => (m[i][j] - sum) / l[j][j],
            };
        }
    }
    l
}

/// Solves `l·x = b` for the lower triangle `l`.
fn forward(l: &Matrix, b: Coefficients) -> Coefficients {
    let mut x = b;
    for i in 0..3 {
        let sum: f64 = (0..i).map(|k| l[i][k] * x[k]).sum();
        x[i] = (x[i] - sum) / l[i][i];
    }
    x
}

/// Solves `lᵀ·x = b`.
fn backward(l: &Matrix, b: Coefficients) -> Coefficients {
    let mut x = b;
    for i in (0..3).rev() {
        let sum: f64 = (i + 1..3).map(|k| l[k][i] * x[k]).sum();
        x[i] = (x[i] - sum) / l[i][i];
    }
    x
}

fn solve(normal: Matrix, right: Coefficients) -> Coefficients {
    let l = factor(&normal);
    backward(&l, forward(&l, right))
}

/// Coefficients that the points allow, by Student's distribution with `df` degrees of freedom.
fn drawn(points: &[Point], free: &Coefficients, df: usize) -> Vec<Coefficients> {
    let weights: Vec<f64> = (points.iter())
        .map(|p| 1.0 / value(free, p.load).max(f64::MIN_POSITIVE))
        .collect();
    let (normal, _) = equations(points, &weights, [true; 3]);
    let l = factor(&normal);
    let deviation = (errors(points, free) / df as f64).sqrt();
    let mut random = Random::new(SEED);
    let mut draw = || {
        let chi: f64 = (0..df).map(|_| random.normal().powi(2)).sum();
        let size = deviation / (chi / df as f64).sqrt();
        let step = backward(&l, [(); 3].map(|()| size * random.normal()));
        let moved = |i: usize| free[i] + step[i];
        [moved(0), moved(1).max(0.0), moved(2).max(0.0)]
    };
    let all: Vec<Coefficients> = (0..DRAWS).map(|_| draw()).collect();
    all.into_iter().filter(|c| c[0] > 0.0).collect()
}

fn estimate(value: f64, mut drawn: Vec<f64>) -> Estimate {
    if drawn.is_empty() {
        return Estimate {
            value,
            low: 0.0,
            high: f64::INFINITY,
        };
    }
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn[(share * (drawn.len() - 1) as f64).round() as usize];
    Estimate {
        value,
        low: at(0.025).min(value),
        high: at(0.975).max(value),
    }
}

fn peak_load(c: &Coefficients) -> f64 {
    match c[2] > 0.0 {
        true => ((c[0] - c[1]).max(0.0) / c[2]).sqrt().max(1.0),
        false => f64::INFINITY,
    }
}

fn peak_throughput(c: &Coefficients) -> f64 {
    match peak_load(c) {
        load if load.is_finite() => load / value(c, load),
        _ if c[1] > 0.0 => 1.0 / c[1],
        _ => f64::INFINITY,
    }
}
