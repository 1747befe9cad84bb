//! Tasks of a runtime ↔ their messages.

use std::sync::Arc;

use wallscope_model as model;
use wallscope_model::{LabelsId, StackId, State, TaskTime};

use super::super::ReadError;
use super::checks::{below, index, same};
use super::extension as ext;
use super::names::Names;

fn optional(id: Option<u32>) -> u32 {
    id.map_or(0, |id| id + 1)
}

pub(super) fn to_message(g: &model::TaskGroup) -> ext::TaskGroup {
    let column = |of: &dyn Fn(&TaskTime) -> u32| g.times.iter().map(of).collect();
    ext::TaskGroup {
        pid: g.pid,
        kind: g.kind.to_string(),
        name: g.name.to_string(),
        seen: g.seen,
        looks: g.polls,
        state: column(&|t| index(State::ALL, &t.state)),
        reason: g.times.iter().map(|t| t.reason.to_string()).collect(),
        detail: g.times.iter().map(|t| t.detail.to_string()).collect(),
        stack: column(&|t| optional(t.stack.map(|s| s.0))),
        labels: column(&|t| optional(t.labels.map(|l| l.0))),
        count: g.times.iter().map(|t| t.count).collect(),
        ns: g.times.iter().map(|t| t.ns).collect(),
    }
}

pub(super) fn from_message(
    m: ext::TaskGroup,
    names: &Names,
    rec: &model::Recording,
) -> Result<model::TaskGroup, ReadError> {
    let n = m.state.len();
    same(&m.reason, n, "the reasons of tasks")?;
    same(&m.detail, n, "the words of tasks' reasons")?;
    same(&m.stack, n, "the stacks of tasks")?;
    same(&m.labels, n, "the labels of tasks")?;
    same(&m.count, n, "the counts of tasks")?;
    same(&m.ns, n, "the times of tasks")?;
    let optional = |id: u32, len: usize, what: &'static str| match id {
        0 => Ok(None),
        id => below(id - 1, len, what).map(Some),
    };
    let time = |i: usize| -> Result<TaskTime, ReadError> {
        Ok(TaskTime {
            state: names.state(m.state[i]),
            reason: Arc::from(m.reason[i].as_str()),
            detail: Arc::from(m.detail[i].as_str()),
            stack: optional(m.stack[i], rec.stacks.len(), "stack")?.map(StackId),
            labels: optional(m.labels[i], rec.label_sets.len(), "set of labels")?.map(LabelsId),
            count: m.count[i],
            ns: m.ns[i],
        })
    };
    Ok(model::TaskGroup {
        times: (0..n).map(time).collect::<Result<_, ReadError>>()?,
        pid: m.pid,
        kind: Arc::from(m.kind),
        name: Arc::from(m.name),
        seen: m.seen,
        polls: m.looks,
    })
}
