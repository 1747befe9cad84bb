//! Labels of samples that judgements read.

use std::sync::Arc;

use wallscope_model::place::parks;
use wallscope_model::{BlockReason, LabelValue, LabelsId, Recording, Sample};

/// Label key of waits during which a request of their thread was in flight.
pub const REQUEST_KEY: &str = "request";
/// Value of [`REQUEST_KEY`] where the thread awaited an answer.
pub const REQUEST_AWAITED: &str = "in flight";
/// Value of [`REQUEST_KEY`] where the thread only owed an answer to others.
pub const REQUEST_OWED: &str = "owed";
/// Label key of the lock, file or peer that was waited for.
pub(crate) const RESOURCE_KEY: &str = "resource";

/// The text that `key` has in a set of labels.
pub(crate) fn text_label(
    recording: &Recording,
    labels: Option<LabelsId>,
    key: &str,
) -> Option<Arc<str>> {
    let set = recording.label_sets.get(labels?.0 as usize)?;
    match &set.iter().find(|l| &*l.key == key)?.value {
        LabelValue::Text(text) => Some(text.clone()),
        LabelValue::Number(..) => None,
    }
}

/// The resource that a wait was for, where the recording names it and it is no word of the waiting
/// thread's own.
pub(crate) fn resource(recording: &Recording, sample: &Sample) -> Option<Arc<str>> {
    let name = text_label(recording, sample.labels, RESOURCE_KEY)?;
    let own = sample.reason == Some(BlockReason::Lock)
        && parks(recording, &recording.stacks[sample.stack.0 as usize]);
    (!own).then_some(name)
}
