//! Sets of labels ↔ their columns in the extension.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::{self as model, Label, LabelValue, LabelsId};

use super::super::ReadError;
use super::checks::{below, damaged, same};
use super::extension::LabelSets;

/// The sets as columns.
pub(super) fn to_message(sets: &[Vec<Label>]) -> LabelSets {
    let mut m = LabelSets::default();
    let mut places: HashMap<Arc<str>, u32> = HashMap::new();
    let mut place = |text: &Arc<str>, list: &mut Vec<String>| {
        *places.entry(text.clone()).or_insert_with(|| {
            list.push(text.to_string());
            list.len() as u32 - 1
        })
    };
    for set in sets {
        m.length.push(set.len() as u32);
        for label in set {
            m.key.push(place(&label.key, &mut m.text));
            match &label.value {
                LabelValue::Text(text) => m.value.push(1 + place(text, &mut m.text)),
                LabelValue::Number(number, unit) => {
                    m.value.push(0);
                    m.number.push(*number);
                    m.unit.push(place(unit, &mut m.text));
                }
            }
        }
    }
    m
}

/// The sets that the columns hold.
///
/// # Errors
/// [`ReadError::Damaged`] where columns do not fit each other.
pub(super) fn from_message(m: &LabelSets) -> Result<Vec<Vec<Label>>, ReadError> {
    same(&m.value, m.key.len(), "the values of labels")?;
    same(&m.unit, m.number.len(), "the units of labels")?;
    let texts: Vec<Arc<str>> = m.text.iter().map(|t| Arc::from(t.as_str())).collect();
    let text = |i: u32| Ok::<_, ReadError>(texts[below(i, texts.len(), "text")? as usize].clone());
    let mut labels = m.key.iter().zip(&m.value);
    let mut numbers = m.number.iter().zip(&m.unit);
    let short = || damaged("a list of labels is too short");
    let mut sets = Vec::with_capacity(m.length.len());
    for length in &m.length {
        let mut set = Vec::new();
        for _ in 0..*length {
            let (key, value) = labels.next().ok_or_else(short)?;
            let value = match value.checked_sub(1) {
                Some(value) => LabelValue::Text(text(value)?),
                None => {
                    let (number, unit) = numbers.next().ok_or_else(short)?;
                    LabelValue::Number(*number, text(*unit)?)
                }
            };
            set.push(Label {
                key: text(*key)?,
                value,
            });
        }
        sets.push(set);
    }
    Ok(sets)
}

/// Labels of contexts: none, or one entry each.
pub(super) fn of_contexts(
    list: &[u32],
    rec: &model::Recording,
) -> Result<Vec<Option<LabelsId>>, ReadError> {
    if list.len() > rec.contexts.len() {
        return Err(damaged("it has labels of more contexts than it has"));
    }
    let entry = |l: &u32| match *l {
        0 => Ok(None),
        l => below(l - 1, rec.label_sets.len(), "set of labels").map(|l| Some(LabelsId(l))),
    };
    let mut labels = list
        .iter()
        .map(entry)
        .collect::<Result<Vec<_>, ReadError>>()?;
    if !labels.is_empty() {
        labels.resize(rec.contexts.len(), None);
    }
    Ok(labels)
}
