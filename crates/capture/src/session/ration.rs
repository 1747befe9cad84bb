//! Rations of work that each new program causes.
//!
//! A machine may start thousands of programs a second. Up to a ration, each gets its due at once; work for those
//! beyond it waits, and is saved where the program has ended by then.

use std::time::Duration;

/// A number of things that may be done each second, of which some may be saved up.
pub struct Ration {
    /// Time between two of them at an even pace, ns.
    step: u64,
    /// Time for which they may be saved up, ns.
    saved: u64,
    /// Time at which everything so far would be done at an even pace, ns.
    paid: u64,
}

impl Ration {
    /// `each_second` things, and `at_once` after a rest.
    pub const fn new(each_second: u64, at_once: u64) -> Ration {
        let step = 1_000_000_000 / each_second;
        Ration {
            step,
            saved: at_once * step,
            paid: 0,
        }
    }

    /// Whether one more thing may be done at `now`, ns; it is taken from the ration then.
    pub fn take(&mut self, now: u64) -> bool {
        self.paid = self.paid.max(now.saturating_sub(self.saved));
        let allowed = self.paid + self.step <= now;
        self.paid += if allowed { self.step } else { 0 };
        allowed
    }
}

/// Programs that are looked up in `/proc` at once.
///
/// A look-up takes some 50 µs (measured, Linux 6.18 in a virtual machine), which is most of the work that a short
/// process costs. If programs start faster, those beyond the ration are looked up at the next time slice, if they
/// live that long. For the others the kernel programs report name and parent, and the first mapping shows the
/// executable. The ration saved up is enough for a shell script or a build.
pub const LOOK_UPS: Ration = Ration::new(100, 500);

/// New programs that are followed at once. Each costs some 90 µs then, so that this ration is 2 % of one CPU
/// (measured, Linux 6.18 in a virtual machine).
const FOLLOWED: Ration = Ration::new(200, 1000);

/// Pause between two turns of a recorder while programs start faster than [`FOLLOWED`]. A process that ends in it
/// never gets tables in the kernel: its stacks are copied. A session in windows makes no pauses.
const PAUSE: Duration = Duration::from_millis(5);

/// Pauses of a recorder, from the starts of programs.
pub struct TurnPace {
    followed: Ration,
    /// A program since the last pause was beyond the ration.
    pauses: bool,
}

impl Default for TurnPace {
    fn default() -> TurnPace {
        TurnPace {
            followed: FOLLOWED,
            pauses: false,
        }
    }
}

impl TurnPace {
    /// A program started at `time`, ns.
    pub fn started(&mut self, time: u64) {
        self.pauses |= !self.followed.take(time);
    }

    /// The pause before the next turn, if a program since the last one was beyond the ration.
    pub fn pause(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.pauses).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 1 << 40;

    /// Things done of those that come every `step` ns for `seconds`.
    fn done(step: u64, seconds: u64) -> u64 {
        let mut ration = LOOK_UPS;
        let times = (BEGIN..BEGIN + seconds * 1_000_000_000).step_by(step as usize);
        times.filter(|now| ration.take(*now)).count() as u64
    }

    #[test]
    fn few_are_all_done() {
        assert_eq!(done(10_000_000, 60), 6_000);
    }

    #[test]
    fn of_many_a_first_rush_and_an_even_part_are_done() {
        let n = done(1_000_000, 60);
        assert!((6_000..=6_500).contains(&n), "{n}");
    }

    /// Turns of a recorder on a machine that starts a program every `step` ns for `seconds`.
    fn turns(step: u64, seconds: u64) -> u64 {
        let mut pace = TurnPace::default();
        let (mut turns, mut next) = (0, BEGIN);
        let mut starts = (BEGIN..BEGIN + seconds * 1_000_000_000)
            .step_by(step as usize)
            .peekable();
        while let Some(first) = starts.next() {
            pace.started(first);
            next = next.max(first);
            while let Some(more) = starts.next_if(|time| *time <= next) {
                pace.started(more);
            }
            turns += 1;
            next += pace.pause().map_or(0, |pause| pause.as_nanos() as u64);
        }
        turns
    }

    #[test]
    fn a_turn_for_each_program_of_a_script() {
        assert_eq!(turns(1_000_000, 1), 1000);
        assert_eq!(turns(5_000_000, 60), 12_000);
    }

    #[test]
    fn a_storm_of_programs_gets_a_turn_each_pause() {
        let n = turns(1_000_000, 60);
        assert!((12_000..16_000).contains(&n), "{n}");
        let n = turns(100_000, 60);
        assert!((12_000..16_000).contains(&n), "{n}");
    }
}
