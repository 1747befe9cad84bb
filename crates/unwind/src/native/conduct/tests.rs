//! Compares synthesised rules with those that compilers wrote for the same code.

use super::*;
use crate::native::abi::{KIND_REG, Rule};
use crate::native::image::Image;
use crate::native::table::{Code, Table, from_bytes};
use iced_x86::{Decoder, DecoderOptions};
use object::{Object, ObjectSection, ObjectSymbol};
use std::process::Command;

/// Result of a comparison over code with unwind information: bytes with equal rules, instructions
/// with different rules, bytes without a synthesised rule.
#[derive(Debug, Default)]
struct Score {
    alike: usize,
    unlike: Vec<u64>,
    silent: usize,
}

fn rule_at<'r>(rows: &[(u32, u32)], rules: &'r RuleSet, at: u32) -> Option<&'r Rule> {
    let after = rows.partition_point(|r| r.0 <= at);
    let id = rows.get(after.checked_sub(1)?)?.1;
    (rules.rules().get(id as usize)).filter(|r| r.kind == KIND_REG)
}

/// Synthesises rules for `bare`, and compares them with those of `described`, which has the same
/// code.
fn score(described: &[u8], bare: &[u8]) -> Score {
    let mut rules = RuleSet::new(1 << 20);
    let table = |bytes: &[u8], rules: &mut RuleSet| match from_bytes(bytes, rules) {
        Ok(Code::Table(table)) => table.iter().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let said = table(described, &mut rules);
    let (image, _) = Image::parse(bare).unwrap();
    let file = object::File::parse(bare).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let (address, size) = (text.address(), text.size());
    let offset = image.offset_of(address).unwrap().0;
    let code = [Stretch {
        address,
        offset: offset as u32,
        bytes: image.bytes(offset, size.min(MOST as u64)).unwrap(),
    }];
    let told = follow(&code, image.functions(), &mut rules).remove(0);
    let mut score = Score::default();
    let mut decoder = Decoder::with_ip(64, code[0].bytes, address, DecoderOptions::NONE);
    while decoder.can_decode() {
        let i = decoder.decode();
        let here = code[0].offset + (i.ip() - address) as u32;
        match (rule_at(&said, &rules, here), rule_at(&told, &rules, here)) {
            (Some(a), Some(b)) if alike(a, b) => score.alike += i.len(),
            (Some(_), Some(_)) => score.unlike.push(i.ip()),
            (Some(_), None) => score.silent += i.len(),
            _ => {}
        }
    }
    score
}

/// Whether two rules lead to one caller, as far as can be decided: the base may be rsp or rbp.
fn alike(a: &Rule, b: &Rule) -> bool {
    let kept = |r: &Rule, k: usize| (r.saved & !r.rbp_rel & 1 << k != 0).then_some(r.slot[k]);
    let agree = |k: usize| match (kept(a, k), kept(b, k)) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    (a.reg != b.reg || a.cfa_off == b.cfa_off) && (0..6).all(agree)
}

#[test]
fn libraries_without_their_descriptions_are_told_alike() {
    let libraries = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/x86_64-linux-gnu/libz.so.1",
    ];
    for path in libraries {
        let Ok(bytes) = std::fs::read(path) else {
            println!("skipped: {path} is not here");
            continue;
        };
        let score = score(&bytes, &bytes);
        let all = score.alike + score.silent;
        // Code after a call that never returns is unreached, but described all the same.
        assert!(score.alike * 10 >= all * 9, "{path}: {score:?}");
        assert!(score.unlike.len() * 1000 <= all / 4, "{path}: {score:?}");
    }
}

