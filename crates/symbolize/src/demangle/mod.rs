//! Demangles symbol names: Rust (legacy and v0, without hash), C++, D, Swift and Nim.
//!
//! Names come from untrusted files. Input and output are capped, and the demanglers' recursion is
//! limited. A name of a few hundred bytes that expands to gigabytes costs no more than any other;
//! it is truncated and ends in `…`. Control characters are replaced, so that a name cannot control the
//! terminal.
//!
//! D and Swift are read by our own parsers. No maintained Rust crate knows D. The crates for Swift
//! compile the C++ demangler of Apple, which would parse untrusted names with our privileges, and
//! would bind us to libstdc++.
//!
//! Zig's names need no demangling: its compiler writes them into symbol tables as in source.

mod arguments;
mod budget;
mod capped;
mod d;
mod nim;
mod origin;
mod rust_cpp;
mod swift;

use std::borrow::Cow;
use std::fmt::Write;

pub use arguments::without_arguments;
use capped::Capped;

pub use nim::name_origin;
pub(crate) use nim::shows_nim;
pub use origin::Origin;

/// Maximum bytes of a name that is demangled; longer names are truncated instead.
const MAX_INPUT: usize = 32 << 10;
/// Returns the name to display for the symbol `raw`: demangled if it is mangled, without its symbol
/// version (`@GLIBC_2.14`), at most 8 KiB.
///
/// ```
/// use wallscope_symbolize::demangle;
///
/// assert_eq!(demangle(b"_ZNKSt6vectorIiSaIiEE4sizeEv"), "std::vector<int, std::allocator<int> >::size() const");
/// assert_eq!(demangle(b"memcpy@@GLIBC_2.14"), "memcpy");
/// ```
pub fn demangle(raw: &[u8]) -> String {
    demangle_from(raw, Origin::Native)
}

/// [`demangle`] for a symbol of a module of known origin.
pub fn demangle_from(raw: &[u8], origin: Origin) -> String {
    let text = String::from_utf8_lossy(raw);
    let bare = strip_version(&text);
    if bare.len() <= MAX_INPUT
        && let Some(name) = demangled(bare, origin)
    {
        return clean(name);
    }
    let mut plain = Capped::default();
    // `Capped` reports its limit as an error and has recorded it.
    let _ = plain.write_str(bare);
    clean(plain.finish())
}

fn demangled(name: &str, origin: Origin) -> Option<String> {
    if let Some(name) = rust_cpp::demangle(name) {
        return Some(name);
    }
    let whole = d::demangle(name).or_else(|| swift::demangle(name));
    let whole = whole.or_else(|| match origin {
        Origin::Nim => nim::demangle(name),
        Origin::Native => None,
    })?;
    let mut out = Capped::default();
    let _ = out.write_str(&whole);
    Some(out.finish())
}

/// Returns the symbol as it is in the table, printable and capped.
pub(crate) fn printable(raw: &[u8]) -> String {
    let mut plain = Capped::default();
    let _ = plain.write_str(&String::from_utf8_lossy(raw));
    clean(plain.finish())
}

/// Whether `raw` looks like a mangled name.
pub fn is_mangled(raw: &[u8]) -> bool {
    raw.starts_with(b"_Z") || raw.starts_with(b"_R") || d::is_mangled(raw) || swift::is_mangled(raw)
}

