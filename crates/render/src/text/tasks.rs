//! Tasks of a runtime, at a terminal.

use super::layout::{Ink, cells, clean, pad, shorten};
use super::page::Page;
use super::{MAX_ROWS, MAX_STACKS};
use wallscope_analysis::view::{Analysis, TaskRow, TaskWait};
use wallscope_model::units::{count, ns, share};

/// Most frames shown of a task's wait site, from the leaf; the runtime's own frames are left out.
const FRAMES: usize = 6;
/// Most wait sites that are kept apart.
const MAX_PLACES: usize = 256;
/// The kind of task with many frames of the library on its stacks.
const VIRTUAL_THREAD: &str = "virtual thread";
const LIBRARY: [&str; 7] = [
    "java.",
    "javax.",
    "jdk.",
    "sun.",
    "com.sun.",
    "StubRoutines",
    "C2 Runtime",
];
/// Functions of runtimes by which every task waits or begins.
const MACHINERY: [&str; 14] = [
    // Go's.
    "runtime.",
    // Java's.
    "jdk.internal.",
    "java.lang.VirtualThread",
    "java.lang.System$",
    "java.lang.Thread.run",
    "java.util.concurrent.locks.LockSupport.",
    "java.util.concurrent.locks.AbstractQueuedSynchronizer",
    "java.util.concurrent.locks.AbstractQueuedLongSynchronizer",
    "java.util.concurrent.FutureTask.run",
    "java.util.concurrent.Executors$RunnableAdapter.",
    "java.util.concurrent.ThreadPerTaskExecutor",
    "sun.nio.ch.Poller",
    "sun.nio.ch.NioSocketImpl.park",
    "StubRoutines",
];

impl Page<'_> {
    /// Where the time of tasks went, kind by kind.
    pub(super) fn tasks(&mut self, a: &Analysis) {
        let rows = a.tasks();
        for of_kind in rows.chunk_by(|a, b| a.kind == b.kind) {
            self.tasks_of_kind(of_kind);
        }
    }

    fn tasks_of_kind(&mut self, rows: &[TaskRow]) {
        let Some(first) = rows.first() else { return };
        let engaged: u64 = rows.iter().map(TaskRow::engaged_ns).sum();
        let polls = rows.iter().map(|r| r.polls).max().unwrap_or(0);
        self.heading(
            &format!("{}s", capital(&first.kind)),
            &format!(
                "sampled, {} snapshots; a clock of their own, not added to threads",
                count(polls)
            ),
        );
        let head = format!(
            "  {} {} {} {} {}  began with",
            pad("seen", -9),
            pad("time", -9),
            pad("running", -8),
            pad("runnable", -8),
            pad("waiting", -8),
        );
        let head = self.style.ink(Ink::Faint, &head);
        self.line(&head);
        for row in rows.iter().take(MAX_ROWS) {
            let part = |ns: u64| share(ns as f64 / row.wall_ns.max(1) as f64);
            let line = format!(
                "  {} {} {} {} {}  ",
                pad(&count(row.seen), -9),
                pad(&ns(row.wall_ns), -9),
                pad(&part(row.on_cpu_ns), -8),
                pad(&part(row.runnable_ns), -8),
                pad(&part(row.blocked_ns()), -8),
            );
            let mut reasons: Vec<_> = row.blocked.iter().collect();
            reasons.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
            let reasons: Vec<String> = reasons
                .iter()
                .take(3)
                .map(|(reason, ns)| format!("{reason} {}", part(**ns)))
                .collect();
            let what = match reasons.is_empty() {
                true => clean(&row.name),
                false => format!("{} ({})", clean(&row.name), reasons.join(", ")),
            };
            let room = self
                .style
                .width
                .map_or(usize::MAX, |w| w.saturating_sub(cells(&line)));
            self.line(&format!("{line}{}", shorten(&what, room.max(12))));
        }
        if rows.len() > MAX_ROWS {
            let more = rows.len() - MAX_ROWS;
            self.faint(&format!("  {more} more are in --json"), 2);
        }
        let waits = rows.iter().flat_map(|r| &r.waits);
        let mut waits: Vec<&TaskWait> = waits.filter(|w| !w.idle).collect();
        waits.sort_by_key(|w| std::cmp::Reverse(w.ns));
        // One place may have several stacks: by line, by how its code was compiled.
        let mut places: Vec<(String, u64)> = Vec::new();
        for wait in waits {
            let place = format!("{}: {}", what(wait, &first.kind), place(wait, &first.kind));
            match places.iter().position(|(p, _)| *p == place) {
                Some(i) => places[i].1 += wait.ns,
                // Waits are sorted: the ones left out have less time, each and mostly together.
                None if places.len() < MAX_PLACES => places.push((place, wait.ns)),
                None => {}
            }
        }
        places.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        for (place, ns) in places.into_iter().take(MAX_STACKS) {
            let of = share(ns as f64 / engaged.max(1) as f64);
            self.faint(&format!("  {} {place}", pad(&of, -8)), 11);
        }
        let parked: u64 = rows.iter().map(|r| r.wall_ns - r.engaged_ns()).sum();
        if parked > 0 {
            let note = format!(
                "  of the time with something to do; {} with nothing to do (parked) is left out",
                ns(parked)
            );
            self.faint(&note, 2);
        }
    }
}

