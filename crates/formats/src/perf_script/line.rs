//! The lines of `perf script`: what a record's header and its frames say.

use super::super::import::{number, seconds};
use super::join::Measures;

/// A record's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub comm: &'a [u8],
    /// Process id, 0 where the line has the thread's only.
    pub pid: u32,
    pub tid: u32,
    pub cpu: Option<u32>,
    pub time: Option<u64>,
    /// What the sample counts, where that is printed.
    pub period: Option<u64>,
    /// The event, empty where it is not printed.
    pub event: &'a [u8],
    /// What follows: a tracepoint's fields, or the address of a record without a stack.
    pub rest: &'a [u8],
}

/// Whether the text looks like that of `perf script`: a header, then a frame or another header.
pub(in super::super) fn detect(head: &[u8]) -> bool {
    let text = |l: &&[u8]| !l.is_empty() && !l.starts_with(b"#");
    let mut lines = head.split(|c| *c == b'\n').filter(text).peekable();
    let mut sideband = false;
    while lines.next_if(|l| is_sideband(l)).is_some() {
        sideband = true;
    }
    if sideband {
        return true;
    }
    let Some(first) = lines.next().and_then(header) else {
        return false;
    };
    // Without a time and an event it may be anything that has a word and a number.
    let sure = first.time.is_some() && !first.event.is_empty();
    match lines.next() {
        _ if sure => true,
        Some(second) => is_frame(second) && frame(second).is_some(),
        None => false,
    }
}

/// Whether a line belongs to the stack of the record before.
pub(super) fn is_frame(line: &[u8]) -> bool {
    line.starts_with(b"\t")
}

/// Whether a text that begins so has events that are time: clocks with their periods, or switches. They may
/// well come after others.
pub(super) fn holds_time(head: &[u8]) -> bool {
    let mut headers = (head.split(|c| *c == b'\n'))
        .filter(|l| !l.is_empty() && !l.starts_with(b"#") && !is_frame(l))
        .filter_map(header);
    headers.any(|h| match Measures::of(&String::from_utf8_lossy(h.event)) {
        Measures::Clock => h.period.is_some(),
        Measures::Switch => h.time.is_some(),
        Measures::Count => false,
    })
}

/// Whether a line tells of a mapping, a fork or a name (`--show-mmap-events` and the like), and not of a
/// sample.
pub(super) fn is_sideband(line: &[u8]) -> bool {
    memchr::memmem::find(line, b": PERF_RECORD_").is_some_and(|at| timed(&line[..=at]).is_some())
}

/// Takes a header apart.
pub(super) fn header(line: &[u8]) -> Option<Header<'_>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    timed(line).or_else(|| untimed(line))
}

/// `comm  pid/tid [cpu] seconds: period event: …`
fn timed(line: &[u8]) -> Option<Header<'_>> {
    // The time is the first word of digits, a point, digits and a colon with ids before it.
    let (who, time, cpu, (pid, tid), rest) = memchr::memchr_iter(b':', line).find_map(|colon| {
        let start = memchr::memrchr(b' ', &line[..colon])? + 1;
        let word = &line[start..colon];
        let after = line.get(colon + 1).is_none_or(|c| *c == b' ');
        (after && word.contains(&b'.')).then_some(())?;
        let time = seconds(word)?;
        let mut who = without_mode(line[..start].trim_ascii_end());
        let mut cpu = None;
        if who.ends_with(b"]") {
            let open = memchr::memrchr(b'[', who)?;
            cpu = number(&who[open + 1..who.len() - 1]).and_then(|n| u32::try_from(n).ok());
            who = who[..open].trim_ascii_end();
        }
        let at = memchr::memrchr(b' ', who)?;
        let ids = ids(&who[at + 1..])?;
        Some((&who[..at], time, cpu, ids, &line[colon + 1..]))
    })?;
    let (period, event, rest) = what(rest);
    Some(Header {
        comm: who.trim_ascii(),
        pid,
        tid,
        cpu,
        time: Some(time),
        period,
        event,
        rest,
    })
}

/// What comes before the letters that `-F misc` puts behind the CPU, `[000] U` and the like.
fn without_mode(who: &[u8]) -> &[u8] {
    let letters = who.iter().rev().take_while(|c| c.is_ascii_alphabetic());
    match letters.count() {
        n @ 1..=4 => match who[..who.len() - n].trim_ascii_end() {
            rest if rest.ends_with(b"]") => rest,
            _ => who,
        },
        _ => who,
    }
}

