//! Tasks of runtimes for the page: their groups and waits as JSON, their stacks as a tree of its own.
//!
//! Tasks have a clock of their own, so no row here is a row of a thread. A row's context is its place in
//! `times`. A running task has no stack: its start function stands for it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wallscope_analysis::view::is_idle_task;
use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{Recording, TaskGroup, TaskTime};

use super::columns::Columns;
use super::entries::Entries;
use super::rows::{IDLE, PageRow, TreeColumns, put_tree, tag_of};
use super::trie::Builder;

/// Group, reason and the runtime's word of a part of tasks' time.
type Cause<'a> = (usize, &'a str, &'a str);

/// Puts the columns; gives groups and causes as JSON, `null` where the recording has no tasks.
pub(super) fn put(columns: &mut Columns, recording: &Recording, entries: &mut Entries) -> Value {
    if recording.tasks.is_empty() {
        return Value::Null;
    }
    let mut causes: BTreeMap<Cause<'_>, u32> = BTreeMap::new();
    let mut builder = Builder::new();
    let mut rows = Vec::new();
    for (number, group) in recording.tasks.iter().enumerate() {
        for time in group.times.iter().filter(|time| time.ns > 0) {
            let next = causes.len() as u32;
            let cause = (number, &*time.reason, &*time.detail);
            let cause = *causes.entry(cause).or_insert(next);
            let path = path(recording, entries, group, time);
            rows.push(row(group, time, cause, builder.add(&path, time.ns)));
        }
    }
    put_tree(
        columns,
        TreeColumns::new("task.", recording),
        builder,
        &mut rows,
    );
    let mut by_number: Vec<(Cause<'_>, u32)> = causes.into_iter().collect();
    by_number.sort_by_key(|(_, number)| *number);
    json!({
        "groups": recording.tasks.iter().map(group).collect::<Vec<_>>(),
        "times": by_number.iter().map(|(cause, _)| json!(cause)).collect::<Vec<_>>(),
    })
}

fn group(g: &TaskGroup) -> Value {
    json!({
        "pid": g.pid, "kind": &*g.kind, "name": &*g.name, "seen": g.seen, "looks": g.polls,
    })
}

fn row(group: &TaskGroup, time: &TaskTime, cause: u32, node: u32) -> PageRow {
    let idle = match is_idle_task(&group.name, &time.reason) {
        true => IDLE,
        false => 0,
    };
    PageRow {
        node,
        leaf_line: 0,
        sample: None,
        stack: time.stack.map(|stack| stack.0),
        context: cause,
        labels: time.labels.map_or(0, |labels| labels.0 + 1),
        tag: tag_of(time.state, None) | idle,
        count: time.count,
        ns: time.ns,
        slices: Vec::new(),
    }
}

/// Entries of a task's stack, outermost first.
fn path(
    recording: &Recording,
    entries: &mut Entries,
    group: &TaskGroup,
    time: &TaskTime,
) -> Vec<u32> {
    let Some(stack) = time.stack else {
        let start = entries.mark(group.name.to_string());
        return vec![start, entries.mark(NOT_SAMPLED.to_owned())];
    };
    let mut path = Vec::new();
    entries.path(recording, stack.0, &mut path);
    path.iter().map(|(entry, _)| *entry).collect()
}

#[cfg(test)]
mod tests {
    use wallscope_model::State;

    use super::*;

    fn time(state: State, reason: &str, ns: u64) -> TaskTime {
        TaskTime {
            state,
            reason: reason.into(),
            detail: "".into(),
            stack: None,
            labels: None,
            count: 1,
            ns,
        }
    }

    #[test]
    fn a_recording_without_tasks_has_none_of_it() {
        let (mut columns, recording) = (Columns::default(), Recording::default());
        let mut entries = Entries::of(&recording);
        assert!(put(&mut columns, &recording, &mut entries).is_null());
        assert_eq!(columns.finish().0, json!({}));
    }

    #[test]
    fn each_cause_stands_once_and_each_time_is_a_row() {
        let recording = Recording {
            tasks: vec![TaskGroup {
                name: "handle".into(),
                kind: "goroutine".into(),
                seen: 3,
                times: vec![
                    time(State::Blocked, "lock", 7),
                    time(State::Blocked, "lock", 5),
                    time(State::OnCpu, "", 2),
                    time(State::Runnable, "", 0),
                ],
                ..TaskGroup::default()
            }],
            ..Recording::default()
        };
        let mut columns = Columns::default();
        let mut entries = Entries::of(&recording);
        let told = put(&mut columns, &recording, &mut entries);
        assert_eq!(told["times"], json!([[0, "lock", ""], [0, "", ""]]));
        assert_eq!(told["groups"][0]["name"], "handle");
        assert_eq!(columns.finish().0["task.row.ns"][1], 3);
        let names: Vec<_> = entries.all.iter().map(|e| &*e.name).collect();
        assert_eq!(names, ["handle", NOT_SAMPLED]);
    }
}
