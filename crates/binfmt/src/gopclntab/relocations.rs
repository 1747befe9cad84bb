//! Addresses that the loader writes into a position-independent program.

use std::collections::HashMap;

use super::go_file::{GoFile, u64_at};

/// Addresses that the loader writes, as pairs of place and value. Empty for programs with a fixed address.
pub struct Relocations<'d>(&'d [u8]);

impl<'d> Relocations<'d> {
    /// Those of `file`.
    pub fn of(file: &impl GoFile<'d>) -> Relocations<'d> {
        Relocations(file.section(".rela.dyn").map_or(&[], |s| s.1))
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        const RELATIVE: u64 = 8;
        self.0
            .chunks_exact(24)
            .filter_map(|r| (u64_at(r, 8)? == RELATIVE).then_some((u64_at(r, 0)?, u64_at(r, 16)?)))
    }

    /// The written values by place.
    pub fn by_place(&self) -> HashMap<u64, u64> {
        self.all().collect()
    }

    /// The value written at `place`.
    pub(super) fn at(&self, place: u64) -> Option<u64> {
        self.all().find(|r| r.0 == place).map(|r| r.1)
    }

    /// The first place at which `address` is written.
    pub(super) fn to(&self, address: u64) -> Option<u64> {
        self.all().find(|r| r.1 == address).map(|r| r.0)
    }
}
