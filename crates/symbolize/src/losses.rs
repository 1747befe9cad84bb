//! Counts of what was left without a name, by cause.

use std::collections::BTreeMap;

use wallscope_model::Loss;

/// Losses by cause, in the order of their causes.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<String, u64>);

impl Losses {
    /// Counts `count` of `cause`.
    pub(crate) fn add(&mut self, cause: impl Into<String>, count: u64) {
        if count > 0 {
            *self.0.entry(cause.into()).or_default() += count;
        }
    }

    /// The counts as the recording keeps them.
    pub(crate) fn finish(self) -> Vec<Loss> {
        self.0
            .into_iter()
            .map(|(cause, count)| Loss { cause, count })
            .collect()
    }
}
