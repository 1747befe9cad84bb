//! Ration of new programs that are looked up in `/proc` each second.
//!
//! A look-up takes some 50 µs (measured, Linux 6.18 in a virtual machine), which is most of what a short process
//! costs. If programs start faster, those beyond the ration are looked up at the next time slice, if they live that
//! long. For the others the kernel programs report name and parent, and the first mapping shows the executable.

/// Programs a second that are looked up at once.
const A_SECOND: u64 = 100;
/// Programs that may start at once after a rest: a shell script, a build.
const AT_ONCE: u64 = 500;
/// Time between two look-ups, ns.
const STEP: u64 = 1_000_000_000 / A_SECOND;

/// Rest of the ration.
#[derive(Default)]
pub struct FactRation {
    /// Time at which all look-ups so far would be done at an even pace, ns.
    paid: u64,
}

impl FactRation {
    /// Whether one more program may be looked up at `now`, ns.
    pub fn take(&mut self, now: u64) -> bool {
        self.paid = self.paid.max(now.saturating_sub(AT_ONCE * STEP));
        let allowed = self.paid + STEP <= now;
        self.paid += if allowed { STEP } else { 0 };
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Look-ups of programs that start every `step` ns for `seconds`.
    fn looked_up(step: u64, seconds: u64) -> u64 {
        let mut ration = FactRation::default();
        let begin = 1 << 40;
        let times = (begin..begin + seconds * 1_000_000_000).step_by(step as usize);
        times.filter(|now| ration.take(*now)).count() as u64
    }

    #[test]
    fn few_are_all_looked_up() {
        assert_eq!(looked_up(STEP, 60), 60 * A_SECOND);
    }

    #[test]
    fn of_many_a_first_rush_and_an_even_part_are_looked_up() {
        let n = looked_up(1_000_000, 60);
        assert!(
            (60 * A_SECOND..=60 * A_SECOND + AT_ONCE).contains(&n),
            "{n}"
        );
    }
}
