//! Compares the unwinder at every instruction of programs with odd stacks to glibc's `backtrace()`.
//! Runs the kernel's steps, compiled for user space.

#[allow(dead_code)]
mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use support::{address, compile, load, read_all, read_process};
use wallscope_unwind::native::{End, MemoryTables, Registers, StackStart, TableStore, Unwinder};

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has space for two descriptors, which are then ours alone.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

#[derive(Default, Debug)]
struct Score {
    stacks: u64,
    whole: u64,
    truncated: BTreeMap<String, u64>,
    wrong: Vec<String>,
    deepest: usize,
}

/// Steps through `program` and compares each stack.
fn step(program: &std::path::Path) -> Score {
    let (mut events, theirs) = {
        let (read, write) = pipe();
        (File::from(read), write)
    };
    let (acks_read, acks_write) = pipe();
    let mut acks = File::from(acks_write);
    let (w, r) = (theirs.as_raw_fd(), acks_read.as_raw_fd());
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    // SAFETY: only dup2 and close between fork and exec; the numbers are ours. The descriptors are
    // moved away first, so that neither covers the other.
    unsafe {
        command.pre_exec(move || {
            let (w, r) = (
                libc::fcntl(w, libc::F_DUPFD, 10),
                libc::fcntl(r, libc::F_DUPFD, 10),
            );
            if libc::dup2(w, 3) < 0 || libc::dup2(r, 4) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            libc::close(w);
            libc::close(r);
            Ok(())
        });
    }
    let mut child = command.spawn().expect("the program starts");
    drop((theirs, acks_read));
    let pid = child.id();
    let mut store = TableStore::new(MemoryTables::new(), 1 << 30).expect("memory");
    let mut unwinder = Unwinder::new();
    let mut mapped = Vec::new();
    let mut score = Score::default();
    let mut beyond = None;
    let mut word = [0u8; 8];
    while read_all(&mut events, &mut word) {
        if word[0] == b'M' {
            mapped = load(&mut store, pid).expect("tables");
        } else {
            let mut head = [0u8; 18 * 8];
            assert!(read_all(&mut events, &mut head));
            let head: Vec<u64> = head
                .chunks_exact(8)
                .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
                .collect();
            let mut frames = vec![0u8; head[17] as usize * 8];
            assert!(read_all(&mut events, &mut frames));
            let expected: Vec<u64> = frames
                .chunks_exact(8)
                .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
                .collect();
            let registers = Registers {
                ip: head[16],
                general: head[..16].try_into().unwrap(),
            };
            let start = StackStart::new(pid, &registers);
            let got = unwinder.unwind(store.sink(), start, |addr, to| read_process(pid, addr, to));
            let found: Vec<u64> = got.frames.iter().map(|f| address(*f, &mapped)).collect();
            score.stacks += 1;
            if let Some(before) = beyond.take() {
                let before: Vec<u64> = before;
                if before[1..] != expected[1..] {
                    score
                        .wrong
                        .push(format!("stub {before:x?}\n then {expected:x?}"));
                }
            }
            score.deepest = score.deepest.max(found.len());
            let describe = || format!("{:?}\n ours {found:x?}\n want {expected:x?}", got.end);
            if got.end == End::Root && expected.len() == 1 && found.len() > 1 {
                // backtrace() knows nothing of a stub without unwind information; the stub's target
                // has the same callers.
                score.whole += 1;
                beyond = Some(found);
            } else if got.end == End::Root {
                if found == expected && got.by_frame_pointer == 0 {
                    score.whole += 1;
                } else {
                    score.wrong.push(describe());
                }
            } else {
                let at = mapped
                    .iter()
                    .find(|(m, _)| found.last().is_some_and(|a| *a >= m.start && *a < m.end))
                    .map_or("nowhere", |(m, _)| &m.path);
                *score
                    .truncated
                    .entry(format!("{:?} in {at}", got.end))
                    .or_default() += 1;
                if !expected.starts_with(&found) {
                    score.wrong.push(describe());
                }
            }
        }
        acks.write_all(b"k").expect("the program listens");
    }
    let status = child.wait().expect("the program ends");
    assert!(status.success(), "the program failed: {status}");
    score
}