/// `comm pid [cpu] period event:`, as printed where the time is left out.
fn untimed(line: &[u8]) -> Option<Header<'_>> {
    let mut at = 0;
    let line = line.trim_ascii();
    loop {
        let space = at + memchr::memchr(b' ', &line[at..])?;
        let rest = line[space..].trim_ascii_start();
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        if let Some((pid, tid)) = ids(&rest[..end])
            && space > 0
        {
            let (cpu, rest) = match cpu(rest[end..].trim_ascii_start()) {
                Some((cpu, rest)) => (Some(cpu), rest),
                None => (None, &rest[end..]),
            };
            let (period, event, after) = what(rest);
            return Some(Header {
                comm: line[..space].trim_ascii(),
                pid,
                tid,
                cpu,
                time: None,
                period,
                event,
                rest: after,
            });
        }
        at = line.len() - rest.len();
        if at <= space {
            return None;
        }
    }
}

/// `[003]`, and what follows.
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
fn what(rest: &[u8]) -> (Option<u64>, &[u8], &[u8]) {
    let rest = rest.trim_ascii_start();
    let word = |r: &[u8]| memchr::memchr(b' ', r).unwrap_or(r.len());
    let first = word(rest);
    let (period, rest) = match number(&rest[..first]) {
        Some(n) => (Some(n), rest[first..].trim_ascii_start()),
        None => (None, rest),
    };
    let end = word(rest);
    match rest[..end].strip_suffix(b":") {
        Some(event) => (period, event, rest[end..].trim_ascii()),
        None => (period, b"", rest.trim_ascii()),
    }
}

/// A frame's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub address: Option<u64>,
    /// The symbol without its offset; `None`: not resolved.
    pub symbol: Option<&'a [u8]>,
    /// The file it lies in, empty where unknown.
    pub module: &'a [u8],
    /// Whether it is inlined into the frame of the next line.
    pub inlined: bool,
}

/// Puts a frame's line into `to`: without its address and the offset, where they tell nothing.
pub(super) fn without_place(line: &[u8], to: &mut Vec<u8>) {
    let kept = |line: &[u8]| -> Option<(usize, usize, usize)> {
        let start = line.len() - line.trim_ascii_start().len();
        let address = start + memchr::memchr(b' ', &line[start..])?;
        hex(&line[start..address])?;
        let module = memchr::memrchr(b'(', line)?;
        // Of what lies in no file the address tells whether it is the kernel's.
        let told = ["([unknown])", "(deleted))"];
        let told = told.iter().any(|t| line.ends_with(t.as_bytes()));
        let name = line[address..module].trim_ascii();
        let at = memchr::memrchr(b'+', name)?;
        let offset = name[at..].strip_prefix(b"+0x").and_then(hex);
        (line.ends_with(b")") && !told && offset.is_some() && at > 0).then_some(())?;
        let from = line.len() - line[address..].trim_ascii_start().len();
        Some((from, from + at, module))
    };
    match kept(line) {
        None => to.extend_from_slice(line),
        Some((from, end, module)) => {
            to.push(b'\t');
            to.extend_from_slice(&line[from..end]);
            to.push(b' ');
            to.extend_from_slice(&line[module..]);
        }
    }
}

/// Takes a frame's line apart: `address symbol+0xoffset (module)`, of which only the symbol is
/// always there.
pub(super) fn frame(line: &[u8]) -> Option<Frame<'_>> {
    let line = line.trim_ascii();
    let end = memchr::memchr(b' ', line).unwrap_or(line.len());
    let address = hex(&line[..end]);
    let mut rest = match address {
        Some(_) => line[end..].trim_ascii(),
        None => line,
    };
    let mut module = &b""[..];
    if let Some(inner) = rest.strip_suffix(b")") {
        let inner = inner.strip_suffix(b" (deleted)").unwrap_or(inner);
        if let Some(at) = memchr::memrchr(b'(', inner)
            && (at == 0 || inner[at - 1] == b' ')
        {
            module = &inner[at + 1..];
            rest = rest[..at].trim_ascii();
        }
    }
    let inlined = module == b"inlined";
    if inlined || module == b"[unknown]" {
        module = b"";
    }
    let offset = |at: &usize| {
        let digits = rest[*at..].strip_prefix(b"+0x");
        *at > 0 && digits.is_some_and(|d| hex(d).is_some())
    };
    let symbol = match memchr::memrchr(b'+', rest).filter(offset) {
        Some(at) => &rest[..at],
        None => rest,
    };
    if symbol.is_empty() && address.is_none() {
        return None;
    }
    Some(Frame {
        address,
        symbol: Some(symbol).filter(|s| !s.is_empty() && *s != b"[unknown]"),
        module,
        inlined,
    })
}

fn hex(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 16 {
        return None;
    }
    word.iter().try_fold(0u64, |n, c| {
        let digit = char::from(*c).to_digit(16)?;
        Some(n << 4 | u64::from(digit))
    })
}

