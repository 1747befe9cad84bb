//! The first line of a record: thread, CPU, time, period, event, and a tracepoint's fields.

use super::super::import::{number, seconds};
use super::super::switches::Left;
use super::frame;

/// A record's first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub comm: &'a [u8],
    /// Process id; 0 if the line has only the thread's id.
    pub pid: u32,
    pub tid: u32,
    pub cpu: Option<u32>,
    pub time: Option<u64>,
    /// Number of events that the sample represents, if it is printed.
    pub period: Option<u64>,
    /// The event, empty where it is not printed.
    pub event: &'a [u8],
    /// The rest of the line: a tracepoint's fields, or the frame of a record without a stack.
    pub rest: &'a [u8],
}

/// Whether a line is about a mapping, a fork or a name (`--show-mmap-events` and the like), and not
/// about a sample.
pub(super) fn is_sideband(line: &[u8]) -> bool {
    memchr::memmem::find(line, b": PERF_RECORD_").is_some_and(|at| timed(&line[..=at]).is_some())
}

/// Whether an indented line is a header: it has a time, or an event behind its ids.
pub(super) fn is_header(line: &[u8]) -> bool {
    // Both end with a colon, and a frame has none before a space.
    let line = line.trim_ascii_end();
    if !line.ends_with(b":") && memchr::memmem::find(line, b": ").is_none() {
        return false;
    }
    parse(line).is_some_and(|h| h.time.is_some() || !h.event.is_empty())
}

/// Parses a header.
pub(super) fn parse(line: &[u8]) -> Option<Header<'_>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let first = line.trim_ascii_start().split(|c| *c == b' ').next();
    let time_first = (first.and_then(|w| w.strip_suffix(b":")))
        .is_some_and(|w| w.contains(&b'.') && seconds(w).is_some());
    if time_first {
        return without_comm(line);
    }
    timed(line)
        .or_else(|| untimed(line))
        .or_else(|| without_comm(line))
}

/// Parses the header of a record that has a stack: it may have any of the fields, or the thread's
/// name alone (`-F comm,ip,sym`).
pub(super) fn parse_any(line: &[u8]) -> Option<Header<'_>> {
    let name = line.trim_ascii();
    let alone = !name.contains(&b':') && !line.starts_with(b" ");
    let only_name = || Header {
        comm: name,
        ..Header::default()
    };
    parse(line).or_else(|| alone.then(only_name))
}

/// `pid [cpu] seconds: period event: …` with any of them missing but the time or the event.
///
/// A number alone before the event is a process id or a period: perf prints ids to 5 columns and
/// periods to 10.
fn without_comm(line: &[u8]) -> Option<Header<'_>> {
    let mut h = Header::default();
    let mut named = false;
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let column = line.len() - after.len();
        if let Some(word) = word.strip_suffix(b":") {
            if h.time.is_none() && word.contains(&b'.') && seconds(word).is_some() {
                h.time = seconds(word);
                rest = after;
                continue;
            }
            h.event = word;
            h.rest = after.trim_ascii();
            let is_name = word.iter().any(u8::is_ascii_alphabetic);
            return is_name.then_some(h);
        }
        if let Some((number, _)) = cpu(word) {
            h.cpu = Some(number);
        } else if let Some((pid, tid)) = ids(word) {
            let is_period = named || h.time.is_some() || column + 1 >= PERIOD_COLUMNS;
            match number(word).filter(|_| is_period) {
                Some(n) => h.period = Some(n),
                None => (h.pid, h.tid) = (pid, tid),
            }
            named = true;
        } else {
            return (h.time.is_some() && word.is_empty()).then_some(h);
        }
        rest = after;
    }
}

