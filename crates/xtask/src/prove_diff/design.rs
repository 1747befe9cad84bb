//! Amount of work of the proof, and the function that changes.

/// Amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Pairs of one program against itself, beside those within the trials.
    pub pairs: usize,
    /// Trials of five runs against five.
    pub trials: usize,
    /// Seconds of a recording.
    pub seconds: u32,
    /// Time added to the function, in percent of all time.
    pub dearer: u32,
    /// Trials put together from all runs.
    pub drawn: usize,
}

impl Length {
    /// Full length, for figures to be published.
    pub const FULL: Length = Length {
        pairs: 20,
        trials: 20,
        seconds: 10,
        dearer: 5,
        drawn: 200,
    };
    /// To see that it works. The error is larger by the root of the length, and so is the change.
    pub const QUICK: Length = Length {
        pairs: 2,
        trials: 2,
        seconds: 2,
        dearer: 15,
        drawn: 10,
    };
}

/// Runs that a side has in a trial.
pub(super) const RUNS: usize = 5;

/// The function that is made dearer, and one that is not.
pub(super) const DEARER: &str = "step_store";
pub(super) const SAME: &str = "step_parse";