/// Reason of a wait, in words.
fn what(wait: &TaskWait, kind: &str) -> String {
    match (&*wait.detail, &*wait.reason) {
        ("", "") => wait.state.name().to_string(),
        ("", reason) => reason.to_string(),
        // Here the detail is a class name, which does not say that the wait is for a lock.
        (detail, reason) if kind == VIRTUAL_THREAD => format!("{reason} ({})", clean(detail)),
        (detail, _) => clean(detail),
    }
}

/// A wait site, leaf first, without the functions by which every task waits and begins.
fn place(wait: &TaskWait, kind: &str) -> String {
    let all = wait.frames.iter().map(|f| &*f.function.name);
    let mut names: Vec<&str> = all.collect();
    if kind == VIRTUAL_THREAD {
        // Only one frame of the library is kept: the function that the program called.
        let of_library = |n: &&str| LIBRARY.iter().any(|l| n.starts_with(l));
        let own = names.iter().position(|n| !of_library(n));
        names.drain(..own.map_or(0, |i| i.saturating_sub(1)));
    }
    names.retain(|n| !MACHINERY.iter().any(|m| n.starts_with(m)));
    let mut names: Vec<String> = names.into_iter().map(clean).collect();
    if names.len() > FRAMES {
        // The task's first function is kept: it says which task waits.
        names.drain(FRAMES - 1..names.len() - 1);
        names.insert(FRAMES - 1, "…".into());
    }
    match names.is_empty() {
        true => "the runtime itself".to_string(),
        false => names.join(" < "),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use wallscope_model::{FrameKind, State};

    use super::*;
    use wallscope_analysis::view::{FunctionName, StackFrame};

    fn wait(names: &[&str]) -> TaskWait {
        let frame = |name: &&str| StackFrame {
            function: FunctionName {
                name: (*name).into(),
                module: "".into(),
                kind: FrameKind::Java,
            },
            line: 0,
            inlined: false,
        };
        TaskWait {
            state: State::Blocked,
            reason: "lock".into(),
            detail: "a.B".into(),
            ns: 1,
            count: 1,
            idle: false,
            labels: Vec::new(),
            frames: names.iter().map(frame).collect(),
        }
    }

    #[test]
    fn a_place_is_what_the_program_called() {
        let java = wait(&[
            "jdk.internal.vm.Continuation.yield",
            "java.lang.VirtualThread.park",
            "java.util.concurrent.locks.ReentrantLock.lock",
            "shop.Cart.add",
            "shop.Cart$$Lambda.run",
            "java.lang.VirtualThread.run",
        ]);
        assert_eq!(
            place(&java, VIRTUAL_THREAD),
            "java.util.concurrent.locks.ReentrantLock.lock < shop.Cart.add < shop.Cart$$Lambda.run"
        );
        assert_eq!(what(&java, VIRTUAL_THREAD), "lock (a.B)");
        let go = wait(&["runtime.gopark", "sync.(*Mutex).Lock", "main.add"]);
        assert_eq!(place(&go, "goroutine"), "sync.(*Mutex).Lock < main.add");
        assert_eq!(what(&go, "goroutine"), "a.B");
        assert_eq!(
            place(&wait(&["runtime.gopark"]), "goroutine"),
            "the runtime itself"
        );
    }
}
