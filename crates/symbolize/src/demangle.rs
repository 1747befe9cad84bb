//! Demangles symbol names: Rust (legacy and v0, without hash) and C++.
//!
//! Names come from untrusted files. Input and output are capped, and the demanglers' recursion is
//! limited. A name of a few hundred bytes that expands to gigabytes costs no more than any other;
//! it is cut and ends in `…`. Control characters are replaced, so that a name cannot control the
//! terminal.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Maximum bytes of a name that is demangled; longer ones are cut instead.
const MAX_INPUT: usize = 32 << 10;
/// Maximum bytes of a demangled name.
const MAX_OUTPUT: usize = 8 << 10;

/// Maximum dots in a name at which its mangling may end.
const MAX_DOTS: usize = 8;

/// Returns the name to display for the symbol `raw`: demangled if it is mangled, without its symbol
/// version (`@GLIBC_2.14`), at most 8 KiB.
pub fn demangle(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let bare = strip_version(&text);
    if bare.len() <= MAX_INPUT
        && let Some(name) = rust(bare).or_else(|| cpp(bare))
    {
        return clean(name);
    }
    let mut plain = Capped::default();
    // Capped reports its limit as an error and has recorded it.
    let _ = plain.write_str(bare);
    clean(plain.finish())
}

/// Cuts the arguments off a demangled name: `ns::f(int) const` → `ns::f`.
pub fn without_arguments(name: &str) -> &str {
    // Skip the parentheses of `(anonymous namespace)::f(int)` and `A::operator()(int)`.
    let mut depth = 0;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '(' if depth == 0 => {
                let rest = &name[at..];
                if rest.starts_with("(anonymous namespace)") || name[..at].ends_with("operator") {
                    continue;
                }
                return &name[..at];
            }
            _ => {}
        }
    }
    name
}

/// Returns the symbol as it is in the table, printable and capped.
pub(crate) fn printable(raw: &[u8]) -> String {
    let mut plain = Capped::default();
    let _ = plain.write_str(&String::from_utf8_lossy(raw));
    clean(plain.finish())
}

/// Whether `raw` looks like a mangled name.
pub(crate) fn is_mangled(raw: &[u8]) -> bool {
    raw.starts_with(b"_Z") || raw.starts_with(b"_R")
}

fn strip_version(name: &str) -> &str {
    match name.find('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

fn rust(name: &str) -> Option<String> {
    let parsed = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Capped::default();
    // An error means that the cap was reached.
    let _ = write!(out, "{parsed:#}");
    Some(out.finish())
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("_GLOBAL_") {
        return None;
    }
    // Suffixes that compilers append to copies of a function (`.cold`, `.constprop.0`) are not part
    // of the mangling; they are shown as binutils does. A dot may also be part of it, as in GCC's
    // coroutine frames.
    let dots = name.match_indices('.').map(|(at, _)| at);
    let (symbol, clone) = dots.chain([name.len()]).take(MAX_DOTS).find_map(|at| {
        let (base, clone) = name.split_at(at);
        let symbol = cpp_demangle::BorrowedSymbol::new(base.as_bytes()).ok()?;
        Some((symbol, clone))
    })?;
    let mut out = Capped::default();
    let whole = symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::new());
    if whole.is_err() && !out.full {
        return None;
    }
    if !clone.is_empty() {
        let _ = write!(out, " [clone {clone}]");
    }
    Some(out.finish())
}

fn clean(name: String) -> String {
    match wallscope_model::printable::printable(&name) {
        Cow::Borrowed(_) => name,
        Cow::Owned(printable) => printable,
    }
}

/// Makes a path or another text from a file printable.
pub(crate) fn clean_text(text: Cow<'_, str>) -> String {
    clean(text.into_owned())
}

/// Text that stops growing at [`MAX_OUTPUT`].
#[derive(Default)]
struct Capped {
    text: String,
    full: bool,
}

impl Capped {
    fn finish(mut self) -> String {
        if self.full {
            self.text.push('…');
        }
        self.text
    }
}

impl fmt::Write for Capped {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.full {
            return Err(fmt::Error);
        }
        let room = MAX_OUTPUT - self.text.len();
        if s.len() <= room {
            self.text.push_str(s);
            return Ok(());
        }
        let end = (0..=room).rev().find(|i| s.is_char_boundary(*i));
        self.text.push_str(&s[..end.unwrap_or(0)]);
        self.full = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(raw: &str) -> String {
        demangle(raw.as_bytes())
    }

    #[test]
    fn rust_without_hash() {
        assert_eq!(
            name("_ZN4core3fmt9Formatter3pad17h1234567890abcdefE"),
            "core::fmt::Formatter::pad"
        );
        assert_eq!(name("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(
            name("_ZN4core3fmt9Formatter3pad17h1234567890abcdefE.llvm.123"),
            "core::fmt::Formatter::pad"
        );
    }

    #[test]
    fn cpp_with_arguments_and_clones() {
        assert_eq!(
            name("_ZNSt6vectorIiSaIiEE9push_backEOi"),
            "std::vector<int, std::allocator<int> >::push_back(int&&)"
        );
        assert_eq!(name("_Z3foov.part.0"), "foo() [clone .part.0]");
        assert_eq!(
            name("_Z3foov.constprop.0.cold"),
            "foo() [clone .constprop.0.cold]"
        );
        // A coroutine's body in GCC's naming.
        assert_eq!(
            name("_Z6workerPZ6workeriE16_Z6workeri.Frame.actor"),
            "worker(worker(int)::_Z6workeri.Frame*) [clone .actor]"
        );
    }

    #[test]
    fn other_names_stay() {
        assert_eq!(name("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(name("@odd"), "@odd");
        assert_eq!(name("main"), "main");
        assert_eq!(name("_Znonsense"), "_Znonsense");
        assert_eq!(name("a\x1b[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(demangle(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_name_that_unfolds_without_end_is_cut() {
        // Each template argument list repeats the previous one twice: 2^n pieces.
        let mut mangled = String::from("_Z1fI1AI1bES0_");
        for i in 1..40u32 {
            let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
            let seq = |n: u32| {
                if n < 36 {
                    (digits[n as usize] as char).to_string()
                } else {
                    format!("1{}", digits[(n - 36) as usize] as char)
                }
            };
            mangled = mangled + "S_I" + &format!("S{}_S{}_E", seq(i), seq(i));
        }
        mangled.push_str("EvT_");
        for hostile in [
            mangled,
            "_Z".to_owned() + &"N".repeat(20_000),
            "_ZN".to_owned() + &"1a".repeat(10_000) + "E",
            "_Z1f".to_owned() + &"P".repeat(30_000) + "i",
            "_R".to_owned() + &"NvC".repeat(9_000) + "1a1b",
            "_RMC0".to_owned() + &"TRS".repeat(9_000),
            "x".repeat(1 << 20),
        ] {
            assert!(name(&hostile).len() <= MAX_OUTPUT + '…'.len_utf8() + 64);
        }
        assert!(name(&"é".repeat(10_000)).ends_with('…'));
    }
}
