//! Go: the goroutines of a process.
//!
//! ```text
//! mod.rs          facts about a Go program: function table, candidate addresses of the goroutine
//!                 list and of the collector's counters, names of wait reasons
//! goroutines.rs   snapshot of all goroutines of a process
//! labels.rs       labels that the program gave a goroutine (`runtime/pprof`)
//! collections.rs  garbage collections, by the runtime's own counters
//! ```
//!
//! Go code is native code: its frames on threads are unwound and named as such. Waiting goroutines
//! have no thread, so only the runtime's list shows them.
//!
//! No symbols are needed. The instructions of `runtime.allgadd` refer to the list of goroutines.
//! Properties of the first goroutine reveal the layout. So Go versions need not be distinguished.

mod collections;
mod goroutines;
mod labels;

use object::{Object, ObjectSegment, SegmentFlags};
use wallscope_binfmt::gopclntab::{GoFile, Pclntab, Relocations};

use super::image::{Image, Refusal};
pub use collections::{COLLECTION, COLLECTION_KIND, Collection, Collections, FORCED};
pub use goroutines::Goroutines;

/// Facts about a Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    table: Vec<u8>,
    text: u64,
    /// Code ranges: virtual address, offset in the file, bytes.
    code: Vec<(u64, u64, u64)>,
    /// Candidate addresses of the list of goroutines.
    lists: Vec<u64>,
    /// Candidate addresses of the collector's counters.
    books: Vec<u64>,
    /// Entry of the first goroutine's start function.
    main: u64,
    /// The runtime's names of wait reasons, by number.
    wait_reasons: Vec<String>,
}

impl Facts {
    /// The function table.
    pub fn functions(&self) -> Option<Pclntab<'_>> {
        Pclntab::over(&self.table, self.text)
    }

    /// Converts a virtual address of code to an offset in the file.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.code.iter().find_map(|(start, offset, bytes)| {
            let into = address.checked_sub(*start)?;
            (into < *bytes).then(|| offset + into)
        })
    }

    /// The runtime's name of wait reason `number`.
    pub fn reason(&self, number: u32) -> &str {
        self.wait_reasons.get(number as usize).map_or("", |r| r)
    }
}

/// Classifies a goroutine's wait by the runtime's name of the reason and by the functions in which
/// it waits, innermost first.
pub fn reason<'n>(word: &str, mut functions: impl Iterator<Item = &'n str>) -> &'static str {
    match word {
        "semacquire" => {
            // Several kinds share this reason; the function outside the runtime decides.
            let caller = functions.find(|f| !f.starts_with("runtime."));
            match caller.unwrap_or_default() {
                f if f.starts_with("sync.(*Mutex)") || f.starts_with("sync.(*RWMutex)") => "mutex",
                f if f.starts_with("sync.(*WaitGroup)") => "waitgroup",
                // Only locks call these; the lock method may be inlined into its caller.
                f if f.starts_with("sync.runtime_SemacquireMutex")
                    || f.starts_with("sync.runtime_SemacquireRWMutex") =>
                {
                    "mutex"
                }
                f if f.starts_with("sync.runtime_Semacquire") => {
                    match functions.next().unwrap_or_default() {
                        f if f.starts_with("sync.(*WaitGroup)") => "waitgroup",
                        f if f.starts_with("sync.(*Mutex)") => "mutex",
                        f if f.starts_with("sync.(*RWMutex)") => "mutex",
                        _ => "semaphore",
                    }
                }
                _ => "semaphore",
            }
        }
        "IO wait" => "network",
        "sleep" => "timer",
        "sync.Cond.Wait" => "cond",
        "sync.WaitGroup.Wait" => "waitgroup",
        "GC worker (idle)" | "GC sweep wait" | "GC scavenge wait" | "force gc (idle)"
        | "finalizer wait" | "cleanup wait" => "runtime",
        w if w.starts_with("chan ") => "channel",
        w if w.starts_with("select") => "select",
        w if w.starts_with("sync.Mutex") || w.starts_with("sync.RWMutex") => "mutex",
        w if w.starts_with("GC ") || w.contains("garbage") || w.contains("GC cycle") => "gc",
        _ => "other",
    }
}

impl<'d> GoFile<'d> for Image<'d> {
    fn section(&self, name: &str) -> Option<(u64, &'d [u8])> {
        use object::{CompressionFormat, ObjectSection};
        let section = self.file.section_by_name(name)?;
        let range = section.compressed_file_range().ok()?;
        let plain = range.format == CompressionFormat::None;
        plain.then_some((section.address(), section.data().ok()?))
    }

    fn is_code(&self, address: u64) -> bool {
        self.code()
            .iter()
            .any(|(start, _, bytes)| address.checked_sub(*start).is_some_and(|d| d < *bytes))
    }
}

impl Image<'_> {
    fn code(&self) -> Vec<(u64, u64, u64)> {
        let executable = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(object::elf::PF_X));
        let segments = self.file.segments().filter(|s| executable(s.flags()));
        segments
            .map(|s| {
                let (offset, bytes) = s.file_range();
                (s.address(), offset, bytes)
            })
            .collect()
    }
}

