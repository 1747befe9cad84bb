//! One frame of the picture, and its words.

use std::io::{self, Write};
use wallscope_model::printable::is_obeyed;

use wallscope_model::{INK, Unit};

use super::class::Class;
use crate::text::layout::shorten;
use wallscope_model::units::value;

/// The width of a letter.
pub(super) const LETTER: f64 = 6.65;

/// A frame of the picture.
pub(super) struct FrameBox<'a> {
    pub name: &'a str,
    /// Its time by class.
    pub parts: &'a [(Class, u64)],
    /// Its time, and that in words.
    pub ns: u64,
    pub amount: &'a str,
    /// Time of the whole picture.
    pub all: u64,
    /// Left end, upper end and width.
    pub place: (f64, f64, f64),
}

/// One frame: its parts side by side, its name where there is room.
pub(super) fn frame(out: &mut dyn Write, frame: &FrameBox<'_>) -> io::Result<()> {
    let FrameBox {
        name,
        parts,
        ns,
        amount,
        all,
        place: (x, y, width),
    } = *frame;
    let gap = if width > 3.0 { 0.7 } else { 0.0 };
    let share = ns as f64 / all as f64;
    write!(
        out,
        "<g><title>{}: {}, {:.2} %</title>",
        escape(&shorten(name, 400)),
        escape(amount),
        share * 100.0
    )?;
    if parts.is_empty() {
        write!(
            out,
            "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"17\" fill=\"#e4e4e0\"/>",
            width - gap
        )?;
    }
    let mut at = x;
    for (class, part) in parts {
        let w = (width - gap) * *part as f64 / ns.max(1) as f64;
        write!(
            out,
            "<rect x=\"{at:.2}\" y=\"{y:.1}\" width=\"{w:.2}\" height=\"17\" fill=\"{}\"/>",
            class.colour()
        )?;
        at += w;
    }
    let room = ((width - 6.0) / LETTER).floor();
    if room >= 3.0 {
        write!(
            out,
            "<text x=\"{:.2}\" y=\"{:.1}\" fill=\"{INK}\">{}</text>",
            x + 3.0,
            y + 12.5,
            escape(&label(name, room as usize))
        )?;
    }
    writeln!(out, "</g>")
}

/// A frame's name in `room` letters. Where not even the last of its names fits, how that begins:
/// a row of narrow frames is read from the left.
pub(super) fn label(name: &str, room: usize) -> String {
    let short = shorten(name, room);
    let last = name.rsplit("::").next().unwrap_or(name);
    let cut = short
        .strip_prefix('…')
        .is_some_and(|s| !s.starts_with("::"));
    if !cut || last.chars().count() <= room || last.contains(['<', '(', '>', ')']) {
        return short;
    }
    let begins: String = last.chars().take(room.saturating_sub(1)).collect();
    format!("{begins}…")
}

/// A value in the recording's unit.
pub(super) fn amount(unit: &Unit, v: u64) -> String {
    match unit {
        Unit::Nanoseconds => seconds(v),
        Unit::Bytes => value(unit, v),
        Unit::Count(name) => format!("{} {name}", value(unit, v)),
    }
}

fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Text that can neither end its element nor be no XML at all.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if is_obeyed(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
