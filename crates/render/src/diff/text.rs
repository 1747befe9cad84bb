//! The comparison for a terminal.

use wallscope_model::compare::{Difference, Effort};
use wallscope_model::{State, View};

use crate::text::Style;
use crate::text::layout::{Ink, clean, pad, shorten};
use wallscope_analysis::diff::relative;
use wallscope_analysis::diff::{Comparison, FunctionRow, Outcome, Verdict};
use wallscope_model::units::share;

/// Options of the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// Most functions without a change that are listed.
    pub noise: usize,
    /// A change of this share of the base's time that shall be found, if asked for.
    pub resolve: Option<f64>,
}

fn state_name(state: State) -> &'static str {
    match state {
        State::OnCpu => "on-CPU",
        State::Runnable => "runnable",
        State::Blocked => "blocked",
        State::Unknown => "not known",
    }
}

/// The one sentence on top.
pub(super) fn sentence(c: &Comparison) -> String {
    if c.is_empty() {
        let view = c.options.view.name();
        return format!("Nothing to compare: neither side has anything in the view {view}.");
    }
    let total = c.total();
    let changed = c.changed().count();
    let of = match changed {
        0 => "no function changed beyond noise".to_string(),
        1 => "one function changed beyond noise".to_string(),
        n => format!("{n} functions changed beyond noise"),
    };
    let judged = c.functions.iter().filter(|r| r.q.is_some()).count();
    let whole = if c.whole[0].q > c.options.fdr {
        "the whole is the same within its error".to_string()
    } else {
        format!("the whole went {}", relative(total))
    };
    format!("Of {judged} functions judged, {of}; {whole}.")
}

/// A table's rows with their ink, columns padded alike.
struct Table {
    rows: Vec<(Ink, Vec<String>)>,
}

impl Table {
    fn put(&mut self, ink: Ink, cells: Vec<String>) {
        self.rows.push((ink, cells));
    }

