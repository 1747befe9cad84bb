//! Keeps our own CPU time below the limit by looking less often.

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
    last: (u64, u64),
    /// Rounds of looks made.
    pub rounds: u64,
    phase: u32,
}

impl Pace {
    /// `hz` rounds a second, and at most `percent` of one CPU.
    pub fn new(hz: u32, percent: f64, now: u64, cpu_ns: u64) -> Pace {
        let asked = Duration::from_secs(1) / hz.max(1);
        Pace {
            limit: percent / 100.0,
            asked,
            period: asked,
            last: (now, cpu_ns),
            rounds: 0,
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

    /// Looks at what we used up to `now`.
    pub fn check(&mut self, now: u64, cpu_ns: u64) {
        let (time, cpu) = (
            now.saturating_sub(self.last.0),
            cpu_ns.saturating_sub(self.last.1),
        );
        if time < EVERY {
            return;
        }
        self.last = (now, cpu_ns);
        let share = cpu as f64 / time as f64;
        let ratio = share / self.limit.max(1e-6);
        let factor = if ratio > 1.0 {
            ratio.clamp(1.1, 4.0)
        } else if ratio < 0.7 {
            0.8
        } else {
            return;
        };
        let wanted = self.period.as_secs_f64() * factor;
        self.period = Duration::from_secs_f64(wanted).clamp(self.asked.min(LONGEST), LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_slows_down_when_dear_and_recovers() {
        let mut p = Pace::new(100, 1.0, 0, 0);
        p.check(S, S / 25); // 4 %
        assert_eq!(p.period, Duration::from_millis(40));
        let mut cpu = S / 25;
        for second in 2..20 {
            cpu += S / 1000;
            p.check(second * S, cpu);
        }
        assert_eq!(
            p.period,
            Duration::from_millis(10),
            "never faster than asked"
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
