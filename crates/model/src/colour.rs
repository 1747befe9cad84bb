//! Colours of states, their parts, causes and kinds of code in every picture: the page, SVG, and
//! pictures of differences. Block reasons have theirs in their own table.
//!
//! Families: on-CPU time is orange, waiting for a CPU is pink, blocked time is cool (green to violet),
//! time not seen is grey. All colours carry letters in [`INK`]. Held by
//! `crates/render/web/tests/unit/palette.test.js`, also for readers with a colour vision deficiency.

use crate::{Part, State, UnknownCause};

/// Letters on top of a colour, `#rrggbb`.
pub const INK: &str = "#1b1b1b";

/// Kinds of code with their colours.
pub const CODE_KINDS: [(&str, &str); 6] = [
    ("own", "#f0c75e"),
    ("library", "#93cfa4"),
    ("kernel", "#e89272"),
    ("jit", "#d3c1f2"),
    ("managed", "#7fa8f5"),
    ("mark", "#9a9a9a"),
];

impl State {
    /// Colour in pictures, `#rrggbb`.
    pub const fn colour(self) -> &'static str {
        match self {
            State::OnCpu => "#eba93b",
            State::Runnable => "#d98cb3",
            State::Blocked => "#6bb5e0",
            State::Unknown => "#909090",
        }
    }
}

impl Part {
    /// Colour in pictures, `#rrggbb`: a shade of its state's.
    pub const fn colour(self) -> &'static str {
        match self {
            Part::User => State::OnCpu.colour(),
            Part::Kernel => "#d98a2b",
            Part::Irq => "#c2813b",
            Part::Stolen => "#ad8a5e",
            Part::Woken => "#e3a6c4",
            Part::Preempted => "#d083ac",
            Part::Throttled => "#bd6c9c",
        }
    }
}

impl UnknownCause {
    /// Colour in pictures, `#rrggbb`: a grey.
    pub const fn colour(self) -> &'static str {
        match self {
            UnknownCause::NoRecord => State::Unknown.colour(),
            UnknownCause::LostEvents => "#9c9c9c",
            UnknownCause::NotInSource => "#868686",
        }
    }
}
