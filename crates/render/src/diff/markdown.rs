//! The comparison as Markdown, short enough for a pull request.

use wallscope_model::State;
use wallscope_model::printable::is_obeyed;

use super::text::{Shown, rests_on, sentence};
use wallscope_analysis::diff::relative;
use wallscope_analysis::diff::{Comparison, FunctionRow, Outcome, Verdict, WholeRow};

/// Most functions listed.
const MAX_FUNCTIONS: usize = 15;

fn code(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|c| if is_obeyed(c) || c == '`' { ' ' } else { c })
        .collect();
    format!("`{}`", clean.replace('|', "\\|"))
}

/// `, held by compaction (97 %)`, of waits for a lock.
fn held_by(r: &FunctionRow) -> String {
    let of = |held: &wallscope_analysis::diff::HeldBy| {
        let part = wallscope_model::units::share(held.share);
        format!(", held by {} ({part})", code(&held.function))
    };
    r.held_by.as_ref().map_or_else(String::new, of)
}

/// `blocked (lock) in cache_get +41.0 ± 3.0 ms/request, held by compaction (97 %)`.
fn headline(c: &Comparison, r: &FunctionRow) -> String {
    let most = (r.states.iter()).filter(|s| s.changed).max_by(|a, b| {
        a.difference
            .delta
            .abs()
            .total_cmp(&b.difference.delta.abs())
    });
    let Some(s) = most else {
        return String::new();
    };
    let state = match (s.state, s.reason) {
        (State::Blocked, Some(reason)) => format!("blocked ({})", reason.replace('_', " ")),
        (State::Unknown, _) if c.measured.is_time() => "time".to_string(),
        (State::Unknown, _) => c.measured.name().to_string(),
        (state, _) => wallscope_analysis::diff::doing(state).to_string(),
    };
    let held = match s.state {
        State::Blocked => held_by(r),
        _ => String::new(),
    };
    let d = &s.difference;
    let per = c.unit().per();
    format!(
        "**{state} in {} {}{per}{held}**",
        code(&r.label()),
        c.unit().difference(d.delta, (d.high - d.low) / 2.0)
    )
}

/// Renders the comparison and its judged conditions.
pub fn render(c: &Comparison, outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let changed: Vec<&FunctionRow> = c.changed().collect();
    if let Some(first) = changed.first() {
        out.push_str(&headline(c, first));
        out.push_str("\n\n");
    }
    out.push_str(&sentence(c));
    out.push_str("\n\n");
    for o in outcomes {
        let mark = match o.verdict {
            Verdict::Fired => "❌",
            Verdict::Holds => "✅",
            Verdict::Undecided | Verdict::Nothing => "❔",
        };
        out.push_str(&format!("- {mark} {}: {}\n", code(&o.condition), o.says));
    }
    if !outcomes.is_empty() {
        out.push('\n');
    }
    functions(c, &changed, &mut out);
    whole(c, &mut out);
    out.push_str("\n</details>\n");
    out
}

/// The figures of a table's row.
fn figures(c: &Comparison, d: &wallscope_model::compare::Difference) -> String {
    let unit = c.unit();
    format!(
        "{} | {} | {} | {}",
        unit.value(d.base),
        unit.value(d.new),
        unit.difference(d.delta, (d.high - d.low) / 2.0),
        relative(d)
    )
}

fn functions(c: &Comparison, changed: &[&FunctionRow], out: &mut String) {
    if changed.is_empty() {
        return;
    }
    out.push_str("| function | what | base | new | difference | |\n|---|---|--:|--:|--:|--:|\n");
    for r in changed.iter().take(MAX_FUNCTIONS) {
        let states: Vec<_> = r.states.iter().filter(|s| s.changed).collect();
        let d = match states[..] {
            [only] => &only.difference,
            _ => &r.all,
        };
        out.push_str(&format!(
            "| {} | {}{} | {} |\n",
            code(&r.label()),
            r.what(),
            held_by(r),
            figures(c, d)
        ));
    }
    if changed.len() > MAX_FUNCTIONS {
        out.push_str(&format!("\nand {} more\n", changed.len() - MAX_FUNCTIONS));
    }
    out.push('\n');
}

/// The whole, and its evidence.
fn whole(c: &Comparison, out: &mut String) {
    out.push_str("<details><summary>The whole, and what this rests on</summary>\n\n");
    out.push_str("| | base | new | difference | | |\n|---|--:|--:|--:|--:|---|\n");
    let is_shown = |r: &&WholeRow| r.reason.is_none() || r.q <= c.options.fdr;
    for r in c.whole.iter().filter(is_shown) {
        let name = match (r.state, r.reason) {
            (_, Some(reason)) => reason.replace('_', " "),
            (Some(s), None) => s.name().replace('_', " "),
            (None, None) => c.of_all().to_string(),
        };
        let noise = if r.q <= c.options.fdr { "" } else { "noise" };
        let figures = figures(c, &r.difference);
        out.push_str(&format!("| {name} | {figures} | {noise} |\n"));
    }
    out.push_str(&format!(
        "\n- {}, mean of {} base and {} new runs, ± 95 %\n",
        c.about(),
        c.runs.0,
        c.runs.1
    ));
    for line in rests_on(c, Shown::default()) {
        out.push_str(&format!("- {line}\n"));
    }
}
