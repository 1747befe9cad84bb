//! The lines of a stack: address, symbol with offset, file.

/// Whether a line is the source line of the frame before (`-F +srcline`): `  leaf.c:12`.
pub(super) fn is_source_line(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let Some(colon) = memchr::memrchr(b':', line) else {
        return false;
    };
    let digits = &line[colon + 1..];
    let path = &line[..colon];
    let is_path = path.contains(&b'.') || path.contains(&b'/') || path == b"??";
    is_path && !path.contains(&b' ') && !path.ends_with(b":") && is_line_number(digits)
}

/// Whether a text is of registers (`ABI:2 AX:0x1`), branches (`0x401136/0x401140/P/-/-/0`) or
/// instructions, which perf prints behind a stack.
pub(super) fn is_field(text: &[u8]) -> bool {
    let word = text.split(|c| *c == b' ').next().unwrap_or_default();
    let is_branch =
        || memchr::memmem::find(word, b"/0x").is_some_and(|at| word[..at].starts_with(b"0x"));
    word.starts_with(b"ABI:") || word == b"insn:" || word == b"ilen:" || is_branch()
}

/// A stack without the fields that perf prints behind it.
///
/// perf indents frames by a tab, and other fields by spaces.
pub(super) fn without_fields(mut body: &[u8]) -> &[u8] {
    let tabs = body.starts_with(b"\t");
    loop {
        let start = memchr::memrchr(b'\n', body.trim_ascii_end()).map_or(0, |at| at + 1);
        let line = &body[start..];
        let fields = tabs && line.starts_with(b" ") && !is_source_line(line);
        if start == 0 || !(fields || is_field(line.trim_ascii())) {
            return body;
        }
        body = &body[..start];
    }
}

fn is_line_number(text: &[u8]) -> bool {
    !text.is_empty() && text.len() <= 9 && text.iter().all(u8::is_ascii_digit)
}

/// A frame.
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

/// Appends a frame's line to `to`, without its address and offset where the name suffices.
pub(super) fn without_place(line: &[u8], to: &mut Vec<u8>) {
    let kept = |line: &[u8]| -> Option<(usize, usize, usize)> {
        let start = line.len() - line.trim_ascii_start().len();
        let address = start + memchr::memchr(b' ', &line[start..])?;
        hex(&line[start..address])?;
        let module = memchr::memrchr(b'(', line)?;
        // If the frame has no file, only the address shows whether it is the kernel's.
        let needed = ["([unknown])", "(deleted))"];
        let needed = needed.iter().any(|t| line.ends_with(t.as_bytes()));
        let name = line[address..module].trim_ascii();
        let at = memchr::memrchr(b'+', name)?;
        let offset = name[at..].strip_prefix(b"+0x").and_then(hex);
        (line.ends_with(b")") && !needed && offset.is_some() && at > 0).then_some(())?;
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

/// Parses a frame's line: `address symbol+0xoffset (module)`, of which only the symbol is
/// always there.
pub(super) fn parse(line: &[u8]) -> Option<Frame<'_>> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            let whole = parse(line.as_bytes()).unwrap();
            let kept = parse(&short).unwrap();
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
    fn fields_behind_a_stack_are_no_frames() {
        let stack = b"\t 11 leaf (/w)\n  leaf.c:3\n\t 12 main (/w)\n  main.c:3\n";
        for field in [
            " ABI:2    AX:0x289    BX:0x6b09bc98 \n",
            " 0x401136/0x401140/P/-/-/0  0x1/0x2/P/-/-/0 \n",
            "               0\n",
            " ABI:2  AX:0x1\n insn: 48 89 e5\n",
        ] {
            let body = [&stack[..], field.as_bytes()].concat();
            assert_eq!(without_fields(&body), stack, "{field}");
        }
        assert_eq!(
            without_fields(b"  11 a (/w)\n  12 b\n"),
            b"  11 a (/w)\n  12 b\n"
        );
        assert_eq!(
            without_fields(b"  11 a (/w)\n ABI:2 AX:0x1\n"),
            b"  11 a (/w)\n"
        );
    }

    #[test]
    fn frames_of_every_kind() {
        let f = parse(b"\t            1179 leaf+0x10 (/tmp/w)").unwrap();
        assert_eq!(
            (f.address, f.symbol, f.module),
            (Some(0x1179), Some(&b"leaf"[..]), &b"/tmp/w"[..])
        );
        let f = parse(b"\t 7f00 Lcom/A;::run(I)V+0x4 (/tmp/perf-12.map)").unwrap();
        assert_eq!(f.symbol, Some(&b"Lcom/A;::run(I)V"[..]));
        let f = parse(b"\t 7f00 [unknown] (/usr/lib/x.so (deleted))").unwrap();
        assert_eq!((f.symbol, f.module), (None, &b"/usr/lib/x.so"[..]));
        let f = parse(b"\t 11 operator()(int) const (inlined)").unwrap();
        assert!(f.inlined && f.module.is_empty());
        assert_eq!(f.symbol, Some(&b"operator()(int) const"[..]));
        let f = parse(b"\t main (/bin/a)").unwrap();
        assert_eq!((f.address, f.symbol), (None, Some(&b"main"[..])));
        let f = parse(b"\tffffffff812 [unknown] ([unknown])").unwrap();
        assert_eq!((f.symbol, f.module), (None, &b""[..]));
    }
}
