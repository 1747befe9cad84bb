//! Names from ELF symbol tables.
//!
//! The wanted addresses are known before a table is read. Each table is walked once, and only the
//! best symbol of each address is kept, so no index of the file's symbols is built. Several tables
//! (`.symtab`, `.gnu_debugdata`, `.dynsym`) feed one search, as each may contain symbols that
//! others lack.

use std::cmp::Reverse;

use wallscope_binfmt::elf::{Binding, Elf, SectionSpan, Symbol, SymbolTable};

use crate::demangle::{Origin, shows_nim};

/// Maximum symbols that cover an address, on average. Real tables have a few aliases; in a hostile
/// one, every symbol could cover every address.
const MAX_OVERLAP: usize = 64;

/// A search for the symbols that cover a set of addresses.
pub(crate) struct SymbolSearch<'d, 'w> {
    /// Ascending.
    wanted: &'w [u64],
    /// The best symbol that covers each address by its size.
    covering: Vec<Option<Symbol<'d>>>,
    /// At index `i`: the greatest start of any symbol between `wanted[i - 1]` and `wanted[i]`.
    starts: Vec<u64>,
    /// At index `i`: the best symbol without a size in that range.
    labels: Vec<Option<Symbol<'d>>>,
    budget: usize,
    /// Origin of the names in the tables so far.
    origin: Origin,
}

impl<'d, 'w> SymbolSearch<'d, 'w> {
    /// Creates a search for `wanted`, which must ascend.
    pub(crate) fn new(wanted: &'w [u64]) -> Self {
        SymbolSearch {
            wanted,
            covering: vec![None; wanted.len()],
            starts: vec![0; wanted.len()],
            labels: vec![None; wanted.len()],
            budget: wanted.len().saturating_mul(MAX_OVERLAP),
            origin: Origin::Native,
        }
    }

    /// Walks one table of `elf`. `code` tells which addresses are code: a debug file lacks its
    /// segments' bytes but has the same addresses.
    pub(crate) fn add(&mut self, elf: &Elf<'d>, table: SymbolTable, code: &Elf<'_>) {
        for symbol in elf.symbols(table) {
            if shows_nim(symbol.name) {
                self.origin = Origin::Nim;
            }
            let from = self.wanted.partition_point(|w| *w < symbol.address);
            if from == self.wanted.len()
                || is_marker(symbol.name)
                || !code.is_executable(symbol.address)
            {
                continue;
            }
            self.starts[from] = self.starts[from].max(symbol.address);
            if symbol.size == 0 {
                prefer(&mut self.labels[from], symbol);
                continue;
            }
            let end = symbol.address.saturating_add(symbol.size);
            for i in from..self.wanted.len() {
                if self.wanted[i] >= end || self.budget == 0 {
                    break;
                }
                self.budget -= 1;
                prefer(&mut self.covering[i], symbol);
            }
        }
    }

    /// Returns the origin of the names.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the best symbol of each wanted address. A symbol without a size reaches to the next
    /// symbol, but not beyond its section (`sections`, ascending), and not beyond `end` of its
    /// address. `end` is called with ascending addresses.
    pub(crate) fn finish(
        self,
        sections: &[SectionSpan],
        mut end: impl FnMut(u64) -> u64,
    ) -> Vec<Option<Symbol<'d>>> {
        let mut nearest = 0;
        let mut label: Option<Symbol<'d>> = None;
        // The last label passed to `end`, and the result.
        let (mut asked, mut ends) = (None, 0);
        let mut found = Vec::with_capacity(self.wanted.len());
        for (i, wanted) in self.wanted.iter().enumerate() {
            nearest = nearest.max(self.starts[i]);
            if let Some(closer) = self.labels[i] {
                prefer(&mut label, closer);
            }
            found.push(self.covering[i].or_else(|| {
                let label = label
                    .filter(|l| l.address == nearest && same_section(sections, nearest, *wanted))?;
                if asked.replace(label.address) != Some(label.address) {
                    ends = end(label.address);
                }
                (*wanted < ends).then_some(label)
            }));
        }
        found
    }
}

/// Whether it is an assembler's local label or a mapping symbol, which name no function.
fn is_marker(name: &[u8]) -> bool {
    name.starts_with(b".L") || name.starts_with(b"$")
}

fn same_section(sections: &[SectionSpan], a: u64, b: u64) -> bool {
    let next = sections.partition_point(|s| s.start <= a);
    next > 0 && (a..sections[next - 1].end).contains(&b)
}

/// Replaces `best` if `symbol` is the better name. The innermost symbol is better, then a function before a
/// label, then the best-known name of a function that has several (`read`, not `__GI___libc_read`).
fn prefer<'d>(best: &mut Option<Symbol<'d>>, symbol: Symbol<'d>) {
    let rank = |s: &Symbol<'d>| {
        let underscores = s.name.iter().take_while(|b| **b == b'_').count();
        (
            s.address,
            s.function,
            Reverse(underscores),
            s.binding != Binding::Local,
            Reverse(s.name.len()),
            Reverse(s.name),
        )
    };
    if best.as_ref().is_none_or(|b| rank(b) < rank(&symbol)) {
        *best = Some(symbol);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &'static str, address: u64, size: u64) -> Symbol<'static> {
        Symbol {
            name: name.as_bytes(),
            address,
            size,
            binding: Binding::Local,
            function: true,
            resolver: false,
        }
    }

    #[test]
    fn the_innermost_and_best_known_name_wins() {
        let mut best = None;
        prefer(&mut best, symbol("__GI___libc_read", 10, 5));
        prefer(&mut best, symbol("__read", 10, 5));
        prefer(&mut best, symbol("read", 10, 5));
        prefer(&mut best, symbol("_", 10, 5));
        assert_eq!(best.unwrap().name, b"read");
        prefer(&mut best, symbol("_inner", 11, 1));
        assert_eq!(best.unwrap().name, b"_inner");
    }

    #[test]
    fn a_section_holds_both_addresses_or_not() {
        let sections = [
            SectionSpan { start: 10, end: 20 },
            SectionSpan { start: 20, end: 30 },
        ];
        assert!(same_section(&sections, 10, 19));
        assert!(!same_section(&sections, 10, 20));
        assert!(!same_section(&sections, 5, 9));
        assert!(!same_section(&sections, 25, 30));
        assert!(!same_section(&[], 1, 1));
    }
}
