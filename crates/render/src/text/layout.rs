//! Lines of text: tables, bars, wrapping, and names that fit.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use wallscope_model::printable::printable;
use wallscope_model::{Ledger, State};

use super::style::Style;

/// Kinds of text by colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Strong,
    Faint,
    State(State),
}

impl Style {
    /// `text` in `ink`, where colour is wanted.
    pub(crate) fn ink(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            _ if !self.colour || text.is_empty() => return text.to_string(),
            Ink::Plain => return text.to_string(),
            Ink::Strong => "1",
            Ink::Faint => "2",
            Ink::State(State::OnCpu) => "32",
            Ink::State(State::Runnable) => "33",
            Ink::State(State::Blocked) => "34",
            Ink::State(State::Unknown) => "35",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The bar of a ledger, `cells` wide.
    pub(super) fn bar(&self, ledger: &Ledger, cells: usize) -> String {
        let glyphs = if self.unicode {
            ['█', '▓', '░', '?']
        } else {
            ['#', '+', '.', '?']
        };
        let parts: Vec<u64> = State::ALL.iter().map(|s| ledger.state_ns(*s)).collect();
        let total: u64 = parts.iter().sum();
        if total == 0 {
            return String::new();
        }
        let mut out = String::new();
        let (mut sum, mut given) = (0u64, 0usize);
        for ((state, part), glyph) in State::ALL.iter().zip(parts).zip(glyphs) {
            sum += part;
            let upto = (sum as f64 / total as f64 * cells as f64).round() as usize;
            // What exists is visible, if it can be.
            let own = upto
                .saturating_sub(given)
                .max(usize::from(part > total / 200));
            let own = own.min(cells - given);
            given += own;
            let run: String = std::iter::repeat_n(glyph, own).collect();
            out.push_str(&self.ink(Ink::State(*state), &run));
        }
        out
    }
}

/// Cells that `text` takes on a terminal.
pub(crate) fn cells(text: &str) -> usize {
    text.width()
}

/// `text` padded with spaces: to the right for a positive width, to the left for a negative one.
pub(crate) fn pad(text: &str, width: isize) -> String {
    let fill = " ".repeat(width.unsigned_abs().saturating_sub(cells(text)));
    if width < 0 {
        format!("{fill}{text}")
    } else {
        format!("{text}{fill}")
    }
}

/// Shows characters that a terminal would obey: names come from files and processes.
pub fn clean(name: &str) -> String {
    printable(name).into_owned()
}

/// Words in lines of at most `width` cells; lines after the first are indented by `indent`. Spaces
/// at the start and between words stay, except where a line is broken. A number is not parted from
/// its unit.
pub fn wrap(text: &str, width: Option<usize>, indent: usize) -> Vec<String> {
    let Some(width) = width else {
        return vec![text.to_string()];
    };
    let mut lines = Vec::new();
    let mut line = String::new();
    // Whether the line has a word yet: one word is put on a line even if it does not fit.
    let mut worded = false;
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(last) if is_unit(word) && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_string()),
        }
    }
    for (i, word) in words.iter().enumerate() {
        let space = usize::from(i > 0);
        if worded && !word.is_empty() && cells(&line) + space + cells(word) > width {
            lines.push(line.trim_end().to_string());
            line = " ".repeat(indent);
        } else if space > 0 {
            line.push(' ');
        }
        line.push_str(word);
        worded |= !word.is_empty();
    }
    lines.push(line);
    lines
}

fn is_unit(word: &str) -> bool {
    let word = word.trim_end_matches([',', ';', ':', '.', ')']);
    [
        "%", "s", "ms", "µs", "ns", "ppm", "B", "KiB", "MiB", "GiB", "Hz",
    ]
    .contains(&word)
}

/// A function's name in at most `most` cells: first template arguments go, then parameters, then
/// the start. Whatever goes is marked by `…`.
pub(crate) fn shorten(name: &str, most: usize) -> String {
    let name = clean(name);
    if cells(&name) <= most {
        return name;
    }
    let bare = fold(&name, '<', '>');
    if cells(&bare) <= most {
        return bare;
    }
    let bare = fold(&bare, '(', ')');
    if cells(&bare) <= most {
        return bare;
    }
    tail(&bare, most)
}

