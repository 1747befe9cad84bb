//! Names of kernel code, from `/proc/kallsyms`.
//!
//! Kernel symbols have no sizes: each reaches to the next symbol of any kind, but at most
//! [`MAX_FUNCTION`]. Code of a kernel module (or of a BPF program) gets a module of its own,
//! `[nf_tables]`, so that reports can tell it from the kernel itself.

use std::cmp::Reverse;
use std::sync::Arc;

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

/// The kernel's symbols, in the order of their addresses.
#[derive(Clone, Debug)]
pub struct KernelSymbols {
    text: Arc<str>,
    /// Addresses, and where in the text their lines begin.
    starts: Vec<(u64, u32)>,
}

impl KernelSymbols {
    /// The symbols in this text of `/proc/kallsyms`; lines that are no symbols are left out.
    pub fn new(text: Arc<str>) -> KernelSymbols {
        let mut starts = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if let (Some(symbol), Ok(start)) =
                (kallsyms::parse_line(line.trim_end()), at.try_into())
            {
                starts.push((symbol.address, start));
            }
            at += line.len();
        }
        starts.sort_unstable();
        KernelSymbols { text, starts }
    }

    /// Whether the kernel hid the addresses.
    pub fn is_hidden(&self) -> bool {
        self.starts.last().is_some_and(|(address, _)| *address == 0)
    }

    /// Returns the functions at `wanted`.
    pub(crate) fn resolve(&self, wanted: &[u64]) -> Vec<Option<KernelFunction>> {
        wanted
            .iter()
            .map(|address| self.function(*address))
            .collect()
    }

    fn function(&self, wanted: u64) -> Option<KernelFunction> {
        let below = &self.starts[..self.starts.partition_point(|(start, _)| *start <= wanted)];
        let nearest = below.last()?.0;
        let mut best = None;
        for (_, line) in below
            .iter()
            .rev()
            .take_while(|(start, _)| *start == nearest)
        {
            prefer(&mut best, self.symbol(*line)?);
        }
        let found =
            best.filter(|s| s.is_code() && nearest != 0 && wanted - nearest < MAX_FUNCTION)?;
        Some(KernelFunction {
            name: found.name.to_owned(),
            module: found.module.to_owned(),
        })
    }

    /// The symbol of the line that begins there.
    fn symbol(&self, line: u32) -> Option<KernelSymbol<'_>> {
        let rest = self.text.get(line as usize..)?;
        kallsyms::parse_line(rest.lines().next()?.trim_end())
    }
}

/// Replaces `best` if `symbol`, of the same address, is better: code before data, a function before a
/// linker marker, then the plainest name.
fn prefer<'t>(best: &mut Option<KernelSymbol<'t>>, symbol: KernelSymbol<'t>) {
    let rank = |s: &KernelSymbol<'t>| {
        let underscores = s.name.bytes().take_while(|b| *b == b'_').count();
        (
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
        KernelSymbols::new(TEXT.into())
            .resolve(wanted)
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
        let found = KernelSymbols::new(text.as_str().into()).resolve(&inside);
        for ((_, name), found) in named.iter().zip(found) {
            assert_eq!(found.unwrap().name, *name);
        }
    }
}
