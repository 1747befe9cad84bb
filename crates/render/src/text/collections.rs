//! Garbage collection, for a terminal.

use wallscope_analysis::view::Analysis;
use wallscope_model::units::{count, ns, share};

use super::layout::{Ink, clean, pad};
use super::{MAX_ROWS, Page};

/// A thread with less of its time in garbage collection than this is left out, of its wall time.
const MIN_SHARE: f64 = 0.001;

impl Page<'_> {
    /// Prints pauses by kind and cause, then threads that collect or are stopped.
    pub(super) fn collections(&mut self, a: &Analysis) {
        self.pauses(a);
        let of = |ns: u64, wall: u64| ns as f64 / wall.max(1) as f64;
        let rows: Vec<_> = (a.collections().into_iter())
            .filter(|r| of(r.collects_ns.max(r.stopped_ns), r.wall_ns) >= MIN_SHARE)
            .collect();
        if rows.is_empty() {
            return;
        }
        self.heading(
            "Garbage collection by thread",
            "stopped: blocked; collecting: on a CPU, from samples; shares of each thread's wall time",
        );
        let head = format!(
            "  {} {} {} {}  thread",
            pad("stopped", -9),
            pad("share", -7),
            pad("collecting", -10),
            pad("share", -7),
        );
        let head = self.style.ink(Ink::Faint, &head);
        self.line(&head);
        for row in rows.iter().take(MAX_ROWS) {
            let [stopped, of_wall] = match row.stops_known {
                true => [ns(row.stopped_ns), share(of(row.stopped_ns, row.wall_ns))],
                false => ["–".to_owned(), "–".to_owned()],
            };
            let line = format!(
                "  {} {} {} {}  {} ({})",
                pad(&stopped, -9),
                pad(&of_wall, -7),
                pad(&ns(row.collects_ns), -10),
                pad(&share(of(row.collects_ns, row.wall_ns)), -7),
                clean(&row.name),
                row.tid,
            );
            self.line(&line);
        }
        if rows.iter().any(|row| !row.stops_known) {
            let why =
                "–: the runtime tells how long it stopped the process, and not when each thread";
            self.faint(why, 2);
        }
        let rest = rows.len().saturating_sub(MAX_ROWS);
        if rest > 0 {
            self.faint(&format!("  and {rest} more threads"), 2);
        }
    }

    fn pauses(&mut self, a: &Analysis) {
        let groups = a.pauses();
        if groups.is_empty() {
            return;
        }
        self.heading(
            "Pauses",
            "all threads of a process stopped, counted one by one",
        );
        let head = format!(
            "  {} {} {} {}  kind",
            pad("total", -9),
            pad("count", -7),
            pad("mean", -9),
            pad("longest", -9),
        );
        let head = self.style.ink(Ink::Faint, &head);
        self.line(&head);
        for g in groups.iter().take(MAX_ROWS) {
            let kind = match (g.collects(), g.cause.is_empty()) {
                (true, false) => format!("{} collection: {}", clean(&g.kind), clean(&g.cause)),
                (true, true) => format!("{} collection", clean(&g.kind)),
                _ => "no collection".to_owned(),
            };
            let line = format!(
                "  {} {} {} {}  {kind} ({}, process {})",
                pad(&ns(g.total_ns), -9),
                pad(&count(g.count), -7),
                pad(&ns(g.total_ns / g.count.max(1)), -9),
                pad(&ns(g.max_ns()), -9),
                clean(&g.operation),
                g.pid,
            );
            self.line(&line);
        }
    }
}
