//! One file's unwind table as kernel programs read it.
//!
//! Rows are grouped in blocks of 4 KiB of the file, so a search is short, and a row needs four bytes: its offset
//! within the block and the id of its rule. `bpf/unwind_abi.h` describes the encoding.

/// log₂ of the bytes of a block.
const BLOCK_SHIFT: u32 = 12;
const BLOCK_MASK: u32 = (1 << BLOCK_SHIFT) - 1;
/// Bits of a row that hold the id of its rule, below the offset.
const RULE_BITS: u32 = 32 - BLOCK_SHIFT;
/// Rule ids of rows are below this.
pub(crate) const MAX_RULES: usize = 1 << RULE_BITS;
const RULE_MASK: u32 = (1 << RULE_BITS) - 1;

/// Method to unwind a file's code without unwind information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FallbackMethod {
    /// By rules synthesised from its instructions.
    Synthesised,
    /// By frame pointer, as most of its functions begin with a frame-pointer prologue.
    FramePointers,
}

/// The encoded table of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    words: Vec<u64>,
    rows: usize,
    fallback: Option<FallbackMethod>,
}

impl Table {
    /// Encodes rows, each (file offset, rule id), sorted by offset without repetition. Rule ids are below
    /// [`MAX_RULES`].
    pub(crate) fn encode(rows: &[(u32, u32)], fallback: Option<FallbackMethod>) -> Table {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Table {
                fallback,
                ..Table::default()
            };
        };
        let first_block = first.0 >> BLOCK_SHIFT;
        let blocks = (last.0 >> BLOCK_SHIFT) - first_block + 1;
        let mut words = vec![0u64; first_row_word(blocks) + rows.len().div_ceil(2)];
        words[0] = u64::from(blocks) << 32 | u64::from(first_block);
        let mut next = 0;
        for (i, (offset, rule)) in (0u32..).zip(rows) {
            debug_assert!((*rule as usize) < MAX_RULES);
            while next <= (offset >> BLOCK_SHIFT) - first_block {
                set_half(&mut words[1..], next, i);
                next += 1;
            }
            let row = (offset & BLOCK_MASK) << RULE_BITS | rule;
            set_half(&mut words[first_row_word(blocks)..], i, row);
        }
        set_half(&mut words[1..], blocks, rows.len() as u32);
        Table {
            words,
            rows: rows.len(),
            fallback,
        }
    }

    /// Method for the code without unwind information, if there is much of it (16 KiB or more).
    pub fn fallback(&self) -> Option<FallbackMethod> {
        self.fallback
    }

    /// The words of the table as kernel programs read them.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows as (file offset, rule id), sorted.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..self.blocks()).flat_map(move |block| {
            self.block_rows(block)
                .map(move |row| self.decode(block, row))
        })
    }

    /// The index of the row that covers `offset`; `None`: no row begins there or before.
    pub(crate) fn row_at(&self, offset: u64) -> Option<usize> {
        let first_block = u64::from(self.first_block());
        let block = (offset >> BLOCK_SHIFT).checked_sub(first_block)?;
        if block >= u64::from(self.blocks()) {
            return self.rows.checked_sub(1);
        }
        let rows = self.block_rows(block as u32);
        let within = offset as u32 & BLOCK_MASK;
        let (mut low, mut high) = (rows.start, rows.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.packed(middle) >> RULE_BITS <= within {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        (low as usize).checked_sub(1)
    }

    /// The rule id of the row with this index.
    pub(crate) fn rule(&self, index: usize) -> Option<u32> {
        (index < self.rows).then(|| self.packed(index as u32) & RULE_MASK)
    }

    /// The file offset at which the row with this index begins.
    pub(crate) fn offset(&self, index: usize) -> Option<u32> {
        if index >= self.rows {
            return None;
        }
        let index = index as u32;
        // The first block of which all rows come later follows that of this row.
        let (mut low, mut high) = (1, self.blocks());
        while low < high {
            let middle = low + (high - low) / 2;
            match half(&self.words[1..], middle) <= index {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Some(self.decode(low - 1, index).0)
    }

    fn first_block(&self) -> u32 {
        self.words.first().map_or(0, |w| *w as u32)
    }

    fn blocks(&self) -> u32 {
        self.words.first().map_or(0, |w| (*w >> 32) as u32)
    }

    /// The indices of the rows that begin in a block.
    fn block_rows(&self, block: u32) -> std::ops::Range<u32> {
        half(&self.words[1..], block)..half(&self.words[1..], block + 1)
    }

    fn packed(&self, index: u32) -> u32 {
        half(&self.words[first_row_word(self.blocks())..], index)
    }

    fn decode(&self, block: u32, index: u32) -> (u32, u32) {
        let row = self.packed(index);
        let offset = (self.first_block() + block) << BLOCK_SHIFT | row >> RULE_BITS;
        (offset, row & RULE_MASK)
    }
}

/// The word with the first rows, behind the index of blocks.
fn first_row_word(blocks: u32) -> usize {
    2 + (blocks >> 1) as usize
}

/// The u32 with this index, two to a word.
fn half(words: &[u64], index: u32) -> u32 {
    (words[(index >> 1) as usize] >> (32 * (index & 1))) as u32
}

/// Sets a u32 that is still 0.
fn set_half(words: &mut [u64], index: u32, value: u32) {
    words[(index >> 1) as usize] |= u64::from(value) << (32 * (index & 1));
}
