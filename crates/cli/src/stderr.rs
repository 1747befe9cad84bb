//! Messages on standard error.
//!
//! A closed standard error is no reason to panic: a recording is worth more than a message about it.
//! Names of a target may stand in a message and must do nothing to a terminal.

use wallscope_render::text::clean;

/// Prints a line, as the standard library's macro of this name does, but ignores errors and shows
/// control characters of names as visible text.
macro_rules! eprintln {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        let text = $crate::stderr::printable(&format!($($message)*));
        let _ = writeln!(std::io::stderr(), "{text}");
    }};
}

/// Prints text as it is, without an end of line, and ignores errors.
macro_rules! eprint {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($message)*);
    }};
}

/// `text` without control characters of terminals; line ends stay.
pub fn printable(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| clean(&line.replace('\t', " ")))
        .collect();
    lines.join("\n")
}
