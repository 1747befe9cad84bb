//! `/proc/kallsyms`: the kernel's own symbols and those of its modules.
//!
//! The kernel shows all addresses as zero to readers that `kernel.kptr_restrict` keeps out.
//! [`is_hidden`] tells this case from a kernel without symbols.

use std::io;

/// One kernel symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// Virtual address.
    pub address: u64,
    /// Type letter as `nm` prints it; `t` and `T` are code.
    pub kind: u8,
    /// Name.
    pub name: &'a str,
    /// The module it belongs to (also `bpf` and the like), empty for the kernel itself.
    pub module: &'a str,
}

impl KernelSymbol<'_> {
    /// Whether it names code.
    pub fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }

    /// Whether it can be seen outside its file.
    pub fn is_global(&self) -> bool {
        self.kind.is_ascii_uppercase()
    }
}

/// Parses one line: `ADDRESS TYPE NAME[\t[MODULE]]`.
///
/// ```
/// use wallscope_binfmt::kallsyms::parse_line;
///
/// let symbol = parse_line("ffffffffc0a01000 t nf_hook\t[nf_tables]").expect("a symbol");
/// assert_eq!((symbol.name, symbol.module), ("nf_hook", "nf_tables"));
/// assert!(symbol.is_code() && !symbol.is_global());
/// assert_eq!(parse_line("no symbol"), None);
/// ```
pub fn parse_line(line: &str) -> Option<KernelSymbol<'_>> {
    let (address, rest) = line.split_once(' ')?;
    let (kind, rest) = rest.split_once(' ')?;
    let &[kind] = kind.as_bytes() else {
        return None;
    };
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => (
            name,
            module
                .trim()
                .strip_prefix('[')
                .and_then(|m| m.strip_suffix(']'))?,
        ),
        None => (rest.trim_end(), ""),
    };
    (!name.is_empty()).then_some(KernelSymbol {
        address: u64::from_str_radix(address, 16).ok()?,
        kind,
        name,
        module,
    })
}

/// All symbols of the text, in its order; lines that are none are left out.
pub fn parse(text: &str) -> impl Iterator<Item = KernelSymbol<'_>> {
    text.lines().filter_map(parse_line)
}

/// Whether the kernel hid the addresses: there are symbols, and all are at zero.
pub fn is_hidden(text: &str) -> bool {
    let mut symbols = parse(text).peekable();
    symbols.peek().is_some() && symbols.all(|s| s.address == 0)
}

/// The text of `/proc/kallsyms` (several MB).
///
/// # Errors
/// The error of reading the file; `NotFound` if the kernel was built without it.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub fn read() -> io::Result<String> {
    let bytes = std::fs::read("/proc/kallsyms")?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_a_module() {
        let s = parse_line("ffffffff81000000 T _stext").unwrap();
        assert_eq!(
            (s.address, s.kind, s.name, s.module),
            (0xffff_ffff_8100_0000, b'T', "_stext", "")
        );
        assert!(s.is_code() && s.is_global());
        let s = parse_line("ffffffffc0201000 t nf_hook\t[nf_tables]").unwrap();
        assert_eq!((s.name, s.module), ("nf_hook", "nf_tables"));
        assert!(s.is_code() && !s.is_global());
        assert!(!parse_line("ffffffff83b266f4 R data").unwrap().is_code());
    }

    #[test]
    fn what_is_no_symbol_is_left_out() {
        for junk in ["", "x", "zz T a", "10 TT a", "10 T", "10 T ", "10 T a\tmod"] {
            assert_eq!(parse_line(junk), None, "{junk:?}");
        }
    }

    #[test]
    fn hidden_addresses_are_recognised() {
        assert!(is_hidden(
            "0000000000000000 T a\n0000000000000000 t b\t[m]\n"
        ));
        assert!(!is_hidden("0000000000000000 A a\nffffffff81000000 T b\n"));
        assert!(!is_hidden(""));
    }
}
