//! Recognises the lines that are headers or frames, and the ends of stacks and records.

use super::super::perf_event::Meaning;
use super::frame::{self, Frame};
use super::header;

/// Whether the text looks like that of `perf script`: a header, then a frame or another header; or
/// frames alone, as `-F ip,sym` prints them.
pub(in super::super) fn detect(head: &[u8]) -> bool {
    let text = |l: &&[u8]| !l.trim_ascii().is_empty() && !l.starts_with(b"#");
    let mut lines = head.split(|c| *c == b'\n').filter(text).peekable();
    let mut sideband = false;
    while lines.next_if(|l| header::is_sideband(l)).is_some() {
        sideband = true;
    }
    if sideband {
        return true;
    }
    let (Some(first), Some(second)) = (lines.next(), lines.next().or(Some(&b""[..]))) else {
        return false;
    };
    if is_frame(first) {
        return is_resolved(first) && is_resolved(second);
    }
    let Some(header) = header::parse(first) else {
        return header::parse_any(first).is_some() && is_resolved(second);
    };
    // A line without a time and an event may be any text with a word and a number.
    let known = header.pid > 0 || header.tid > 0 || !header.comm.is_empty();
    let sure = header.time.is_some() && !header.event.is_empty() && known;
    let framed = |h: &header::Header| is_named(header::own_frame(h.rest));
    let alike = || known && header::parse(second).is_some_and(|h| framed(&h));
    let own_frame = framed(&header) && (!header.event.is_empty() || alike());
    sure || own_frame || is_frame(second) && frame::parse(second).is_some()
}

/// Whether a text with this beginning has events that are time: clocks with their periods, or switches.
/// Such events may come after others.
pub(super) fn holds_time(head: &[u8]) -> bool {
    let mut headers = (head.split(|c| *c == b'\n'))
        .filter(|l| !l.is_empty() && !l.starts_with(b"#") && !is_frame(l))
        .filter_map(header::parse);
    headers.any(|h| match Meaning::of(&String::from_utf8_lossy(h.event)) {
        Meaning::Clock | Meaning::OffCpu => h.period.is_some(),
        Meaning::Switch => h.time.is_some(),
        Meaning::Count => false,
    })
}

/// Whether a line belongs to the stack of the record before.
///
/// perf indents frames by a tab; editors and web pages turn it into spaces. perf indents the first
/// line of records by spaces too, where they have no stack.
pub(super) fn is_frame(line: &[u8]) -> bool {
    match line.first() {
        Some(b'\t') => true,
        Some(b' ') => !line.trim_ascii().is_empty() && !header::is_header(line),
        _ => false,
    }
}

/// Whether a line is a frame beyond doubt: an address of many digits, then a name.
fn is_resolved(line: &[u8]) -> bool {
    is_frame(line) && is_named(line)
}

fn is_named(text: &[u8]) -> bool {
    let address = text.trim_ascii().split(|c| *c == b' ').next();
    let long = address.is_some_and(|a| a.len() >= 4);
    let named = |f: Frame| f.address.is_some() && f.symbol.is_some();
    long && frame::parse(text).is_some_and(named)
}

/// Whether a text begins with a frame.
pub(super) fn begins_stack(text: &[u8]) -> bool {
    let end = || memchr::memchr(b'\n', text).unwrap_or(text.len());
    match text.first() {
        Some(b'\t') => true,
        Some(b' ') => is_frame(&text[..end()]),
        _ => false,
    }
}

/// The end of the stack at the beginning of `text`: its first line that is no frame.
pub(super) fn stack_end(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text)
        .find(|at| !begins_stack(&text[at + 1..]))
        .unwrap_or(text.len())
}

/// The end of the last whole record; 0 if there is none.
pub(super) fn records_end(text: &[u8]) -> usize {
    let unix = memchr::memmem::rfind(text, b"\n\n").map(|at| at + 2);
    let windows = memchr::memmem::rfind(text, b"\n\r\n").map(|at| at + 3);
    if let Some(end) = unix.max(windows) {
        return end;
    }
    // In a text without empty lines a record ends at the next header. The last line may be truncated.
    let mut ends = memchr::memrchr_iter(b'\n', text);
    let mut next = ends.next();
    for at in ends {
        let line = &text[at + 1..next.unwrap_or(text.len())];
        if !line.is_empty() && !is_frame(line) {
            return at + 1;
        }
        next = Some(at);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_headers_are_no_frames() {
        assert!(is_frame(b"\t  401136 leaf+0x10 (/tmp/w)"));
        assert!(is_frame(b"    401136 leaf+0x10 (/tmp/w)"));
        assert!(is_frame(b"    main (/tmp/w)"));
        assert!(!is_frame(
            b"            bash  1234 [000]   100.000001:  1 cycles:  7f00 main (/bin/bash)"
        ));
        assert!(!is_frame(b"   java 12345 cycles:  7f00 main (/bin/java)"));
        assert!(!is_frame(b"   "));
        assert!(!is_frame(b"w 12 1.5: cycles:"));
    }

    #[test]
    fn records_end_where_the_next_one_begins() {
        assert_eq!(records_end(b"w 1 1.0: 1 cycles:\n\t12 a\n\nw 1 2.0:"), 26);
        assert_eq!(records_end(b"w 1 1.0: 1 cycles:\r\n\t12 a\r\n\r\nw 1"), 29);
        let text = b"w 1 1.0: 1 cycles:\n 12 a\nw 1 2.0: 1 cycles:\n 13 b\n";
        assert_eq!(records_end(text), 25);
        assert_eq!(records_end(b"w 1 1.0: 1 cycles:\n 12 a\n"), 0);
    }
}
