//! Keeps our own CPU time below the limit by looking, and sampling, less often.
//!
//! Some of it cannot be slowed down: records of switches, new processes and what they run, the host's facts. What that
//! costs is taken off the limit, of which looks and samples may always have half. Each of the two is slowed by what
//! it costs itself: many threads that wait now and then make looks dear, which is no reason to sample computing ones
//! less often, and processes that come and go are none to look less often at all. To wake up is a part of what
//! each of them costs, on virtual machines the largest.
//!
//! Rounds of looks stay so close to each other that nothing is noticed too late. Where they would have
//! to be further apart, each looks at a part of the threads only.

use std::time::Duration;

use crate::{
    clock,
    period_jitter::{self, PeriodJitter},
};

/// How often the cost is looked at, ns.
const EVERY: u64 = 200_000_000;
/// Longest time between two rounds of looks.
const LONGEST: Duration = Duration::from_millis(500);
/// Longest time between two looks at one thread, and between two samples of one that runs.
const SELDOM: Duration = Duration::from_secs(32);

/// Looks, and samples, may always have so much of what both may cost.
const LEAST: f64 = 0.2;
/// By what one waking moves the median of what they cost.
const MOVED: f64 = 1.05;

/// What may be done more or less often, and takes time by how often it is done.
struct Rate {
    asked: Duration,
    period: Duration,
    /// Share of one CPU that it took lately.
    share: f64,
}

impl Rate {
    fn new(asked: Duration) -> Rate {
        Rate {
            asked,
            period: asked,
            share: 0.0,
        }
    }

    /// It took a `share` of one CPU and may have `budget`.
    fn adapt(&mut self, share: f64, budget: f64) {
        self.share = (self.share + share.max(0.0)) / 2.0;
        let ratio = self.share / budget.max(1e-6);
        let factor = if ratio > 1.0 {
            ratio.clamp(1.1, 4.0)
        } else if ratio < 0.7 {
            // Back to where it would just be allowed, but not at once.
            (ratio / 0.85).max(0.5)
        } else {
            return;
        };
        let before = self.period.as_secs_f64();
        self.period =
            Duration::from_secs_f64(before * factor).clamp(self.asked.min(SELDOM), SELDOM);
        // What it took at the old distance says what it will take at the new one: it is not held against it twice.
        self.share *= before / self.period.as_secs_f64();
    }
}

/// CPU time used so far, ns.
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// In all.
    pub cpu_ns: u64,
    /// For looks.
    pub looks_ns: u64,
    /// For samples, but for those that are left out.
    pub samples_ns: u64,
    /// What samples stand for: time that threads computed.
    pub sampled_ns: u64,
    /// Threads there are.
    pub threads: usize,
}

/// What waking up once costs as a rule, CPU time: the median, which moves by a part of itself with each. A
/// virtual machine's pauses fall into its wakings, cost many times as much, and do not become fewer in step
/// with them.
#[derive(Default)]
pub struct Waking {
    median_ns: f64,
}

impl Waking {
    /// What it is to be counted as, ns, if it took `ns` this time.
    pub fn of(&mut self, ns: u64) -> u64 {
        if self.median_ns < 1.0 {
            self.median_ns = ns as f64;
        }
        self.median_ns *= if ns as f64 > self.median_ns {
            MOVED
        } else {
            1.0 / MOVED
        };
        ns.min((2.0 * self.median_ns) as u64)
    }
}

/// The rates in force.
pub struct Pace {
    limit: f64,
    looks: Rate,
    samples: Rate,
    last_ns: u64,
    last: Used,
    /// Looks that a thread that ran all the time would have had by now.
    looked: f64,
    /// Samples that it would have had.
    sampled: f64,
    uneven: PeriodJitter,
}

