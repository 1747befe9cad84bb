//! Time by the value of a label as a table.

use unicode_width::UnicodeWidthStr as _;
use wallscope_analysis::view::GroupRow;
use wallscope_model::units::{self, share_of};
use wallscope_model::{State, Unit};

/// Groups as a table for people, the first `most` of them and the rest together. Values other than time are not
/// divided by state.
pub fn groups_text(rows: &[GroupRow], key: &str, unit: &Unit, most: usize) -> String {
    let all: u64 = rows.iter().map(GroupRow::total_ns).sum();
    // A single further row is as short as the note that it was left out.
    let shown = if rows.len() > most + 1 {
        most
    } else {
        rows.len()
    };
    let name = |value: &Option<String>| value.clone().unwrap_or_else(|| format!("[no {key}]"));
    let mut lines: Vec<(String, [u64; State::COUNT])> = rows[..shown]
        .iter()
        .map(|r| (name(&r.value), r.ns))
        .collect();
    if shown < rows.len() {
        let mut rest = [0; State::COUNT];
        for row in &rows[shown..] {
            rest.iter_mut().zip(row.ns).for_each(|(sum, ns)| *sum += ns);
        }
        lines.push((format!("{} more", rows.len() - shown), rest));
    }
    let width = lines
        .iter()
        .map(|(name, _)| name.width())
        .max()
        .unwrap_or(0);
    let width = width.max(key.width());
    let states: &[(State, &str)] = match unit.is_time() {
        true => &[
            (State::OnCpu, "on-CPU"),
            (State::Runnable, "runnable"),
            (State::Blocked, "blocked"),
        ],
        false => &[],
    };
    let what = if unit.is_time() { "wall" } else { unit.name() };
    let column = what.width().max(9);
    let mut out = format!("{key:<width$} {what:>column$} {:>8}", "share");
    for (_, state) in states {
        out.push_str(&format!(" {state:>9}"));
    }
    out.push('\n');
    for (name, ns) in lines {
        let pad = " ".repeat(width - name.width());
        let total: u64 = ns.iter().sum();
        let (value, share) = (units::value(unit, total), share_of(total, all));
        out.push_str(&format!("{name}{pad} {value:>column$} {share:>8}"));
        for (state, _) in states {
            out.push_str(&format!(" {:>9}", units::ns(ns[*state as usize])));
        }
        out.push('\n');
    }
    out
}
