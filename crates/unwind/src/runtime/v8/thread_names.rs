//! Names of Node.js's threads, by their stacks.
//!
//! Up to version 22 Node.js tells the kernel no names. It keeps the title of a worker, `[worker 1] NAME`, for its
//! traces: a C++ string in the frame of the worker's main function. Threads of its pools have no string; they are
//! known by the function that each began with, and have the names that later versions give them.
//!
//! The C library puts the record of a thread at the end of the thread's stack. The record begins with its own
//! address, and has the thread's id. Nothing is taken on trust: a record counts if its id is one of the process's
//! threads, a title if it reads as one.
//!
//! Not read: threads on musl, which has other records; pools of builds without their symbol table.

use std::ops::Range;

use super::super::{image::Image, process_memory::Memory};

/// Functions that threads begin with, by a part of the symbol; and the names of such threads from libuv 1.50 and
/// Node.js 23 on.
const ENTRIES: &[(&str, &str)] = &[
    ("PlatformWorkerThread", "V8Worker"),
    ("DelayedTaskScheduler5Start", "DelayedTaskSchedulerWorker"),
    ("StartIoThreadMain", "SignalInspector"),
    ("Watchdog3RunEPv", "Watchdog"),
];
/// The function of libuv's pool, a whole symbol, and the name of its threads.
const POOL: (&str, &str) = ("worker", "libuv-worker");

/// Bytes at the end of a stack that hold the record, and number of stacks that are read at once.
const PAGE: usize = 4096;
const AT_ONCE: usize = 64;
/// Bytes below the record that hold the frame of a worker's main function.
const FRAMES_BYTES: usize = 16 << 10;
/// In a thread's record: the repetition of its address, its id, and all bytes of it (glibc 2.17 to 2.41).
const SELF_AT: usize = 16;
const ID_AT: usize = 720;
const RECORD_BYTES: usize = 2304;
/// Bytes of a title, and tries to find one.
const TITLE_BYTES: std::ops::RangeInclusive<u64> = 10..=256;
const MAX_TRIES: usize = 512;
const TITLE: &str = "[worker ";

/// Where threads begin: address in the file, and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries(Vec<(u64, &'static str)>);

impl Entries {
    pub(super) fn of(image: &Image<'_>) -> Entries {
        let of_pool = image.all_named(|symbol| (symbol == POOL.0).then_some(POOL.1));
        let named = image.all_named(|symbol| {
            let found = ENTRIES.iter().find(|(part, _)| symbol.contains(part))?;
            Some(found.1)
        });
        let all = of_pool.into_iter().chain(named);
        Entries(all.map(|(name, range)| (range.address, name)).collect())
    }
}

/// The threads of a process.
#[derive(Clone, Copy, Debug)]
pub struct Threads<'l> {
    /// Load bias of the file with V8.
    pub bias: u64,
    /// Anonymous memory that may be stacks.
    pub stacks: &'l [Range<u64>],
    /// Their ids in the process's own PID namespace.
    pub ids: &'l [u32],
}

/// Names by the threads' ids in the process's own PID namespace.
pub(super) fn read(
    entries: &Entries,
    threads: Threads<'_>,
    memory: &mut dyn Memory,
) -> Vec<(u32, String)> {
    let mut names = Vec::new();
    for some in threads.stacks.chunks(AT_ONCE) {
        let pages: Vec<_> = some.iter().map(|s| (s.end - PAGE as u64, PAGE)).collect();
        let mut bytes = vec![0u8; PAGE * pages.len()];
        let readable = memory.read_all(&pages, &mut bytes);
        let ends = pages.iter().zip(bytes.chunks_exact(PAGE)).zip(readable);
        for ((&(start, _), bytes), _) in ends.filter(|(_, readable)| *readable) {
            let page = Tail { start, bytes };
            let Some((at, id)) = page.record(threads.ids) else {
                continue;
            };
            let entry = page.entry(at, entries, threads.bias).map(str::to_owned);
            let name = entry.or_else(|| title(start + at as u64, memory));
            names.extend(name.map(|name| (id, name)));
        }
    }
    names
}

/// The name in a worker's title in the frames below the record at `record`; of a worker without one, the title.
fn title(record: u64, memory: &mut dyn Memory) -> Option<String> {
    let mut bytes = vec![0u8; FRAMES_BYTES];
    let start = record - FRAMES_BYTES as u64;
    let frames = memory.read(start, &mut bytes).then_some(Tail {
        start,
        bytes: &bytes,
    })?;
    let strings = (0..FRAMES_BYTES - 16).step_by(8).rev();
    let strings = strings.map(|at| (frames.word(at), frames.word(at + 8)));
    let is_text = |(to, len): &(u64, u64)| TITLE_BYTES.contains(len) && *to >> 47 == 0 && *to != 0;
    strings
        .filter(is_text)
        .take(MAX_TRIES)
        .find_map(|(to, len)| {
            // With the zero that ends it.
            let mut text = vec![0u8; len as usize + 1];
            let read = memory.read(to, &mut text) && text.pop() == Some(0);
            name_in(std::str::from_utf8(&text).ok().filter(|_| read)?)
        })
}

