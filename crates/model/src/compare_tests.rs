use super::*;

/// The SplitMix64 generator.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A run of `blocks` blocks around `mean`, with a deviation for each block and one for the run.
fn run(r: &mut Random, mean: f64, block: f64, between: f64, blocks: usize) -> Estimate {
    let mean = mean + between * r.normal();
    let x: Vec<f64> = (0..blocks).map(|_| mean + block * r.normal()).collect();
    estimate(&x, &vec![1.0; blocks], 0.0)
}

#[test]
fn intervals_cover_and_tests_keep_their_level() {
    let mut r = Random(1);
    for (runs, between) in [(1, 0.0), (2, 0.0), (5, 0.0), (5, 2.0), (3, 5.0)] {
        let (mut covered, mut called, mut trials) = (0, 0, 0);
        for _ in 0..300 {
            // Ten quantities at a time: together they show how much runs differ.
            let sides: Vec<[Vec<Estimate>; 2]> = (0..10)
                .map(|_| {
                    let mut side = |mean: f64| -> Vec<Estimate> {
                        (0..runs)
                            .map(|_| run(&mut r, mean, 10.0, between * 10.0 / 20f64.sqrt(), 20))
                            .collect()
                    };
                    [side(100.0), side(103.0)]
                })
                .collect();
            let prior = Prior::of([&[], &[]], sides.iter().map(|[b, n]| (&b[..], &n[..])));
            for [base, new] in &sides {
                let d = compare(base, new, prior);
                trials += 1;
                covered += usize::from(d.low <= 3.0 && 3.0 <= d.high);
                // The equivalent under no difference: an estimate as far from its truth.
                called += usize::from((d.delta - 3.0).abs() / d.error > 3.9);
            }
        }
        let share = covered as f64 / trials as f64;
        assert!(share > 0.93, "{runs} runs, {between}: {share}");
        assert!(called <= 12, "{runs} runs, {between}: {called} of {trials}");
    }
}

#[test]
fn all_quantities_together_tell_how_much_runs_differ() {
    let mut r = Random(2);
    let sides: Vec<[Vec<Estimate>; 2]> = (0..40)
        .map(|_| {
            let mut side = || (0..5).map(|_| run(&mut r, 50.0, 4.0, 1.8, 20)).collect();
            [side(), side()]
        })
        .collect();
    let prior = Prior::of([&[], &[]], sides.iter().map(|[b, n]| (&b[..], &n[..])));
    // Sampling variance 16/20 = 0.8, between runs 3.24: runs differ 5 times more.
    assert!((3.5..7.0).contains(&prior.dispersion), "{prior:?}");
    assert!(prior.df > 20.0, "{prior:?}");
    // A quantity that hardly varies does not change the result of the others.
    let still = [
        vec![
            Estimate {
                value: 1.0,
                sampling: 1.0,
                ..Estimate::default()
            };
            5
        ],
        vec![
            Estimate {
                value: 1.0 + 1e-9,
                sampling: 1.0,
                ..Estimate::default()
            };
            5
        ],
    ];
    let with = sides.iter().chain([&still]);
    let other = Prior::of([&[], &[]], with.map(|[b, n]| (&b[..], &n[..])));
    assert!(other.df > 10.0 && other.dispersion > 3.0, "{other:?}");
    let d = compare(&sides[0][0], &sides[0][1], prior);
    assert!(d.df > 28.0 && d.sampled < 0.4, "{d:?}");
}

#[test]
fn what_runs_have_in_common_is_not_taken_for_each_ones_own() {
    let mut r = Random(3);
    let (mut called, mut trials, mut df) = (0, 0, Vec::new());
    for _ in 0..200 {
        // Each run has a speed of its own, 3 % apart. The root has all the time and almost no
        // sampling error; its twenty callees have little time and a large error.
        let mut side = || -> Vec<Vec<Estimate>> {
            (0..5)
                .map(|_| {
                    let speed = 1.0 + 0.03 * r.normal();
                    let whole = std::iter::once(run(&mut r, 1000.0 * speed, 0.1, 0.0, 20));
                    let mut all: Vec<Estimate> = whole.collect();
                    all.extend((0..20).map(|_| run(&mut r, 50.0 * speed, 20.0, 0.0, 20)));
                    all
                })
                .collect()
        };
        let sides = [side(), side()];
        let of = |side: &[Vec<Estimate>], i: usize| -> Vec<Estimate> {
            side.iter().map(|run| run[i]).collect()
        };
        let quantities: Vec<_> = (0..21)
            .map(|i| [of(&sides[0], i), of(&sides[1], i)])
            .collect();
        let whole = [&quantities[0][0][..], &quantities[0][1][..]];
        let pairs = || quantities.iter().map(|[b, n]| (&b[..], &n[..]));
        let prior = Prior::of(whole, pairs());
        df.push(prior.df);
        assert!(Prior::of([&[], &[]], pairs()).df < 10.0);
        for (i, (base, new)) in pairs().enumerate() {
            let d = compare(base, new, prior);
            if i == 0 {
                assert!(d.df < 12.0, "a root is known to its runs: {d:?}");
            }
            called += usize::from(d.p < 0.05);
            trials += 1;
        }
    }
    df.sort_by(f64::total_cmp);
    assert!(df[df.len() / 2] > 40.0, "{df:?}");
    assert!(
        called as f64 / f64::from(trials) < 0.07,
        "{called} of {trials}"
    );
}

