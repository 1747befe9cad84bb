//! Garbage collections of a Go process, by the runtime's own counters.
//!
//! `runtime.memstats` has the number of collections. For the last 256 it has their ends and the time for which they
//! stopped the world. The instructions of `runtime.gcMarkTermination` refer to these words. A candidate counts if
//! the words agree with each other:
//!
//! ```text
//! time of the last collection, ns since 1970
//! time of all stops, ns
//! 256 times of stops, ns               ring: collection n is at n mod 256
//! 256 ends, ns since 1970
//! number of collections, number of forced ones (4 bytes each)
//! ```
//!
//! So no symbols are needed, and Go versions need not be distinguished. A collection stops the world twice, as marking
//! begins and as it ends. The runtime keeps the sum of both.

use super::Facts;
use crate::runtime::tasks::Memory;

pub use wallscope_model::GO_COLLECTION as COLLECTION;

/// Kind of all collections: the program runs except during two stops.
pub const COLLECTION_KIND: &str = "concurrent";
/// Cause of a collection that the program requested.
pub const FORCED: &str = "runtime.GC()";

/// Collections that the runtime keeps.
const RING: usize = 256;
/// Bytes of the words above.
const BOOKS_BYTES: usize = 8 * NUMBER_WORD + 8;
/// Offsets in these counters, words.
const TOTAL_WORD: usize = 1;
const STOPS_WORD: usize = 2;
const ENDS_WORD: usize = STOPS_WORD + RING;
const NUMBER_WORD: usize = ENDS_WORD + RING;
/// Words of the counters that instructions refer to: the last end, the total, the first stop.
const REFERRED_WORDS: u64 = 3;

/// A collection that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// Its end, ns since 1970.
    pub end_unix_ns: u64,
    /// Time for which it stopped the world, ns: two stops.
    pub stopped_ns: u64,
    /// Whether the program requested it (`runtime.GC`). If several are read at once, this is known only if all or
    /// none were requested.
    pub forced: bool,
}

/// Reader of the collections of one process.
pub struct Collections {
    bias: u64,
    /// Address of the counters.
    books: Option<u64>,
    /// Number of collections, and of forced ones, at the last read.
    known: Option<(u32, u32)>,
    /// Collections that the ring had lost before they were read.
    pub missed: u64,
}

impl Collections {
    /// Creates a reader for a process with load bias `bias`.
    pub fn new(bias: u64) -> Collections {
        Collections {
            bias,
            books: None,
            known: None,
            missed: 0,
        }
    }

    /// Returns the collections that have ended since the last call, oldest first. The first call returns none.
    pub fn read(&mut self, facts: &Facts, memory: &mut dyn Memory) -> Vec<Collection> {
        let books = match self.books {
            Some(at) => Books::read(memory, at),
            None => self.find(facts, memory),
        };
        let Some(books) = books else {
            // Before the first collection the counters cannot be told from other words.
            self.known.get_or_insert((0, 0));
            return Vec::new();
        };
        let now = books.numbers();
        let (before, forced) = self.known.replace(now).unwrap_or(now);
        let new = now.0.wrapping_sub(before);
        // The runtime may be writing the oldest one.
        let kept = new.min(RING as u32 - 1);
        self.missed += u64::from(new - kept);
        let all_forced = new > 0 && now.1.wrapping_sub(forced) == new;
        let numbers = (now.0 - kept)..now.0;
        numbers
            .map(|n| Collection {
                end_unix_ns: books.word(ENDS_WORD + n as usize % RING),
                stopped_ns: books.word(STOPS_WORD + n as usize % RING),
                forced: all_forced,
            })
            .collect()
    }

    fn find(&mut self, facts: &Facts, memory: &mut dyn Memory) -> Option<Books> {
        let referred = facts.books.iter().map(|at| at.wrapping_add(self.bias));
        let mut all: Vec<u64> = referred
            .flat_map(|at| (0..REFERRED_WORDS).map(move |word| at.wrapping_sub(8 * word)))
            .collect();
        all.sort_unstable();
        all.dedup();
        // The number of collections rules most candidates out.
        let number = 8 * NUMBER_WORD as u64;
        let wanted: Vec<_> = all.iter().map(|at| (at.wrapping_add(number), 8)).collect();
        let mut numbers = vec![0u8; 8 * all.len()];
        let readable = memory.read_all(&wanted, &mut numbers);
        let plausible = |bytes: &[u8]| {
            let (all, forced) = numbers_in(bytes);
            all > 0 && all < 1 << 30 && forced <= all
        };
        let candidates = all.iter().zip(numbers.chunks_exact(8)).zip(readable);
        let mut candidates = candidates.filter(|((_, number), read)| *read && plausible(number));
        candidates.find_map(|((at, _), _)| {
            let books = Books::read(memory, *at).filter(Books::agree)?;
            self.books = Some(*at);
            Some(books)
        })
    }
}

/// The runtime's words on its collections.
struct Books(Vec<u8>);

