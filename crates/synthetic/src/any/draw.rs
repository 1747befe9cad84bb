//! Draws values of recordings.

use std::sync::Arc;

use wallscope_model::*;

use crate::Random;

/// Times and sums are below this.
pub(super) const BIG: u64 = 1 << 40;
/// Process and thread ids are below this.
const IDS: u64 = 1 << 22;

const WORDS: [&str; 6] = [
    "",
    "a",
    "naïve;\nname",
    "operator new(unsigned long)",
    "[kernel]",
    "x y ",
];

/// Draws values.
pub(super) struct Draw(pub Random);

impl Draw {
    /// A number below `below`.
    pub fn n(&mut self, below: u64) -> u64 {
        self.0.below(below)
    }

    pub fn small(&mut self, below: u64) -> u32 {
        self.n(below) as u32
    }

    pub fn big(&mut self) -> u64 {
        self.n(BIG)
    }

    pub fn id(&mut self) -> u32 {
        self.small(IDS)
    }

    pub fn coin(&mut self) -> bool {
        self.n(2) == 0
    }

    pub fn word(&mut self) -> &'static str {
        self.pick(&WORDS)
    }

    pub fn text(&mut self) -> String {
        self.word().to_string()
    }

    pub fn name(&mut self) -> Arc<str> {
        Arc::from(self.word())
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.n(all.len() as u64) as usize]
    }

    /// An index into `all`.
    pub fn index<T>(&mut self, all: &[T]) -> u32 {
        self.small(all.len() as u64)
    }

    pub fn maybe<T>(&mut self, make: impl FnOnce(&mut Draw) -> T) -> Option<T> {
        if self.coin() { None } else { Some(make(self)) }
    }

    /// Fewer than `below`.
    pub fn list<T>(&mut self, below: u64, mut make: impl FnMut(&mut Draw) -> T) -> Vec<T> {
        (0..self.n(below)).map(|_| make(self)).collect()
    }

    /// At least one, at most `most`.
    pub fn some<T>(&mut self, most: u64, mut make: impl FnMut(&mut Draw) -> T) -> Vec<T> {
        (0..1 + self.n(most)).map(|_| make(self)).collect()
    }

    pub fn context(&mut self, rec: &Recording) -> ContextId {
        ContextId(self.index(&rec.contexts))
    }

    pub fn stack(&mut self, rec: &Recording) -> StackId {
        StackId(self.index(&rec.stacks))
    }

    pub fn reason(&mut self) -> Option<BlockReason> {
        self.maybe(|d| d.pick(&BlockReason::ALL))
    }

    pub fn part(&mut self) -> Option<Part> {
        self.maybe(|d| d.pick(&Part::ALL))
    }

    pub fn labels(&mut self, rec: &Recording) -> Option<LabelsId> {
        (!rec.label_sets.is_empty() && self.coin()).then(|| LabelsId(self.index(&rec.label_sets)))
    }
}
