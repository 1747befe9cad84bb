//! CPU contention: how a quantity depends on the time that threads wait for a CPU, and how much of
//! a difference between two runs this explains. A busier machine is not a slower program.
//!
//! The quantity is regressed on the waiting, from block to block of both runs. A single function's
//! slope is uncertain where few samples make its blocks differ, and then a small difference in
//! waiting could explain anything. All functions together show the usual slope relative to a
//! function's size ([`Elasticity`], by DerSimonian and Laird's moments, *Controlled Clinical
//! Trials* 7, 1986). Each slope is moderated by it, as dispersions are.

/// Dependence of a quantity on waiting for a CPU, from block to block of one run. Rates of both, as
/// `Σx / Σn`; sums of squares and products of their residuals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crowding {
    /// Rate of waiting for a CPU.
    pub value: f64,
    squares: f64,
    products: f64,
    own_squares: f64,
    blocks: f64,
}

impl Crowding {
    /// Computes the sums for a quantity `x` and waiting `w`, by block, both over `n`.
    pub fn of(x: &[f64], w: &[f64], n: &[f64]) -> Crowding {
        let whole: f64 = n.iter().sum();
        let mut c = Crowding::default();
        if whole <= 0.0 {
            return c;
        }
        let value = x.iter().sum::<f64>() / whole;
        c.value = w.iter().sum::<f64>() / whole;
        for ((x, w), n) in x.iter().zip(w).zip(n).filter(|(_, n)| **n > 0.0) {
            let (own, waits) = (x / n - value, w / n - c.value);
            c.squares += waits * waits;
            c.products += own * waits;
            c.own_squares += own * own;
            c.blocks += 1.0;
        }
        c
    }
}

/// A slope and its variance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slope {
    value: f64,
    variance: f64,
}

impl Slope {
    /// The slope of both runs together; `None` without waiting or with too few blocks.
    fn of(base: &Crowding, new: &Crowding) -> Option<Slope> {
        let squares = base.squares + new.squares;
        let df = base.blocks + new.blocks - 3.0;
        if squares <= 0.0 || df < 1.0 {
            return None;
        }
        let products = base.products + new.products;
        let value = products / squares;
        let left = (base.own_squares + new.own_squares - value * products).max(0.0) / df;
        Some(Slope {
            value,
            variance: left / squares,
        })
    }

    /// The slope relative to a quantity of `size`.
    fn over(self, size: f64) -> Slope {
        Slope {
            value: self.value / size,
            variance: self.variance / (size * size),
        }
    }
}

/// Usual relative change of a quantity for each unit of waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elasticity {
    mean: f64,
    /// Variance between quantities.
    variance: f64,
}

/// Minimum quantities for an estimate of the usual change.
const FEWEST: usize = 3;

impl Elasticity {
    /// Estimates from `quantities`: size, waiting in the base and in the new run.
    pub fn of(quantities: impl Iterator<Item = (f64, Crowding, Crowding)>) -> Option<Elasticity> {
        let slopes: Vec<Slope> = quantities
            .filter(|(size, ..)| *size > 0.0)
            .filter_map(|(size, base, new)| Some(Slope::of(&base, &new)?.over(size)))
            .filter(|s| s.variance > 0.0)
            .collect();
        if slopes.len() < FEWEST {
            return None;
        }
        // Weighted mean, and sum of the weights, if slopes differ by the variance `between`.
        let mean = |between: f64| {
            let weight = |s: &Slope| 1.0 / (s.variance + between);
            let all: f64 = slopes.iter().map(weight).sum();
            let sum: f64 = slopes.iter().map(|s| weight(s) * s.value).sum();
            (sum / all, all)
        };
        let (fixed, weights) = mean(0.0);
        let spread: f64 = (slopes.iter())
            .map(|s| (s.value - fixed).powi(2) / s.variance)
            .sum();
        let squares: f64 = slopes.iter().map(|s| s.variance.powi(-2)).sum();
        let room = weights - squares / weights;
        let between = match room > 0.0 {
            true => ((spread - (slopes.len() - 1) as f64) / room).max(0.0),
            false => 0.0,
        };
        let (mean, weights) = mean(between);
        Some(Elasticity {
            mean,
            // The mean itself has this uncertainty.
            variance: between + 1.0 / weights,
        })
    }
}

