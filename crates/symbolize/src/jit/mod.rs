//! Code made at run time: what is where, and what was there before.
//!
//! Runtimes tell it by perf maps ([`PerfMap`]) and jitdumps ([`JitDump`]), which are followed as they
//! grow. They reuse the addresses of code that they have dropped: a [`Book`] keeps what was replaced,
//! and until when it was there, so that an address can be named as of any moment since it was begun.
//! A moment is asked for by its *version*, the last change before it: between two changes all
//! addresses mean the same, so that a recording need not keep each sample's own time.
//!
//! The files are their processes' own and taken for hostile: what is read and kept is bounded and
//! counted, nothing is believed about sizes, and no time is that lies in the future.

mod dump;
mod map;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::demangle::{demangle, is_mangled, printable};

pub use dump::JitDump;
pub use map::PerfMap;

/// Most bytes that a book may take, about.
const MOST_BYTES: usize = 64 << 20;
/// What an entry takes beside its text and lines, bytes, about.
const ENTRY: usize = 128;
const PAGE: u64 = 4096;
/// The longest piece whose replacement is remembered, pages.
const LONGEST: u64 = 1024;
/// Changes closer to each other than this, ns, are one.
const GAP: u64 = 5_000_000;
/// So many changes, and that distance becomes twice as long.
const MANY: usize = 4096;

/// A clock's reading, by both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: u64,
    /// CLOCK_REALTIME, ns.
    pub real: u64,
}

/// A place in a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub name: Arc<str>,
    /// The file; empty: not known.
    pub file: Arc<str>,
    /// The line; 0: not known.
    pub line: u32,
}

/// A function's code, without where it is.
struct Code {
    name: Arc<str>,
    /// By the distance from its first address, ascending.
    lines: Box<[(u64, u32, Arc<str>)]>,
}

/// A piece of memory that holds (a part of) a function's code.
#[derive(Clone, Copy)]
struct Piece {
    end: u64,
    /// The code's first address, which may lie before.
    base: u64,
    code: u32,
}

/// A piece that is there no more.
struct Past {
    start: u64,
    piece: Piece,
    /// When it was replaced, ns.
    until: u64,
}

/// What code is, and was, at which addresses of a process.
pub struct Book {
    codes: Vec<Code>,
    /// What is there now, by first address. Nothing overlaps.
    live: BTreeMap<u64, Piece>,
    /// What was, by page.
    past: FxHashMap<u64, Vec<Past>>,
    texts: FxHashSet<Arc<str>>,
    /// When something was replaced, ascending.
    changes: Vec<u64>,
    gap: u64,
    since: u64,
    bytes: usize,
    /// Entries for which there was no room.
    pub refused: u64,
}

impl Book {
    /// An empty book. What was replaced before `since`, ns of CLOCK_MONOTONIC, is of no interest.
    pub fn new(since: u64) -> Book {
        Book {
            codes: Vec::new(),
            live: BTreeMap::new(),
            past: FxHashMap::default(),
            texts: FxHashSet::default(),
            changes: Vec::new(),
            gap: GAP,
            since,
            bytes: 0,
            refused: 0,
        }
    }

    /// How many pieces of code have been entered.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether nothing has been entered.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// Enters the code `name` of `size` bytes at `start`, there since `time`, ns. `lines`: by address,
    /// with files.
    fn enter<'l>(
        &mut self,
        start: u64,
        size: u64,
        name: &[u8],
        lines: impl Iterator<Item = (u64, u32, &'l [u8])>,
        time: u64,
    ) {
        let Some(end) = start.checked_add(size).filter(|_| size > 0) else {
            return;
        };
        if self.bytes >= MOST_BYTES || self.codes.len() >= u32::MAX as usize {
            self.refused += 1;
            return;
        }
        let name = match is_mangled(name) {
            true => demangle(name),
            false => printable(name),
        };
        let name = self.text(name);
        let mut lines: Vec<_> = lines
            .filter(|(at, ..)| (start..end).contains(at))
            .map(|(at, line, file)| (at - start, line, self.text(printable(file))))
            .collect();
        lines.sort_by_key(|l| l.0);
        self.bytes += ENTRY + lines.len() * size_of::<(u64, u32, Arc<str>)>();
        let code = self.codes.len() as u32;
        self.codes.push(Code {
            name,
            lines: lines.into(),
        });
        self.put(start, end, code, time);
    }

