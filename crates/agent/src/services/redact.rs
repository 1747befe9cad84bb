//! Command lines without values: they hold passwords, tokens and names of customers.

use crate::config::Keep;

/// Placeholder of words that are left out.
const LEFT_OUT: &str = "…";

/// The part of a command line that `keep` allows. `Redacted` keeps the program and names of options:
/// `mysqld --user=… -p… …`.
pub fn redacted(cmdline: &str, keep: Keep) -> String {
    let mut words = cmdline.split_whitespace();
    let program = words.next().unwrap_or_default();
    match keep {
        Keep::All => cmdline.to_string(),
        Keep::Program => program.to_string(),
        Keep::Redacted => {
            let mut out = program.to_string();
            let mut last = "";
            for word in words.map(option) {
                // Words in a row become one placeholder: their number is a hint, too.
                if word != LEFT_OUT || last != LEFT_OUT {
                    out.push(' ');
                    out.push_str(&word);
                }
                last = if word == LEFT_OUT { LEFT_OUT } else { "" };
            }
            out
        }
    }
}

/// An option's name, or the placeholder.
fn option(word: &str) -> String {
    let is_name = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
        !name.is_empty() && name.len() <= 40 && name.chars().all(plain)
    };
    match word.strip_prefix("--") {
        Some(long) => match long.split_once('=') {
            Some((name, _)) if is_name(name) => format!("--{name}={LEFT_OUT}"),
            None if is_name(long) => word.to_string(),
            None if long.is_empty() => word.to_string(),
            _ => LEFT_OUT.to_string(),
        },
        // `-pSECRET` and `-jar` look alike: the first letter must do.
        None => match (word.strip_prefix('-'), word.chars().nth(1)) {
            (Some(short), Some(letter)) if letter.is_ascii_alphanumeric() => match short.len() {
                1 => word.to_string(),
                _ => format!("-{letter}{LEFT_OUT}"),
            },
            _ => LEFT_OUT.to_string(),
        },
    }
}
