//! Keeps our own CPU time below the limit by polling, and sampling, less often.
//!
//! Some work cannot be slowed down: records of switches, new processes and their programs, the host's facts. Its cost
//! is taken off the limit, but polls and samples may always have half of the limit. Each of the two is slowed by its
//! own cost. Many threads that wait now and then make polls costly, which is no reason to sample running threads less
//! often. Processes that come and go are no reason to poll less often at all. Wake-ups are a part of the cost of each,
//! on virtual machines the largest part.
//!
//! Rounds of polls stay so close to each other that nothing is noticed too late. If they would have to be further
//! apart, each round polls a part of the threads only.

use std::time::Duration;

use crate::{
    clock,
    period_jitter::{self, PeriodJitter},
};

/// Time between two checks of the cost, ns.
const EVERY: u64 = 200_000_000;
/// Longest time between two rounds of polls.
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time between two polls of one thread, and between two samples of a running thread.
const SELDOM: Duration = Duration::from_secs(32);

/// Share of the budget of polls and samples that each of the two may always have.
const MIN_SHARE: f64 = 0.2;
/// Factor by which one wake-up moves the median of their cost.
const MOVED: f64 = 1.05;

/// Work with an adjustable rate, and a cost in proportion to it.
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

    /// Adapts the period: the work took a `share` of one CPU and may take `budget`.
    fn adapt(&mut self, share: f64, budget: f64) {
        self.share = (self.share + share.max(0.0)) / 2.0;
        let ratio = self.share / budget.max(1e-6);
        let factor = if ratio > 1.0 {
            ratio.clamp(1.1, 4.0)
        } else if ratio < 0.7 {
            // Back to the rate that the budget just allows, but not at once.
            (ratio / 0.85).max(0.5)
        } else {
            return;
        };
        let before = self.period.as_secs_f64();
        self.period =
            Duration::from_secs_f64(before * factor).clamp(self.asked.min(SELDOM), SELDOM);
        // The cost at the old period predicts the cost at the new one, and must not count twice.
        self.share *= before / self.period.as_secs_f64();
    }
}

/// CPU time used so far, ns.
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// In all.
    pub cpu_ns: u64,
    /// For polls.
    pub polls_ns: u64,
    /// For samples, but for those that are left out.
    pub samples_ns: u64,
    /// On-CPU time of threads that samples stand for.
    pub sampled_ns: u64,
    /// Number of threads.
    pub threads: usize,
}

/// Typical CPU time of one wake-up: the median, which moves by a part of itself with each. Pauses of a virtual
/// machine fall into wake-ups and cost many times as much. They do not become fewer in proportion to the wake-ups.
#[derive(Default)]
pub struct Waking {
    median_ns: f64,
}

impl Waking {
    /// Cost that a wake-up of `ns` counts as, ns.
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
    polls: Rate,
    samples: Rate,
    last_ns: u64,
    last: Used,
    /// Number of polls so far of a thread that runs all the time.
    polled: f64,
    /// Number of samples of such a thread until the last check.
    sampled: f64,
    jitter: PeriodJitter,
}

impl Pace {
    /// `hz` rounds a second, and at most `percent` of one CPU, from `now` on, when `cpu_ns` had been
    /// used.
    pub fn new(hz: u32, percent: f64, now: u64, cpu_ns: u64) -> Pace {
        let asked = Duration::from_secs(1) / hz.max(1);
        Pace {
            limit: percent / 100.0,
            polls: Rate::new(asked),
            samples: Rate::new(asked),
            last_ns: now,
            last: Used {
                cpu_ns,
                ..Used::default()
            },
            polled: 0.0,
            sampled: 0.0,
            jitter: PeriodJitter::seeded(clock::now()),
        }
    }

    /// Nominal time between two polls of one thread, ns.
    pub fn period_ns(&self) -> u64 {
        self.polls.period.as_nanos() as u64
    }

    /// Time between two samples of a thread that runs, ns.
    pub fn sample_ns(&self) -> u64 {
        self.samples.period.as_nanos() as u64
    }

    /// Each round polls one in this many threads.
    pub fn stride(&self) -> usize {
        let longest = MAX_INTERVAL.max(self.polls.asked).as_nanos();
        self.polls.period.as_nanos().div_ceil(longest) as usize
    }

    /// Time to the next round, ns: its period, give or take a quarter, so that nothing periodic is
    /// favoured.
    pub fn next_ns(&mut self) -> u64 {
        self.polled += 1.0 / self.stride() as f64;
        let period = self.period_ns() / self.stride() as u64;
        self.jitter.of(period, period_jitter::POLL_JITTER_DIVISOR)
    }

    /// The mean rate so far, Hz, of polls of a thread that runs all the time, in a window of
    /// `window_ns`.
    pub fn poll_hz(&self, window_ns: u64) -> f64 {
        self.polled * 1e9 / window_ns.max(1) as f64
    }