fn check(name: &str, args: &[&str], least: u64) {
    let dir = tempfile::tempdir().expect("a folder");
    let plugin = dir.path().join("plugin.so");
    let program = dir.path().join("odd");
    let define = format!("-DPLUGIN=\"{}\"", plugin.display());
    let mut args = args.to_vec();
    if !args.iter().any(|a| a.starts_with("-static")) {
        compile(
            "gcc",
            &["-O2", "-shared", "-fPIC", "-Wl,-z,lazy"],
            &["plugin.c"],
            &plugin,
        );
        args.extend([define.as_str(), "-Wl,-z,lazy"]);
    }
    args.extend(["-ldl", "-lpthread"]);
    compile("gcc", &args, &["odd.c", "step.c"], &program);
    let score = step(&program);
    println!(
        "{name}: {} stacks, {} whole ({:.3} %), up to {} frames, {} wrong, truncated {:?}",
        score.stacks,
        score.whole,
        100.0 * score.whole as f64 / score.stacks as f64,
        score.deepest,
        score.wrong.len(),
        score.truncated,
    );
    assert!(score.stacks >= least, "only {} stacks", score.stacks);
    assert!(
        score.wrong.is_empty(),
        "{}",
        score.wrong[..score.wrong.len().min(3)].join("\n")
    );
    // The inside of longjmp, and of a library that is just being opened, cannot be unwound.
    // Stepping visits each of their instructions once.
    assert!(
        score.whole * 1000 >= score.stacks * 998,
        "{} of {} whole: {:?}",
        score.whole,
        score.stacks,
        score.truncated
    );
}

#[test]
fn without_frame_pointers() {
    check("-O2", &["-O2", "-fomit-frame-pointer"], 10_000);
}

#[test]
fn with_frame_pointers() {
    check(
        "frame pointers",
        &["-O2", "-fno-omit-frame-pointer", "-DKEEP_RBP"],
        10_000,
    );
}

#[test]
fn unoptimised() {
    check("-O0", &["-O0", "-DKEEP_RBP"], 10_000);
}

#[test]
fn vectorised_and_now_bound() {
    check("-O3 -z now", &["-O3", "-Wl,-z,now"], 10_000);
}

#[test]
fn static_position_independent() {
    check("static-pie", &["-O2", "-static-pie"], 7_000);
}

#[test]
fn static_fixed() {
    check("static", &["-O2", "-static", "-no-pie"], 7_000);
}

/// Compiles and starts a program that blocks in system call `call`. Unwinds its stack from the
/// registers in `/proc`. Returns its end, its frames, and the frames of `backtrace()`.
fn waiting(compiler: &str, args: &[&str], name: &str, call: &str) -> (End, Vec<u64>, Vec<u64>) {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("waits");
    compile(compiler, args, &[name], &program);
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = child.id();
    let mut said = child.stdout.take().expect("its output");
    let mut word = [0u8; 8];
    assert!(read_all(&mut said, &mut word));
    let mut frames = vec![0u8; u64::from_le_bytes(word) as usize * 8];
    assert!(read_all(&mut said, &mut frames));
    let expected: Vec<u64> = frames
        .chunks_exact(8)
        .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
        .collect();
    // "58 rdi rsi rdx r10 r8 r9 sp pc", once it is blocked.
    let words: Vec<u64> = loop {
        let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).expect("it lives");
        if text.starts_with(call) {
            break text
                .split_whitespace()
                .skip(1)
                .map(|w| u64::from_str_radix(w.trim_start_matches("0x"), 16).unwrap())
                .collect();
        }
        std::thread::yield_now();
    };
    let mut registers = Registers {
        ip: words[7],
        ..Registers::default()
    };
    registers.general[5] = words[0];
    registers.general[7] = words[6];
    let known = 1 << 5 | 1 << 7;
    let mut store = TableStore::new(MemoryTables::new(), 1 << 30).expect("memory");
    let mapped = load(&mut store, pid).expect("tables");
    let read = |addr, to: &mut [u8]| read_process(pid, addr, to);
    let mut unwinder = Unwinder::new();
    let start = StackStart::new(pid, &registers).knowing(known).at_most(64);
    let got = unwinder.unwind(store.sink(), start, read);
    let found = got.frames.iter().map(|f| address(*f, &mapped)).collect();
    drop(child.stdin.take());
    child.wait().expect("it ends");
    (got.end, found, expected)
}

/// The return address is in `rdi`.
#[test]
fn waiting_in_vfork() {
    let (end, found, expected) = waiting("gcc", &["-O2"], "vfork.c", "58 ");
    assert_eq!(end, End::Root, "{found:x?} {expected:x?}");
    // vfork itself, then the function of `backtrace()`, further on.
    assert_eq!(found[2..], expected[1..]);
}

/// Rules need rbp, which `/proc` does not give.
#[test]
fn waiting_where_frame_pointers_are_kept() {
    let keeps = "-fno-omit-frame-pointer";
    for (compiler, args) in [
        ("gcc", &["-O0"][..]),
        ("gcc", &["-O2", keeps]),
        ("gcc", &["-O2", keeps, "-fstack-protector-all"]),
        ("clang", &["-O0"]),
        ("clang", &["-O2", keeps]),
    ] {
        let (end, found, expected) = waiting(compiler, args, "waits.c", "0 ");
        let what = format!("{compiler} {args:?}: {found:x?} {expected:x?}");
        assert_eq!(end, End::Root, "{what}");
        // read itself, then the function of `backtrace()`, further on.
        assert_eq!(found[2..], expected[1..], "{what}");
    }
}
