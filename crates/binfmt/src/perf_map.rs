//! Perf maps: `/tmp/perf-PID.map`, in which runtimes list the code they made.
//!
//! A line is `START SIZE NAME`, both numbers in hexadecimal; names may hold spaces. Runtimes differ:
//! some put `0x` before numbers, and a line may be half written while it is read. A line that is no
//! entry is reported as such and never makes the whole file fail.

/// One piece of code made at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// First address.
    pub start: u64,
    /// Bytes of code.
    pub size: u64,
    /// Name, as the runtime wrote it.
    pub name: &'a [u8],
}

/// A line of a perf map, classified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// An entry.
    Entry(Entry<'a>),
    /// An empty line or a comment.
    Blank,
    /// Anything else.
    Junk,
}

/// Parses one line, with or without its line break.
///
/// ```
/// use wallscope_binfmt::perf_map::{Entry, Line, parse_line};
///
/// let entry = Entry { start: 0x7f00_1000, size: 0x40, name: b"LazyCompile:~f app.js:1" };
/// assert_eq!(parse_line(b"7f001000 40 LazyCompile:~f app.js:1\n"), Line::Entry(entry));
/// assert_eq!(parse_line(b"7f001000 zz f"), Line::Junk);
/// ```
pub fn parse_line(line: &[u8]) -> Line<'_> {
    let line = line.trim_ascii();
    if line.is_empty() || line[0] == b'#' {
        return Line::Blank;
    }
    entry(line).map_or(Line::Junk, Line::Entry)
}

fn entry(line: &[u8]) -> Option<Entry<'_>> {
    let (start, rest) = word(line)?;
    let (size, name) = word(rest)?;
    let (start, size) = (hex(start)?, hex(size)?);
    start.checked_add(size)?;
    (!name.is_empty()).then_some(Entry { start, size, name })
}

/// The first word, and the rest of the text after the blanks that follow it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    Some((&text[..end], text[end..].trim_ascii_start()))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let text = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    // `from_str_radix` would take a sign.
    if text.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(line: &str) -> Option<(u64, u64, String)> {
        match parse_line(line.as_bytes()) {
            Line::Entry(e) => Some((e.start, e.size, String::from_utf8_lossy(e.name).into())),
            _ => None,
        }
    }

    #[test]
    fn entries_of_several_runtimes() {
        let node = "3ef414c0 398 LazyCompile:*fib /app/my file.js:3:13\n";
        assert_eq!(
            name_of(node),
            Some((
                0x3ef4_14c0,
                0x398,
                "LazyCompile:*fib /app/my file.js:3:13".into()
            ))
        );
        let java = "0x00007f2b60b2d0e0 0x1e8 void Main.run(java.lang.String[])";
        assert_eq!(
            name_of(java),
            Some((
                0x7f2b_60b2_d0e0,
                0x1e8,
                "void Main.run(java.lang.String[])".into()
            ))
        );
        assert_eq!(name_of("10\t20   x\r\n"), Some((0x10, 0x20, "x".into())));
    }

    #[test]
    fn junk_is_told_from_blank() {
        assert_eq!(parse_line(b""), Line::Blank);
        assert_eq!(parse_line(b"  # comment"), Line::Blank);
        for junk in [
            &b"zz 10 x"[..],
            b"10 zz x",
            b"10 20",
            b"10",
            b"-1 10 x",
            b"+1 10 x",
            b"ffffffffffffffff 10 wraps",
            b"fffffffffffffffff 10 too long",
            b"\xff\xfe 10 x",
        ] {
            assert_eq!(parse_line(junk), Line::Junk, "{junk:?}");
        }
    }
}