impl Pace {
    /// `hz` rounds a second, and at most `percent` of one CPU, from `now` on, when `cpu_ns` had been
    /// used.
    pub fn new(hz: u32, percent: f64, now: u64, cpu_ns: u64) -> Pace {
        let asked = Duration::from_secs(1) / hz.max(1);
        Pace {
            limit: percent / 100.0,
            looks: Rate::new(asked),
            samples: Rate::new(asked),
            last_ns: now,
            last: Used {
                cpu_ns,
                ..Used::default()
            },
            looked: 0.0,
            sampled: 0.0,
            uneven: PeriodJitter::seeded(clock::now()),
        }
    }

    /// Nominal time between two looks at one thread, ns.
    pub fn period_ns(&self) -> u64 {
        self.looks.period.as_nanos() as u64
    }

    /// Time between two samples of a thread that runs, ns.
    pub fn sample_ns(&self) -> u64 {
        self.samples.period.as_nanos() as u64
    }

    /// Each round looks at one of so many threads.
    pub fn stride(&self) -> usize {
        let longest = LONGEST.max(self.looks.asked).as_nanos();
        self.looks.period.as_nanos().div_ceil(longest) as usize
    }

    /// Time to the next round, ns: its period, give or take a quarter, so that nothing periodic is
    /// favoured.
    pub fn next_ns(&mut self) -> u64 {
        self.looked += 1.0 / self.stride() as f64;
        let period = self.period_ns() / self.stride() as u64;
        self.uneven.of(period, period_jitter::POLL_JITTER_DIVISOR)
    }

    /// The mean rate so far, Hz, of looks at a thread that moves all the time, in a window of
    /// `window_ns`.
    pub fn look_hz(&self, window_ns: u64) -> f64 {
        self.looked * 1e9 / window_ns.max(1) as f64
    }

    /// The mean rate of samples so far, Hz, in a window of `window_ns` until `now`.
    pub fn sample_hz(&self, now: u64, window_ns: u64) -> f64 {
        let since = now.saturating_sub(self.last_ns) as f64 / 1e9;
        let all = self.sampled + since / self.samples.period.as_secs_f64();
        all * 1e9 / window_ns.max(1) as f64
    }

    /// Looks at what was `used` up to `now`. Whether the period of samples has changed.
    pub fn check(&mut self, now: u64, used: Used) -> bool {
        let time = now.saturating_sub(self.last_ns);
        if time < EVERY {
            return false;
        }
        let of_time = |new: u64, old: u64| new.saturating_sub(old) as f64 / time as f64;
        let looks = of_time(used.looks_ns, self.last.looks_ns);
        let samples = of_time(used.samples_ns, self.last.samples_ns);
        let fixed = of_time(used.cpu_ns, self.last.cpu_ns) - looks - samples;
        let last = std::mem::replace(&mut self.last, used);
        self.last_ns = now;
        self.sampled += time as f64 / 1e9 / self.samples.period.as_secs_f64();
        let budget = (self.limit - fixed.max(0.0)).max(self.limit / 2.0);
        let before = self.samples.period;
        let part = part_of_samples(of_time(used.sampled_ns, last.sampled_ns), used.threads);
        // What one of them leaves of its part is the other's.
        let (by_looks, by_samples) = (self.looks.share, self.samples.share);
        self.looks
            .adapt(looks, (budget - by_samples).max(budget * (1.0 - part)));
        self.samples
            .adapt(samples, (budget - by_looks).max(budget * part));
        self.samples.period != before
    }
}

