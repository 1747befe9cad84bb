//! Where the time went: the whole, and by process and thread.

use wallscope_model::{Ledger, State};

use super::MAX_ROWS;
use super::groups::groups_text;
use super::layout::label;
use super::layout::{Ink, cells, clean, pad, shorten, wrap};
use super::page::Page;
use wallscope_analysis::view::{
    Analysis, LedgerRow, groups, ledger_rows, process_rows, reason_rows,
};
use wallscope_model::units::{self, count, ns, share_of};

impl Page<'_> {
    pub(super) fn ledger(&mut self, a: &Analysis, total: &LedgerRow) {
        let rec = a.recording;
        let l = &total.ledger;
        let length = rec.window.length_ns();
        let threads = match total.threads {
            1 => "1 thread".to_string(),
            n => format!("{} threads", count(u64::from(n))),
        };
        let target = clean(&rec.domain.target);
        let about = [target, threads, format!("{} recorded", ns(length))];
        let about: Vec<_> = about.into_iter().filter(|s| !s.is_empty()).collect();
        if !self.unit.is_time() {
            self.heading(self.unit.name(), &about.join(", "));
            return self.line(&format!("  {} in all", self.value(l.wall_ns)));
        }
        let about = format!(
            "{}; shares of all wall time, idle time too",
            about.join(", ")
        );
        self.heading("Where the time went", &about);
        let bar = self
            .style
            .bar(l, self.width().min(100).saturating_sub(4).max(10));
        self.line(&format!("  {bar}"));
        self.states(l);
        let wall = format!(
            "  {} {} {}",
            pad("wall", 9),
            pad(&self.value(l.wall_ns), -8),
            pad("100 %", -8)
        );
        let residue = l.residue_ns();
        let sign = if residue < 0 { "-" } else { "" };
        let residue = format!(
            "unaccounted for: {sign}{} ({})",
            self.value(residue.unsigned_abs()),
            units::ppm(residue.unsigned_abs() as f64 / l.wall_ns.max(1) as f64)
        );
        for line in wrap(&format!("{wall}  {residue}"), self.style.width, 32) {
            self.line(&line);
        }
        if l.idle_ns > 0 {
            let idle = format!(
                "  Of the blocked time {} ({} of wall) was idle: no request in flight.",
                self.value(l.idle_ns),
                share_of(l.idle_ns, l.wall_ns)
            );
            self.faint(&idle, 2);
        }
        if total.unattributed_on_cpu_ns > 0 {
            let unseen = format!(
                "  {} more on-CPU time belongs to threads that were never seen.",
                self.value(total.unattributed_on_cpu_ns)
            );
            self.faint(&unseen, 2);
        }
    }

    /// A line for each state, with its parts.
    fn states(&mut self, l: &Ledger) {
        let reasons = reason_rows(l);
        for state in State::ALL {
            let time = l.state_ns(*state);
            let parts: Vec<String> = reasons
                .iter()
                .filter(|r| r.state == *state)
                .map(|r| format!("{} {}", r.reason, self.value(r.ns)))
                .collect();
            let name = pad(label(*state), 9);
            let head = format!(
                "  {name} {} {}  ",
                pad(&self.value(time), -8),
                pad(&share_of(time, l.wall_ns), -8)
            );
            let indent = cells(&head);
            let text = format!("{head}{}", parts.join(", "));
            for (i, line) in wrap(&text, self.style.width, indent)
                .into_iter()
                .enumerate()
            {
                let inked = self.style.ink(Ink::State(*state), &name);
                let line = if i == 0 {
                    line.replacen(&name, &inked, 1)
                } else {
                    line
                };
                self.line(&line);
            }
        }
    }

    pub(super) fn threads(&mut self, a: &Analysis, total: &LedgerRow) {
        if !self.unit.is_time() {
            return self.counted(a);
        }
        let processes = process_rows(a.recording);
        if processes.len() > 1 {
            self.heading("Processes", "shares of each one's wall time");
            self.ledger_table("process", "pid", &processes, |r| r.pid);
        }
        if total.threads > 0 {
            self.heading("Threads", "shares of each one's wall time");
            let rows = ledger_rows(a.recording);
            self.ledger_table("thread", "tid", &rows, |r| r.tid.unwrap_or(0));
        }
    }

    /// Values other than time, by process and by thread.
    fn counted(&mut self, a: &Analysis) {
        for (heading, key) in [("Processes", "process"), ("Threads", "thread")] {
            let rows = groups(a, key);
            if rows.len() > 1 {
                self.heading(heading, "");
                let unit = &a.recording.domain.unit;
                for line in groups_text(&rows, key, unit, MAX_ROWS).lines() {
                    self.line(&format!("  {line}"));
                }
            }
        }
    }

    fn ledger_table(
        &mut self,
        what: &str,
        id: &str,
        rows: &[LedgerRow],
        id_of: impl Fn(&LedgerRow) -> u32,
    ) {
        let shown = if rows.len() > MAX_ROWS + 1 {
            MAX_ROWS
        } else {
            rows.len()
        };
        let rest = rows[shown..]
            .iter()
            .fold(LedgerRow::default(), |mut sum, r| {
                sum.merge(r);
                sum
            });
        let rest_name = format!("{} more", count((rows.len() - shown) as u64));
        let names: Vec<String> = rows[..shown].iter().map(|r| clean(&r.name)).collect();
        let widest = names.iter().map(|n| cells(n)).max().unwrap_or(0);
        let most = self
            .style
            .width
            .map_or(18, |w| w.saturating_sub(49).clamp(6, 18));
        let name = widest.max(cells(what)).max(cells(&rest_name)).min(most) as isize;
        let narrow = self.style.width.is_some_and(|w| w < 72);
        let (column, heads) = if narrow {
            (-6, ["wall", "CPU", "runq", "block"])
        } else {
            (-7, ["wall", "on-CPU", "runq", "blocked"])
        };
        let mut head = format!("  {} {}", pad(what, name), pad(id, -7));
        for h in heads {
            head.push(' ');
            head.push_str(&pad(h, column));
        }
        let head = self.style.ink(Ink::Faint, &format!("{head}  waits for"));
        self.line(&head);
        let summed = (rest.threads > 0).then_some((&rest, rest_name, String::new()));
        let rows: Vec<_> = rows[..shown]
            .iter()
            .zip(names)
            .map(|(r, n)| (r, n, id_of(r).to_string()))
            .chain(summed)
            .collect();
        for (row, row_name, row_id) in rows {
            let l = &row.ledger;
            let of = |state: State| {
                let text = pad(&share_of(l.state_ns(state), l.wall_ns), column);
                self.style.ink(Ink::State(state), &text)
            };
            let line = format!(
                "  {} {} {} {} {} {}  ",
                pad(&shorten(&row_name, name as usize), name),
                pad(&row_id, -7),
                pad(&self.value(l.wall_ns), column),
                of(State::OnCpu),
                of(State::Runnable),
                of(State::Blocked),
            );
            let used = 2 + name as usize + 8 + 4 * (column.unsigned_abs() + 1) + 2;
            let room = self
                .style
                .width
                .map_or(usize::MAX, |w| w.saturating_sub(used));
            let line = format!("{line}{}", waits(row, room));
            self.line(&line);
        }
    }
}

/// Block reasons of a row's threads: the largest that fit, and a mark for the rest.
fn waits(row: &LedgerRow, room: usize) -> String {
    let l = &row.ledger;
    let reasons: Vec<_> = reason_rows(l)
        .into_iter()
        .filter(|r| r.state == State::Blocked && r.ns * 1000 >= l.wall_ns)
        .collect();
    let mut out = String::new();
    for (i, r) in reasons.iter().enumerate() {
        let sep = if i == 0 { "" } else { ", " };
        let share = (r.ns as f64 / l.wall_ns.max(1) as f64 * 100.0).round();
        let item = match share as u64 {
            0 => format!("{sep}{} <1 %", r.reason),
            share => format!("{sep}{} {share} %", r.reason),
        };
        // Every reason but the last leaves room for the mark.
        let more = if i + 1 == reasons.len() { 0 } else { 3 };
        if i == 0 && cells(&item) + more > room {
            return shorten(r.reason, room.max(4));
        }
        if i == 3 || (i > 0 && cells(&out) + cells(&item) + more > room) {
            out.push_str(", …");
            return out;
        }
        out.push_str(&item);
    }
    out
}
