//! Tests the kernel programs, in each way to read memory, against glibc's `backtrace()`. Needs root
//! and a kernel that runs them. Prints its measurements.

#[allow(dead_code)]
mod support;

use libbpf_rs::{Iter, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, query::ProgInfoIter};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use support::{Mapped, address, compile, load, read_all};
use wallscope_unwind::native::{End, FrameWord, KernelTables, TableSink, TableStore, UnwindMaps};

const MODES: [&str; 3] = ["probe", "fault", "remote"];

/// Whether this can run here; prints the reason if not.
fn allowed() -> bool {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: the kernel programs need root");
        return false;
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        println!("skipped: this kernel has no BTF");
        return false;
    }
    true
}

struct Loaded {
    object: Object,
    store: TableStore<KernelTables>,
}

fn load_programs(dir: &Path) -> Loaded {
    let path = dir.join("live.bpf.o");
    let include = format!("-I{}/bpf", env!("CARGO_MANIFEST_DIR"));
    let headers = format!("-I{}", env!("WALLSCOPE_BPF_HEADERS"));
    compile(
        "clang",
        &[
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-c", &include, &headers,
        ],
        &["live.bpf.c"],
        &path,
    );
    let open = ObjectBuilder::default()
        .open_file(&path)
        .expect("an object");
    let start = Instant::now();
    let object = open.load().expect("the kernel accepts the programs");
    println!("six programs loaded in {:?}", start.elapsed());
    for info in ProgInfoIter::default() {
        let name = info.name.to_string_lossy().into_owned();
        if MODES.contains(&name.as_str()) || name == "sampled" {
            println!("{name}: {} instructions verified", info.verified_insns);
        }
    }
    let map = |name: &str| {
        let map = object.maps().find(|m| m.name() == name);
        MapHandle::try_from(&map.unwrap_or_else(|| panic!("no map {name}"))).expect("a handle")
    };
    let sink = KernelTables::new(UnwindMaps {
        rules: map("uw_rules"),
        tables: map("uw_tables"),
        procs: map("uw_procs"),
        mappings: map("uw_mappings"),
        hotspots: map("hs_procs"),
    })
    .expect("the maps of the unwinder");
    let store = TableStore::new(sink, 256 << 20).expect("a store");
    Loaded { object, store }
}

impl Loaded {
    fn program_fd(&self, name: &str) -> i32 {
        self.object
            .progs()
            .find(|p| p.name() == name)
            .unwrap_or_else(|| panic!("no program {name}"))
            .as_fd()
            .as_raw_fd()
    }

    fn map(&self, name: &str) -> MapHandle {
        let map = self
            .object
            .maps()
            .find(|m| m.name() == name)
            .unwrap_or_else(|| panic!("no map {name}"));
        MapHandle::try_from(&map).expect("a handle")
    }

    fn set_target(&self, pid: u32) {
        self.map("target_map")
            .update(&0u32.to_ne_bytes(), &pid.to_ne_bytes(), MapFlags::ANY)
            .expect("the target");
    }

