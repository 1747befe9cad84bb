//! Tests the sources of names as a program carries fewer and fewer of them.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::support::{
    Lookup, address_of, compile, found, frame, functions, have, names, own_rights, run,
};
use wallscope_binfmt::elf::Elf;
use wallscope_model::{FrameKind, Module, ModuleId, ModuleKind, Recording};
use wallscope_procfs::target_file::TargetRoot;
use wallscope_symbolize::{KernelSymbols, ModuleSource, Sources, resolve};

const LIBRARY: &str = r#"
#include <stdio.h>
static __attribute__((noinline)) int hidden_helper(int x) { puts("x"); return x * 3; }
__attribute__((noinline)) int exported_function(int x) { return hidden_helper(x) + 1; }
"#;

/// A shared library with all information, and the addresses of its hidden and exported functions.
fn library(dir: &Path, flags: &[&str]) -> (std::path::PathBuf, u64, u64) {
    let mut all = vec!["-shared", "-fPIC", "-O1", "-g", "-Wl,--build-id=sha1"];
    all.extend(flags);
    let file = compile(dir, "gcc", "lib.c", LIBRARY, &all, "lib.so");
    let hidden = address_of(&file, "hidden_helper");
    let exported = address_of(&file, "exported_function");
    (file, hidden, exported)
}

fn build_id(file: &Path) -> String {
    let bytes = std::fs::read(file).unwrap();
    Elf::parse(&bytes).unwrap().build_id().unwrap()
}

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

/// A module without a build id.
fn module(kind: ModuleKind, path: &str, pid: u32) -> Module {
    Module {
        kind,
        path: path.into(),
        build_id: Arc::default(),
        pid,
    }
}

const TOOLS: &[&str] = &["gcc", "nm", "objcopy", "strip"];

#[test]
fn a_stripped_library_has_its_exported_names_and_tells_other_functions_apart() {
    if !have(TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, hidden, exported) = library(dir.path(), &[]);
    run("strip", &["--strip-debug", path(&file)]);
    let (with_symbols, losses) = Lookup::file(&file).addresses(&file, &[hidden, exported]);
    assert_eq!(names(&with_symbols[0]), ["hidden_helper"]);
    assert_eq!(names(&with_symbols[1]), ["exported_function"]);
    assert!(losses.is_empty());
    run("strip", &["--strip-all", path(&file)]);
    let wanted = [hidden, hidden + 4, exported];
    let (found, losses) = Lookup::file(&file).addresses(&file, &wanted);
    let bytes = std::fs::read(&file).unwrap();
    let offset = Elf::parse(&bytes).unwrap().offset_of_vaddr(hidden).unwrap();
    assert_eq!(names(&found[0]), [format!("lib.so+0x{offset:x}")]);
    assert_eq!(found[1], found[0]);
    assert_eq!(names(&found[2]), ["exported_function"]);
    assert_eq!(found[2][0].line, 0);
    assert_eq!(losses.len(), 1);
    assert_eq!(
        (losses[0].cause.as_str(), losses[0].count),
        ("no symbols: module lib.so", 2)
    );
}

/// As in musl and GHC: a function without a size, followed by one that lost its name.
const SIZELESS: &str = r#"
__asm__(".text\n"
        ".globl sizeless\n"
        ".type sizeless,@function\n"
        "sizeless: test %edi,%edi\n je 1f\n mov $1,%eax\n ret\n 1: xor %eax,%eax\n ret\n"
        ".type hidden,@function\n"
        "hidden: mov $2,%eax\n ret\n"
        ".type back,@function\n"
        " nop\n"
        "back: mov $15,%rax\n syscall\n");
"#;

