//! The ladder for a terminal.

use std::fmt::Write as _;

use wallscope_model::printable::printable;
use wallscope_render::text::table::{Column, number_column, table, text_column};
use wallscope_render::text::wrap;

use super::{MAX_CAUSES, Page, excluded_time, percent, resolution, saturation};
use crate::output;

/// Cells of the names of a verdict's parts, and of the space behind them.
const PART_CELLS: usize = 10;
/// Most cells of a function's name in the second rung.
const FUNCTION_CELLS: usize = 34;
/// Most cells of a state in the second rung.
const STATE_CELLS: usize = 22;

/// Text in the making.
struct Paper {
    width: Option<usize>,
    out: String,
}

impl Paper {
    fn say(&mut self, indent: usize, text: &str) {
        for line in wrap(&printable(text), self.width, indent) {
            let _ = writeln!(self.out, "{line}");
        }
    }

    /// A part of the verdict: its name, and its text beside it.
    fn part(&mut self, name: &str, text: &str) {
        self.say(PART_CELLS, &format!("{name:PART_CELLS$}{text}"));
    }

    fn heading(&mut self, text: &str) {
        self.out.push('\n');
        self.say(0, text);
    }

    fn table(&mut self, columns: &[Column], rows: &[Vec<String>]) {
        let rows: Vec<Vec<String>> = (rows.iter())
            .map(|row| {
                row.iter()
                    .map(|cell| printable(cell).into_owned())
                    .collect()
            })
            .collect();
        for line in table(columns, &rows, self.width) {
            let _ = writeln!(self.out, "{line}");
        }
    }
}

impl Page<'_> {
    /// One page of text, as wide as the terminal.
    pub(super) fn text(&self) -> String {
        let mut paper = Paper {
            width: output::width(),
            out: String::new(),
        };
        for (name, says) in self.parts() {
            paper.part(name, &says);
        }
        self.first_rung_text(&mut paper);
        self.second_rung_text(&mut paper);
        if let Some(climbed) = &self.climbed {
            paper.out.push_str(&climbed.text());
        }
        self.probes_text(&mut paper);
        if self.explain {
            self.explanation_text(&mut paper);
        }
        paper.out
    }

    fn first_rung_text(&self, paper: &mut Paper) {
        paper.heading("Rung 1: is the CPU the bottleneck?");
        for line in self.first_rung() {
            paper.say(2, &format!("  {line}"));
        }
        let states = [
            text_column("state"),
            number_column("share"),
            number_column("time"),
        ];
        paper.table(&states, &self.state_rows());
        let host: Vec<Vec<String>> = (self.ladder.host.iter())
            .map(|r| {
                let used = r.utilisation.map_or_else(|| "–".into(), percent);
                let level = r.level.name().to_owned();
                vec![r.name.clone(), used, level, saturation(r)]
            })
            .collect();
        if !host.is_empty() {
            paper.out.push('\n');
            let columns = [
                text_column("on this host"),
                number_column("in use"),
                text_column("reading"),
                text_column("detail"),
            ];
            paper.table(&columns, &host);
        }
    }

    fn second_rung_text(&self, paper: &mut Paper) {
        paper.heading(&format!(
            "Rung 2: where? Shares are of the active time; below {} they are noise",
            resolution(self.ladder.resolves)
        ));
        let rows = match self.shows_causes() {
            true => self.cause_rows(MAX_CAUSES),
            false => Vec::new(),
        };
        let cut = |column: Column, most| match self.explain {
            true => column,
            false => Column { most, ..column },
        };
        let columns = [
            number_column("share"),
            number_column("95 % interval"),
            cut(text_column("state"), STATE_CELLS),
            cut(text_column("at"), FUNCTION_CELLS),
            text_column("because of (share of these waits)"),
        ];
        if !rows.is_empty() {
            paper.table(&columns, &rows);
        }
        let rest = self.ladder.causes.len().saturating_sub(rows.len());
        if rest > 0 && !rows.is_empty() {
            paper.say(2, &format!("  {rest} more (--json has all)"));
        }
        self.excluded_text(paper);
    }

    fn excluded_text(&self, paper: &mut Paper) {
        let (heading, rows) = self.excluded_time();
        if !heading.is_empty() {
            paper.heading(&heading);
        }
        let shown: Vec<Vec<String>> = (rows.iter().take(MAX_CAUSES))
            .map(|row| excluded_time::cells(row).to_vec())
            .collect();
        let columns = [
            number_column("time"),
            text_column("why"),
            text_column("state"),
            text_column("at"),
        ];
        if !shown.is_empty() {
            paper.table(&columns, &shown);
        }
        let rest = rows.len().saturating_sub(MAX_CAUSES);
        if rest > 0 {
            paper.say(2, &format!("  {rest} more (--json has all)"));
        }
    }

    fn probes_text(&self, paper: &mut Paper) {
        let probes = self.probes();
        let how = self.probes_heading();
        if let Some(ended) = &self.ended {
            let (why, says) = ended.says();
            paper.heading(&format!("{why}: {says}"));
        }
        if how.is_empty() || probes.is_empty() {
            return;
        }
        paper.heading(how);
        for command in probes {
            // For copying: never wrapped.
            let _ = writeln!(paper.out, "  {}", printable(&command));
        }
    }

    fn explanation_text(&self, paper: &mut Paper) {
        paper.heading("The verdict in detail");
        for (name, says) in self.details() {
            match name {
                "" => paper.say(4, &format!("  {says}")),
                name => paper.say(4, &format!("  {name}: {says}")),
            }
        }
        paper.heading("Rules, in the order they were tried");
        for f in &self.ladder.tried {
            let mark = match (f.spoke, f.applied) {
                (true, _) => "→",
                (_, true) => "+",
                _ => " ",
            };
            let rule = format!("{mark} {}: {}. Speaks when {}", f.rule, f.looked_at, f.when);
            paper.say(4, &rule);
        }
    }
}
