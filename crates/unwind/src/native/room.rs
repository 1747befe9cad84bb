//! Allocator for ranges of mapping entries.

/// Free ranges as (first, count), sorted, no two adjacent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room(Vec<(u32, u32)>);

impl Room {
    /// Creates an allocator in which all `count` entries are free.
    pub fn new(count: u32) -> Room {
        Room(vec![(0, count)])
    }

    /// Takes `count` adjacent free entries and returns the first; `None` if no range is long
    /// enough.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        let at = self.0.iter().position(|(_, n)| *n >= count)?;
        let (first, n) = &mut self.0[at];
        let taken = *first;
        *first += count;
        *n -= count;
        if *n == 0 {
            self.0.remove(at);
        }
        Some(taken)
    }

    /// Frees a range.
    pub fn release(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        let at = self.0.partition_point(|f| f.0 < first);
        self.0.insert(at, (first, count));
        if at + 1 < self.0.len() && first + count == self.0[at + 1].0 {
            self.0[at].1 += self.0[at + 1].1;
            self.0.remove(at + 1);
        }
        if at > 0 && self.0[at - 1].0 + self.0[at - 1].1 == first {
            self.0[at - 1].1 += self.0[at].1;
            self.0.remove(at);
        }
    }
}