    /// The mean rate of samples so far, Hz, in a window of `window_ns` until `now`.
    pub fn sample_hz(&self, now: u64, window_ns: u64) -> f64 {
        let since = now.saturating_sub(self.last_ns) as f64 / 1e9;
        let all = self.sampled + since / self.samples.period.as_secs_f64();
        all * 1e9 / window_ns.max(1) as f64
    }

    /// Adapts the rates to the CPU time `used` up to `now`. Returns whether the period of samples has changed.
    pub fn check(&mut self, now: u64, used: Used) -> bool {
        let time = now.saturating_sub(self.last_ns);
        if time < EVERY {
            return false;
        }
        let of_time = |new: u64, old: u64| new.saturating_sub(old) as f64 / time as f64;
        let polls = of_time(used.polls_ns, self.last.polls_ns);
        let samples = of_time(used.samples_ns, self.last.samples_ns);
        let fixed = of_time(used.cpu_ns, self.last.cpu_ns) - polls - samples;
        let last = std::mem::replace(&mut self.last, used);
        self.last_ns = now;
        self.sampled += time as f64 / 1e9 / self.samples.period.as_secs_f64();
        let budget = (self.limit - fixed.max(0.0)).max(self.limit / 2.0);
        let before = self.samples.period;
        let part = part_of_samples(of_time(used.sampled_ns, last.sampled_ns), used.threads);
        // Polls may use the rest of the samples' part, and samples that of the polls' part.
        let (by_polls, by_samples) = (self.polls.share, self.samples.share);
        self.polls
            .adapt(polls, (budget - by_samples).max(budget * (1.0 - part)));
        self.samples
            .adapt(samples, (budget - by_polls).max(budget * part));
        self.samples.period != before
    }
}

/// Part of the budget of polls and samples that is for samples, if on average `computing` of `threads` were on a CPU.
/// It makes the error of both together smallest if a sample costs as much as a round of polls. A sample is of one
/// thread that computes, a round of all threads that do not.
fn part_of_samples(computing: f64, threads: usize) -> f64 {
    let waiting = (threads as f64 - computing).max(0.0);
    let part = computing / (computing + waiting.sqrt()).max(f64::MIN_POSITIVE);
    part.clamp(MIN_SHARE, 1.0 - MIN_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn used(polls_ns: u64, fixed_ns: u64, samples_ns: u64) -> Used {
        Used {
            cpu_ns: polls_ns + fixed_ns + samples_ns,
            polls_ns,
            samples_ns,
            ..Used::default()
        }
    }

    #[test]
    fn it_slows_down_when_costly_and_recovers() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        assert!(!p.check(S, used(S / 25, 0, 0))); // 4 %, half of it believed
        assert_eq!(p.period_ns(), 20_000_000);
        let mut polls = S / 25;
        for second in 2..20 {
            polls += S / 1000;
            p.check(second * S, used(polls, 0, 0));
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
        // Polls take 4 % of a CPU, samples 0.2 %.
        assert!(!p.check(S, used(S / 25, 0, S / 500)));
        assert!(p.period_ns() > 15_000_000);
        assert_eq!(p.sample_ns(), 10_000_000);
        let mut p = Pace::new(100, 1.0, 0, 0);
        assert!(p.check(S, used(S / 500, 0, S / 25)));
        assert!(p.sample_ns() > 15_000_000);
        assert_eq!(p.period_ns(), 10_000_000);
    }

    #[test]
    fn running_threads_are_sampled_and_waiting_ones_polled() {
        assert_eq!(part_of_samples(1.0, 1), 1.0 - MIN_SHARE);
        assert_eq!(part_of_samples(0.0, 1), MIN_SHARE);
        assert_eq!(part_of_samples(0.0, 0), MIN_SHARE);
        assert_eq!(part_of_samples(2.0, 6), 0.5);
        // Both cost 0.2 ms each: a thread that computes all the time is sampled more often than polled.
        let mut p = Pace::new(100, 1.0, 0, 0);
        let mut all = Used {
            threads: 1,
            ..Used::default()
        };
        for tenth in 1..200 {
            let each = |period: u64| S / 10 * 200_000 / period;
            all.polls_ns += each(p.period_ns());
            all.samples_ns += each(p.sample_ns());
            all.sampled_ns += S / 10;
            all.cpu_ns = all.polls_ns + all.samples_ns;
            p.check(tenth * S / 10, all);
        }
        let (polls, samples) = (S / p.period_ns(), S / p.sample_ns());
        assert!((8..=14).contains(&polls), "{polls}");
        assert!((33..=48).contains(&samples), "{samples}");
    }

    #[test]
    fn a_waking_counts_as_it_costs_as_a_rule() {
        let mut waking = Waking::default();
        for _ in 0..100 {
            waking.of(50_000);
        }
        // A pause of the machine, and then a cost that stays higher.
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