/// `comm  pid/tid [cpu] seconds: period event: …`
fn timed(line: &[u8]) -> Option<Header<'_>> {
    // The time is the first word of digits, a point, digits and a colon with ids before it.
    let (comm, time, cpu, (pid, tid), rest) =
        memchr::memchr_iter(b':', line).find_map(|colon| {
            let start = memchr::memrchr(b' ', &line[..colon])? + 1;
            let word = &line[start..colon];
            let after = line.get(colon + 1).is_none_or(|c| *c == b' ');
            (after && word.contains(&b'.')).then_some(())?;
            let time = seconds(word)?;
            let mut before = without_mode(line[..start].trim_ascii_end());
            let mut cpu = None;
            if before.ends_with(b"]") {
                let open = memchr::memrchr(b'[', before)?;
                cpu =
                    number(&before[open + 1..before.len() - 1]).and_then(|n| u32::try_from(n).ok());
                before = before[..open].trim_ascii_end();
            }
            let at = memchr::memrchr(b' ', before)?;
            let ids = ids(&before[at + 1..])?;
            Some((&before[..at], time, cpu, ids, &line[colon + 1..]))
        })?;
    let (period, event, rest) = event(rest);
    Some(Header {
        comm: comm.trim_ascii(),
        pid,
        tid,
        cpu,
        time: Some(time),
        period,
        event,
        rest,
    })
}

/// `text` without the letters that `-F misc` puts behind the CPU or the id, `[000] U` and the like.
fn without_mode(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_end();
    let letters = text.iter().rev().take_while(|c| c.is_ascii_alphabetic());
    match letters.count() {
        n @ 1..=4 => match text[..text.len() - n]
            .strip_suffix(b" ")
            .map(<[u8]>::trim_ascii_end)
        {
            Some(rest) if rest.ends_with(b"]") || rest.last().is_some_and(u8::is_ascii_digit) => {
                rest
            }
            _ => text,
        },
        _ => text,
    }
}

/// `text` behind those letters, where a number follows them.
fn behind_mode(text: &[u8]) -> &[u8] {
    let from = text.trim_ascii_start();
    let letters = from.iter().take_while(|c| c.is_ascii_alphabetic()).count();
    let rest = &from[letters..];
    let word = rest.trim_ascii_start().split(|c| *c == b' ').next();
    let is_number = word.is_some_and(|w| !w.is_empty() && w.iter().all(u8::is_ascii_hexdigit));
    let padding = rest.len() - rest.trim_ascii_start().len();
    match letters {
        1..=4 if padding > 0 && is_number => &rest[(MODE_COLUMNS - letters - 1).min(padding - 1)..],
        _ => text,
    }
}

/// Columns of a thread's id and of a period, with the space before them: perf prints ids to 5 columns
/// and periods to 10.
const ID_COLUMNS: usize = 6;
const PERIOD_COLUMNS: usize = 11;
/// Columns of an address, with the space before it.
const ADDRESS_COLUMNS: usize = 17;
/// Columns of the letters of `-F misc`.
const MODE_COLUMNS: usize = 8;
/// The largest id of a thread that Linux gives.
const MAX_ID: u64 = 1 << 22;

/// `comm pid [cpu] period event:`, as printed where the time is left out.
///
/// Names of threads may end in numbers (`worker 3`) and have colons in them, so the fields are read
/// from the event backwards, and an id of perf's own width is preferred.
fn untimed(line: &[u8]) -> Option<Header<'_>> {
    let line = line.trim_ascii();
    let mut narrow = None;
    for colon in memchr::memchr_iter(b':', line) {
        let start = memchr::memrchr(b' ', &line[..colon]).map_or(0, |at| at + 1);
        let word = &line[start..colon];
        let ends = line.get(colon + 1).is_none_or(|c| *c == b' ');
        if !ends || !word.iter().any(u8::is_ascii_alphabetic) {
            continue;
        }
        if let Some((before, is_wide)) = before_event(&line[..start]) {
            let h = Header {
                event: word,
                rest: line[colon + 1..].trim_ascii(),
                ..before
            };
            if is_wide {
                return Some(h);
            }
            narrow.get_or_insert(h);
        }
    }
    narrow
        .or_else(|| before_event(line).map(|(h, _)| h))
        .or_else(|| eventless(line))
}

