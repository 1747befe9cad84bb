//! Keeps our own CPU time below the limit by looking, and sampling, less often.
//!
//! Records of switches cannot be slowed down: what they cost is taken off the limit, of which looks
//! and samples may always have half.

use std::time::Duration;

/// How often the cost is looked at, ns.
const EVERY: u64 = 200_000_000;
/// Longest time between two looks.
const LONGEST: Duration = Duration::from_secs(1);

/// The rate in force.
pub struct Pace {
    limit: f64,
    asked: Duration,
    period: Duration,
    /// Share of one CPU that looks and samples took lately.
    share: f64,
    last: (u64, u64, u64),
    /// Rounds of looks made.
    pub rounds: u64,
    /// Samples that a thread that runs all the time would have had by now.
    samples: f64,
    phase: u32,
}

impl Pace {
    /// `hz` rounds a second, and at most `percent` of one CPU, from `now` on, when `cpu_ns` had been
    /// used.
    pub fn new(hz: u32, percent: f64, now: u64, cpu_ns: u64) -> Pace {
        let asked = Duration::from_secs(1) / hz.max(1);
        Pace {
            limit: percent / 100.0,
            asked,
            period: asked,
            share: 0.0,
            last: (now, cpu_ns, 0),
            rounds: 0,
            samples: 0.0,
            phase: 0x9e37_79b9,
        }
    }

    /// Nominal time between rounds, ns.
    pub fn period_ns(&self) -> u64 {
        self.period.as_nanos() as u64
    }

    /// Time to the next round, ns: the period, give or take a quarter, so that nothing periodic is
    /// favoured.
    pub fn next_ns(&mut self) -> u64 {
        self.rounds += 1;
        // Xorshift.
        self.phase ^= self.phase << 13;
        self.phase ^= self.phase >> 17;
        self.phase ^= self.phase << 5;
        let period = self.period_ns();
        period * 3 / 4 + (period / 2) * u64::from(self.phase >> 16) / 65536
    }

    /// The mean rate of samples so far, Hz, in a window of `window_ns` until `now`.
    pub fn sample_hz(&self, now: u64, window_ns: u64) -> f64 {
        let since = now.saturating_sub(self.last.0) as f64 / 1e9;
        let all = self.samples + since / self.period.as_secs_f64();
        all * 1e9 / window_ns.max(1) as f64
    }

    /// Looks at what was used up to `now`: `cpu_ns` in all, of it `records_ns` for records. Whether
    /// the period has changed.
    pub fn check(&mut self, now: u64, cpu_ns: u64, records_ns: u64) -> bool {
        let time = now.saturating_sub(self.last.0);
        if time < EVERY {
            return false;
        }
        let of_time = |new: u64, old: u64| new.saturating_sub(old) as f64 / time as f64;
        let records = of_time(records_ns, self.last.2);
        let samplers = (of_time(cpu_ns, self.last.1) - records).max(0.0);
        self.last = (now, cpu_ns, records_ns);
        self.samples += time as f64 / 1e9 / self.period.as_secs_f64();
        self.share = (self.share + samplers) / 2.0;
        let budget = (self.limit - records).max(self.limit / 2.0);
        let ratio = self.share / budget.max(1e-6);
        let factor = if ratio > 1.0 {
            ratio.clamp(1.1, 4.0)
        } else if ratio < 0.7 {
            // Back to where it would just be allowed, but not at once.
            (ratio / 0.85).max(0.5)
        } else {
            return false;
        };
        let before = self.period;
        let wanted = self.period.as_secs_f64() * factor;
        self.period = Duration::from_secs_f64(wanted).clamp(self.asked.min(LONGEST), LONGEST);
        self.period != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_slows_down_when_dear_and_recovers() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        assert!(p.check(S, S / 25, 0)); // 4 %, half of it believed
        assert_eq!(p.period, Duration::from_millis(20));
        let mut cpu = S / 25;
        for second in 2..20 {
            cpu += S / 1000;
            p.check(second * S, cpu, 0);
        }
        assert_eq!(
            p.period,
            Duration::from_millis(10),
            "never faster than asked"
        );
        let mean = p.sample_hz(20 * S, 20 * S);
        assert!((80.0..100.0).contains(&mean), "{mean}");
    }

    #[test]
    fn records_are_not_held_against_the_samplers() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        assert!(!p.check(S, S / 10 + S / 300, S / 10));
        assert_eq!(p.period, Duration::from_millis(10));
        assert!(
            p.check(2 * S, S / 5 + S / 30, S / 5),
            "but these are too dear"
        );
    }

    #[test]
    fn rounds_are_jittered_around_the_period() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        let times: Vec<u64> = (0..2000).map(|_| p.next_ns()).collect();
        assert!(times.iter().all(|t| (7_500_000..=12_500_000).contains(t)));
        let mean = times.iter().sum::<u64>() / 2000;
        assert!((9_800_000..10_200_000).contains(&mean), "{mean}");
    }
}