/// Replaces the text between outermost brackets by `…`. Operators keep theirs.
fn fold(name: &str, open: char, close: char) -> String {
    let mut out = String::new();
    let mut depth = 0usize;
    let mut before = ' ';
    for c in name.chars() {
        let operator = out.ends_with("operator") || (open == '<' && out.ends_with("operator<"));
        if c == open && !operator {
            if depth == 0 {
                out.push(c);
                out.push('…');
            }
            depth += 1;
        } else if c == close && depth > 0 && (c != '>' || before != '-') {
            depth -= 1;
            if depth == 0 {
                out.push(c);
            }
        } else if depth == 0 {
            out.push(c);
        }
        before = c;
    }
    out.replace("(…)", "()")
}

/// Keeps the end, which names the function, from the start of a name in its path if it can.
fn tail(name: &str, most: usize) -> String {
    let outer = name.match_indices("::").map(|(i, _)| &name[i..]);
    if let Some(fits) = outer.into_iter().find(|rest| cells(rest) < most) {
        return format!("…{fits}");
    }
    let mut used = 1;
    let kept = name.chars().rev().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= most
    });
    let kept: Vec<char> = kept.collect();
    format!("…{}", kept.into_iter().rev().collect::<String>())
}

/// `text` in lines of `width` cells, all indented.
pub(crate) fn paragraph(out: &mut String, text: &str, indent: usize, width: usize) {
    let text = format!("{}{text}", " ".repeat(indent));
    for line in wrap(&text, Some(width), indent) {
        let _ = writeln!(out, "{line}");
    }
}

/// A state as prose has it.
pub(crate) fn label(state: State) -> &'static str {
    match state {
        State::OnCpu => "on-CPU",
        State::Runnable => "runnable",
        State::Blocked => "blocked",
        State::Unknown => "unseen",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_what_tells_them_apart() {
        let name = "std::vector<std::pair<int, long>, std::allocator<int> >::push_back(std::pair<int, long> const&)";
        assert_eq!(shorten(name, 200), name);
        assert_eq!(
            shorten(name, 60),
            "std::vector<…>::push_back(std::pair<…> const&)"
        );
        assert_eq!(shorten(name, 30), "std::vector<…>::push_back()");
        assert_eq!(shorten(name, 20), "…::push_back()");
        assert_eq!(shorten(name, 8), "…_back()");
        assert_eq!(
            shorten("operator<(Long const&, Long const&)", 20),
            "operator<()"
        );
    }

    #[test]
    fn nothing_a_terminal_obeys_passes() {
        assert_eq!(clean("a\x1b[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn wrapped_lines_fit_and_keep_every_word() {
        let text = "one two three four five six seven";
        let lines = wrap(text, Some(12), 3);
        assert!(lines.iter().all(|l| cells(l) <= 12), "{lines:?}");
        let words: Vec<_> = lines.iter().flat_map(|l| l.split_whitespace()).collect();
        assert_eq!(words.join(" "), text);
        assert!(lines[1].starts_with("   t"));
        assert_eq!(wrap("  a  b", Some(12), 3), ["  a  b"]);
        assert_eq!(wrap("saves 10 %, no", Some(8), 0), ["saves", "10 %, no"]);
        assert_eq!(wrap("  alphabetically", Some(8), 3), ["  alphabetically"]);
    }

    #[test]
    fn the_bar_has_its_width_and_shows_every_part() {
        let style = Style {
            width: None,
            colour: false,
            unicode: false,
        };
        let mut l = Ledger::default();
        l.on_cpu.user = 1;
        l.runnable.woken = 1;
        l.blocked[0] = 98;
        assert_eq!(style.bar(&l, 20), "#+..................");
        l.blocked[0] = 0;
        assert_eq!(style.bar(&l, 4), "##++");
        assert_eq!(style.bar(&Ledger::default(), 4), "");
    }
}