/// The last word of a text, its columns with the spaces before it, and the text before.
fn last_word(text: &[u8]) -> (&[u8], usize, &[u8]) {
    let text = text.trim_ascii_end();
    let start = memchr::memrchr(b' ', text).map_or(0, |at| at + 1);
    let before = text[..start].trim_ascii_end();
    let letters = before.iter().rev().take_while(|c| c.is_ascii_alphabetic());
    let padding = match without_mode(before).len() < before.len() {
        true => MODE_COLUMNS.saturating_sub(letters.count() + 1),
        false => 0,
    };
    let columns = (text.len() - before.len()).saturating_sub(padding);
    (&text[start..], columns, before)
}

/// `comm pid [cpu] period`, of which the last two may be missing, and whether the id is as wide as
/// perf prints it.
fn before_event(text: &[u8]) -> Option<(Header<'_>, bool)> {
    let mut h = Header::default();
    let mut rest = text.trim_ascii_end();
    let (word, columns, before) = last_word(rest);
    // The address of `-F addr` follows the period where no event stands between them.
    if columns >= ADDRESS_COLUMNS && word.iter().all(u8::is_ascii_hexdigit) {
        rest = before;
    }
    let (word, columns, before) = last_word(rest);
    if let Some(n) = number(word)
        && (columns >= PERIOD_COLUMNS || n > MAX_ID || without_mode(before).ends_with(b"]"))
        && before.contains(&b' ')
    {
        h.period = Some(n);
        rest = before;
    }
    rest = without_mode(rest);
    let (word, _, before) = last_word(rest);
    if let Some((number, b"")) = cpu(word) {
        h.cpu = Some(number);
        rest = before;
    }
    let (word, columns, comm) = last_word(rest);
    (h.pid, h.tid) = ids(word)?;
    h.comm = comm.trim_ascii();
    let is_wide = columns >= ID_COLUMNS || word.contains(&b'/');
    (!h.comm.is_empty()).then_some((h, is_wide))
}

/// `comm pid [cpu] period frame`, where the event is left out too.
fn eventless(line: &[u8]) -> Option<Header<'_>> {
    let mut narrow = None;
    for space in memchr::memchr_iter(b' ', line) {
        let rest = line[space..].trim_ascii_start();
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        let comm = line[..space].trim_ascii();
        let Some((pid, tid)) = ids(&rest[..end]).filter(|_| !comm.is_empty()) else {
            continue;
        };
        if line[space - 1] == b' ' {
            continue;
        }
        let columns = line.len() - space - rest.len() + end;
        let (cpu, rest) = match cpu(rest[end..].trim_ascii_start()) {
            Some((cpu, rest)) => (Some(cpu), rest),
            None => (None, &rest[end..]),
        };
        let (period, event, after) = event(behind_mode(rest));
        let h = Header {
            comm,
            pid,
            tid,
            cpu,
            time: None,
            period,
            event,
            rest: after,
        };
        if columns >= ID_COLUMNS {
            return Some(h);
        }
        narrow.get_or_insert(h);
    }
    narrow
}

/// `[003]`, and the rest.
fn cpu(text: &[u8]) -> Option<(u32, &[u8])> {
    let inner = text.strip_prefix(b"[")?;
    let end = memchr::memchr(b']', inner)?;
    let cpu = u32::try_from(number(&inner[..end])?).ok()?;
    Some((cpu, &inner[end + 1..]))
}

/// `tid` or `pid/tid`.
fn ids(word: &[u8]) -> Option<(u32, u32)> {
    let id = |w: &[u8]| u32::try_from(number(w)?).ok();
    match memchr::memchr(b'/', word) {
        Some(at) => Some((id(&word[..at])?, id(&word[at + 1..])?)),
        None => Some((0, id(word)?)),
    }
}

