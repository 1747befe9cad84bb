//! Names of kernel code, from `/proc/kallsyms`.
//!
//! Kernel symbols have no sizes: each reaches to the next symbol of any kind, but at most
//! [`MAX_FUNCTION`]. Code of a kernel module (or of a BPF program) gets a module of its own,
//! `[nf_tables]`, so that reports can tell it from the kernel itself.

use std::cmp::Reverse;

use wallscope_binfmt::kallsyms::{self, KernelSymbol};

/// Maximum bytes of a function: beyond lies a gap between modules.
const MAX_FUNCTION: u64 = 256 << 10;

/// A kernel function and its module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFunction {
    /// Name of the function.
    pub name: String,
    /// Kernel module; empty for the kernel itself.
    pub module: String,
}

/// Returns the functions at `wanted` (ascending).
pub(crate) fn resolve(text: &str, wanted: &[u64]) -> Vec<Option<KernelFunction>> {
    // At index `i`: the best symbol that starts between `wanted[i - 1]` and `wanted[i]`.
    let mut best: Vec<Option<KernelSymbol<'_>>> = vec![None; wanted.len()];
    for symbol in kallsyms::parse(text) {
        let at = wanted.partition_point(|w| *w < symbol.address);
        if let Some(slot) = best.get_mut(at) {
            prefer(slot, symbol);
        }
    }
    let mut nearest: Option<KernelSymbol<'_>> = None;
    wanted
        .iter()
        .zip(best)
        .map(|(wanted, closer)| {
            if let Some(closer) = closer {
                prefer(&mut nearest, closer);
            }
            nearest
                .filter(|s| s.is_code() && s.address != 0 && wanted - s.address < MAX_FUNCTION)
                .map(|s| KernelFunction {
                    name: s.name.to_owned(),
                    module: s.module.to_owned(),
                })
        })
        .collect()
}

/// Replaces `best` if `symbol` is better. At one address: code before data, a function before a
/// linker marker, then the plainest name.
fn prefer<'t>(best: &mut Option<KernelSymbol<'t>>, symbol: KernelSymbol<'t>) {
    let rank = |s: &KernelSymbol<'t>| {
        let underscores = s.name.bytes().take_while(|b| *b == b'_').count();
        (
            s.address,
            s.is_code(),
            !is_marker(s.name),
            Reverse(underscores),
            s.is_global(),
            Reverse(s.name),
        )
    };
    if best.as_ref().is_none_or(|b| rank(b) < rank(&symbol)) {
        *best = Some(symbol);
    }
}

/// Whether the linker script gives this name to the edge of a section.
fn is_marker(name: &str) -> bool {
    let edge = name.ends_with("text_start") || name.ends_with("text_end");
    edge || matches!(
        name,
        "_text" | "_stext" | "_etext" | "_sinittext" | "_einittext"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T __entry
ffffffff81000000 T startup
ffffffff81000100 t helper
ffffffff81000200 d table
ffffffff81000300 T last
ffffffffc0201000 t hook\t[nf_tables]
";

    fn names(wanted: &[u64]) -> Vec<String> {
        resolve(TEXT, wanted)
            .into_iter()
            .map(|f| f.map_or(String::new(), |f| f.name + "|" + &f.module))
            .collect()
    }

    #[test]
    fn functions_reach_to_the_next_symbol() {
        assert_eq!(
            names(&[
                0xffff_ffff_80ff_ffff,
                0xffff_ffff_8100_0000,
                0xffff_ffff_8100_00ff,
                0xffff_ffff_8100_0100,
                0xffff_ffff_8100_0250,
                0xffff_ffff_8100_0310,
                0xffff_ffff_b000_0000,
                0xffff_ffff_c020_1004,
            ]),
            [
                "",
                "startup|",
                "startup|",
                "helper|",
                "",
                "last|",
                "",
                "hook|nf_tables"
            ]
        );
    }

    #[test]
    fn every_function_of_this_kernel_is_found_at_its_own_address() {
        let text = kallsyms::read().unwrap_or_default();
        if text.is_empty() || kallsyms::is_hidden(&text) {
            println!("skipped: /proc/kallsyms is missing or hides its addresses here");
            return;
        }
        let mut named: Vec<(u64, &str)> = kallsyms::parse(&text)
            .filter(|s| matches!(s.name, "do_sys_openat2" | "schedule" | "vfs_read"))
            .map(|s| (s.address, s.name))
            .collect();
        named.sort_unstable();
        assert!(named.len() >= 2, "{named:?}");
        let inside: Vec<u64> = named.iter().map(|n| n.0 + 1).collect();
        let found = resolve(&text, &inside);
        for ((_, name), found) in named.iter().zip(found) {
            assert_eq!(found.unwrap().name, *name);
        }
    }
}