    /// What is at `from` now has moved to `to`, with its `size` bytes.
    fn moved(&mut self, from: u64, to: u64, size: u64, time: u64) {
        let Some(end) = to.checked_add(size).filter(|_| size > 0) else {
            return;
        };
        if let Some((_, piece)) = self.live_at(from)
            && piece.base == from
        {
            self.put(to, end, piece.code, time);
        }
    }

    fn put(&mut self, start: u64, end: u64, code: u32, time: u64) {
        let mut changed = false;
        // They do not overlap, so that the last one to begin also ends last.
        while let Some((at, piece)) = self.live.range(..end).next_back().map(|(a, p)| (*a, *p))
            && piece.end > start
        {
            self.live.remove(&at);
            if at < start {
                self.live.insert(
                    at,
                    Piece {
                        end: start,
                        ..piece
                    },
                );
            }
            if piece.end > end {
                self.live.insert(end, piece);
            }
            let [old, new] = [piece.code, code].map(|c| &self.codes[c as usize].name);
            if old != new && time > self.since {
                changed = true;
                let piece = Piece {
                    end: piece.end.min(end),
                    ..piece
                };
                self.remember(at.max(start), piece, time);
            }
        }
        let base = start;
        self.live.insert(start, Piece { end, base, code });
        if changed {
            self.changed(time);
        }
    }

    fn remember(&mut self, start: u64, piece: Piece, until: u64) {
        let pages = start / PAGE..=(piece.end - 1) / PAGE;
        if pages.end() - pages.start() >= LONGEST || self.bytes >= MOST_BYTES {
            self.refused += 1;
            return;
        }
        for page in pages {
            self.bytes += size_of::<Past>();
            self.past.entry(page).or_default().push(Past {
                start,
                piece,
                until,
            });
        }
    }

    fn changed(&mut self, time: u64) {
        let i = self.changes.partition_point(|c| *c < time);
        if self.changes.get(i).is_some_and(|c| c - time <= self.gap) {
            return;
        }
        let before = i.checked_sub(1).map(|i| self.changes[i]);
        let at = before.map_or(time, |b| time.max(b + self.gap));
        self.changes.insert(i, at);
        if self.changes.len().is_multiple_of(MANY) {
            self.gap *= 2;
        }
    }

    /// When an address began to mean something else, ns of CLOCK_MONOTONIC, ascending; changes close to
    /// each other are one, which comes after them.
    pub fn changes(&self) -> &[u64] {
        &self.changes
    }

    /// What was at `address` at the time of `version`, one of [`Book::changes`], or 0 before the first
    /// one. What was not there yet is named by what came first: runtimes write late.
    pub fn at(&self, address: u64, version: u64) -> Option<Place> {
        let past = self.past.get(&(address / PAGE)).into_iter().flatten();
        let was = past
            .filter(|p| (p.start..p.piece.end).contains(&address) && p.until > version)
            .min_by_key(|p| p.until);
        let piece = match was {
            Some(past) => past.piece,
            None => self.live_at(address)?.1,
        };
        let code = &self.codes[piece.code as usize];
        let into = address - piece.base;
        let after = code.lines.partition_point(|l| l.0 <= into);
        let at = after.checked_sub(1).map(|i| &code.lines[i]);
        let (line, file) = at.map_or((0, Arc::default()), |(_, line, file)| (*line, file.clone()));
        Some(Place {
            name: code.name.clone(),
            file,
            line,
        })
    }

    fn live_at(&self, address: u64) -> Option<(u64, Piece)> {
        let (start, piece) = self.live.range(..=address).next_back()?;
        (address < piece.end).then_some((*start, *piece))
    }

    fn text(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return known.clone();
        }
        self.bytes += text.len() + size_of::<Arc<str>>();
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }
}
