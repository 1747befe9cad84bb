//! Counts of unresolved addresses and other losses, by cause.

use std::collections::BTreeMap;

use wallscope_model::Loss;

/// Losses by cause, in the order of their causes.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<String, u64>);

impl Losses {
    /// Adds `count` to `cause`.
    pub(crate) fn add(&mut self, cause: impl Into<String>, count: u64) {
        if count > 0 {
            *self.0.entry(cause.into()).or_default() += count;
        }
    }

    /// Converts the counts to the recording's form.
    pub(crate) fn finish(self) -> Vec<Loss> {
        self.0
            .into_iter()
            .map(|(cause, count)| Loss { cause, count })
            .collect()
    }
}
