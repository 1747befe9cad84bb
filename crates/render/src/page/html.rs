//! Text in a page.

use wallscope_model::printable::is_obeyed;

/// Text in which no character means anything in HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if is_obeyed(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
