//! Length and number of recordings of an experiment.

use crate::tool::Options;

/// Stacks of waits four times as often as by default, and no lower rate where stacks cost more than 1 % of a
/// CPU, as they do on a busy machine.
const FINE: &[&str] = &["--off-cpu-period", "250us", "--max-overhead", "25"];

/// Length and number of recordings.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Length of one recording, s.
    pub seconds: f64,
    /// Number of recordings where an experiment needs several.
    pub repeats: u32,
}

impl Length {
    /// For a test run.
    pub const SHORT: Length = Length {
        seconds: 3.0,
        repeats: 2,
    };
    /// For the full verification: the lengths that the promised numbers are stated for.
    pub const FULL: Length = Length {
        seconds: 10.0,
        repeats: 16,
    };

    /// Options of a recording for rows on shares. A short run samples more finely, so that chance stays
    /// below the promised one.
    pub fn options(self) -> Options {
        match self.is_short() {
            true => Options::at(1997).with(FINE),
            false => Options::at(997)
                .with(&["--off-cpu-period", "500us"])
                .with(&FINE[2..]),
        }
    }

    /// Options and length (s) of recordings of managed code. There are many of them, so that each gets little
    /// of a short run.
    pub fn managed(self) -> (Options, f64) {
        match self.is_short() {
            true => (Options::at(1997).with(FINE), 2.0),
            false => (Options::at(997).with(&FINE[2..]), 30.0),
        }
    }

    pub(super) fn is_short(self) -> bool {
        self.seconds < Length::FULL.seconds
    }

    pub(super) fn text(&self) -> String {
        format!("{}", self.seconds)
    }
}
