//! Active time: the samples of threads that work, without idle waits and want of work.

use wallscope_model::Recording;
use wallscope_model::scale::{Piece, Scaled};

use super::threads::Threads;
use super::waits::Waits;
use crate::frames::CodeSites;

/// A recording with the data that separates active time from other time.
#[derive(Clone, Copy)]
pub(crate) struct Active<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Its samples, scaled to its ledgers.
    pub scaled: &'a Scaled,
    /// Its waits.
    pub waits: &'a Waits,
    /// Its threads.
    pub threads: &'a Threads,
    /// The code sites of its stacks.
    pub sites: &'a CodeSites,
}

impl Active<'_> {
    /// Whether a piece of a sample is active time.
    pub fn counts(&self, piece: &Piece) -> bool {
        let i = piece.sample as usize;
        let excluded = self.recording.samples[i].idle || self.waits.starved[i];
        !excluded && self.threads.counts(piece.context)
    }
}