/// The facts of a file that contains the runtime.
pub(super) fn recognise(image: &Image<'_>) -> Option<Result<Facts, Refusal>> {
    let go = image.section(".note.go.buildid").is_some() || image.section(".gopclntab").is_some();
    if !go {
        return None;
    }
    let refuse = |why: &str| {
        Some(Err(Refusal {
            what: format!("goroutines of {}", image.name()),
            why: why.to_owned(),
        }))
    };
    let Some(table) = Pclntab::find(image) else {
        return refuse("its table of functions is of a kind that is not known");
    };
    let named = |name: &[u8]| table.functions().find(|f| f.name() == name);
    let (Some(add), Some(main)) = (named(b"runtime.allgadd"), named(b"runtime.main")) else {
        return refuse("its runtime lacks the functions by which they are found");
    };
    let referenced = |entry: u64, end: u64| {
        let bytes = image.at(entry, (end - entry).min(1 << 16) as usize);
        referenced_addresses(bytes.unwrap_or_default(), entry)
    };
    // A runtime without it is no reason to refuse its goroutines.
    let collects = named(b"runtime.gcMarkTermination");
    Some(Ok(Facts {
        lists: referenced(add.entry, add.end),
        books: collects.map_or_else(Vec::new, |f| referenced(f.entry, f.end)),
        main: main.entry,
        wait_reasons: wait_reasons(image),
        text: table.text(),
        table: table.bytes().to_vec(),
        code: image.code(),
    }))
}

/// Data addresses that the instructions in `code`, loaded at `start`, refer to.
fn referenced_addresses(code: &[u8], start: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (i, bytes) in code.windows(7).enumerate() {
        // 64-bit add, mov, lea, xchg or cmp with a rip-relative operand
        let [
            0x48 | 0x4c,
            0x01 | 0x03 | 0x8b | 0x89 | 0x8d | 0x87 | 0x39 | 0x3b,
            modrm,
            a,
            b,
            c,
            d,
        ] = *bytes
        else {
            continue;
        };
        if modrm & 0xc7 != 0x05 {
            continue;
        }
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        let end = start.wrapping_add(i as u64 + 7);
        found.push(end.wrapping_add_signed(distance));
    }
    found.retain(|a| a % 8 == 0);
    found.sort_unstable();
    found.dedup();
    found
}

/// Reads the runtime's list of wait reasons, found by its first entries.
fn wait_reasons(image: &Image<'_>) -> Vec<String> {
    const FIRST_REASON: &[u8] = b"GC assist marking";
    const MAX_REASONS: usize = 64;
    let Some((start, texts)) = GoFile::section(image, ".rodata") else {
        return Vec::new();
    };
    let text = |address: u64, length: u64| -> Option<&str> {
        let from = usize::try_from(address.checked_sub(start)?).ok()?;
        let bytes = texts.get(from..from.checked_add(usize::try_from(length).ok()?)?)?;
        std::str::from_utf8(bytes).ok().filter(|_| length < 64)
    };
    let mut at = Vec::new();
    let mut from = 0;
    while let Some(next) = find_bytes(&texts[from..], FIRST_REASON) {
        at.push(start.wrapping_add((from + next) as u64));
        from += next + 1;
    }
    let relocations = Relocations::of(image).by_place();
    for name in [".data", ".noptrdata", ".data.rel.ro", ".rodata"] {
        let Some((base, bytes)) = GoFile::section(image, name) else {
            continue;
        };
        let plain = |i: usize| -> Option<u64> {
            Some(u64::from_le_bytes(bytes.get(i..i + 8)?.try_into().ok()?))
        };
        let pointer = |i: usize| match relocations.is_empty() {
            true => plain(i),
            false => relocations.get(&base.wrapping_add(i as u64)).copied(),
        };
        let entry = |i: usize| text(pointer(i)?, plain(i + 8)?);
        let begins = |i: &usize| {
            plain(i + 8) == Some(FIRST_REASON.len() as u64)
                && pointer(*i).is_some_and(|p| at.contains(&p))
                && entry(i + 16) == Some("IO wait")
        };
        if let Some(first) = (0..bytes.len()).step_by(8).find(begins) {
            let rest = (0..MAX_REASONS).map_while(|n| entry(first + 16 * n));
            return std::iter::once("").chain(rest).map(str::to_owned).collect();
        }
    }
    Vec::new()
}

/// The offset of the first `what` in `bytes`.
fn find_bytes(bytes: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|b| *b == first)?;
        if bytes[at..].starts_with(what) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_from_the_word_and_the_place() {
        let of = |word, stack: &[&'static str]| reason(word, stack.iter().copied());
        assert_eq!(of("chan receive (nil chan)", &[]), "channel");
        assert_eq!(of("select (no cases)", &[]), "select");
        let lock = [
            "runtime.semacquire1",
            "sync.runtime_SemacquireMutex",
            "sync.(*Mutex).lockSlow",
        ];
        assert_eq!(of("semacquire", &lock), "mutex");
        // The lock method for readers is inlined.
        let read = [
            "runtime.semacquire1",
            "sync.runtime_SemacquireMutex",
            "main.read",
        ];
        assert_eq!(of("semacquire", &read), "mutex");
        let group = [
            "runtime.semacquire1",
            "sync.runtime_Semacquire",
            "sync.(*WaitGroup).Wait",
        ];
        assert_eq!(of("semacquire", &group), "waitgroup");
        assert_eq!(of("semacquire", &["runtime.gopark"]), "semaphore");
        assert_eq!(of("GC assist wait", &[]), "gc");
        assert_eq!(of("GC worker (idle)", &[]), "runtime");
        assert_eq!(of("something new", &[]), "other");
    }

    #[test]
    fn data_that_code_refers_to_is_found() {
        // mov 0x10(%rip), %rax at 0x1000: 0x1018; lea -14(%rip): 0x1000.
        let code = [
            0x48, 0x8b, 0x05, 0x11, 0, 0, 0, 0x4c, 0x8d, 0x0d, 0xf2, 0xff, 0xff, 0xff,
        ];
        assert_eq!(referenced_addresses(&code, 0x1000), [0x1000, 0x1018]);
    }
}
