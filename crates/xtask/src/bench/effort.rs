//! Lengths and rounds of all benchmarks.

use super::{exchange, overhead};

/// Lengths and rounds.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of programs of others.
    pub rounds: usize,
    /// Rounds of the programs that work without end.
    pub watches: usize,
    /// Length of the recordings that are timed, and of those of steady work, s.
    pub seconds: f64,
    /// Number of measurements of each delay.
    pub repeats: usize,
    /// Files that are read and written.
    pub files: exchange::Size,
    /// Windows under load.
    pub overhead: overhead::Effort,
    /// Windows with an agent, and their length, s.
    pub agent: (usize, u64),
}

impl Effort {
    /// Full length, for figures to be published.
    pub const FULL: Effort = Effort {
        rounds: 5,
        watches: 3,
        // Long enough that the cost of the start is a part of the whole, and not most of it.
        seconds: 10.0,
        repeats: 5,
        files: exchange::Size {
            stacks: 1_000_000,
            text: 1_000_000_000,
            rounds: 3,
        },
        overhead: overhead::Effort {
            window_s: 2,
            most_rounds: 60,
        },
        agent: (3, 60),
    };
    /// Short, to see that it works.
    pub const QUICK: Effort = Effort {
        rounds: 2,
        watches: 2,
        seconds: 1.0,
        repeats: 2,
        files: exchange::Size {
            stacks: 50_000,
            text: 50_000_000,
            rounds: 1,
        },
        overhead: overhead::Effort {
            window_s: 1,
            most_rounds: 3,
        },
        agent: (1, 20),
    };
}
