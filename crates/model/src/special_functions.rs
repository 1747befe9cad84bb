//! Special functions for comparisons: Student's t, and derivatives of log gamma.

/// Logarithm of the gamma function for `x > 0` (Stirling's series after shifting the argument up).
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift += x.ln();
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    let series = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

/// First derivative of log gamma, `x > 0`.
pub(crate) fn digamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift += 1.0 / x;
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    x.ln() - 0.5 / x - r * (1.0 / 12.0 - r * (1.0 / 120.0 - r * (1.0 / 252.0 - r / 240.0))) - shift
}

/// Second derivative of log gamma, `x > 0`.
pub(crate) fn trigamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 12.0 {
        shift += 1.0 / (x * x);
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    1.0 / x + r / 2.0 + r / x * (1.0 / 6.0 - r * (1.0 / 30.0 - r * (1.0 / 42.0 - r / 30.0))) + shift
}

/// The `x` with trigamma `y > 0`: trigamma falls monotonically, so bisection over magnitudes finds
/// it.
pub(crate) fn trigamma_inverse(y: f64) -> f64 {
    bisect(-18.0, 18.0, |log| trigamma(log.exp()) < y).exp()
}

/// The point between `low` and `high` at which `above` becomes true.
fn bisect(mut low: f64, mut high: f64, above: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if above(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (low + high) / 2.0
}

/// Probability that `|T|` exceeds `|t|`, for Student's t with `df > 0` degrees of freedom.
pub(crate) fn student_p(t: f64, df: f64) -> f64 {
    if !t.is_finite() {
        return 0.0;
    }
    incomplete_beta(df / (df + t * t), df / 2.0, 0.5)
}

/// The quantile of Student's t at probability `share`, 0.5 ≤ share < 1.
pub(crate) fn student_quantile(share: f64, df: f64) -> f64 {
    let tail = 2.0 * (1.0 - share);
    bisect(-20.0, 20.0, |log| student_p(log.exp(), df) < tail).exp()
}

/// The regularised incomplete beta function `I_x(a, b)`.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x >= 1.0 {
        1.0
    } else if x > (a + 1.0) / (a + b + 2.0) {
        1.0 - beta_fraction(1.0 - x, b, a)
    } else {
        beta_fraction(x, a, b)
    }
}

/// `I_x(a, b)` by its continued fraction (DLMF 8.17.22), evaluated with the modified Lentz method;
/// converges fast for `x` below about `a / (a + b)`.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let scale = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    let front = (a * x.ln() + b * (-x).ln_1p() + scale).exp() / a;
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (mut c, mut d, mut value) = (1.0, 0.0, 1.0);
    // Odd and even terms in turn.
    for i in 1..2_000 {
        let m = f64::from(i / 2);
        let term = if i % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        d = 1.0 / away(1.0 + term * d);
        c = away(1.0 + term / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front / value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} is not {b}");
    }

    /// Values with a closed form, or from tables.
    #[test]
    fn they_have_their_known_values() {
        near(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln());
        near(ln_gamma(6.0), 120f64.ln());
        near(digamma(1.0), -0.577_215_664_901_532_9);
        near(trigamma(1.0), std::f64::consts::PI.powi(2) / 6.0);
        near(trigamma(0.5), std::f64::consts::PI.powi(2) / 2.0);
        for x in [0.01, 0.3, 1.0, 7.5, 400.0] {
            near(trigamma_inverse(trigamma(x)) / x, 1.0);
        }
        // One degree of freedom is Cauchy's distribution, two have a closed form.
        for t in [0.1, 1.0, 3.0, 50.0] {
            near(
                student_p(t, 1.0),
                1.0 - 2.0 / std::f64::consts::PI * t.atan(),
            );
            near(student_p(t, 2.0), 1.0 - t / (2.0 + t * t).sqrt());
        }
        for (share, df, t) in [
            (0.975, 4.0, 2.776_445),
            (0.975, 38.0, 2.024_394),
            (0.99995, 18.0, 4.965_630),
            (0.8, 10.0, 0.879_058),
            (0.975, 1e6, 1.959_966),
        ] {
            let got = student_quantile(share, df);
            assert!((got - t).abs() < 2e-4, "{share} {df}: {got}");
        }
    }
}