/// Functions that are hard to walk: many exits, no return, jump tables, large and growing frames,
/// callbacks, tail calls, recursion.
const SOURCE: &str = r#"
#include <alloca.h>
#include <stdlib.h>
#include <string.h>
volatile long sink;
__attribute__((noinline)) void use(void *p) { sink += *(char *)p; }
__attribute__((noinline, noreturn)) static void fail(int why) { sink = why; for (;;) sink++; }
__attribute__((noinline)) long deep(long n) { char room[200]; memset(room, (int)n, sizeof room); use(room);
    return n < 2 ? n : deep(n - 1) + deep(n - 2) + room[3]; }
__attribute__((noinline)) long wide(int n) { char room[70000]; room[n] = 1; use(room); return room[n / 2]; }
__attribute__((noinline)) long grows(int n) { char *room = alloca(n); memset(room, 1, n); use(room);
    return room[n / 2] + deep(n); }
__attribute__((noinline)) long aligned(int n) { char room[64] __attribute__((aligned(64))); room[n & 63] = 1;
    use(room); return room[5]; }
__attribute__((noinline)) long pick(int n, long a, long b, long c) {
    switch (n) {
    case 0: return deep(a) + deep(b); case 1: return a * b; case 2: return grows((int)c) - a;
    case 3: if (!a) fail(3); return b / a; case 4: return aligned((int)b); case 5: return wide((int)c) + b;
    case 6: return deep(c) * a; case 7: fail(7); default: return a + b + c; } }
static long by_two(const void *a) { return *(const long *)a * 2 + deep(3); }
static long by_three(const void *a) { if (*(const long *)a > 5) fail(1); return *(const long *)a * 3; }
long (*volatile ways[])(const void *) = { by_two, by_three };
__attribute__((noinline)) long calls(long n) { long x = n, sum = 0; for (int i = 0; i < 2; i++) sum += ways[i](&x);
    return sum; }
__attribute__((noinline)) long hands_on(long n) { sink++; return calls(n + 1); }
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) long sorts(void) { int v[64]; for (int i = 0; i < 64; i++) v[i] = (int)(sink * i) & 63;
    qsort(v, 64, sizeof *v, compare); return v[3]; }
long all(int n, long a, long b, long c) { return pick(n, a, b, c) + hands_on(a) + sorts() + grows(n); }
"#;

fn build(flags: &[&str]) -> Vec<u8> {
    build_of(SOURCE, flags)
}

fn build_of(code: &str, flags: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("a.c"), folder.path().join("a.so"));
    std::fs::write(&source, code).unwrap();
    let output = Command::new("gcc")
        .args(["-shared", "-fPIC", "-nostdlib"])
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()
        .expect("gcc runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    std::fs::read(out).unwrap()
}

const BARE: [&str; 2] = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

#[test]
fn functions_are_followed_at_each_level_of_optimisation() {
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        let described = build(&[level]);
        for strip in [false, true] {
            let mut flags = vec![level, BARE[0], BARE[1]];
            flags.extend(strip.then_some("-s"));
            let score = score(&described, &build(&flags));
            let all = score.alike + score.silent;
            assert!(score.unlike.is_empty(), "{level} {strip}: {score:x?}");
            assert!(score.alike * 100 >= all * 90, "{level} {strip}: {score:?}");
        }
    }
}

#[test]
fn files_that_keep_frame_pointers_are_known_by_their_functions() {
    // Enough calls for the test to decide.
    let functions = (1..80).map(|n| {
        let before = n - 1;
        format!(
            "__attribute__((noinline)) int f{n}(int a) {{ return f{before}(a + {n}) * {n}; }}\n"
        )
    });
    let source = std::iter::once("int f0(int);\n".to_string()).chain(functions);
    let source: String = source.collect();
    let keeps = |flag: &str| {
        let bytes = &*build_of(&source, &["-O1", "-fvisibility=hidden", flag]);
        let (image, _) = Image::parse(bytes).unwrap();
        let file = object::File::parse(bytes).unwrap();
        let text = file.section_by_name(".text").unwrap();
        let start = image.offset_of(text.address()).unwrap().0;
        keeps_frame_pointers(&[(start, start + text.size())], |at, len| {
            image.bytes(at, len)
        })
    };
    assert!(keeps("-fno-omit-frame-pointer"));
    assert!(!keeps("-fomit-frame-pointer"));
}

