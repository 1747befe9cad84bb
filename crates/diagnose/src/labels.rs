//! Labels of samples that judgements read and add.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::attribution::parks;
use wallscope_model::{BlockReason, Label, LabelValue, LabelsId, Recording, Sample};

pub use wallscope_model::{REQUEST_AWAITED, REQUEST_KEY};

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

/// Adds a label to samples; samples with equal labels share one set.
pub(crate) struct SampleLabels {
    key: &'static str,
    made: HashMap<(Option<LabelsId>, &'static str), LabelsId>,
}

impl SampleLabels {
    /// Labels with this key.
    pub fn of(key: &'static str) -> SampleLabels {
        SampleLabels {
            key,
            made: HashMap::new(),
        }
    }

    /// Gives sample number `sample` the label with `value`.
    pub fn add(&mut self, recording: &mut Recording, sample: usize, value: &'static str) {
        let labels = &mut recording.samples[sample].labels;
        let old = *labels;
        let sets = &mut recording.label_sets;
        *labels = Some(*self.made.entry((old, value)).or_insert_with(|| {
            let mut set = old.map_or_else(Vec::new, |l| sets[l.0 as usize].clone());
            set.push(Label {
                key: self.key.into(),
                value: LabelValue::Text(value.into()),
            });
            set.sort();
            sets.push(set);
            LabelsId((sets.len() - 1) as u32)
        }));
    }
}