    fn lines(&self, style: &Style, out: &mut String) {
        let columns = self.rows.iter().map(|(_, r)| r.len()).max().unwrap_or(0);
        let width = |i: usize| {
            let of = self.rows.iter().filter_map(|(_, r)| r.get(i));
            of.map(|c| crate::text::layout::cells(c)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (ink, row) in &self.rows {
            let mut line = String::from("  ");
            for (i, cell) in row.iter().enumerate() {
                if i + 1 == columns {
                    // The last is a name: as long as there is room.
                    let room = style
                        .width
                        .map(|w| w.saturating_sub(crate::text::layout::cells(&line)));
                    let name = clean(cell);
                    line.push_str(&room.map_or(name.clone(), |room| shorten(&name, room.max(8))));
                } else {
                    let left = i == columns - 2;
                    let width = widths[i] as isize;
                    line.push_str(&pad(cell, if left { width } else { -width }));
                    line.push_str("  ");
                }
            }
            out.push_str(&style.ink(*ink, line.trim_end()));
            out.push('\n');
        }
    }
}

fn cells(c: &Comparison, d: &Difference) -> [String; 4] {
    let unit = c.unit();
    [
        unit.value(d.base),
        unit.value(d.new),
        unit.difference(d.delta, (d.high - d.low) / 2.0),
        relative(d),
    ]
}

/// Renders the comparison, its judged conditions, and the changes that more data would resolve.
pub fn render(c: &Comparison, outcomes: &[Outcome], shown: Shown, style: &Style) -> String {
    let mut out = String::new();
    say(&sentence(c), 0, style, &mut out);
    whole(c, style, &mut out);
    changed(c, style, &mut out);
    noise(c, shown, style, &mut out);
    conditions(outcomes, style, &mut out);
    heading("What this rests on", "\n", style, &mut out);
    for line in rests_on(c, shown) {
        say(&format!("  {line}"), 4, style, &mut out);
    }
    out
}

fn say(text: &str, indent: usize, style: &Style, out: &mut String) {
    for line in crate::text::layout::wrap(text, style.width, indent) {
        out.push_str(&line);
        out.push('\n');
    }
}

/// A heading after an empty line, then `rest`.
fn heading(title: &str, rest: &str, style: &Style, out: &mut String) {
    out.push('\n');
    out.push_str(&style.ink(Ink::Strong, title));
    out.push_str(rest);
}

fn whole(c: &Comparison, style: &Style, out: &mut String) {
    let about = format!(
        "  {}, mean of {} base and {} new runs, ± 95 %\n",
        c.about(),
        c.runs.0,
        c.runs.1
    );
    heading("The whole", &about, style, out);
    let mut table = Table { rows: Vec::new() };
    table.put(
        Ink::Faint,
        ["base", "new", "difference", "", "", ""]
            .map(String::from)
            .to_vec(),
    );
    for r in &c.whole {
        let real = r.q <= c.options.fdr;
        let mut row = cells(c, &r.difference).to_vec();
        row.push(if real { "" } else { "noise" }.to_string());
        row.push(match (r.state, r.reason) {
            (None, _) => c.of_all().to_string(),
            (Some(s), None) => format!("  {}", state_name(s)),
            (Some(_), Some(reason)) => format!("    {}", reason.replace('_', " ")),
        });
        table.put(if real { Ink::Plain } else { Ink::Faint }, row);
    }
    table.lines(style, out);
}

fn changed(c: &Comparison, style: &Style, out: &mut String) {
    let by_chance = format!("  at most {} of these are chance\n", share(c.options.fdr));
    heading("Functions that changed", &by_chance, style, out);
    let mut table = Table { rows: Vec::new() };
    for r in c.changed() {
        function(c, r, &mut table);
    }
    if table.rows.is_empty() {
        out.push_str("  none\n");
    }
    table.lines(style, out);
}

/// The largest functions without a change.
fn noise(c: &Comparison, shown: Shown, style: &Style, out: &mut String) {
    let rest: Vec<&FunctionRow> = (c.functions.iter()).filter(|r| !r.changed).collect();
    if rest.is_empty() || shown.noise == 0 {
        return;
    }
    let title = format!(
        "Noise  the {} largest of {} others",
        shown.noise.min(rest.len()),
        rest.len()
    );
    out.push('\n');
    out.push_str(&style.ink(Ink::Faint, &title));
    out.push('\n');
    let mut table = Table { rows: Vec::new() };
    for r in rest.iter().take(shown.noise) {
        let mut row = cells(c, &r.all).to_vec();
        row.push(r.what());
        row.push(name(r));
        table.put(Ink::Faint, row);
    }
    table.lines(style, out);
}

fn conditions(outcomes: &[Outcome], style: &Style, out: &mut String) {
    if outcomes.is_empty() {
        return;
    }
    heading("Conditions", "\n", style, out);
    for o in outcomes {
        let verdict = match o.verdict {
            Verdict::Fired => "FIRED",
            Verdict::Holds => "holds",
            Verdict::Undecided => "undecided",
            Verdict::Nothing => "nothing to judge",
        };
        let line = format!("  {}  {verdict}: {}", o.condition, o.says);
        say(&line, 4, style, out);
    }
}

/// One function: a line, and one for each state where it changed in several.
fn function(c: &Comparison, r: &FunctionRow, table: &mut Table) {
    let main: Vec<_> = r.states.iter().filter(|s| s.changed).collect();
    let head = if let [only] = main[..] {
        &only.difference
    } else {
        &r.all
    };
    let mut row = cells(c, head).to_vec();
    row.push(r.what());
    row.push(name(r));
    table.put(Ink::Plain, row);
    if main.len() > 1 {
        for s in main {
            let mut row = cells(c, &s.difference).to_vec();
            row.push(format!("  {}", state_name(s.state)));
            row.push(String::new());
            table.put(Ink::State(s.state), row);
        }
    }
    if let Some(held) = &r.held_by {
        let mut row = vec![String::new(); 4];
        row.push("  held by".to_string());
        row.push(format!(
            "{}  {} of it, thread {}",
            held.function,
            share(held.share),
            held.thread
        ));
        table.put(Ink::Faint, row);
    }
}

fn name(r: &FunctionRow) -> String {
    if r.function.module.is_empty() {
        return r.label();
    }
    format!("{}  {}", r.label(), r.function.module)
}

/// Evidence and limits of the comparison.
pub(super) fn rests_on(c: &Comparison, shown: Shown) -> Vec<String> {
    let mut lines = Vec::new();
    let n = c.runs.0 + c.runs.1;
    if n > 2 {
        let by_state: Vec<String> = (c.priors.iter())
            .map(|(state, p)| {
                let (times, df) = (p.dispersion, p.df);
                format!(
                    "{times:.1} times {} ({df:.0})",
                    wallscope_analysis::diff::doing(*state)
                )
            })
            .collect();
        lines.push(format!(
            "runs differ from each other as much as sampling and their common speed explain, {} \
             (known to so many degrees of freedom)",
            by_state.join(", ")
        ));
    }
    lines.extend(c.notes.iter().cloned());
    let queues = |r: &wallscope_analysis::diff::WholeRow| {
        r.state == Some(State::Runnable) && r.difference.base + r.difference.new > 0.0
    };
    if c.options.view == View::Wall && c.whole.iter().any(queues) {
        lines.push(
            "functions are compared computing and blocked; waiting for a CPU is compared as a whole \
             (--view runq has it by function)"
                .to_string(),
        );
    }
    lines.push(if c.functions.iter().any(|r| r.q.is_some()) {
        format!(
            "a change of {} of the base's {} in any one function judged would be found in 4 of 5 \
             attempts",
            share(c.resolves()),
            c.of_all()
        )
    } else {
        "no function has the samples to be judged: record for longer".to_string()
    });
    if let Some(size) = shown.resolve {
        lines.extend(resolve(c, size));
    }
    lines
}

/// Data needed to find changes of `size` of the base's time.
fn resolve(c: &Comparison, size: f64) -> Vec<String> {
    let efforts = c.efforts(size);
    let lacking: Vec<_> = (efforts.iter())
        .filter(|(_, e)| *e != Effort::Enough)
        .collect();
    if lacking.is_empty() {
        return vec![format!(
            "resolve: a change of {} of the base's time is found in every function judged",
            share(size)
        )];
    }
    let mut lines = vec![format!(
        "resolve: a change of {} of the base's time is found in {} of {} functions judged; not in:",
        share(size),
        efforts.len() - lacking.len(),
        efforts.len()
    )];
    let seconds = c.seconds.0.max(c.seconds.1);
    for (row, effort) in lacking.iter().take(5) {
        let what = match effort {
            Effort::Enough => continue,
            Effort::Longer(times) => format!(
                "record {times:.1} times as long ({:.0} s a run)",
                (seconds * times).ceil()
            ),
            Effort::MoreRuns(times) => format!(
                "record {:.0} runs a side: runs differ by more than length can mend",
                (c.runs.0.max(c.runs.1) as f64 * times).ceil()
            ),
        };
        lines.push(format!("  {}: {what}", clean(&row.label())));
    }
    lines
}
