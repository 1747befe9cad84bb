//! Sources of windows.

use std::time::Duration;

use wallscope_capture::session::FlightRecorder;
use wallscope_model::{Process, Recording};

use super::MemoryStep;
use crate::config::Config;
use crate::services::Facts;

/// Outcome of waiting for a window.
#[derive(Debug)]
pub enum Next {
    /// A window was closed.
    Window(Box<Recording>),
    /// None was closed in the given time.
    NotYet,
    /// There are no more.
    Ended,
}

/// Why a source cannot go on, or cannot take a configuration over; a sentence for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// A recorder that never stops.
pub trait WindowSource {
    /// Waits at most `time` for the next closed window.
    ///
    /// # Errors
    /// Measuring ended.
    fn next(&mut self, time: Duration) -> Result<Next, SourceError>;

    /// Closes the open window and stops; returns all windows that are left, in their order.
    ///
    /// # Errors
    /// Measuring ended before.
    fn drain(&mut self) -> Result<Vec<Recording>, SourceError>;

    /// Closes the open window early; [`WindowSource::next`] hands it over soon.
    fn close_window(&mut self);

    /// Takes a changed configuration over, from the next window on.
    ///
    /// # Errors
    /// A value cannot be used on this machine; the old configuration stays in force.
    fn reload(&mut self, config: &Config) -> Result<(), SourceError>;

    /// The single intervals of the last minutes, if it keeps them.
    fn flight(&self) -> Option<FlightRecorder> {
        None
    }

    /// Gives up memory, or takes it again.
    fn save_memory(&mut self, step: MemoryStep) {
        let _ = step;
    }

    /// Facts about a process of the last window.
    fn facts(&mut self, process: &Process) -> Facts {
        Facts::read(process)
    }
}
