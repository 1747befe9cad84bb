//! The universal scalability law against known terms.

use super::super::random::Random;
use super::super::usl::{Error, Fit, Point, fit};
use super::near;

fn law(load: f64, contention: f64, coherence: f64) -> f64 {
    100.0 * load / (1.0 + contention * (load - 1.0) + coherence * load * (load - 1.0))
}

/// Points at 1 to 32 workers with relative noise.
fn noisy(contention: f64, coherence: f64, noise: f64, seed: u64) -> Vec<Point> {
    let mut random = Random::new(seed);
    let point = |load: f64| Point {
        load,
        throughput: law(load, contention, coherence) * (1.0 + noise * random.normal()),
    };
    [1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0]
        .map(point)
        .to_vec()
}

#[test]
fn exact_points_give_the_law_back() {
    for (contention, coherence) in [(0.05, 0.001), (0.3, 0.02), (0.0, 0.004)] {
        let f = fit(&noisy(contention, coherence, 0.0, 1)).unwrap();
        assert!((f.contention.value - contention).abs() < 1e-6, "{f:?}");
        assert!((f.coherence.value - coherence).abs() < 1e-6, "{f:?}");
        near("single", f.single.value, 100.0, 1e-6);
        near(
            "peak",
            f.peak_load.value,
            ((1.0 - contention) / coherence).sqrt(),
            1e-4,
        );
        assert!(f.scatter.unwrap() < 1e-6);
    }
}

#[test]
fn without_coherence_it_flattens() {
    let f = fit(&noisy(0.1, 0.0, 0.0, 1)).unwrap();
    assert!(f.coherence.value < 1e-9);
    if f.coherence.value == 0.0 {
        assert_eq!(f.peak_load.value, f64::INFINITY);
        near("peak", f.peak_throughput.value, 1000.0, 1e-3);
    }
    // Two workers are twice as fast as one: nothing limits.
    let linear = [1.0, 2.0, 3.0, 4.0].map(|n| Point {
        load: n,
        throughput: 7.0 * n * n.powf(0.1),
    });
    let f = fit(&linear).unwrap();
    assert_eq!((f.contention.value, f.coherence.value), (0.0, 0.0));
    assert_eq!(f.peak_throughput.value, f64::INFINITY);
}

#[test]
fn noise_of_two_per_cent_leaves_the_terms_known() {
    let (contention, coherence) = (0.06, 0.0015);
    let peak = ((1.0f64 - contention) / coherence).sqrt();
    let (mut held, runs) = ([0u32; 3], 60);
    for seed in 0..runs {
        let f: Fit = fit(&noisy(contention, coherence, 0.02, 100 + seed)).unwrap();
        assert!((f.contention.value - contention).abs() <= 0.02, "{f:?}");
        near("peak", f.peak_load.value, peak, 0.15);
        let holds =
            |e: &super::super::Estimate, truth: f64| u32::from(e.low <= truth && truth <= e.high);
        held[0] += holds(&f.contention, contention);
        held[1] += holds(&f.coherence, coherence);
        held[2] += holds(&f.peak_load, peak);
    }
    let least = runs as u32 * 9 / 10;
    assert!(held.iter().all(|h| *h >= least), "of {runs}: {held:?}");
}

#[test]
fn too_few_or_wrong_points_are_refused() {
    let at = |load, throughput| Point { load, throughput };
    assert_eq!(fit(&[]), Err(Error::TooFewLoads(0)));
    let twice = [at(1.0, 5.0), at(2.0, 9.0), at(2.0, 9.1)];
    assert_eq!(fit(&twice), Err(Error::TooFewLoads(2)));
    assert_eq!(fit(&[at(0.0, 5.0)]), Err(Error::NotPositive));
    assert_eq!(fit(&[at(1.0, f64::NAN)]), Err(Error::NotPositive));
    let f = fit(&[at(1.0, 10.0), at(2.0, 18.0), at(4.0, 30.0)]).unwrap();
    assert_eq!((f.scatter, f.contention.high), (None, f64::INFINITY));
}