/// The rows of a file with `code`, assembled, as its only function.
fn rows_of(code: &str) -> (Vec<(u32, u32)>, u32, RuleSet) {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("a.s"), folder.path().join("a.so"));
    let text = format!(
        ".globl begin\n.type begin, @function\nbegin:\n{code}\n.globl end\nend:\n.skip 32, 0x90\n"
    );
    std::fs::write(&source, text).unwrap();
    let output = Command::new("gcc")
        .args(["-shared", "-nostdlib"])
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()
        .expect("gcc runs");
    assert!(output.status.success());
    let bytes = std::fs::read(out).unwrap();
    let mut rules = RuleSet::new(1 << 16);
    let Ok(Code::Table(table)) = from_bytes(&bytes, &mut rules) else {
        panic!("no table");
    };
    let file = object::File::parse(&*bytes).unwrap();
    let at = |name: &str| {
        let symbol = file.symbols().find(|s| s.name() == Ok(name)).unwrap();
        let (image, _) = Image::parse(&*bytes).unwrap();
        image.offset_of(symbol.address()).unwrap().0 as u32
    };
    (Table::iter(&table).collect(), at("begin"), rules)
}

fn id(rows: &[(u32, u32)], at: u32) -> u32 {
    rows[rows.partition_point(|r| r.0 <= at) - 1].1
}

#[test]
fn the_bottom_of_a_thread_is_a_root() {
    // As C libraries start a thread: the child has a stack of its own.
    let (rows, begin, _) = rows_of(
        "mov $56, %eax\nsyscall\ntest %eax, %eax\njnz 1f\nxor %ebp, %ebp\npop %rdi\ncall *%r9\n\
         mov %eax, %edi\nmov $60, %eax\nsyscall\nhlt\n1: ret",
    );
    let call = begin + 5 + 2 + 2 + 2 + 2 + 1;
    assert_eq!(id(&rows, call), End::Root as u32);
    assert_ne!(id(&rows, begin), End::Root as u32);
    // Zero in a register that was saved is an ordinary value.
    let (rows, begin, rules) = rows_of("push %rbp\nxor %ebp, %ebp\ncall *%rax\npop %rbp\nret");
    let rule = rules.rules()[id(&rows, begin + 3) as usize];
    assert_eq!((rule.kind, rule.cfa_off, rule.slot[1]), (KIND_REG, 16, -2));
}

#[test]
fn what_contradicts_itself_is_left_out() {
    // Returns with a word too many on one path, and no call that may not have returned.
    let (rows, begin, _) =
        rows_of("test %eax, %eax\njz 1f\npush %rax\nnop\n1: ret\n.skip 24, 0xcc");
    assert_eq!(id(&rows, begin), End::NoInfo as u32);
}

#[test]
fn code_that_goes_on_where_its_callers_registers_lead_is_no_function() {
    // As GHC compiles it: rbp is Haskell's stack pointer, and its top word the next piece of code.
    let haskell = "sub $8, %rsp\ncall *%rdx\nadd $8, %rsp\nmov %rax, %rbx\njmp *(%rbp)";
    let (rows, begin, _) = rows_of(haskell);
    assert_eq!(id(&rows, begin), End::NoInfo as u32);
    assert_eq!(id(&rows, begin + 4), End::NoInfo as u32);
    // As in C: the register was set first, or is another one.
    for ours in [
        "push %rbp\nmov %rdi, %rbp\ncall *%rdx\njmp *(%rbp)",
        "sub $8, %rsp\ncall *%rdx\nadd $8, %rsp\njmp *(%rax)",
    ] {
        let (rows, begin, _) = rows_of(ours);
        assert_ne!(id(&rows, begin), End::NoInfo as u32, "{ours}");
    }
}