/// The end of a stack.
struct Tail<'l> {
    start: u64,
    bytes: &'l [u8],
}

impl Tail<'_> {
    fn word(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at..at + 8);
        bytes.map_or(0, |b| {
            u64::from_le_bytes(b.try_into().expect("eight bytes"))
        })
    }

    /// The place of the thread's record, and the thread's id.
    fn record(&self, ids: &[u32]) -> Option<(usize, u32)> {
        let last = self.bytes.len().checked_sub(ID_AT + 8)?;
        let mut all = (0..=last).rev().step_by(8).map(|at| at & !7);
        all.find_map(|at| {
            let own = self.start + at as u64;
            let id = self.word(at + ID_AT) as u32;
            let is = self.word(at) == own && self.word(at + SELF_AT) == own && ids.contains(&id);
            is.then_some((at, id))
        })
    }

    /// The name of the function that the thread of the record at `at` began with.
    fn entry(&self, at: usize, entries: &Entries, bias: u64) -> Option<&'static str> {
        let words = (at + ID_AT..at + RECORD_BYTES)
            .step_by(8)
            .map(|at| self.word(at));
        words.filter(|word| *word != 0).find_map(|word| {
            let is = |(address, _): &&(u64, &str)| address.wrapping_add(bias) == word;
            entries.0.iter().find(is).map(|(_, name)| *name)
        })
    }
}

/// `NAME` of a title `[worker 1] NAME`, or a title without a name.
fn name_in(title: &str) -> Option<String> {
    let (number, rest) = title.strip_prefix(TITLE)?.split_once(']')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    match (is_number, rest.strip_prefix(' ')) {
        (true, Some(name)) if !name.is_empty() => Some(name.to_owned()),
        (true, None) if rest.is_empty() => Some(title.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7000_0000_0000;

    struct Stack(Vec<u8>);

    impl Memory for Stack {
        fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
            let from = at.wrapping_sub(START) as usize;
            let bytes = self.0.get(from..from.saturating_add(to.len()));
            bytes.map(|b| to.copy_from_slice(b)).is_some()
        }
    }

    impl Stack {
        /// A stack with the record of thread 7.
        fn new() -> Stack {
            let mut stack = Stack(vec![0u8; 64 << 10]);
            let record = stack.record();
            for at in [record, record + SELF_AT as u64] {
                stack.put(at, START + record);
            }
            stack.put(record + ID_AT as u64, 7);
            stack
        }

        fn record(&self) -> u64 {
            self.0.len() as u64 - RECORD_BYTES as u64 - 64
        }

        fn put(&mut self, at: u64, word: u64) {
            self.0[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        }

        fn names(mut self, ids: &[u32]) -> Vec<(u32, String)> {
            let entries = Entries(vec![(0x1000, "V8Worker")]);
            let range = START..START + self.0.len() as u64;
            let threads = Threads {
                bias: 0x5000_0000,
                stacks: &[range],
                ids,
            };
            read(&entries, threads, &mut self)
        }
    }

    #[test]
    fn a_pool_thread_is_known_by_its_first_function() {
        let mut stack = Stack::new();
        let record = stack.record();
        stack.put(record + 0x638, 0x5000_1000);
        assert_eq!(stack.names(&[6, 7]), [(7, "V8Worker".to_owned())]);
    }

    #[test]
    fn a_worker_is_known_by_its_title() {
        for (title, name) in [
            ("[worker 1] indexer", Some("indexer")),
            ("[worker 31]", Some("[worker 31]")),
            ("[worker x] no", None),
            ("[worker 1]no", None),
        ] {
            let mut stack = Stack::new();
            let (at, text) = (stack.record() - 4096, 512);
            stack.put(at, START + text);
            stack.put(at + 8, title.len() as u64);
            stack.0[text as usize..][..title.len()].copy_from_slice(title.as_bytes());
            let named: Vec<_> = name.map(|n| (7, n.to_owned())).into_iter().collect();
            assert_eq!(stack.names(&[7]), named, "{title}");
        }
    }

    #[test]
    fn a_record_of_no_thread_of_the_process_is_none() {
        let mut stack = Stack::new();
        let record = stack.record();
        stack.put(record + 0x638, 0x5000_1000);
        assert!(stack.names(&[6]).is_empty());
        assert!(Stack(vec![0u8; 100]).names(&[0, 7]).is_empty());
    }
}
