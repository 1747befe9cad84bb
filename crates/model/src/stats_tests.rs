use super::*;

/// The SplitMix64 generator, seeded, so that every run tests the same thousands of recordings.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
    fn between(&mut self, a: f64, b: f64) -> f64 {
        a + (b - a) * self.unit()
    }
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }
    /// Standard normal.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

const LENGTH: f64 = 10.0;
const RATE: f64 = 99.0;

/// Times at which the function ran: (start, end) in seconds.
type Visits = Vec<(f64, f64)>;

/// Alternates between intervals drawn by `inside` and `outside`, from a random phase.
fn alternate(
    r: &mut Random,
    mut inside: impl FnMut(&mut Random) -> f64,
    mut outside: impl FnMut(&mut Random) -> f64,
) -> Visits {
    let mut visits = Vec::new();
    let cycle = inside(r) + outside(r);
    let mut t = -r.between(0.0, cycle);
    while t < LENGTH {
        let end = t + inside(r);
        visits.push((t.clamp(0.0, LENGTH), end.clamp(0.0, LENGTH)));
        t = end + outside(r);
    }
    visits
}

/// A loop of 2 to 40 ms, with lengths that vary by some percent.
fn periodic(r: &mut Random) -> Visits {
    let period = r.between(0.002, 0.040);
    let share = r.between(0.05, 0.95);
    let waver = r.between(0.01, 0.10);
    alternate(
        r,
        |r| (period * share * (1.0 + waver * r.normal())).max(1e-5),
        |r| (period * (1.0 - share) * (1.0 + waver * r.normal())).max(1e-5),
    )
}

/// A loop about as long as the sampling period: the samples beat with it.
fn beating(r: &mut Random, off: f64) -> Visits {
    let period = r.between(1.0 - off, 1.0 + off) / RATE;
    let share = r.between(0.2, 0.8);
    alternate(
        r,
        |r| (period * share * (1.0 + 0.05 * r.normal())).max(1e-5),
        |r| (period * (1.0 - share) * (1.0 + 0.05 * r.normal())).max(1e-5),
    )
}

/// Intervals of random length, some longer than many sampling periods.
fn bursty(r: &mut Random) -> Visits {
    let inside = 10f64.powf(r.between(-3.0, -0.5));
    let outside = inside * r.between(0.3, 8.0);
    alternate(
        r,
        move |r| r.exponential(inside),
        move |r| r.exponential(outside),
    )
}

/// Short intervals with 0.05 to 1 % of the time.
fn rare(r: &mut Random) -> Visits {
    let inside = 10f64.powf(r.between(-4.5, -2.5));
    let share = 10f64.powf(r.between(-3.3, -2.0));
    let outside = inside / share;
    alternate(
        r,
        move |r| r.exponential(inside),
        move |r| r.exponential(outside),
    )
}

/// Nearly always in the function.
fn dominant(r: &mut Random) -> Visits {
    let outside = 10f64.powf(r.between(-4.0, -2.0));
    let share = r.between(0.95, 0.998);
    let inside = outside * share / (1.0 - share);
    alternate(
        r,
        move |r| r.exponential(inside),
        move |r| r.exponential(outside),
    )
}

/// One continuous part of the recording.
fn phase(r: &mut Random) -> Visits {
    let length = r.between(0.2, 6.0);
    let start = r.between(0.0, LENGTH - length);
    vec![(start, start + length)]
}

/// Samples the program like a software clock (fixed period, random phase, a little jitter). Returns
/// whether the interval covers the true share, its width, and the estimate.
fn trial(r: &mut Random, visits: &Visits, blocks: usize) -> (bool, f64, f64) {
    let truth = visits.iter().map(|(a, b)| b - a).sum::<f64>() / LENGTH;
    let mut part = vec![0.0; blocks];
    let mut whole = vec![0.0; blocks];
    let mut t = r.unit() / RATE;
    let mut visit = 0;
    while t < LENGTH {
        let at = (t + r.between(0.0, 5e-5)).min(LENGTH - 1e-9);
        while visit < visits.len() && visits[visit].1 <= at {
            visit += 1;
        }
        let block = (at / LENGTH * blocks as f64) as usize;
        whole[block] += 1.0;
        if visits.get(visit).is_some_and(|v| v.0 <= at) {
            part[block] += 1.0;
        }
        t += 1.0 / RATE;
    }
    let n: f64 = whole.iter().sum();
    let i = share_interval(&part, &whole, n);
    assert!(i.low < i.high, "an interval of no width");
    let covered = i.low <= truth && truth <= i.high;
    (covered, i.width(), part.iter().sum::<f64>() / n)
}

