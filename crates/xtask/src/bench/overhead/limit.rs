//! Numbers that a load is to reach under a watcher.

use std::fmt;

/// More context switches a second than this are many.
const MANY_SWITCHES: f64 = 66_000.0;
/// CPU time that a switch may cost where there are many, ns.
const SWITCH_NS: f64 = 900.0;

/// A number to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// Least share of the throughput that is kept.
    Kept(f64),
    /// As [`Limit::Kept`], or a loss of at most [`SWITCH_NS`] a switch where there are more than [`MANY_SWITCHES`].
    KeptOrCheap(f64),
    /// Most loss, percent of one CPU.
    Lost(f64),
    /// Most CPU time of the recorder itself, percent of one CPU.
    Own(f64),
}

/// Medians of all windows with one watcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Share of the throughput that is kept.
    pub kept: f64,
    /// Measured loss, percent of one CPU.
    pub lost_percent: f64,
    /// CPU time of the recorder itself, percent of one CPU.
    pub own_percent: f64,
    /// Context switches a second.
    pub switches: f64,
}

impl Figures {
    /// Measured loss, ns of CPU for each context switch.
    pub(super) fn switch_ns(&self) -> f64 {
        self.lost_percent * 1e7 / self.switches
    }
}

impl Limit {
    /// Whether it is reached.
    pub(super) fn holds(self, figures: &Figures) -> bool {
        match self {
            Limit::Kept(least) => figures.kept >= least,
            Limit::KeptOrCheap(least) => {
                let cheap = figures.switches > MANY_SWITCHES && figures.switch_ns() <= SWITCH_NS;
                figures.kept >= least || cheap
            }
            Limit::Lost(most) => figures.lost_percent <= most,
            Limit::Own(most) => figures.own_percent <= most,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Kept(least) => write!(f, "kept {least}"),
            Limit::KeptOrCheap(least) => write!(
                f,
                "kept {least}, or {SWITCH_NS} ns a switch above {MANY_SWITCHES} a second"
            ),
            Limit::Lost(most) => write!(f, "lost {most} %"),
            Limit::Own(most) => write!(f, "own CPU {most} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_small_for_each_of_many_switches_is_allowed() {
        let figures = |switches| Figures {
            kept: 0.9,
            lost_percent: 8.0,
            own_percent: 1.0,
            switches,
        };
        // 80 ms of CPU a second.
        let limit = Limit::KeptOrCheap(0.97);
        assert!(limit.holds(&figures(100_000.0)));
        assert!(!limit.holds(&figures(80_000.0)));
        assert!(!limit.holds(&figures(10_000.0)));
        assert!(!Limit::Kept(0.97).holds(&figures(100_000.0)));
        assert!(!Limit::Lost(5.0).holds(&figures(100_000.0)));
        assert!(Limit::Own(2.0).holds(&figures(100_000.0)));
    }
}
