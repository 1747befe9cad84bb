//! Lines of folded text as numbers of words, and their order.
//!
//! A million lines of half a kilobyte each are never put together to be compared. Names become
//! words, words become ranks, and lines are ordered by their ranks, some words at a time: rows that
//! agree in those go on with the next ones.

use std::cmp::Ordering;
use std::ops::Range;

use rustc_hash::FxHashMap;
use wallscope_model::printable::is_obeyed;
use wallscope_model::{Line, Recording};

use wallscope_model::name;

/// A character of a name within a line. A character is replaced if it would end a frame or the line, or
/// would control a terminal.
pub fn within_line(c: char) -> char {
    match c {
        ';' => ':',
        '\n' | '\r' => ' ',
        c if is_obeyed(c) => '\u{fffd}',
        c => c,
    }
}

/// Names as numbers: equal texts have one. Characters that would end a frame or the line are replaced.
#[derive(Default)]
struct Words {
    list: Vec<Box<[u8]>>,
    ids: FxHashMap<Box<[u8]>, u32>,
}

impl Words {
    fn id(&mut self, name: &str, suffix: &str) -> u32 {
        let text: String = name
            .chars()
            .chain(suffix.chars())
            .map(within_line)
            .collect();
        let text = text.into_bytes().into_boxed_slice();
        let next = self.list.len() as u32;
        *self.ids.entry(text).or_insert_with_key(|t| {
            self.list.push(t.clone());
            next
        })
    }

    /// Whether the order of two lines may depend on the number at the end of one. This is so if one word is
    /// another word followed by a space and a digit.
    fn look_like_numbers(&self) -> bool {
        self.list.iter().any(|word| {
            let pairs = word.windows(2).enumerate();
            let mut ends = pairs.filter(|(_, p)| p[0] == b' ' && p[1].is_ascii_digit());
            ends.any(|(at, _)| self.ids.contains_key(&word[..at]))
        })
    }

    fn ranks(&self) -> Ranks {
        // A word within a line is followed by a semicolon, one at its end by a space and a digit.
        let ends: [&[u8]; 2] = [b";", b" 0"];
        let mut texts = Vec::new();
        let mut order: Vec<(Range<usize>, u32, usize)> = Vec::with_capacity(2 * self.list.len());
        for (word, text) in (0u32..).zip(&self.list) {
            for (last, end) in ends.into_iter().enumerate() {
                let from = texts.len();
                texts.extend_from_slice(text);
                texts.extend_from_slice(end);
                order.push((from..texts.len(), word, last));
            }
        }
        order.sort_unstable_by(|(a, ..), (b, ..)| texts[a.clone()].cmp(&texts[b.clone()]));
        let mut of = [vec![0; self.list.len()], vec![0; self.list.len()]];
        for (rank, (_, word, last)) in (1u32..).zip(&order) {
            of[*last][*word as usize] = rank;
        }
        let [within, last] = of;
        // Rank 0 is the place beyond a line's end.
        let bits = u32::BITS - (order.len() as u32).leading_zeros();
        Ranks {
            within,
            last,
            bits: bits.max(1),
        }
    }
}

/// The rank of each word among all words, within a line and at its end.
struct Ranks {
    within: Vec<u32>,
    last: Vec<u32>,
    /// How many bits a rank needs.
    bits: u32,
}

/// Words around a stack in a line, shared by many lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Around {
    /// Words before it.
    pub before: Vec<u32>,
    /// Words behind it.
    pub after: Vec<u32>,
}

/// A line: a stack, the words around it, and its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldedRow {
    pub stack: u32,
    pub around: u32,
    pub value: u64,
}

/// Everything that lines consist of.
pub(super) struct Lines {
    words: Words,
    /// Every stack as words, root first, one after the other, and where each ends.
    all: Vec<u32>,
    ends: Vec<usize>,
    around: Vec<Around>,
    around_ids: FxHashMap<Around, u32>,
}

