//! Code made at run time: the functions at each address, now and earlier.
//!
//! Runtimes report their code in perf maps ([`PerfMap`]) and jitdumps ([`JitDump`]), which are
//! followed as they grow. They reuse the addresses of dropped code. A [`Book`] therefore keeps
//! replaced code with the time of its replacement, and names an address as of any time since the
//! book was started. A time is given as a *version*: the last change before it. Between two changes
//! every address keeps its meaning, so a recording need not keep the time of each sample.
//!
//! The files belong to the profiled processes and are untrusted: reads and memory are bounded and
//! counted, sizes are checked, and a time in the future is rejected.

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

/// Maximum bytes of a book, approximately.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of an entry besides its text and lines, approximately.
const ENTRY: usize = 128;
const PAGE: u64 = 4096;
/// Maximum pages of a piece that is remembered after its replacement.
const LONGEST: u64 = 1024;
/// Changes closer together than this are one, ns.
const GAP: u64 = 5_000_000;
/// Number of changes after which that distance doubles.
const MANY: usize = 4096;

/// One moment, by two clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: u64,
    /// CLOCK_REALTIME, ns.
    pub real: u64,
}

/// A position in a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub name: Arc<str>,
    /// The file; empty: unknown.
    pub file: Arc<str>,
    /// The line; 0: unknown.
    pub line: u32,
}

/// Code of a function, without its address.
struct Code {
    name: Arc<str>,
    /// Lines by the distance from its first address, ascending.
    lines: Box<[(u64, u32, Arc<str>)]>,
}

/// A piece of memory that contains code, or a part of it, of one function.
#[derive(Clone, Copy)]
struct Piece {
    end: u64,
    /// The code's first address, which may be before the piece.
    base: u64,
    code: u32,
}

/// A piece that has been replaced.
struct Past {
    start: u64,
    piece: Piece,
    /// Time of its replacement, ns.
    until: u64,
}

/// The code at each address of a process, now and earlier.
pub struct Book {
    codes: Vec<Code>,
    /// Present pieces, by first address. They do not overlap.
    live: BTreeMap<u64, Piece>,
    /// Replaced pieces, by page.
    past: FxHashMap<u64, Vec<Past>>,
    texts: FxHashSet<Arc<str>>,
    /// Times of replacements, ascending.
    changes: Vec<u64>,
    gap: u64,
    since: u64,
    bytes: usize,
    /// Number of entries that were refused because the book was full.
    pub refused: u64,
}

impl Book {
    /// Creates an empty book. Replacements before `since`, ns of CLOCK_MONOTONIC, are not kept.
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

    /// Number of pieces of code that have been entered.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether nothing has been entered.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// Enters the code `name` of `size` bytes at `start`, present since `time`, ns. `lines`: by
    /// address, with files.
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

    /// Moves the code at `from` to `to`, with its `size` bytes.
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
        // Pieces do not overlap, so the last one to begin also ends last.
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

    /// Times at which an address changed its meaning, ns of CLOCK_MONOTONIC, ascending. Changes
    /// close together are one, dated after them.
    pub fn changes(&self) -> &[u64] {
        &self.changes
    }

    /// Returns the code at `address` as of `version`, which is one of [`Book::changes`], or 0
    /// before the first one. An address without code at that time gets the first code that came
    /// later: runtimes write late.
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
