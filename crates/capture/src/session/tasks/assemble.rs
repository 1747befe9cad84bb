//! From the observations of tasks to the recording.

use std::{collections::BTreeMap, sync::Arc};

use wallscope_model::{
    Domain, Label, LabelValue, LabelsId, Recording, StackId, State, TaskGroup, TaskTime,
};
use wallscope_observe::{ObservedTaskTime, TaskWords};

use super::super::{
    address_scope::AddressScope,
    build::{Stacks, UserFrames},
    estimator::TaskFacts,
    naming::CodeNames,
};

/// Key of a time within a group.
type TimeKey = (State, Arc<str>, Arc<str>, Option<StackId>, Option<LabelsId>);

/// Puts the observations into the recording that is being made.
pub fn assemble(
    recording: &mut Recording,
    stacks: &mut Stacks,
    facts: &TaskFacts,
    names: &dyn CodeNames,
) {
    let mut ids: Vec<Option<StackId>> = vec![None; facts.stacks.len()];
    for (group, times) in &facts.groups {
        let mut sums: BTreeMap<TimeKey, (u64, u64)> = BTreeMap::new();
        for time in times {
            let number = time.stack.map(|s| s as usize);
            let stack = number.filter(|n| *n < ids.len()).map(|n| {
                *ids[n].get_or_insert_with(|| {
                    let s = &facts.stacks[n];
                    let frames = UserFrames {
                        native: &s.native,
                        managed: &s.managed,
                        end: s.end,
                    };
                    stacks.user_stack(&frames, AddressScope::last(s.pid), names)
                })
            });
            let labels = labels(time);
            let labels = (!labels.is_empty()).then(|| stacks.labels.set(labels));
            let place = (
                time.state,
                time.reason.clone(),
                time.detail.clone(),
                stack,
                labels,
            );
            let sum = sums.entry(place).or_default();
            *sum = (sum.0 + time.count, sum.1 + time.ns);
        }
        recording.tasks.push(TaskGroup {
            pid: group.pid,
            kind: group.kind.clone(),
            name: group.name.clone(),
            seen: group.seen,
            polls: group.polls,
            times: (sums.into_iter())
                .map(
                    |((state, reason, detail, stack, labels), (count, ns))| TaskTime {
                        state,
                        reason,
                        detail,
                        stack,
                        labels,
                        count,
                        ns,
                    },
                )
                .collect(),
        });
    }
}

fn labels(time: &ObservedTaskTime) -> Vec<Label> {
    let label = |(key, value): &(Arc<str>, Arc<str>)| Label {
        key: key.clone(),
        value: LabelValue::Text(value.clone()),
    };
    time.labels.iter().map(label).collect()
}

/// Says in the domain how tasks were observed.
pub fn describe(domain: &mut Domain, words: Vec<TaskWords>) {
    for TaskWords { note, limit } in words {
        domain.notes.push(note);
        domain.limits.push(limit);
    }
}