impl Lines {
    /// The stacks of `rec`, by their own numbers.
    pub(super) fn new(rec: &Recording) -> Lines {
        let mut words = Words::default();
        // Each frame's functions, outermost first, one after the other.
        let mut calls = Vec::with_capacity(rec.frames.len());
        let mut frames: Vec<Range<usize>> = Vec::with_capacity(rec.frames.len());
        for f in &rec.frames {
            let from = calls.len();
            let suffix = |inlined| match inlined {
                true => f.kind.inlined_suffix(),
                false => f.kind.suffix(),
            };
            if f.lines.is_empty() {
                calls.push(words.id(&name::address(rec, f), suffix(false)));
            }
            let of = |l: &Line| &rec.functions[l.function.0 as usize].name;
            for (i, l) in f.lines.iter().enumerate().rev() {
                calls.push(words.id(of(l), suffix(i + 1 < f.lines.len())));
            }
            frames.push(from..calls.len());
        }
        let mut all = Vec::with_capacity(rec.stacks.iter().map(|s| s.frames.len() + 1).sum());
        let mut ends = Vec::with_capacity(rec.stacks.len() + 1);
        for s in &rec.stacks {
            if s.frames.is_empty() {
                all.push(words.id(&name::no_frames(s.end), ""));
            } else if !s.end.is_whole() {
                all.push(words.id(&name::truncated(s.end), ""));
            }
            for f in s.frames.iter().rev() {
                match frames[f.0 as usize].clone() {
                    one if one.len() == 1 => all.push(calls[one.start]),
                    many => all.extend_from_slice(&calls[many]),
                }
            }
            ends.push(all.len());
        }
        Lines {
            words,
            all,
            ends,
            around: Vec::new(),
            around_ids: FxHashMap::default(),
        }
    }

    /// The number of a word.
    pub(super) fn word(&mut self, name: &str) -> u32 {
        self.words.id(name, "")
    }

    /// A stack of one word.
    pub(super) fn stack_of(&mut self, name: &str) -> u32 {
        let word = self.word(name);
        self.all.push(word);
        self.ends.push(self.all.len());
        self.ends.len() as u32 - 1
    }

    /// The number of words around a stack.
    pub(super) fn around(&mut self, around: Around) -> u32 {
        let next = self.around.len() as u32;
        *self.around_ids.entry(around).or_insert_with_key(|a| {
            self.around.push(a.clone());
            next
        })
    }

    fn stack(&self, stack: u32) -> &[u32] {
        let i = stack as usize;
        let from = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.all[from..self.ends[i]]
    }

    /// The words of a row's line.
    fn parts(&self, row: &FoldedRow) -> [&[u32]; 3] {
        let around = &self.around[row.around as usize];
        [&around.before, self.stack(row.stack), &around.after]
    }

    fn words_of(&self, row: &FoldedRow) -> impl Iterator<Item = u32> + Clone {
        let [before, stack, after] = self.parts(row);
        before.iter().chain(stack).chain(after).copied()
    }

    /// Sorts lines by their bytes, and joins equal lines.
    pub(super) fn sort(&self, rows: &mut Vec<FoldedRow>) {
        // Sorting by stack is cheap, and lines of one stack are often the only equal ones.
        rows.sort_unstable_by_key(|r| (r.stack, r.around));
        let add = |a: &mut FoldedRow, b: &FoldedRow| a.value = a.value.saturating_add(b.value);
        rows.dedup_by(|b, a| {
            let same = (a.stack, a.around) == (b.stack, b.around);
            if same {
                add(a, b);
            }
            same
        });
        self.by_rank(rows);
        rows.dedup_by(|b, a| {
            let same = self.words_of(a).eq(self.words_of(b));
            if same {
                add(a, b);
            }
            same
        });
        if self.words.look_like_numbers() {
            rows.sort_by(|a, b| self.order(a, b));
        }
    }