/// Cuts the version off a symbol. An `@` within a Zig name (`main.@"odd name"`) begins none.
fn strip_version(name: &str) -> &str {
    let is_symbol = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
    let is_version = |c: char| c.is_alphanumeric() || "_.:+-@".contains(c);
    match name.split_once('@') {
        Some((bare, version))
            if !bare.is_empty()
                && bare.chars().all(is_symbol)
                && version.chars().all(is_version) =>
        {
            bare
        }
        _ => name,
    }
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

#[cfg(test)]
mod tests {
    use super::capped::MAX_OUTPUT;
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
    fn other_languages() {
        assert_eq!(
            name("_D3std5stdio4File5closeMFNeZv"),
            "std.stdio.File.close()"
        );
        assert_eq!(name("$s4main3fooyySiF"), "main.foo(Swift.Int) -> ()");
        assert_eq!(name("fooBar__alpha_u25"), "fooBar__alpha_u25");
        let nim = |raw: &str| demangle_from(raw.as_bytes(), Origin::Nim);
        assert_eq!(nim("fooBar__alpha_u25"), "alpha.fooBar");
        assert_eq!(nim("memcpy@@GLIBC_2.14"), "memcpy");
        // Zig's names are as in source.
        assert_eq!(name("a.List(u32,4).odd name@x"), "a.List(u32,4).odd name@x");
        assert_eq!(name("mem.eql__anon_123"), "mem.eql__anon_123");
        assert!(is_mangled(b"_Dmain") && is_mangled(b"_$s4main3fooyyF"));
        assert!(!is_mangled(b"_DoIt") && !is_mangled(b"$scope (file.js)"));
    }

    /// Changes `name` at `count` places by the numbers of `random`.
    fn mutated(name: &str, count: usize, random: &mut impl FnMut() -> usize) -> String {
        const PIECES: &[u8] = b"ABCDEFGHIKLMNOQRSTVXYZabcdefgilmnpqrstuvxyz_0123456789Q";
        let mut bytes = name.as_bytes().to_vec();
        for _ in 0..count {
            let at = random() % bytes.len();
            let piece = PIECES[random() % PIECES.len()];
            match random() % 4 {
                0 if bytes.len() > 4 => drop(bytes.remove(at)),
                1 => bytes[at] = piece,
                2 => {
                    let from = random() % bytes.len();
                    let part = bytes[from..bytes.len().min(from + random() % 12)].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes.insert(at, piece),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn broken_names_neither_panic_nor_hang() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize
        };
        for round in 0..20_000 {
            let seeds = [
                "$s3red4testyAA3ResOyxSayq_GAEs5ErrorAAq_sAFHD1__HCg_GADyxq_GsAFR_r0_lF",
                "$s4main5inneryys5Int32Vz_yADctF25closure_with_box_argumentxz_Bi32__lXXTf1nc_n",
                "$s7ElementSTQzqd__s5Error_pIgnrzo_ABqd__sAC_pIegnrzr_SlRzr__lTR",
                "_T08mangling14varargsVsArrayySaySiG3arrd_SS1ntF",
                "_D3std5range10primitives__T4backTkZQiFNaNbNcNdNiNfNkMANgkZNgk",
                "_D3std3net4curl4Curl9onReceiveMFNdDFAhZmZ9__lambda2MQr",
                "_D3app2t1__T2tvVdeF8P1VleN2VS3app2t11PS4de8P0A4e8P0e8P1e8P2e8P3e8P2w1_7aZQCdFZv",
                "X5BX5Deq___pureZalpha_u99.part.0",
            ];
            let broken = mutated(seeds[round % seeds.len()], 1 + round % 5, &mut random);
            let shown = demangle_from(broken.as_bytes(), Origin::Nim);
            assert!(shown.len() <= MAX_OUTPUT + '…'.len_utf8() + 64);
            let bare = without_arguments(&shown);
            assert!(shown.starts_with(bare));
        }
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
            "_D1a".to_owned() + &"F".repeat(30_000),
            "_D1aF".to_owned() + &"HAQb".repeat(7_000) + "Zv",
            "_D1a".to_owned() + &"__T1a".repeat(6_000),
            "_D1aFG".to_owned() + &"9".repeat(30_000) + "iZv",
            "_D1aFB99999999iZv".to_owned(),
            "_D1aFiZv".to_owned() + &"Qb".repeat(15_000),
            "$s".to_owned() + &"Si_".repeat(10_000) + "t",
            "$sSi".to_owned() + &"Sg".repeat(15_000),
            "$sSi".to_owned() + &"m".repeat(30_000),
            "$sSi".to_owned() + &"A2048A".repeat(5_000),
            "$s4abcd".to_owned() + &"0aaaaaaaaaaaaA0".repeat(2_000),
            "$sSiSg".to_owned() + &"AA_AAtABA_ACtADA_".repeat(1_000),
            "$s1ayy".to_owned() + &"x_xt".repeat(7_000) + "F",
            "$sxr".to_owned() + &"999999999_".repeat(3_000) + "lu",
            "$s1aSi".to_owned() + &"Rvz".repeat(5_000) + "r" + &"_".repeat(10_000) + "l",
            "$s00".to_owned() + "30000" + &"a".repeat(30_000),
        ] {
            assert!(name(&hostile).len() <= MAX_OUTPUT + '…'.len_utf8() + 64);
        }
        assert!(name(&"é".repeat(10_000)).ends_with('…'));
    }
}