/// What `sched_switch` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    /// Who leaves the CPU.
    pub prev: u32,
    /// Who gets it.
    pub next: u32,
    /// Whether the one who leaves still wants a CPU.
    pub wants: bool,
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
            wants: value(b"prev_state=")?.starts_with(b"R"),
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
        wants: state.starts_with(b"R"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_kind() {
        let h = header(b"w  5891  2193.490777:    1001001 cpu-clock:ppp: ").unwrap();
        assert_eq!((h.comm, h.pid, h.tid), (&b"w"[..], 0, 5891));
        assert_eq!(
            (h.time, h.period),
            (Some(2_193_490_777_000), Some(1_001_001))
        );
        assert_eq!(h.event, b"cpu-clock:ppp");
        let h = header(b"V8 Worker: 1  12/34 [003] 7.000000001: sched:sched_switch: prev_comm=a prev_pid=34 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=0 next_prio=120").unwrap();
        assert_eq!(
            (h.comm, h.pid, h.tid, h.cpu),
            (&b"V8 Worker: 1"[..], 12, 34, Some(3))
        );
        assert_eq!(h.event, b"sched:sched_switch");
        let s = switch(h.rest).unwrap();
        assert_eq!((s.prev, s.next, s.wants), (34, 0, true));
        let s = switch(b"my app:34 [120] S ==> swapper/0:0 [120]").unwrap();
        assert_eq!((s.prev, s.next, s.wants), (34, 0, false));
        let h = header(b"java 12345 cycles: ").unwrap();
        assert_eq!((h.tid, h.event, h.period), (12345, &b"cycles"[..], None));
        let h = header(b"java 12345 [003]  250000 cycles: ").unwrap();
        assert_eq!(
            (h.cpu, h.event, h.period),
            (Some(3), &b"cycles"[..], Some(250_000))
        );
        let h = header(b"rustc  6924 [001] U     85969.219729:   10101010 task-clock: ").unwrap();
        assert_eq!((h.tid, h.cpu, h.event), (6924, Some(1), &b"task-clock"[..]));
        let h = header(b"my app: 1.5: x  12/35 [003] 10.001001:    1000 cycles: ").unwrap();
        assert_eq!((h.comm, h.pid), (&b"my app: 1.5: x"[..], 12));
        assert_eq!(header(b"no numbers here"), None);
        assert_eq!(header(b""), None);
    }

    #[test]
    fn frames_without_their_place_are_the_same_frames() {
        for line in [
            "\t            1179 leaf+0x10 (/tmp/w)",
            "\t            117a a::operator+(int)+0x1f (/tmp/w+0x3)",
            "\t 7f00 leaf+0x10 (/usr/lib/x+0x7 (deleted))",
            "\tffffffff81000130 entry+0x76 ([unknown])",
            "\tffffffff81000130 entry+0x76 ([kernel.kallsyms])",
            "\t 7f00 [unknown] (/usr/lib/x.so)",
            "\t 11 operator()(int) const (inlined)",
            "\t main (/bin/a)",
            "\t 12 main",
        ] {
            let mut short = Vec::new();
            without_place(line.as_bytes(), &mut short);
            let whole = frame(line.as_bytes()).unwrap();
            let kept = frame(&short).unwrap();
            let of = |f: Frame| (f.symbol.map(<[u8]>::to_vec), f.module.to_vec(), f.inlined);
            assert_eq!(of(kept), of(whole), "{line}");
            let needed = whole.symbol.is_none() || whole.module.is_empty() && !whole.inlined;
            assert!(!needed || kept.address == whole.address, "{line}");
        }
        let mut short = Vec::new();
        without_place(b"\t  1179 leaf+0x10 (/tmp/w)", &mut short);
        assert_eq!(short, b"\tleaf (/tmp/w)");
    }

    #[test]
    fn frames_of_every_kind() {
        let f = frame(b"\t            1179 leaf+0x10 (/tmp/w)").unwrap();
        assert_eq!(
            (f.address, f.symbol, f.module),
            (Some(0x1179), Some(&b"leaf"[..]), &b"/tmp/w"[..])
        );
        let f = frame(b"\t 7f00 Lcom/A;::run(I)V+0x4 (/tmp/perf-12.map)").unwrap();
        assert_eq!(f.symbol, Some(&b"Lcom/A;::run(I)V"[..]));
        let f = frame(b"\t 7f00 [unknown] (/usr/lib/x.so (deleted))").unwrap();
        assert_eq!((f.symbol, f.module), (None, &b"/usr/lib/x.so"[..]));
        let f = frame(b"\t 11 operator()(int) const (inlined)").unwrap();
        assert!(f.inlined && f.module.is_empty());
        assert_eq!(f.symbol, Some(&b"operator()(int) const"[..]));
        let f = frame(b"\t main (/bin/a)").unwrap();
        assert_eq!((f.address, f.symbol), (None, Some(&b"main"[..])));
        let f = frame(b"\tffffffff812 [unknown] ([unknown])").unwrap();
        assert_eq!((f.symbol, f.module), (None, &b""[..]));
    }
}
