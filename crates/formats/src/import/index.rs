//! Equal things once.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

/// Equal things once; the index holds hashes only, the things stay in their list.
#[derive(Default)]
pub(super) struct Index {
    of: FxHashMap<u64, u32>,
}

impl Index {
    /// The place of the entry that `same` recognises, or `next` where there is none.
    pub(super) fn place(
        &mut self,
        mut hash: u64,
        next: u32,
        same: impl Fn(u32) -> bool,
    ) -> (u32, bool) {
        loop {
            match self.of.get(&hash) {
                Some(at) if same(*at) => return (*at, false),
                Some(_) => hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1),
                None => {
                    self.of.insert(hash, next);
                    return (next, true);
                }
            }
        }
    }
}

pub(super) fn hash(of: impl std::hash::Hash) -> u64 {
    FxBuildHasher.hash_one(of)
}