/// The part of a difference in a quantity of `size` that the difference in waiting may explain, as
/// a mean square. It uses the slope from block to block with its own uncertainty, moderated by the
/// usual one.
pub fn accounts_for(size: f64, base: &Crowding, new: &Crowding, usual: Option<Elasticity>) -> f64 {
    let Some(own) = Slope::of(base, new) else {
        return 0.0;
    };
    let slope = match usual.filter(|_| size > 0.0 && own.variance > 0.0) {
        None => own,
        Some(usual) => {
            let (mean, variance) = (usual.mean * size, usual.variance * size * size);
            let weight = variance / (variance + own.variance);
            Slope {
                value: weight * own.value + (1.0 - weight) * mean,
                variance: weight * own.variance,
            }
        }
    };
    (slope.value * slope.value + slope.variance) * (new.value - base.value).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of waiting: alternating, so that everything is exact.
    fn waits(mean: f64) -> Vec<f64> {
        (0..20)
            .map(|i| if i % 2 == 0 { mean - 5.0 } else { mean + 5.0 })
            .collect()
    }

    /// A quantity that changes by `elasticity` of itself for each unit of waiting, with independent
    /// noise in pairs of blocks.
    fn quantity(size: f64, elasticity: f64, noise: f64, wait: f64) -> Crowding {
        let w = waits(wait);
        let x: Vec<f64> = (w.iter().enumerate())
            .map(|(i, w)| {
                let noise = if i / 2 % 2 == 0 { noise } else { -noise };
                size * (1.0 + elasticity * (w - wait)) + noise
            })
            .collect();
        Crowding::of(&x, &w, &[1.0; 20])
    }

    #[test]
    fn a_noisy_slope_is_moderated_by_the_others() {
        let all: Vec<(f64, Crowding, Crowding)> = (1..30)
            .map(|i| {
                let size = f64::from(i) * 10.0;
                let of = |wait| quantity(size, -0.01, 0.02 * size, wait);
                (size, of(30.0), of(40.0))
            })
            .collect();
        let usual = Elasticity::of(all.iter().copied()).unwrap();
        assert!((usual.mean + 0.01).abs() < 1e-9, "{usual:?}");
        // A quantity with blocks that differ by half its size allows no conclusion alone.
        let (base, new) = (
            quantity(100.0, -0.01, 50.0, 30.0),
            quantity(100.0, -0.01, 50.0, 40.0),
        );
        let alone = accounts_for(100.0, &base, &new, None).sqrt();
        let moderated = accounts_for(100.0, &base, &new, Some(usual)).sqrt();
        assert!(alone > 15.0, "{alone}");
        // 1 % of itself for each of ten units.
        assert!((9.9..10.5).contains(&moderated), "{moderated}");
    }

    #[test]
    fn a_slope_that_is_known_stays_though_others_have_none() {
        let others = (1..30).map(|i| {
            let size = f64::from(i) * 10.0;
            let of = |wait| quantity(size, 0.0, 0.02 * size, wait);
            (size, of(30.0), of(40.0))
        });
        let (base, new) = (
            quantity(100.0, 0.05, 1.0, 30.0),
            quantity(100.0, 0.05, 1.0, 40.0),
        );
        let own = (100.0, base, new);
        let usual = Elasticity::of(others.chain([own]));
        let explained = accounts_for(100.0, &base, &new, usual).sqrt();
        assert!((45.0..51.0).contains(&explained), "{explained} of 50");
    }

    #[test]
    fn little_is_told_by_itself() {
        let one = quantity(100.0, -0.01, 1.0, 30.0);
        assert_eq!(Elasticity::of([(100.0, one, one)].into_iter()), None);
        assert_eq!(
            accounts_for(1.0, &one, &one, None),
            0.0,
            "they waited alike"
        );
        let none = Crowding::default();
        assert_eq!(accounts_for(1.0, &none, &none, None), 0.0);
    }
}