/// What part of what both may cost is for samples, where on average `computing` of so many `threads` were on a
/// CPU: that makes the error of both together smallest, if one of each costs the same. A sample is of one
/// thread that computes, a look of all that do not.
fn part_of_samples(computing: f64, threads: usize) -> f64 {
    let waiting = (threads as f64 - computing).max(0.0);
    let part = computing / (computing + waiting.sqrt()).max(f64::MIN_POSITIVE);
    part.clamp(LEAST, 1.0 - LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn used(looks_ns: u64, fixed_ns: u64, samples_ns: u64) -> Used {
        Used {
            cpu_ns: looks_ns + fixed_ns + samples_ns,
            looks_ns,
            samples_ns,
            ..Used::default()
        }
    }

    #[test]
    fn it_slows_down_when_dear_and_recovers() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        assert!(!p.check(S, used(S / 25, 0, 0))); // 4 %, half of it believed
        assert_eq!(p.period_ns(), 20_000_000);
        let mut looks = S / 25;
        for second in 2..20 {
            looks += S / 1000;
            p.check(second * S, used(looks, 0, 0));
        }
        assert_eq!(p.period_ns(), 10_000_000, "never faster than asked");
        let mean = p.sample_hz(20 * S, 20 * S);
        assert!((99.0..101.0).contains(&mean), "{mean}");
    }

    #[test]
    fn what_is_fixed_is_not_held_against_the_samplers() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        p.check(S, used(S / 300, S / 10, 0));
        assert_eq!(p.period_ns(), 10_000_000);
        p.check(2 * S, used(S / 30, S / 5, 0));
        assert!(p.period_ns() > 10_000_000, "but these are too dear");
    }

    #[test]
    fn each_is_slowed_by_what_it_costs_itself() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        // Looks take 4 % of a CPU, samples 0.2 %.
        assert!(!p.check(S, used(S / 25, 0, S / 500)));
        assert!(p.period_ns() > 15_000_000);
        assert_eq!(p.sample_ns(), 10_000_000);
        let mut p = Pace::new(100, 1.0, 0, 0);
        assert!(p.check(S, used(S / 500, 0, S / 25)));
        assert!(p.sample_ns() > 15_000_000);
        assert_eq!(p.period_ns(), 10_000_000);
    }

    #[test]
    fn who_computes_is_sampled_and_who_waits_looked_at() {
        assert_eq!(part_of_samples(1.0, 1), 1.0 - LEAST);
        assert_eq!(part_of_samples(0.0, 1), LEAST);
        assert_eq!(part_of_samples(0.0, 0), LEAST);
        assert_eq!(part_of_samples(2.0, 6), 0.5);
        // Both cost 0.2 ms each: a thread that computes all the time is sampled oftener than looked at.
        let mut p = Pace::new(100, 1.0, 0, 0);
        let mut all = Used {
            threads: 1,
            ..Used::default()
        };
        for tenth in 1..200 {
            let each = |period: u64| S / 10 * 200_000 / period;
            all.looks_ns += each(p.period_ns());
            all.samples_ns += each(p.sample_ns());
            all.sampled_ns += S / 10;
            all.cpu_ns = all.looks_ns + all.samples_ns;
            p.check(tenth * S / 10, all);
        }
        let (looks, samples) = (S / p.period_ns(), S / p.sample_ns());
        assert!((8..=14).contains(&looks), "{looks}");
        assert!((33..=48).contains(&samples), "{samples}");
    }

    #[test]
    fn a_waking_counts_as_it_costs_as_a_rule() {
        let mut waking = Waking::default();
        for _ in 0..100 {
            waking.of(50_000);
        }
        // A pause of the machine, and something dearer that stays so.
        assert!((90_000..110_000).contains(&waking.of(1_000_000)));
        for _ in 0..100 {
            waking.of(200_000);
        }
        assert_eq!(waking.of(200_000), 200_000);
    }

    #[test]
    fn rounds_are_jittered_around_the_period() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        let times: Vec<u64> = (0..2000).map(|_| p.next_ns()).collect();
        assert!(times.iter().all(|t| (7_500_000..=12_500_000).contains(t)));
        let mean = times.iter().sum::<u64>() / 2000;
        assert!((9_800_000..10_200_000).contains(&mean), "{mean}");
    }

    #[test]
    fn rounds_far_apart_are_divided_among_the_threads() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        let mut cpu = 0;
        for second in 1..30 {
            cpu += S / 20;
            p.check(second * S, used(cpu, 0, 0));
        }
        assert_eq!((p.period_ns(), p.stride()), (32 * S, 64));
        assert!(p.next_ns() <= S);
        // A caller that asks for rare rounds gets them.
        assert_eq!(Pace::new(1, 1.0, 0, 0).stride(), 1);
    }
}
