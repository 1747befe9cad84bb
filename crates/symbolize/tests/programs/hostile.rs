//! Damaged and hostile files: resolving ends for any content, without a panic, and reports its
//! misses.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Lookup, compile, functions, have, names};
use wallscope_binfmt::elf::Elf;
use wallscope_model::{Loss, ModuleId};
use wallscope_symbolize::ModuleSource;

const PROGRAM: &str = r#"
#include <string>
#include <vector>
template <typename T> static inline T twice(T x) { return x + x; }
struct Part { int n; __attribute__((noinline)) int size() const { return twice(n) + 1; } };
__attribute__((noinline)) int count(const std::vector<std::string> &all) {
    int n = 0;
    for (const auto &s : all) n += twice((int)s.size());
    return n;
}
int main(int argc, char **argv) {
    return count({argv[0], "x"}) + Part{argc}.size();
}
"#;

/// Fails if `work` does not end; its speed is not tested.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let worker = std::thread::spawn(move || done.send(work()));
    match wait.recv_timeout(Duration::from_secs(120)) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the worker sends before it ends"),
        },
    }
}

fn lookup(bytes: Vec<u8>, offsets: &[u64]) -> (Vec<Vec<crate::support::FoundFunction>>, Vec<Loss>) {
    let mut lookup = Lookup::path_only(Path::new("/hostile"));
    lookup.sources.time_per_module = Duration::from_secs(2);
    lookup
        .sources
        .modules
        .insert(ModuleId(0), ModuleSource::from_bytes(bytes));
    lookup.offsets(offsets)
}

/// A small pseudo-random generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }
}

#[test]
fn truncated_and_flipped_files_do_no_harm() {
    if !have(&["g++", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut files = vec![];
    for (name, flags) in [
        ("v5", &["-O2", "-g"][..]),
        ("v4", &["-O1", "-gdwarf-4", "-gz=zlib"]),
    ] {
        let file = compile(dir.path(), "g++", "p.cpp", PROGRAM, flags, name);
        let bytes = std::fs::read(&file).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        let offsets: Vec<u64> = functions(&file)
            .iter()
            .flat_map(|f| (f.0..f.0 + f.1).step_by(7))
            .filter_map(|a| elf.offset_of_vaddr(a))
            .collect();
        assert!(offsets.len() > 20);
        files.push((bytes, offsets));
    }
    let named = ends(move || {
        let mut numbers = Numbers(7);
        let mut named = 0;
        for (bytes, offsets) in &files {
            let debug_from = bytes.len() / 4;
            for _ in 0..150 {
                let mut cut = bytes.clone();
                cut.truncate(numbers.below(bytes.len()));
                lookup(cut, offsets);
            }
            for round in 0..400 {
                let mut flipped = bytes.clone();
                for _ in 0..=numbers.below(30) {
                    // Half of the rounds keep the headers and code intact, to get further in.
                    let from = if round % 2 == 0 { debug_from } else { 0 };
                    let at = from + numbers.below(bytes.len() - from);
                    flipped[at] ^= 1 << numbers.below(8);
                }
                let (found, _) = lookup(flipped, offsets);
                named += found.iter().filter(|f| !f.is_empty()).count();
            }
        }
        named
    });
    assert!(named > 0, "most flips leave most names alone");
}

/// DWARF 4 with one unit and one function, `main`, with `body` inside.
fn crafted(body: &str, ranges: &str) -> String {
    format!(
        r#"
    .text
    .globl main
    .type main, @function
main:
    nop
    nop
    ret
main_end:
    .size main, .-main
    .section .debug_abbrev,"",@progbits
    .uleb128 1
    .uleb128 0x11
    .byte 1
    .uleb128 0x11
    .uleb128 0x01
    .uleb128 0x12
    .uleb128 0x07
    .uleb128 0
    .uleb128 0
    .uleb128 2
    .uleb128 0x2e
    .byte 1
    .uleb128 0x03
    .uleb128 0x08
    .uleb128 0x11
    .uleb128 0x01
    .uleb128 0x12
    .uleb128 0x07
    .uleb128 0
    .uleb128 0
    .uleb128 3
    .uleb128 0x1d
    .byte 1
    .uleb128 0x31
    .uleb128 0x13
    .uleb128 0x11
    .uleb128 0x01
    .uleb128 0x12
    .uleb128 0x07
    .uleb128 0
    .uleb128 0
    .uleb128 4
    .uleb128 0x2e
    .byte 0
    .uleb128 0x55
    .uleb128 0x17
    .uleb128 0
    .uleb128 0
    .uleb128 0
    .section .debug_ranges,"",@progbits
{ranges}
    .section .debug_info,"",@progbits
unit:
    .long unit_end - unit_start
unit_start:
    .short 4
    .long 0
    .byte 8
    .uleb128 1
    .quad main
    .quad main_end - main
{body}
    .byte 0
unit_end:
    .section .note.GNU-stack,""
"#
    )
}

fn crafted_lookup(
    body: &str,
    ranges: &str,
) -> Option<(Vec<crate::support::FoundFunction>, Vec<Loss>)> {
    if !have(&["gcc", "nm"]) {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = crafted(body, ranges);
    let file = compile(dir.path(), "gcc", "x.s", &text, &[], "x");
    let main = crate::support::address_of(&file, "main");
    let bytes = std::fs::read(&file).unwrap();
    let offset = Elf::parse(&bytes).unwrap().offset_of_vaddr(main).unwrap();
    let (mut found, losses) = ends(move || lookup(bytes, &[offset]));
    Some((found.remove(0), losses))
}

const FUNCTION: &str = r#"
    .uleb128 2
    .asciz "named_by_dwarf"
    .quad main
    .quad main_end - main
"#;

#[test]
fn nesting_without_end_does_not_exhaust_the_stack() {
    let nested = format!(
        "{FUNCTION}
    .rept 300000
    .uleb128 3
    .long 0
    .quad main
    .quad main_end - main
    .endr
    .fill 300001, 1, 0
"
    );
    let Some((found, _)) = crafted_lookup(&nested, "") else {
        return;
    };
    // The exported symbol at the same address is preferred to DWARF's plain name.
    assert_eq!(names(&found), ["main"]);
}

#[test]
fn references_in_a_circle_end() {
    let circle = format!(
        "{FUNCTION}
one:
    .uleb128 3
    .long two - unit
    .quad main
    .quad main_end - main
two:
    .uleb128 3
    .long one - unit
    .quad main
    .quad main_end - main
    .byte 0
    .byte 0
    .byte 0
"
    );
    let Some((found, losses)) = crafted_lookup(&circle, "") else {
        return;
    };
    assert_eq!(names(&found), ["main"]);
    assert!(losses.is_empty(), "{losses:?}");
}

#[test]
fn work_that_multiplies_is_cut_off_and_counted() {
    // 20,000 functions that share a list of 200,000 ranges, none of which contains them.
    let body = "
    .rept 20000
    .uleb128 4
    .long 0
    .endr
";
    let ranges = "
    .rept 200000
    .quad 16
    .quad 17
    .endr
    .quad 0
    .quad 0
";
    let Some((found, losses)) = crafted_lookup(body, ranges) else {
        return;
    };
    assert_eq!(names(&found), ["main"]);
    let causes: Vec<&str> = losses.iter().map(|l| l.cause.as_str()).collect();
    assert_eq!(causes, ["debug information took too long: module hostile"]);
}
