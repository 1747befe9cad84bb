//! `report --md`: the same report for a ticket or a pull request.

use std::fmt::Write as _;
use wallscope_model::printable::{is_obeyed, printable};

use wallscope_model::{State, View};

use crate::text::{Headline, interval, label};
use wallscope_analysis::view::{
    Analysis, FunctionRow, LedgerRow, audit_lines, cost_lines, histogram_lines, ledger_rows,
    process_rows, reason_rows, total_row,
};
use wallscope_model::domain_text::{domain_lines, loss_lines, scaling_lines};
use wallscope_model::units::{count, requests, share_of, value};

const MAX_ROWS: usize = 15;
const MAX_STACKS: usize = 5;

/// The report as Markdown.
pub fn render(analysis: &Analysis, headline: &Headline) -> String {
    let mut page = Page {
        analysis,
        out: String::new(),
    };
    page.headline(headline);
    page.states();
    page.threads();
    let functions = analysis.functions();
    for view in View::ALL {
        page.functions(*view, &functions);
    }
    page.requests();
    page.lengths();
    page.stacks();
    page.trust();
    page.out
}

/// The report while it is written.
struct Page<'a> {
    analysis: &'a Analysis<'a>,
    out: String,
}

impl Page<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// A value in the recording's unit.
    fn value(&self, v: u64) -> String {
        value(&self.analysis.recording.domain.unit, v)
    }

    fn headline(&mut self, headline: &Headline) {
        self.line(&format!("**{}**", escape(&headline.sentence)));
        for because in &headline.because {
            self.line("");
            self.line(&escape(because));
        }
    }

    /// The ledger by state and reason.
    fn states(&mut self) {
        let total = total_row(self.analysis.recording);
        let l = &total.ledger;
        self.line("\n## Where the time went\n");
        self.line("| state | time | share | of which |\n|---|---:|---:|---|");
        let reasons = reason_rows(l);
        for state in State::ALL {
            let parts: Vec<String> = reasons
                .iter()
                .filter(|r| r.state == *state)
                .map(|r| format!("{} {}", r.reason, self.value(r.ns)))
                .collect();
            let time = l.state_ns(*state);
            self.line(&format!(
                "| {} | {} | {} | {} |",
                label(*state),
                self.value(time),
                share_of(time, l.wall_ns),
                parts.join(", ")
            ));
        }
        let wall = self.value(l.wall_ns);
        self.line(&format!("| **wall** | {wall} | 100 % | |"));
    }

    /// Processes, if there are several, and threads.
    fn threads(&mut self) {
        let rec = self.analysis.recording;
        let processes = process_rows(rec);
        if processes.len() > 1 {
            self.line("\n## Processes\n");
            self.table(["process", "pid"], &processes, |r| r.pid);
        }
        self.line("\n## Threads\n");
        self.table(["thread", "tid"], &ledger_rows(rec), |r| r.tid.unwrap_or(0));
    }

    fn table(
        &mut self,
        [what, id]: [&str; 2],
        rows: &[LedgerRow],
        id_of: impl Fn(&LedgerRow) -> u32,
    ) {
        self.line(&format!(
            "| {what} | {id} | wall | on-CPU | runnable | blocked | unseen |\n|---|---:|---:|---:|---:|---:|---:|"
        ));
        for r in rows.iter().take(MAX_ROWS) {
            self.ledger_row(&r.name, &id_of(r).to_string(), r);
        }
        if rows.len() > MAX_ROWS {
            let mut rest = LedgerRow::default();
            rows[MAX_ROWS..].iter().for_each(|r| rest.merge(r));
            self.ledger_row(&format!("{} more", rows.len() - MAX_ROWS), "", &rest);
        }
    }

    fn ledger_row(&mut self, name: &str, id: &str, r: &LedgerRow) {
        let l = &r.ledger;
        let mut row = format!("| {} | {id} | {} |", escape(name), self.value(l.wall_ns));
        for state in State::ALL {
            let _ = write!(row, " {} |", share_of(l.state_ns(*state), l.wall_ns));
        }
        self.line(&row);
    }

    /// The functions of a view, if it has time.
    fn functions(&mut self, view: View, functions: &[FunctionRow]) {
        let total = self.analysis.total(view);
        let whole = total.shown_ns();
        if whole == 0 {
            return;
        }
        self.line(&format!(
            "\n## Functions, {view} ({} in {} samples)\n",
            self.value(whole),
            count(total.samples)
        ));
        if total.hidden_idle_ns > 0 {
            self.line(&format!(
                "{} idle hidden.\n",
                self.value(total.hidden_idle_ns)
            ));
        }
        let on_cpu = view == View::OnCpu;
        let own = if on_cpu { "self" } else { "in it" };
        self.line(&format!(
            "| {own} | 95 % interval | total | function | module |\n|---:|---:|---:|---|---|"
        ));
        let value = |r: &FunctionRow| {
            let v = r.view(view);
            if on_cpu { v.own } else { v.place }
        };
        let mut order: Vec<_> = functions.iter().filter(|r| value(r).ns > 0).collect();
        order.sort_by_key(|r| std::cmp::Reverse(value(r).ns));
        for row in order.iter().take(MAX_ROWS) {
            self.line(&format!(
                "| {} | {} | {} | `{}` | {} |",
                share_of(value(row).ns, whole),
                interval(&value(row), whole),
                share_of(row.view(view).total.ns, whole),
                code(&row.function.name),
                escape(&row.function.module)
            ));
        }
        if order.len() > MAX_ROWS {
            let more = order.len() - MAX_ROWS;
            self.line(&format!("\n{more} more functions are not shown."));
        }
    }

    /// Requests between processes, if there are any.
    fn requests(&mut self) {
        let peers = self.analysis.peers();
        if peers.is_empty() {
            return;
        }
        self.line("\n## Requests\n");
        self.line(
            "| process | | with | requests | in flight | of its request time |\n|---|---|---|---:|---:|---:|",
        );
        for r in peers.iter().take(MAX_ROWS) {
            self.line(&format!(
                "| {} ({}) | {} | {} | {} | {} | {} |",
                escape(&r.process),
                r.peer.pid,
                if r.peer.asks { "awaits" } else { "is asked at" },
                escape(&r.called()),
                requests(&r.peer),
                self.value(r.peer.in_flight_ns),
                r.share.map_or(String::new(), wallscope_model::units::share)
            ));
        }
    }

    /// Lengths of single intervals, if they were counted.
    fn lengths(&mut self) {
        let lines = histogram_lines(self.analysis.recording);
        if lines.is_empty() {
            return;
        }
        self.line("\n## How long at a time\n");
        self.line("| | times | half ≤ | 99 % ≤ | longest |\n|---|---:|---:|---:|---:|");
        for l in &lines {
            let quantile = |q| {
                let length = l.histogram.quantile(q);
                length.map_or("–".to_string(), |ns| self.value(ns))
            };
            self.line(&format!(
                "| {} {} | {} | {} | {} | {} |",
                label(l.state),
                l.reason.unwrap_or_default(),
                count(l.histogram.count().round() as u64),
                quantile(0.5),
                quantile(0.99),
                self.value(l.histogram.max_ns)
            ));
        }
    }

    /// The stacks with most time.
    fn stacks(&mut self) {
        self.line("\n## Hottest stacks, wall\n");
        let whole = self.analysis.total(View::Wall).shown_ns();
        for s in self.analysis.stacks(View::Wall, MAX_STACKS) {
            let reason = s.reason.map(|r| format!(" ({r})")).unwrap_or_default();
            self.line(&format!(
                "{} ({}) {}{reason}, {} {}\n\n```",
                share_of(s.ns, whole),
                self.value(s.ns),
                label(s.state),
                s.threads,
                if s.threads == 1 { "thread" } else { "threads" }
            ));
            for f in &s.frames {
                self.line(&format!(
                    "{}{}",
                    printable(&f.function.name).replace('`', "'"),
                    f.suffix()
                ));
            }
            if !s.end.is_whole() {
                self.line(&wallscope_model::name::truncated(s.end));
            }
            self.line("```\n");
        }
    }

    /// Domain, losses, audit and cost.
    fn trust(&mut self) {
        let rec = self.analysis.recording;
        self.line("## What this rests on\n");
        let lines = domain_lines(rec)
            .into_iter()
            .chain(scaling_lines(&self.analysis.scaled, &rec.domain.unit))
            .chain(loss_lines(rec))
            .chain(audit_lines(rec))
            .chain(cost_lines(rec));
        for text in lines {
            self.line(&format!("- {}", escape(&text)));
        }
    }
}

/// Text in which nothing is markup.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c if is_obeyed(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Text within backquotes, in a table.
fn code(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '`' => '\'',
            c if is_obeyed(c) => ' ',
            c => c,
        })
        .collect::<String>()
        .replace('|', "\\|")
}