    fn count(&self, key: u32) -> u64 {
        let bytes = self
            .map("counts")
            .lookup(&key.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .expect("a count");
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    /// The stack and duration that a program left.
    fn result(&self, mode: u32) -> (Vec<FrameWord>, End, u64) {
        let bytes = self
            .map("results")
            .lookup(&mode.to_ne_bytes(), MapFlags::ANY)
            .unwrap()
            .expect("a result");
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let n = word(8) as u32 as usize;
        let end = (word(8) >> 32) as u16;
        (
            (0..n).map(|i| FrameWord(word(24 + 8 * i))).collect(),
            End::from_raw(end).expect("an end"),
            word(0),
        )
    }
}

struct Target {
    child: Child,
    events: File,
    acks: File,
}

fn start(loaded: &Loaded, dir: &Path, args: &[&str]) -> Target {
    let plugin = dir.join("plugin.so");
    let program = dir.join("odd");
    compile(
        "gcc",
        &["-O2", "-shared", "-fPIC", "-Wl,-z,lazy"],
        &["plugin.c"],
        &plugin,
    );
    let define = format!("-DPLUGIN=\"{}\"", plugin.display());
    let flags = ["-O2", &define, "-Wl,-z,lazy", "-ldl", "-lpthread"];
    compile("gcc", &flags, &["odd.c", "live.c"], &program);
    let pipe = || {
        let mut ends = [0; 2];
        // SAFETY: `ends` has space for two descriptors, which are then ours alone.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        }
    };
    let (events, theirs) = pipe();
    let (acks_read, acks) = pipe();
    let inherited = [
        theirs.as_raw_fd(),
        acks_read.as_raw_fd(),
        loaded.program_fd("probe"),
        loaded.program_fd("fault"),
    ];
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null());
    // SAFETY: only fcntl and dup2 between fork and exec. The descriptors are moved away first, so
    // that none covers another.
    unsafe {
        use std::os::unix::process::CommandExt;
        command.pre_exec(move || {
            let moved = inherited.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 50));
            for (i, fd) in moved.into_iter().enumerate() {
                if libc::dup2(fd, 3 + i as i32) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let child = command.spawn().expect("the program starts");
    Target {
        child,
        events: events.into(),
        acks: acks.into(),
    }
}

#[test]
fn every_way_of_reading_agrees_with_backtrace() {
    if !allowed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut loaded = load_programs(dir.path());
    let mut target = start(&loaded, dir.path(), &[]);
    let pid = target.child.id();
    loaded.set_target(pid);
    let mut mapped: Vec<(Mapped, u16)> = Vec::new();
    let mut word = [0u8; 8];
    let (mut stacks, mut deepest) = ([0u64; 3], 0);
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut warm: [Vec<(usize, u64)>; 3] = Default::default();
    while read_all(&mut target.events, &mut word) {
        if word[0] == b'M' {
            let start = Instant::now();
            mapped = load(&mut loaded.store, pid).expect("tables");
            println!(
                "tables of {} mappings in {:?}",
                mapped.len(),
                start.elapsed()
            );
        } else {
            assert!(read_all(&mut target.events, &mut word));
            let mut frames = vec![0u8; u64::from_le_bytes(word) as usize * 8];
            assert!(read_all(&mut target.events, &mut frames));
            // Without the frame of odd_bottom, which has moved on since.
            let expected: Vec<u64> = frames[8..]
                .chunks_exact(8)
                .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
                .collect();
            let remote = loaded
                .object
                .progs_mut()
                .find(|p| p.name() == "remote")
                .expect("remote")
                .attach()
                .expect("an iterator");
            let mut nothing = Vec::new();
            // The target's main thread waits for us, unless this stack is another thread's.
            Iter::new(&remote)
                .expect("its file")
                .read_to_end(&mut nothing)
                .expect("it runs");
            for (mode, name) in MODES.iter().enumerate() {
                let (frames, end, ns) = loaded.result(mode as u32);
                let found: Vec<u64> = frames.iter().map(|f| address(*f, &mapped)).collect();
                let what = || format!("{name} {end:?}\n ours {found:x?}\n want {expected:x?}");
                let below = found.iter().take(4).position(|a| *a == expected[0]);
                if *name == "remote" && below.is_none() && end == End::Root {
                    // The main thread, waiting for the thread that reports.
                    continue;
                }
                *ends.entry(format!("{name} {end:?}")).or_default() += 1;
                // Below it: the system call, its caller, and odd_bottom.
                let below = below.unwrap_or_else(|| panic!("{}", what()));
                let callers = &found[below..];
                stacks[mode] += 1;
                deepest = deepest.max(found.len());
                match end {
                    End::Root => assert_eq!(callers, expected, "{}", what()),
                    End::MaxFrames => {
                        assert_eq!(found.len(), wallscope_unwind::native::MAX_FRAMES);
                        assert!(expected.starts_with(callers), "{}", what());
                    }
                    _ => panic!("{}", what()),
                }
                warm[mode].push((found.len(), ns));
            }
        }
        target.acks.write_all(b"k").expect("the program listens");
    }
    let status = target.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    println!("{stacks:?} stacks by way of reading, up to {deepest} frames; {ends:?}");
    for (name, times) in MODES.iter().zip(&warm) {
        for (least, most) in [(5, 14), (60, 90), (400, 511)] {
            let some: Vec<_> = times
                .iter()
                .filter(|(n, _)| (least..=most).contains(n))
                .collect();
            let (n, ns) = some.iter().fold((0, 0), |(n, ns), (a, b)| (n + a, ns + b));
            if n > 0 {
                println!(
                    "{name}: {} stacks of {least} to {most} frames: {} ns each, {} ns a frame",
                    some.len(),
                    ns / some.len() as u64,
                    ns / n as u64
                );
            }
        }
    }
    assert!(stacks.iter().all(|n| *n >= 20), "{stacks:?}");
    assert!(ends.get("probe Root").is_some_and(|n| *n >= 20), "{ends:?}");
    assert!(ends.contains_key("probe MaxFrames"), "{ends:?}");
}

/// Clock samples of a program that is busy at up to 60 frames: in a real interrupt.
#[test]
fn samples_in_interrupts_reach_the_root() {
    if !allowed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut loaded = load_programs(dir.path());
    let mut target = start(&loaded, dir.path(), &["spin"]);
    let pid = target.child.id();
    let mut word = [0u8; 8];
    assert!(read_all(&mut target.events, &mut word));
    load(&mut loaded.store, pid).expect("tables");
    loaded.set_target(pid);
    let clock = cpu_clock(pid);
    let link = loaded
        .object
        .progs_mut()
        .find(|p| p.name() == "sampled")
        .expect("sampled")
        .attach_perf_event(clock.into_raw_fd())
        .expect("a clock");
    target.acks.write_all(b"k").expect("the program listens");
    let status = target.child.wait().expect("it ends");
    drop(link);
    assert!(status.success(), "{status}");
    let samples: u64 = (0..16).map(|end| loaded.count(end)).sum();
    let whole = loaded.count(End::Root as u32);
    println!(
        "{samples} samples, {whole} whole, {:.1} frames and {} ns each",
        loaded.count(16) as f64 / samples as f64,
        loaded.count(17) / samples
    );
    // Most of its second of run time, at a thousand samples a second.
    assert!(samples > 100, "{samples}");
    // Its last samples are in the process's exit, when its mappings are still known.
    assert_eq!(whole, samples);
}

/// A child starts with its parent's mappings, which outlive the parent's changes; exec and exit
/// drop them.
#[test]
fn forks_keep_their_parents_mappings() {
    if !allowed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut loaded = load_programs(dir.path());
    let me = std::process::id();
    loaded.set_target(me);
    load(&mut loaded.store, me).expect("tables");
    let run = |loaded: &mut Loaded, name: &str| {
        let program = loaded.object.progs_mut().find(|p| p.name() == name);
        let input = libbpf_rs::ProgramInput::default();
        program
            .expect("a program")
            .test_run(input)
            .expect("it runs");
    };
    run(&mut loaded, "forked");
    let of = |loaded: &Loaded, tgid: u32| {
        loaded
            .store
            .sink()
            .procs()
            .expect("processes")
            .into_iter()
            .find(|p| p.0 == tgid)
            .map(|p| p.1)
    };
    let child = 0x7fff_fff0;
    let copied = of(&loaded, child).expect("the child");
    assert_eq!(Some(copied), of(&loaded, me));
    let entries = loaded.store.stats().mappings;
    load(&mut loaded.store, me).expect("tables");
    loaded.store.collect().expect("processes");
    assert_ne!(Some(copied), of(&loaded, me));
    assert_eq!(loaded.store.stats().mappings, 2 * entries);
    run(&mut loaded, "forgotten");
    assert_eq!(of(&loaded, child), None);
    loaded.store.collect().expect("processes");
    assert_eq!(loaded.store.stats().mappings, entries);
}

/// A software clock on one process, a thousand times a second.
fn cpu_clock(pid: u32) -> OwnedFd {
    // The start of struct perf_event_attr: type (software), size, config (cpu-clock), frequency and
    // its flag; the rest is zero.
    let mut attr = [0u64; 16];
    attr[0] = 1 | (128u64 << 32);
    attr[2] = 997;
    attr[5] = 1 << 10;
    // SAFETY: the kernel reads 128 bytes, which is the size of `attr` and the size that it states.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), pid, -1, -1, 8) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor, ours alone.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}