/// `period event: rest`, of which the first and the last may be missing.
fn event(text: &[u8]) -> (Option<u64>, &[u8], &[u8]) {
    let rest = text.trim_ascii_start();
    let word = |r: &[u8]| memchr::memchr(b' ', r).unwrap_or(r.len());
    let first = word(rest);
    let after = &rest[first..];
    let next = &after.trim_ascii_start()[..word(after.trim_ascii_start())];
    // If the line has no event, a number may be an address, which has more columns.
    let is_narrow = text.len() - after.len() < ADDRESS_COLUMNS;
    let is_followed = next.is_empty() || next_address(after).is_some();
    let is_period = next.ends_with(b":") || is_narrow && is_followed;
    let (period, rest) = match number(&rest[..first]).filter(|_| is_period) {
        Some(n) => (Some(n), after.trim_ascii_start()),
        None => (None, rest),
    };
    let end = word(rest);
    match rest[..end].strip_suffix(b":") {
        Some(event) => (period, event, rest[end..].trim_ascii()),
        None => (period, b"", rest.trim_ascii()),
    }
}

/// The place behind the spaces of `text`, where its first word is an address in perf's columns.
fn next_address(text: &[u8]) -> Option<usize> {
    let at = text.len() - text.trim_ascii_start().len();
    let end = at + memchr::memchr(b' ', &text[at..]).unwrap_or(text.len() - at);
    let is_hex = end > at && text[at..end].iter().all(u8::is_ascii_hexdigit);
    (is_hex && end >= ADDRESS_COLUMNS).then_some(at)
}

/// The frame on a record's own line. perf prints it behind the requested fields
/// (`-F +addr,weight,data_src`), and before registers and branches.
pub(super) fn own_frame(rest: &[u8]) -> &[u8] {
    let spaces = memchr::memchr_iter(b' ', rest).filter(|at| *at > 0 && rest[at - 1] != b' ');
    let mut addresses = spaces.filter_map(|at| Some(at + next_address(&rest[at..])?));
    let frame = &rest[addresses.next_back().unwrap_or(0)..];
    let ends = memchr::memchr_iter(b' ', frame).find(|at| frame::is_field(&frame[at + 1..]));
    frame[..ends.unwrap_or(frame.len())].trim_ascii()
}

/// A `sched_switch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    /// Thread that leaves the CPU.
    pub prev: u32,
    /// Thread that gets it.
    pub next: u32,
    /// The thread that leaves still wants a CPU.
    pub left: Left,
}

/// The fields of a `sched_switch`, in either of the forms that perf prints.
pub(super) fn switch(rest: &[u8]) -> Option<Switch> {
    let value = |key: &[u8]| {
        let at = memchr::memmem::find(rest, key)? + key.len();
        let word = &rest[at..];
        Some(&word[..memchr::memchr(b' ', word).unwrap_or(word.len())])
    };
    let id = |word: &[u8]| u32::try_from(number(word)?).ok();
    if let (Some(prev), Some(next)) = (value(b"prev_pid="), value(b"next_pid=")) {
        return Some(Switch {
            prev: id(prev)?,
            next: id(next)?,
            left: left_by(value(b"prev_state=")?),
        });
    }
    // `comm:pid [prio] S ==> comm:pid [prio]`
    let arrow = memchr::memmem::find(rest, b" ==> ")?;
    let (from, to) = (&rest[..arrow], &rest[arrow + 5..]);
    let pid = |part: &[u8]| {
        let bracket = memchr::memmem::rfind(part, b" [")?;
        let colon = memchr::memrchr(b':', &part[..bracket])?;
        id(&part[colon + 1..bracket])
    };
    let state = from.rsplit(|c| *c == b' ').next()?;
    Some(Switch {
        prev: pid(from)?,
        next: pid(to)?,
        left: left_by(state),
    })
}