/// The promise: at 99 Hz over 10 s the printed interval covers the truth in at least 93 % of the
/// cases, for each kind of program and each number of blocks that a recording may have. Only for a
/// loop within 1 % of the sampling period it may be less.
#[test]
fn intervals_cover_the_truth() {
    type Program = fn(&mut Random) -> Visits;
    // Name, program, least coverage, and the maximum average width in multiples of the binomial
    // one. The binomial interval would cover far too little where this number is large.
    let programs: [(&str, Program, f64, f64); 7] = [
        ("periodic", periodic, 0.93, 1.4),
        ("bursty", bursty, 0.93, 3.0),
        ("rare", rare, 0.93, 1.5),
        ("dominant", dominant, 0.93, 1.5),
        ("phase", phase, 0.93, 7.0),
        ("beating", |r| beating(r, 0.03), 0.93, 5.0),
        ("locked", |r| beating(r, 0.01), 0.88, 6.0),
    ];
    const TRIALS: usize = 1000;
    for blocks in [10, 20] {
        for (seed, (name, program, least, widest)) in programs.iter().enumerate() {
            let mut r = Random(seed as u64 * 1000 + blocks as u64);
            let (mut covered, mut width, mut binomial) = (0, 0.0, 0.0);
            for _ in 0..TRIALS {
                let visits = program(&mut r);
                let (hit, w, p) = trial(&mut r, &visits, blocks);
                let n = LENGTH * RATE;
                covered += usize::from(hit);
                width += w;
                binomial += 2.0 * Z * (p * (1.0 - p) / n + 1.0 / (n * n)).sqrt();
            }
            let rate = covered as f64 / TRIALS as f64;
            let wide = width / binomial;
            println!("{name:9} {blocks:2} blocks: covered {rate:.3}, width {wide:.2} x binomial");
            assert!(rate >= *least, "{name}, {blocks} blocks: covered {rate}");
            assert!(
                wide <= *widest,
                "{name}, {blocks} blocks: {wide} x binomial"
            );
        }
    }
}

#[test]
fn never_without_width() {
    let whole = [50.0; 20];
    for seen in [0.0, 50.0] {
        let i = share_interval(&[seen; 20], &whole, 1000.0);
        assert!(i.width() > 0.001 && i.width() < 0.01, "{i:?}");
    }
    let mut twice = [0.0; 20];
    twice[3] = 2.0;
    let i = share_interval(&twice, &[150.0; 20], 3000.0);
    assert!(
        i.low < 2.0 / 3000.0 / 4.0 && i.high > 2.0 * 2.0 / 3000.0,
        "{i:?}"
    );
}

/// A sum in another order than the whole's differs from it in the last digit.
#[test]
fn rounding_is_no_variance() {
    let whole: Vec<f64> = (0..20).map(|i| 46.7 + f64::from(i % 7) / 3.0).collect();
    let exact = share_interval(&whole, &whole, 932.0);
    assert!(exact.low > 0.99, "{exact:?}");
    for (up, down) in [
        (1.0 + 1e-15, 1.0),
        (1.0, 1.0 - 1e-15),
        (1.0 + 1e-15, 1.0 - 1e-15),
    ] {
        let factor = |i: usize| if i.is_multiple_of(2) { up } else { down };
        let part: Vec<f64> = (whole.iter().enumerate())
            .map(|(i, y)| y * factor(i))
            .collect();
        assert_eq!(share_interval(&part, &whole, 932.0), exact);
        let none: Vec<f64> = part
            .iter()
            .zip(&whole)
            .map(|(x, y)| (x - y).abs())
            .collect();
        let none = share_interval(&none, &whole, 932.0);
        assert!(none.high < 0.01, "{none:?}");
    }
}

#[test]
fn few_blocks_or_samples_are_guarded() {
    // Only two equal blocks prove nothing.
    let i = share_interval(&[5.0, 5.0], &[10.0, 10.0], 20.0);
    assert!(i.low < 0.3 && i.high > 0.7, "{i:?}");
    // All the time in one of twenty blocks is one block.
    let (mut part, mut whole) = ([0.0; 20], [0.0; 20]);
    (part[7], whole[7]) = (5.0, 10.0);
    let one = share_interval(&part, &whole, 10.0);
    assert!(one.low < 0.25 && one.high > 0.75, "{one:?}");
    assert_eq!(share_interval(&[], &[], 0.0), Interval::UNKNOWN);
    assert_eq!(share_interval(&[0.0], &[0.0], 5.0), Interval::UNKNOWN);
}

#[test]
fn correlated_samples_widen_the_interval() {
    let whole = [50.0; 20];
    let even = share_interval(&[25.0; 20], &whole, 1000.0);
    let mut lumps = [0.0; 20];
    for i in (0..20).step_by(2) {
        lumps[i] = 50.0;
    }
    let lumpy = share_interval(&lumps, &whole, 1000.0);
    assert!(lumpy.width() > 3.0 * even.width(), "{even:?} {lumpy:?}");
}

#[test]
fn joined_states_weigh_by_their_exact_time() {
    let sure = Interval {
        low: 0.5,
        high: 0.5,
    };
    let wide = Interval {
        low: 0.0,
        high: 1.0,
    };
    let i = join(&[(0.9, 0.5, sure), (0.1, 0.5, wide)]);
    assert!(
        (i.low - 0.45).abs() < 1e-12 && (i.high - 0.55).abs() < 1e-12,
        "{i:?}"
    );
}

#[test]
fn the_smallest_share_is_about_three_samples() {
    let s = smallest_share(990.0);
    assert!((s * 990.0 - 3.0).abs() < 0.01, "{s}");
    assert_eq!(smallest_share(0.0), 1.0);
}

#[test]
fn quantiles_are_those_of_the_tables() {
    for (df, t) in [(3.0, 3.182), (9.0, 2.262), (19.0, 2.093), (1e6, 1.960)] {
        let rel: f64 = (student(df) - t) / t;
        assert!(rel.abs() < 0.008, "{df}: {}", student(df));
    }
}

#[test]
fn samples_resolve_the_share_that_they_are_for() {
    for share in [0.5, 0.01, 0.001] {
        let samples = samples_for(share);
        assert!(
            (smallest_share(samples) / share - 1.0).abs() < 1e-9,
            "{share}: {samples}"
        );
    }
    assert!((samples_for(0.01) - 298.0).abs() < 1.0);
}
