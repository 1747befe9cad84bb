//! Tasks of a runtime, ready to be shown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use wallscope_model::{State, TaskGroup};

use super::{Analysis, StackFrame};

/// Tasks that began with the same function.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    /// Their process.
    pub pid: u32,
    /// `goroutine`, `asyncio task`, `virtual thread`.
    pub kind: Arc<str>,
    /// The function they began with.
    pub name: Arc<str>,
    /// Number of different ones that were seen.
    pub seen: u64,
    /// Number of snapshots of the process.
    pub polls: u64,
    /// Their time, ns.
    pub wall_ns: u64,
    /// On a thread, ns.
    pub on_cpu_ns: u64,
    /// Waiting to be run, ns.
    pub runnable_ns: u64,
    /// Waiting for something else, by reason, ns.
    pub blocked: BTreeMap<Arc<str>, u64>,
    /// Part of `blocked` with nothing to do, ns.
    pub idle_ns: u64,
    /// Their wait sites, most time first.
    pub waits: Vec<TaskWait>,
}

/// A place where tasks wait.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskWait {
    /// Waiting to be run, or for something else.
    pub state: State,
    /// The reason of the wait.
    pub reason: Arc<str>,
    /// The runtime's word for it.
    pub detail: Arc<str>,
    /// Time, ns.
    pub ns: u64,
    /// Number of times that one was seen there.
    pub count: u64,
    /// Whether there was nothing to do.
    pub idle: bool,
    /// Labels, `key=value`.
    pub labels: Vec<String>,
    /// Leaf first; empty where the stack could not be read.
    pub frames: Vec<StackFrame>,
}

/// Reasons of tasks that have nothing to do: a server's tasks, and the runtime's own.
const IDLE: [&str; 2] = ["parked", "runtime"];

/// Beginnings of start functions of Go's library. Their tasks wait for news by design: a connection to
/// close, a signal, a connection to open. Source: Go 1.19 to 1.24, `net/http`, `os/signal`,
/// `database/sql`.
const HELPERS: [&str; 8] = [
    "net/http.(*connReader).backgroundRead",
    "net/http.(*connReader).startBackgroundRead",
    "net/http.(*persistConn).readLoop",
    "net/http.(*persistConn).writeLoop",
    "net/http.(*Transport).dialConn",
    "os/signal.loop",
    "database/sql.(*DB).connectionOpener",
    "database/sql.(*DB).connectionCleaner",
];

/// Whether a task that began with `name` has nothing to do while it waits for `reason`.
pub fn is_idle_task(name: &str, reason: &str) -> bool {
    let helper = || HELPERS.iter().any(|helper| name.starts_with(helper));
    IDLE.contains(&reason) || (!reason.is_empty() && helper())
}

impl TaskRow {
    /// Time with something to do, ns.
    pub fn engaged_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.idle_ns)
    }

    /// Time waiting for something else, ns.
    pub fn blocked_ns(&self) -> u64 {
        self.blocked.values().sum()
    }
}

/// Joins waits with equal names and lines: code that was compiled again has other addresses, not other lines.
fn merged(waits: Vec<TaskWait>) -> Vec<TaskWait> {
    let mut known: HashMap<_, usize> = HashMap::new();
    let mut out: Vec<TaskWait> = Vec::with_capacity(waits.len());
    for wait in waits {
        let frames = wait
            .frames
            .iter()
            .map(|f| (f.function.name.clone(), f.line));
        let key = (
            wait.state,
            wait.reason.clone(),
            wait.detail.clone(),
            wait.labels.clone(),
            frames.collect::<Vec<_>>(),
        );
        match known.get(&key) {
            Some(i) => {
                out[*i].ns += wait.ns;
                out[*i].count += wait.count;
            }
            None => {
                known.insert(key, out.len());
                out.push(wait);
            }
        }
    }
    out
}

impl Analysis<'_> {
    /// Tasks by the function they began with, kind by kind, most time with something to do first.
    pub fn tasks(&self) -> Vec<TaskRow> {
        let mut rows: Vec<TaskRow> = self.recording.tasks.iter().map(|g| self.task(g)).collect();
        let busiest = |r: &TaskRow| std::cmp::Reverse((r.engaged_ns(), r.wall_ns));
        rows.sort_by(|a, b| {
            let by_time = busiest(a).cmp(&busiest(b));
            a.kind.cmp(&b.kind).then(by_time).then(a.name.cmp(&b.name))
        });
        rows
    }

    fn task(&self, g: &TaskGroup) -> TaskRow {
        let rec = self.recording;
        let mut blocked = BTreeMap::new();
        let mut waits = Vec::new();
        for t in &g.times {
            if t.state == State::Blocked {
                *blocked.entry(t.reason.clone()).or_default() += t.ns;
            }
            if t.state == State::OnCpu {
                continue;
            }
            let labels = t.labels.and_then(|l| rec.label_sets.get(l.0 as usize));
            waits.push(TaskWait {
                state: t.state,
                reason: t.reason.clone(),
                detail: t.detail.clone(),
                ns: t.ns,
                count: t.count,
                idle: is_idle_task(&g.name, &t.reason),
                labels: (labels.into_iter().flatten())
                    .map(|l| format!("{}={}", l.key, l.value))
                    .collect(),
                frames: (t.stack)
                    .map(|s| self.frames(&rec.stacks[s.0 as usize]))
                    .unwrap_or_default(),
            });
        }
        let idle = waits.iter().filter(|wait| wait.idle);
        let idle_ns = idle.map(|wait| wait.ns).sum();
        let mut waits = merged(waits);
        waits.sort_by_key(|w| std::cmp::Reverse(w.ns));
        TaskRow {
            pid: g.pid,
            idle_ns,
            kind: g.kind.clone(),
            name: g.name.clone(),
            seen: g.seen,
            polls: g.polls,
            wall_ns: g.wall_ns(),
            on_cpu_ns: g.state_ns(State::OnCpu),
            runnable_ns: g.state_ns(State::Runnable),
            blocked,
            waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use wallscope_model::FrameKind;

    use super::*;
    use crate::view::FunctionName;

    #[test]
    fn waits_that_look_the_same_are_one() {
        let wait = |line, inlined, reason: &str| TaskWait {
            state: State::Blocked,
            reason: reason.into(),
            detail: "".into(),
            ns: 5,
            count: 1,
            idle: false,
            labels: Vec::new(),
            frames: vec![StackFrame {
                function: FunctionName {
                    name: "a.B.c".into(),
                    module: "".into(),
                    kind: FrameKind::Java,
                },
                line,
                inlined,
            }],
        };
        let all = merged(vec![
            wait(7, false, "lock"),
            wait(8, false, "lock"),
            wait(7, true, "lock"),
            wait(7, false, "timer"),
        ]);
        let told: Vec<_> = all
            .iter()
            .map(|w| (w.frames[0].line, w.ns, w.count))
            .collect();
        assert_eq!(told, [(7, 10, 2), (8, 5, 1), (7, 5, 1)]);
    }
}