impl Books {
    fn read(memory: &mut dyn Memory, at: u64) -> Option<Books> {
        let mut bytes = vec![0u8; BOOKS_BYTES];
        memory.read(at, &mut bytes).then_some(Books(bytes))
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = &self.0[8 * at..8 * at + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Number of collections, and of forced ones.
    fn numbers(&self) -> (u32, u32) {
        numbers_in(&self.0[8 * NUMBER_WORD..])
    }

    /// Whether the words agree: the last end is that of the ring, ends rise, and the stops sum to the total.
    fn agree(&self) -> bool {
        let (number, _) = self.numbers();
        let first = number.saturating_sub(RING as u32);
        let places = || (first..number).map(|n| n as usize % RING);
        let ends: Vec<u64> = places().map(|i| self.word(ENDS_WORD + i)).collect();
        let mut stops = places().map(|i| self.word(STOPS_WORD + i));
        let Some(stopped) = stops.try_fold(0, u64::checked_add) else {
            return false;
        };
        let total = self.word(TOTAL_WORD);
        let whole = if first == 0 {
            stopped == total
        } else {
            stopped < total
        };
        let last = ends.last().copied().unwrap_or(0);
        whole && last > 0 && last == self.word(0) && ends.is_sorted()
    }
}

fn numbers_in(bytes: &[u8]) -> (u32, u32) {
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (half(0), half(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a process with these collections: end and stops of each.
    struct Process {
        base: u64,
        bytes: Vec<u8>,
    }

    impl Process {
        fn new(collections: &[(u64, u64)]) -> Process {
            let mut process = Process {
                base: 0x8000,
                bytes: vec![0; BOOKS_BYTES + 64],
            };
            process.collect(collections);
            process
        }

        fn collect(&mut self, collections: &[(u64, u64)]) {
            let at = 8 * NUMBER_WORD;
            for (end, stopped) in collections {
                let number = u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap());
                let total = self.word(TOTAL_WORD) + stopped;
                self.put(0, *end);
                self.put(TOTAL_WORD, total);
                self.put(STOPS_WORD + number as usize % RING, *stopped);
                self.put(ENDS_WORD + number as usize % RING, *end);
                self.bytes[at..at + 4].copy_from_slice(&(number + 1).to_le_bytes());
            }
        }

        fn word(&self, at: usize) -> u64 {
            u64::from_le_bytes(self.bytes[8 * at..8 * at + 8].try_into().unwrap())
        }

        fn put(&mut self, at: usize, word: u64) {
            self.bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    impl Memory for Process {
        fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
            let from = at.checked_sub(self.base).map(|from| from as usize);
            let bytes = from.and_then(|from| self.bytes.get(from..from.checked_add(to.len())?));
            bytes.map(|bytes| to.copy_from_slice(bytes)).is_some()
        }
    }

    fn facts(books: Vec<u64>) -> Facts {
        Facts {
            table: Vec::new(),
            text: 0,
            code: Vec::new(),
            lists: Vec::new(),
            books,
            main: 0,
            wait_reasons: Vec::new(),
        }
    }

    fn stops(found: &[Collection]) -> Vec<u64> {
        found.iter().map(|c| c.stopped_ns).collect()
    }

    #[test]
    fn collections_are_told_once_and_the_first_read_tells_none() {
        let mut process = Process::new(&[(1_000, 5), (2_000, 7)]);
        // The code refers to the total, and to another word.
        let facts = facts(vec![0x8020, 0x8008]);
        let mut reader = Collections::new(0);
        assert_eq!(reader.read(&facts, &mut process), []);
        process.collect(&[(3_000, 11), (4_000, 13)]);
        assert_eq!(stops(&reader.read(&facts, &mut process)), [11, 13]);
        assert_eq!(reader.read(&facts, &mut process), []);
    }

    #[test]
    fn the_first_collection_of_a_process_is_told() {
        let mut process = Process::new(&[]);
        let facts = facts(vec![0x8000]);
        let mut reader = Collections::new(0);
        assert_eq!(reader.read(&facts, &mut process), []);
        process.collect(&[(1_000, 5)]);
        assert_eq!(stops(&reader.read(&facts, &mut process)), [5]);
    }

    #[test]
    fn collections_that_the_ring_has_lost_are_counted() {
        let mut process = Process::new(&[(1, 1)]);
        let facts = facts(vec![0x8000]);
        let mut reader = Collections::new(0);
        reader.read(&facts, &mut process);
        let many: Vec<_> = (2..302).map(|n| (n, n)).collect();
        process.collect(&many);
        let found = reader.read(&facts, &mut process);
        assert_eq!((found.len(), reader.missed), (255, 45));
        assert_eq!((found[0].stopped_ns, found[254].stopped_ns), (47, 301));
    }

    #[test]
    fn words_that_disagree_are_no_books() {
        let mut process = Process::new(&[(1_000, 5), (2_000, 7)]);
        process.put(TOTAL_WORD, 13);
        let mut reader = Collections::new(0);
        let facts = facts(vec![0x8000]);
        assert_eq!(reader.read(&facts, &mut process), []);
        assert_eq!(reader.books, None);
    }
}