/// A thread that is still runnable when it leaves was preempted.
fn left_by(state: &[u8]) -> Left {
    match state.starts_with(b"R") {
        true => Left::Preempted,
        false => Left::Blocked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_kind() {
        let h = parse(b"w  5891  2193.490777:    1001001 cpu-clock:ppp: ").unwrap();
        assert_eq!((h.comm, h.pid, h.tid), (&b"w"[..], 0, 5891));
        assert_eq!(
            (h.time, h.period),
            (Some(2_193_490_777_000), Some(1_001_001))
        );
        assert_eq!(h.event, b"cpu-clock:ppp");
        let h = parse(b"V8 Worker: 1  12/34 [003] 7.000000001: sched:sched_switch: prev_comm=a prev_pid=34 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=0 next_prio=120").unwrap();
        assert_eq!(
            (h.comm, h.pid, h.tid, h.cpu),
            (&b"V8 Worker: 1"[..], 12, 34, Some(3))
        );
        assert_eq!(h.event, b"sched:sched_switch");
        let s = switch(h.rest).unwrap();
        assert_eq!((s.prev, s.next, s.left), (34, 0, Left::Preempted));
        let s = switch(b"my app:34 [120] S ==> swapper/0:0 [120]").unwrap();
        assert_eq!((s.prev, s.next, s.left), (34, 0, Left::Blocked));
        let h = parse(b"java 12345 cycles: ").unwrap();
        assert_eq!((h.tid, h.event, h.period), (12345, &b"cycles"[..], None));
        let h = parse(b"java 12345 [003]  250000 cycles: ").unwrap();
        assert_eq!(
            (h.cpu, h.event, h.period),
            (Some(3), &b"cycles"[..], Some(250_000))
        );
        let h = parse(b"rustc  6924 [001] U     85969.219729:   10101010 task-clock: ").unwrap();
        assert_eq!((h.tid, h.cpu, h.event), (6924, Some(1), &b"task-clock"[..]));
        let h = parse(b"my app: 1.5: x  12/35 [003] 10.001001:    1000 cycles: ").unwrap();
        assert_eq!((h.comm, h.pid), (&b"my app: 1.5: x"[..], 12));
        let h = parse(b" 1323   cpu-clock: ").unwrap();
        assert_eq!((h.tid, h.period, h.event), (1323, None, &b"cpu-clock"[..]));
        let h = parse(b"   2005541   cpu-clock: ").unwrap();
        assert_eq!((h.tid, h.period), (0, Some(2_005_541)));
        let h = parse(b" 3283.689880:   cpu-clock: ").unwrap();
        assert_eq!(
            (h.time, h.event),
            (Some(3_283_689_880_000), &b"cpu-clock"[..])
        );
        let h = parse(b" 1323/1324 [001]  3283.689880:       100   cpu-clock: ").unwrap();
        assert_eq!(
            (h.pid, h.tid, h.cpu, h.period),
            (1323, 1324, Some(1), Some(100))
        );
        assert_eq!(parse_any(b"V8 Worker ").unwrap().comm, b"V8 Worker");
        for (line, comm, period) in [
            (
                &b"worker 3  1234     250000 cycles: "[..],
                &b"worker 3"[..],
                Some(250_000),
            ),
            (b"worker 3  1234 cycles: ", b"worker 3", None),
            (b"worker 3: a  1234 cycles: ", b"worker 3: a", None),
            (
                b"[ET_NET 0]  1234 [001]     250000 cycles: ",
                b"[ET_NET 0]",
                Some(250_000),
            ),
            (
                b"worker 3  1234          401136 main+0x4 (/bin/w)",
                b"worker 3",
                None,
            ),
            (
                b"w  1234     250000           401136 main (/bin/w)",
                b"w",
                Some(250_000),
            ),
            (
                b"Hashed wheel timer #1  1234 ",
                b"Hashed wheel timer #1",
                None,
            ),
        ] {
            let h = parse(line).unwrap();
            let text = String::from_utf8_lossy(line);
            assert_eq!((h.comm, h.tid, h.period), (comm, 1234, period), "{text}");
        }
        assert_eq!(parse(b"no numbers here"), None);
        assert_eq!(parse(b""), None);
    }
}
