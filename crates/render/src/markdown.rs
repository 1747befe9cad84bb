//! `report --md`: the same report for a ticket or a pull request.

use std::fmt::Write as _;
use wallscope_model::printable::{is_obeyed, printable};

use wallscope_model::{State, Unit, View};

use crate::text::{Headline, interval, label};
use wallscope_analysis::view::{
    Analysis, LedgerRow, audit_lines, cost_lines, ledger_rows, process_rows, reason_rows,
    shape_lines, total_row,
};
use wallscope_model::domain_text::{domain_lines, loss_lines, scaling_lines};
use wallscope_model::units::{count, requests, share_of, value};

const MOST_ROWS: usize = 15;
const MOST_STACKS: usize = 5;

/// The report as Markdown.
pub fn render(analysis: &Analysis, headline: &Headline) -> String {
    let rec = analysis.recording;
    let ns = |v| value(&rec.domain.unit, v);
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    line(&format!("**{}**", escape(&headline.sentence)));
    for because in &headline.because {
        line("");
        line(&escape(because));
    }
    let total = total_row(rec);
    let l = &total.ledger;
    line("\n## Where the time went\n");
    line("| state | time | share | of which |\n|---|---:|---:|---|");
    let reasons = reason_rows(l);
    for state in State::ALL {
        let parts: Vec<String> = reasons
            .iter()
            .filter(|r| r.state == *state)
            .map(|r| format!("{} {}", r.reason, ns(r.ns)))
            .collect();
        let time = l.state_ns(*state);
        line(&format!(
            "| {} | {} | {} | {} |",
            label(*state),
            ns(time),
            share_of(time, l.wall_ns),
            parts.join(", ")
        ));
    }
    line(&format!("| **wall** | {} | 100 % | |", ns(l.wall_ns)));
    let processes = process_rows(rec);
    if processes.len() > 1 {
        line("\n## Processes\n");
        line(&table(
            "process",
            "pid",
            &rec.domain.unit,
            &processes,
            |r| r.pid,
        ));
    }
    line("\n## Threads\n");
    line(&table(
        "thread",
        "tid",
        &rec.domain.unit,
        &ledger_rows(rec),
        |r| r.tid.unwrap_or(0),
    ));

    let functions = analysis.functions();
    for view in View::ALL {
        let total = analysis.total(*view);
        let whole = total.shown_ns();
        if whole == 0 {
            continue;
        }
        line(&format!(
            "\n## Functions, {view} ({} in {} samples)\n",
            ns(whole),
            count(total.samples)
        ));
        if total.hidden_idle_ns > 0 {
            line(&format!("{} idle hidden.\n", ns(total.hidden_idle_ns)));
        }
        let own = if *view == View::OnCpu {
            "self"
        } else {
            "in it"
        };
        line(&format!(
            "| {own} | 95 % interval | total | function | module |\n|---:|---:|---:|---|---|"
        ));
        let value = |r: &wallscope_analysis::view::FunctionRow| {
            let v = r.view(*view);
            if *view == View::OnCpu { v.own } else { v.place }
        };
        let mut order: Vec<_> = functions.iter().filter(|r| value(r).ns > 0).collect();
        order.sort_by_key(|r| std::cmp::Reverse(value(r).ns));
        for row in order.iter().take(MOST_ROWS) {
            line(&format!(
                "| {} | {} | {} | `{}` | {} |",
                share_of(value(row).ns, whole),
                interval(&value(row), whole),
                share_of(row.view(*view).total.ns, whole),
                code(&row.function.name),
                escape(&row.function.module)
            ));
        }
        if order.len() > MOST_ROWS {
            line(&format!(
                "\n{} more functions are not shown.",
                order.len() - MOST_ROWS
            ));
        }
    }

    let peers = analysis.peers();
    if !peers.is_empty() {
        line("\n## Requests\n");
        line(
            "| process | | with | requests | in flight | of its request time |\n|---|---|---|---:|---:|---:|",
        );
        for r in peers.iter().take(MOST_ROWS) {
            line(&format!(
                "| {} ({}) | {} | {} | {} | {} | {} |",
                escape(&r.process),
                r.peer.pid,
                if r.peer.asks { "awaits" } else { "is asked at" },
                escape(&r.called()),
                requests(&r.peer),
                ns(r.peer.in_flight_ns),
                r.share.map_or(String::new(), wallscope_model::units::share)
            ));
        }
    }
    let lines = shape_lines(rec);
    if !lines.is_empty() {
        line("\n## How long at a time\n");
        line("| | times | half ≤ | 99 % ≤ | longest |\n|---|---:|---:|---:|---:|");
        for l in &lines {
            let quantile = |q| l.shape.quantile(q).map_or("–".to_string(), ns);
            line(&format!(
                "| {} {} | {} | {} | {} | {} |",
                label(l.state),
                l.reason.unwrap_or_default(),
                count(l.shape.count().round() as u64),
                quantile(0.5),
                quantile(0.99),
                ns(l.shape.max_ns)
            ));
        }
    }
    line("\n## Hottest stacks, wall\n");
    let whole = analysis.total(View::Wall).shown_ns();
    for s in analysis.stacks(View::Wall, MOST_STACKS) {
        let reason = s.reason.map(|r| format!(" ({r})")).unwrap_or_default();
        line(&format!(
            "{} ({}) {}{reason}, {} {}\n\n```",
            share_of(s.ns, whole),
            ns(s.ns),
            label(s.state),
            s.threads,
            if s.threads == 1 { "thread" } else { "threads" }
        ));
        for f in &s.frames {
            line(&format!(
                "{}{}",
                printable(&f.function.name).replace('`', "'"),
                f.suffix()
            ));
        }
        if !s.end.is_whole() {
            line(&wallscope_model::name::truncated(s.end));
        }
        line("```\n");
    }

    line("## What this rests on\n");
    let lines = domain_lines(rec)
        .into_iter()
        .chain(scaling_lines(
            &analysis.scaled,
            &analysis.recording.domain.unit,
        ))
        .chain(loss_lines(rec))
        .chain(audit_lines(rec))
        .chain(cost_lines(rec));
    for text in lines {
        line(&format!("- {}", escape(&text)));
    }
    out
}

fn table(
    what: &str,
    id: &str,
    unit: &Unit,
    rows: &[LedgerRow],
    id_of: impl Fn(&LedgerRow) -> u32,
) -> String {
    let ns = |v| value(unit, v);
    let mut out = format!(
        "| {what} | {id} | wall | on-CPU | runnable | blocked | unseen |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    let mut row = |name: &str, id: &str, r: &LedgerRow| {
        let l = &r.ledger;
        let _ = write!(out, "\n| {} | {id} | {} |", escape(name), ns(l.wall_ns));
        for state in State::ALL {
            let _ = write!(out, " {} |", share_of(l.state_ns(*state), l.wall_ns));
        }
    };
    for r in rows.iter().take(MOST_ROWS) {
        row(&r.name, &id_of(r).to_string(), r);
    }
    if rows.len() > MOST_ROWS {
        let mut rest = LedgerRow::default();
        rows[MOST_ROWS..].iter().for_each(|r| rest.merge(r));
        row(&format!("{} more", rows.len() - MOST_ROWS), "", &rest);
    }
    out
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
