//! Tasks of a runtime, at a terminal.

use super::layout::{Ink, cells, clean, pad, shorten};
use super::units::{count, ns, share};
use super::{MOST_ROWS, MOST_STACKS, Page};
use crate::view::{Analysis, TaskRow, TaskWait};

/// Frames shown of where a task waits, from the leaf; the runtime's own are passed over.
const FRAMES: usize = 6;

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
        let looks = rows.iter().map(|r| r.looks).max().unwrap_or(0);
        self.heading(
            &format!("{}s", capital(&first.kind)),
            &format!(
                "sampled, {} looks; a clock of their own, not added to threads",
                count(looks)
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
        for row in rows.iter().take(MOST_ROWS) {
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
        if rows.len() > MOST_ROWS {
            let more = rows.len() - MOST_ROWS;
            self.faint(&format!("  {more} more are in --json"), 2);
        }
        let waits = rows.iter().flat_map(|r| &r.waits);
        let mut waits: Vec<&TaskWait> = waits.filter(|w| !w.is_idle()).collect();
        waits.sort_by_key(|w| std::cmp::Reverse(w.ns));
        for wait in waits.into_iter().take(MOST_STACKS) {
            let what = match (&*wait.detail, &*wait.reason) {
                ("", "") => wait.state.name().to_string(),
                ("", reason) => reason.to_string(),
                (detail, _) => clean(detail),
            };
            let own = |f: &&crate::view::StackFrame| !f.function.name.starts_with("runtime.");
            let mut names: Vec<String> = (wait.frames.iter())
                .filter(own)
                .map(|f| clean(&f.function.name))
                .collect();
            if names.len() > FRAMES {
                // The function that they began with says whose wait it is.
                names.drain(FRAMES - 1..names.len() - 1);
                names.insert(FRAMES - 1, "…".into());
            }
            let place = match names.is_empty() {
                true => "the runtime itself".to_string(),
                false => names.join(" < "),
            };
            let of = share(wait.ns as f64 / engaged.max(1) as f64);
            self.faint(&format!("  {} {what}: {place}", pad(&of, -8)), 11);
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

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