    /// Sorts lines by the ranks of their words.
    fn by_rank(&self, rows: &mut [FoldedRow]) {
        let ranks = self.words.ranks();
        let at_once = (u128::BITS / ranks.bits) as usize;
        let key = |row: &FoldedRow, from: usize| -> u128 {
            let parts = self.parts(row);
            let length: usize = parts.iter().map(|p| p.len()).sum();
            let word = |mut i: usize| {
                for part in parts {
                    match part.get(i) {
                        Some(word) => return *word as usize,
                        None => i -= part.len(),
                    }
                }
                unreachable!("a place within the line")
            };
            (from..from + at_once).fold(0, |key, i| {
                let rank = match i + 1 {
                    next if next < length => ranks.within[word(i)],
                    next if next == length => ranks.last[word(i)],
                    _ => 0,
                };
                key << ranks.bits | u128::from(rank)
            })
        };
        // Ranges of rows, and the number of words in which their rows agree.
        let mut ranges = vec![(0..rows.len(), 0)];
        let mut keyed: Vec<(u128, FoldedRow)> = Vec::new();
        while let Some((range, from)) = ranges.pop() {
            keyed.clear();
            keyed.extend(rows[range.clone()].iter().map(|r| (key(r, from), *r)));
            keyed.sort_unstable_by_key(|(key, _)| *key);
            for (to, (_, row)) in rows[range.clone()].iter_mut().zip(&keyed) {
                *to = *row;
            }
            let mut start = range.start;
            for alike in keyed.chunk_by(|a, b| a.0 == b.0) {
                let own = start..start + alike.len();
                start = own.end;
                // The last rank is 0 if the lines have ended. Lines that end exactly there need one
                // more round.
                if alike.len() > 1 && alike[0].0 & ((1 << ranks.bits) - 1) != 0 {
                    ranges.push((own, from + at_once));
                }
            }
        }
    }

    /// The order of two whole lines, byte by byte, numbers included.
    fn order(&self, a: &FoldedRow, b: &FoldedRow) -> Ordering {
        let (mut left, mut right) = (self.words_of(a), self.words_of(b));
        loop {
            let rest = (left.clone(), right.clone());
            match (left.next(), right.next()) {
                (Some(x), Some(y)) if x == y => {}
                (None, None) => return a.value.cmp(&b.value),
                _ => {
                    let (av, bv) = (a.value.to_string(), b.value.to_string());
                    return self.bytes(rest.0, &av).cmp(self.bytes(rest.1, &bv));
                }
            }
        }
    }

    /// A line's bytes from a given word on: the separator before each word, and the number.
    fn bytes<'l>(
        &'l self,
        words: impl Iterator<Item = u32> + 'l,
        value: &'l str,
    ) -> impl Iterator<Item = u8> + 'l {
        let word = |w| std::iter::once(b';').chain(self.words.list[w as usize].iter().copied());
        words
            .flat_map(word)
            .chain(std::iter::once(b' '))
            .chain(value.bytes())
    }

    /// Gives each row's line to `put`, without its end.
    pub(super) fn texts<E>(
        &self,
        rows: &[FoldedRow],
        mut put: impl FnMut(&[u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        // Neighbouring lines have a common prefix: only the part after it is built again.
        let mut text = Vec::new();
        let mut words: Vec<(u32, usize)> = Vec::new();
        for row in rows {
            let same = words.iter().zip(self.words_of(row));
            let same = same.take_while(|((have, _), want)| have == want).count();
            words.truncate(same);
            text.truncate(words.last().map_or(0, |(_, end)| *end));
            for word in self.words_of(row).skip(same) {
                text.extend_from_slice(&self.words.list[word as usize]);
                text.push(b';');
                words.push((word, text.len()));
            }
            put(&text[..text.len().saturating_sub(1)], row.value)?;
        }
        Ok(())
    }
}