#[test]
fn without_blocks_only_large_changes_stand_out() {
    // Samples of 2,000 in one run a side, from a file without times.
    let side = |samples: f64| [estimate(&[samples], &[1.0], samples.max(1.0))];
    let p = |base: f64, new: f64| compare(&side(base), &side(new), Prior::NONE).p;
    // One of a hundred functions.
    assert!(p(4.0, 100.0) < 1e-4, "{}", p(4.0, 100.0));
    // Nearly four standard errors of independent samples, which these may not be.
    assert!(p(200.0, 280.0) > 1e-4, "{}", p(200.0, 280.0));
}

#[test]
fn slow_changes_count() {
    // A program with fast and slow phases: nothing changes over time, yet a second run may differ.
    let x: Vec<f64> = (0..20)
        .map(|i| if i / 5 % 2 == 0 { 1.0 } else { 3.0 })
        .collect();
    let e = estimate(&x, &[1.0; 20], 0.0);
    assert_eq!(e.value, 2.0);
    assert!(e.blocks > 3.0 * e.sampling, "{e:?}");
    assert!(e.blocks > 0.1, "{e:?}");
}

#[test]
fn adjusting_is_benjamini_and_hochbergs() {
    let q = adjust(&[0.01, 0.04, 0.001, 0.5]);
    let want: [f64; 4] = [0.01 * 2.0, 0.04 * 4.0 / 3.0, 0.001 * 4.0, 0.5];
    for (q, w) in q.iter().zip(want) {
        assert!((q - w.min(1.0)).abs() < 1e-12, "{q} {w}");
    }
    assert!(adjust(&[]).is_empty());
}

#[test]
fn effort_is_what_it_takes() {
    let mut r = Random(3);
    let side = |r: &mut Random, n, between| -> Vec<Estimate> {
        (0..n).map(|_| run(r, 100.0, 10.0, between, 20)).collect()
    };
    let d = compare(&side(&mut r, 1, 0.0), &side(&mut r, 1, 0.0), Prior::NONE);
    let size = d.resolvable();
    assert_eq!(effort(&d, size * 1.01), Effort::Enough);
    let Effort::Longer(times) = effort(&d, size / 2.0) else {
        panic!("{d:?}")
    };
    assert!(
        (times - 4.0).abs() < 0.01,
        "half the size, four times the time: {times}"
    );
    let noisy = compare(&side(&mut r, 6, 20.0), &side(&mut r, 6, 20.0), Prior::NONE);
    let few = effort(&noisy, noisy.resolvable() / 3.0);
    assert!(
        matches!(few, Effort::MoreRuns(t) if (8.9..9.1).contains(&t)),
        "{few:?}"
    );
}

#[test]
fn nothing_is_no_difference() {
    let d = compare(&[Estimate::default()], &[Estimate::default()], Prior::NONE);
    assert_eq!((d.delta, d.p), (0.0, 1.0));
    assert_eq!(d.relative(), None);
    assert_eq!(estimate(&[], &[], 1.0), Estimate::default());
}

#[test]
fn a_busier_machine_is_no_slower_program() {
    // In each block, a neighbour's time is missing from the quantity.
    let mut r = Random(4);
    let mut run = |wait: f64, value: f64| {
        let w: Vec<f64> = (0..20).map(|_| wait + 5.0 * r.normal()).collect();
        let x: Vec<f64> = w.iter().map(|w| value - 0.5 * w + r.normal()).collect();
        let n = [1.0; 20];
        Estimate {
            crowding: Crowding::of(&x, &w, &n),
            ..estimate(&x, &n, 0.0)
        }
    };
    let (quiet, crowded, dearer) = (run(10.0, 100.0), run(40.0, 100.0), run(10.0, 108.0));
    let d = compare(&[quiet], &[crowded], Prior::NONE);
    assert!(d.delta < -12.0 && d.p > 0.1, "{d:?}");
    let d = compare(&[quiet], &[dearer], Prior::NONE);
    assert!(d.p < 1e-4, "as quiet as before: {d:?}");
}