#[test]
fn a_function_without_a_size_ends_where_its_code_ends() {
    if !have(TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-shared", "-fPIC", "-Wl,--build-id=sha1"];
    let file = compile(dir.path(), "gcc", "lib.c", SIZELESS, &flags, "lib.so");
    // nm gives no size for them.
    let all = run("nm", &["--defined-only", path(&file)]);
    let [sizeless, hidden, back] = ["sizeless", "hidden", "back"].map(|name| {
        let line = all
            .lines()
            .find(|l| l.ends_with(&format!(" t {name}")) || l.ends_with(&format!(" T {name}")));
        u64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap()
    });
    run("strip", &["--strip-all", path(&file)]);
    let wanted = [sizeless, sizeless + 10, hidden, back - 1, back];
    let (found, _) = Lookup::file(&file).addresses(&file, &wanted);
    assert_eq!(names(&found[0]), ["sizeless"]);
    assert_eq!(names(&found[1]), ["sizeless"], "behind its first return");
    assert!(found[2].is_empty(), "{:?}", names(&found[2]));
    // Signal handlers return there; an unwinder looks up the byte before it.
    assert_eq!(names(&found[3]), ["__restore_rt"]);
    assert_eq!(names(&found[4]), ["__restore_rt"]);
}

#[test]
fn linkage_stubs_are_named_by_what_they_call() {
    if !have(TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let uses = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) { puts(argv[0]); return strtol(argv[0], 0, 7); }
"#;
    for flags in [
        &["-O1", "-fcf-protection=none", "-Wl,-z,lazy"][..],
        &["-O1", "-fcf-protection=full", "-Wl,-z,now"],
    ] {
        let file = compile(dir.path(), "gcc", "u.c", uses, flags, "u");
        run("strip", &[path(&file)]);
        let bytes = std::fs::read(&file).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        let entries = elf.plt_entries();
        let wanted: Vec<u64> = entries.iter().map(|e| e.start + 4).collect();
        let (found, _) = Lookup::file(&file).addresses(&file, &wanted);
        let mut all: Vec<&str> = found.iter().flat_map(|f| names(f)).collect();
        all.sort_unstable();
        all.dedup();
        for stub in ["strtol@plt", "puts@plt"] {
            assert!(all.contains(&stub), "{stub} in {all:?} with {flags:?}");
        }
        assert_eq!(found.iter().filter(|f| f.is_empty()).count(), 0);
    }
}

#[test]
fn a_debug_file_is_found_by_build_id_and_by_link() {
    if !have(TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, hidden, exported) = library(dir.path(), &[]);
    let id = build_id(&file);
    let debug_dir = dir.path().join("debug");
    let by_id = debug_dir.join(format!(".build-id/{}", &id[..2]));
    std::fs::create_dir_all(&by_id).unwrap();
    let debug = by_id.join(format!("{}.debug", &id[2..]));
    run("objcopy", &["--only-keep-debug", path(&file), path(&debug)]);
    run("strip", &[path(&file)]);
    let lookup = || {
        let mut lookup = Lookup::file(&file);
        lookup.sources.debug_directories = vec![debug_dir.clone()];
        lookup
    };
    let (found, losses) = lookup().addresses(&file, &[hidden, exported]);
    assert_eq!(names(&found[0]), ["hidden_helper"]);
    assert_eq!((found[0][0].start_line, found[1][0].start_line), (3, 4));
    assert!(found[0][0].file.ends_with("/lib.c") && losses.is_empty());

    // A debug file of another build is rejected.
    let changed = LIBRARY.replace("* 3", "* 5");
    let flags = ["-shared", "-fPIC", "-g", "-Wl,--build-id=sha1"];
    let other = compile(dir.path(), "gcc", "other.c", &changed, &flags, "other.so");
    std::fs::rename(other, &debug).unwrap();
    let (found, _) = lookup().addresses(&file, &[hidden]);
    assert!(names(&found[0])[0].contains("+0x"));
    std::fs::remove_file(&debug).unwrap();

    // By link: beside the file, in `.debug`, and below the debug directory.
    let (full, ..) = library(dir.path(), &[]);
    let linked = dir.path().join("lib.so.debug");
    run(
        "objcopy",
        &["--only-keep-debug", path(&full), path(&linked)],
    );
    run("strip", &[path(&full)]);
    run(
        "objcopy",
        &["--remove-section=.note.gnu.build-id", path(&full)],
    );
    let link = format!("--add-gnu-debuglink={}", linked.display());
    run("objcopy", &[&link, path(&full)]);
    let below = debug_dir.join(dir.path().strip_prefix("/").unwrap());
    for place in [dir.path().to_owned(), dir.path().join(".debug"), below] {
        std::fs::create_dir_all(&place).unwrap();
        let here = place.join("lib.so.debug");
        if here != linked {
            std::fs::rename(dir.path().join("lib.so.debug"), &here).unwrap();
        }
        let (found, _) = lookup().addresses(&full, &[hidden]);
        assert_eq!(names(&found[0]), ["hidden_helper"], "{}", here.display());
        if here != linked {
            std::fs::rename(&here, &linked).unwrap();
        }
    }
    // A file with another checksum is rejected.
    let mut bytes = std::fs::read(&linked).unwrap();
    bytes.push(0);
    std::fs::write(&linked, bytes).unwrap();
    let (found, _) = lookup().addresses(&full, &[hidden]);
    assert!(names(&found[0])[0].contains("+0x"));
}

#[test]
fn mini_debug_data_fills_what_strip_removed() {
    if !have(TOOLS) || !have(&["xz"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, hidden, exported) = library(dir.path(), &[]);
    let mini = dir.path().join("mini");
    run(
        "objcopy",
        &[
            "-S",
            "--keep-symbol=hidden_helper",
            path(&file),
            path(&mini),
        ],
    );
    run("xz", &["--check=crc64", path(&mini)]);
    run("strip", &[path(&file)]);
    let add = format!("--add-section=.gnu_debugdata={}.xz", mini.display());
    run("objcopy", &[&add, path(&file)]);
    let (found, losses) = Lookup::file(&file).addresses(&file, &[hidden, exported]);
    assert_eq!(names(&found[0]), ["hidden_helper"]);
    assert_eq!(names(&found[1]), ["exported_function"]);
    assert!(losses.is_empty());
}

#[test]
fn deleted_replaced_and_missing_files() {
    if !have(TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, hidden, _) = library(dir.path(), &[]);
    let id = build_id(&file);
    let bytes = std::fs::read(&file).unwrap();
    let offset = Elf::parse(&bytes).unwrap().offset_of_vaddr(hidden).unwrap();
    let cause = |l: &[wallscope_model::Loss]| l.first().map(|l| l.cause.clone());

    let kept = Lookup::file(&file);
    std::fs::remove_file(&file).unwrap();
    let (found, losses) = kept.offsets(&[offset]);
    assert_eq!(names(&found[0]), ["hidden_helper"]);
    assert!(losses.is_empty());

    let (_, losses) = Lookup::path_only(&file).offsets(&[offset]);
    assert_eq!(cause(&losses).unwrap(), "file was not kept: module lib.so");
    let with_id = || {
        let mut lookup = Lookup::path_only(&file);
        lookup.build_id.clone_from(&id);
        lookup
    };
    let (_, losses) = with_id().offsets(&[offset]);
    assert_eq!(cause(&losses).unwrap(), "file is gone: module lib.so");

    std::fs::write(&file, &bytes).unwrap();
    let (found, _) = with_id().offsets(&[offset]);
    assert_eq!(names(&found[0]), ["hidden_helper"]);

    let other = LIBRARY.replace("hidden_helper", "another_name");
    compile(
        dir.path(),
        "gcc",
        "lib.c",
        &other,
        &["-shared", "-fPIC", "-Wl,--build-id=sha1"],
        "lib.so",
    );
    let (found, losses) = with_id().offsets(&[offset]);
    assert!(found[0].is_empty());
    assert_eq!(cause(&losses).unwrap(), "file was replaced: module lib.so");

    std::fs::write(&file, b"#!/bin/sh\n").unwrap();
    let (_, losses) = with_id().offsets(&[offset, 1]);
    assert_eq!(
        cause(&losses).unwrap(),
        "unreadable ELF file: module lib.so"
    );
    assert_eq!(losses[0].count, 2);
}

#[test]
fn a_container_finds_its_own_debug_file_and_cannot_lead_out() {
    if !have(TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, hidden, _) = library(dir.path(), &[]);
    let id = build_id(&file);
    let root = dir.path().join("root");
    let inside = root.join(format!("usr/lib/debug/.build-id/{}", &id[..2]));
    std::fs::create_dir_all(&inside).unwrap();
    let debug = inside.join(format!("{}.debug", &id[2..]));
    run("objcopy", &["--only-keep-debug", path(&file), path(&debug)]);
    run("strip", &[path(&file)]);
    let lookup = || {
        let mut lookup = Lookup::file(&file);
        lookup.sources.debug_directories = vec!["/usr/lib/debug".into()];
        let source = lookup.sources.modules.remove(&ModuleId(0)).unwrap();
        let root = Arc::new(TargetRoot::at(&root, own_rights()).unwrap());
        lookup
            .sources
            .modules
            .insert(ModuleId(0), source.with_root(root));
        lookup
    };
    let (found, _) = lookup().addresses(&file, &[hidden]);
    assert_eq!(names(&found[0]), ["hidden_helper"]);

    // A link to the same file that leads out of the root must not be followed.
    let outside = dir.path().join("outside.debug");
    std::fs::rename(&debug, &outside).unwrap();
    symlink(&outside, &debug).unwrap();
    let (found, _) = lookup().addresses(&file, &[hidden]);
    assert!(names(&found[0])[0].contains("+0x"));
}

#[test]
fn the_vdso_is_named_from_its_bytes() {
    let maps = wallscope_procfs::maps::read(std::process::id()).unwrap();
    let Some(vdso) = maps.iter().find(|m| m.is_vdso()) else {
        println!("skipped: this kernel maps no vDSO");
        return;
    };
    let memory = File::open("/proc/self/mem").unwrap();
    let mut bytes = vec![0; (vdso.end - vdso.start) as usize];
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, vdso.start).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let symbol = elf
        .symbols(wallscope_binfmt::elf::SymbolTable::Dynamic)
        .find(|s| s.name == b"__vdso_clock_gettime" || s.name == b"__kernel_clock_gettime")
        .unwrap();
    let offset = elf.offset_of_vaddr(symbol.address).unwrap();
    let mut recording = Recording {
        modules: vec![module(ModuleKind::Vdso, "[vdso]", 0)],
        frames: vec![frame(FrameKind::Native, Some(0), offset + 1)],
        ..Recording::default()
    };
    let mut sources = Sources::default();
    sources
        .modules
        .insert(ModuleId(0), ModuleSource::from_bytes(bytes.clone()));
    resolve(&mut recording, sources);
    let name = &found(&recording)[0][0].name;
    assert!(name.contains("clock_gettime"), "{name}");
}

#[test]
fn kernel_code_is_named_and_moved_to_its_module() {
    let text = "ffffffff81000000 T schedule\nffffffff81000800 t table\n\
                ffffffffc0201000 t nf_hook\t[nf_tables]\n";
    let mut recording = Recording {
        modules: vec![module(ModuleKind::Kernel, "[kernel]", 0)],
        frames: vec![
            frame(FrameKind::Kernel, Some(0), 0xffff_ffff_8100_0010),
            frame(FrameKind::Kernel, Some(0), 0xffff_ffff_c020_1010),
            frame(FrameKind::Kernel, None, 0xffff_ffff_8100_0010),
            frame(FrameKind::Kernel, Some(0), 0x1000),
        ],
        ..Recording::default()
    };
    let sources = Sources {
        kallsyms: Some(Arc::new(KernelSymbols::new(text.into()))),
        ..Sources::default()
    };
    let losses = resolve(&mut recording, sources);
    let all = found(&recording);
    assert_eq!(names(&all[0]), ["schedule"]);
    assert_eq!(names(&all[1]), ["nf_hook"]);
    assert_eq!(names(&all[2]), ["schedule"]);
    assert!(all[3].is_empty());
    assert_eq!(recording.functions.len(), 2);
    assert_eq!(recording.frames[0].module, Some(ModuleId(0)));
    let moved = recording.frames[1].module.unwrap();
    assert_eq!(&*recording.modules[moved.0 as usize].path, "[nf_tables]");
    assert_eq!(losses.len(), 1);
    assert_eq!(
        (losses[0].cause.as_str(), losses[0].count),
        ("no symbols: kernel", 1)
    );

    let hidden = "0000000000000000 T schedule\n0000000000000000 t table\n";
    let mut recording = Recording {
        frames: vec![frame(FrameKind::Kernel, None, 0xffff_ffff_8100_0010)],
        ..Recording::default()
    };
    let sources = Sources {
        kallsyms: Some(Arc::new(KernelSymbols::new(hidden.into()))),
        ..Sources::default()
    };
    let losses = resolve(&mut recording, sources);
    assert_eq!(
        losses[0].cause,
        "kernel symbols are hidden (kernel.kptr_restrict)"
    );
}

#[test]
fn code_made_at_run_time_is_named_by_its_perf_map() {
    // No process has this id, so only the map passed in can be found.
    let pid = u32::MAX - 1;
    let dir = tempfile::tempdir().unwrap();
    let map = dir.path().join("perf.map");
    std::fs::write(
        &map,
        "7f0000001000 100 LazyCompile:*fib /app/a b.js:3\njunk\n0x7f0000002000 0x40 void Main.run()\n",
    )
    .unwrap();
    let recording = || Recording {
        modules: vec![module(ModuleKind::Jit, "[jit]", pid)],
        frames: vec![
            frame(FrameKind::Jit, Some(0), 0x7f00_0000_10ff),
            frame(FrameKind::Jit, Some(0), 0x7f00_0000_2000),
            frame(FrameKind::Jit, Some(0), 0x7f00_0000_1100),
        ],
        ..Recording::default()
    };
    let mut with_map = recording();
    let mut sources = Sources::default();
    sources.modules.insert(
        ModuleId(0),
        ModuleSource::from_file(File::open(&map).unwrap(), pid),
    );
    let losses = resolve(&mut with_map, sources);
    let all = found(&with_map);
    assert_eq!(names(&all[0]), ["LazyCompile:*fib /app/a b.js:3"]);
    assert_eq!(names(&all[1]), ["void Main.run()"]);
    assert!(all[2].is_empty());
    let causes: Vec<_> = losses.iter().map(|l| (l.cause.as_str(), l.count)).collect();
    assert_eq!(
        causes,
        [
            (
                format!("lines of the perf map that are no entry: pid {pid}").as_str(),
                1
            ),
            (format!("not in the perf map: pid {pid}").as_str(), 1),
        ]
    );
    let losses = resolve(&mut recording(), Sources::default());
    assert_eq!(losses[0].cause, format!("no perf map: pid {pid}"));
    assert_eq!(losses[0].count, 3);
}

#[test]
fn a_perf_map_is_found_in_the_root_of_its_process() {
    let pid = std::process::id();
    let map = format!("/tmp/perf-{pid}.map");
    std::fs::write(&map, "1000 100 made_here\n").unwrap();
    let mut recording = Recording {
        modules: vec![module(ModuleKind::Jit, "[jit]", pid)],
        frames: vec![frame(FrameKind::Jit, Some(0), 0x1001)],
        ..Recording::default()
    };
    let losses = resolve(&mut recording, Sources::default());
    std::fs::remove_file(&map).unwrap();
    assert_eq!(names(&found(&recording)[0]), ["made_here"]);
    assert!(losses.is_empty(), "{losses:?}");
}

#[test]
fn frames_that_have_names_keep_them_and_functions_are_shared() {
    if !have(TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, hidden, _) = library(dir.path(), &[]);
    let span = functions(&file)
        .into_iter()
        .find(|f| f.0 == hidden)
        .unwrap();
    let all: Vec<u64> = (span.0..span.0 + span.1).collect();
    let (found, _) = Lookup::file(&file).addresses(&file, &all);
    assert!(found.iter().all(|f| names(f) == ["hidden_helper"]));

    let mut recording = Recording {
        modules: vec![module(ModuleKind::Elf, path(&file), 0)],
        frames: vec![frame(FrameKind::Native, Some(0), 1); 2],
        ..Recording::default()
    };
    recording.functions.push(wallscope_model::Function {
        name: "known".into(),
        system_name: "known".into(),
        file: "".into(),
        start_line: 0,
    });
    recording.frames[0].lines.push(wallscope_model::Line {
        function: wallscope_model::FunctionId(0),
        line: 7,
    });
    recording.frames.push(frame(FrameKind::Native, None, 5));
    recording.frames.push(frame(FrameKind::Native, Some(99), 5));
    let losses = resolve(&mut recording, Sources::default());
    assert_eq!(recording.frames[0].lines.len(), 1);
    assert_eq!(recording.functions.len(), 1);
    let unknown = losses
        .iter()
        .find(|l| l.cause == "address in no known module");
    assert_eq!(unknown.unwrap().count, 2);
}
