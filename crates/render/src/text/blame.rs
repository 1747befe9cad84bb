//! Waits and their roots side by side, at a terminal.

use super::MAX_ROWS;
use super::layout::clean;
use super::page::Page;
use super::table::{Column, number_column, table, text_column};
use wallscope_analysis::view::{Analysis, BlameRow, ExactBlameRow};
use wallscope_model::BlockReason;
use wallscope_model::units::{ns, share_of};

/// Most cells of the place of a wait.
const PLACE_CELLS: usize = 34;
/// Share of the shown waits below which a row is left out.
const MIN_SHARE: f64 = 0.01;

impl Page<'_> {
    /// Place of each wait, and the root of its chain.
    pub(super) fn blame(&mut self, a: &Analysis) {
        if a.recording.hops.is_empty() && a.recording.timeline.is_none() {
            return;
        }
        let rows = a.blame();
        let whole: u64 = rows.iter().map(|row| row.ns).sum();
        if whole > 0 {
            let about = format!(
                "each wait, charged to the root of its chain; shares of {} of sampled waits",
                ns(whole)
            );
            self.heading("Because of", &about);
            for line in blame_lines(&rows, self.style.width) {
                self.line(&line);
            }
        }
        let exact = a.exact_blame();
        if !exact.is_empty() {
            self.heading("Because of, by thread", "every wait of the timeline");
            for line in exact_lines(&exact, self.style.width) {
                self.line(&line);
            }
        }
    }
}

/// The table of waits beside their roots.
pub(crate) fn blame_lines(rows: &[BlameRow], width: Option<usize>) -> Vec<String> {
    let whole: u64 = rows.iter().map(|row| row.ns).sum();
    let told = |row: &&BlameRow| row.ns as f64 >= MIN_SHARE * whole as f64;
    let cells: Vec<Vec<String>> = (rows.iter().filter(told).take(MAX_ROWS))
        .map(|row| {
            let interval = format!(
                "{}–{}",
                bare(row.low_ns, whole),
                share_of(row.high_ns, whole)
            );
            vec![
                share_of(row.ns, whole),
                interval,
                clean(place(&row.waited_at)),
                row.reason.map_or("", BlockReason::name).to_owned(),
                clean(&row.because_of),
            ]
        })
        .collect();
    let columns = [
        number_column("of waits"),
        number_column("95 % interval"),
        Column {
            most: PLACE_CELLS,
            ..text_column("waited at")
        },
        text_column("for"),
        text_column("because of"),
    ];
    let shown: u64 = rows
        .iter()
        .filter(told)
        .take(MAX_ROWS)
        .map(|row| row.ns)
        .sum();
    let mut lines = table(&columns, &cells, width);
    if shown < whole {
        lines.push(format!(
            "  {} in smaller parts (--json has all)",
            share_of(whole - shown, whole)
        ));
    }
    lines
}

fn exact_lines(rows: &[ExactBlameRow], width: Option<usize>) -> Vec<String> {
    let whole: u64 = rows.iter().map(|row| row.ns).sum();
    let cells: Vec<Vec<String>> = (rows.iter().take(MAX_ROWS))
        .map(|row| {
            vec![
                share_of(row.ns, whole),
                ns(row.ns),
                clean(&row.waiter),
                row.reason.map_or("", BlockReason::name).to_owned(),
                clean(&row.because_of),
            ]
        })
        .collect();
    let columns = [
        number_column("of waits"),
        number_column("time"),
        Column {
            most: PLACE_CELLS,
            ..text_column("thread")
        },
        text_column("for"),
        text_column("because of"),
    ];
    table(&columns, &cells, width)
}

/// The place of a wait, or a marker where no stack is known.
fn place(waited_at: &str) -> &str {
    match waited_at {
        "" => "[no stack]",
        place => place,
    }
}

/// A share without its unit.
fn bare(part: u64, whole: u64) -> String {
    share_of(part, whole).trim_end_matches(" %").to_owned()
}
