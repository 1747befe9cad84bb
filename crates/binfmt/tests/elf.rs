//! ELF facts of real files, against what binutils says of them; and of files that are broken.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wallscope_binfmt::elf::{Elf, ElfError, SymbolTable};
use wallscope_binfmt::mapped::MappedFile;

const LIBRARY: &str = "int data = 7;\n\
    static __attribute__((noinline)) int hidden(int x) { return x * data; }\n\
    int exported(int x) { return hidden(x) + 1; }\n";

fn have(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| {
        let mut command = Command::new(tool);
        command.arg("--version").stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_err()
    });
    if let Some(tool) = missing {
        println!("skipped: {tool} is not installed");
    }
    missing.is_none()
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn library(dir: &Path, flags: &[&str]) -> PathBuf {
    let (source, file) = (dir.join("lib.c"), dir.join("lib.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let mut args = vec![source.to_str().unwrap(), "-o", file.to_str().unwrap()];
    args.extend(["-shared", "-fPIC", "-O1", "-g"]);
    args.extend(flags);
    run("gcc", &args);
    file
}

#[test]
fn identity_segments_and_symbols_are_those_that_binutils_shows() {
    if !have(&["gcc", "readelf", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = library(dir.path(), &["-Wl,--build-id=sha1"]);
    let path = file.to_str().unwrap();
    let map = MappedFile::map(&std::fs::File::open(&file).unwrap()).unwrap();
    let elf = Elf::parse(&map).unwrap();

    let notes = run("readelf", &["-n", path]);
    let id = notes.split("Build ID: ").nth(1).unwrap();
    assert_eq!(elf.build_id().as_deref(), id.split_whitespace().next());

    let mut shown = Vec::new();
    for line in run("readelf", &["-lW", path]).lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.first() == Some(&"LOAD") {
            let hex = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).unwrap();
            let executable = fields[6..].iter().any(|f| f.contains('E'));
            shown.push((hex(fields[1]), hex(fields[2]), hex(fields[4]), executable));
        }
    }
    let ours: Vec<_> = elf
        .segments()
        .iter()
        .map(|s| (s.offset, s.vaddr, s.file_size, s.executable))
        .collect();
    assert_eq!(ours, shown);

    for (table, flag) in [(SymbolTable::Static, "-n"), (SymbolTable::Dynamic, "-D")] {
        let listed = run("nm", &["-S", "--defined-only", flag, path]);
        for symbol in elf.symbols(table).filter(|s| s.size > 0) {
            let name = std::str::from_utf8(symbol.name).unwrap();
            let line = format!("{:016x} {:016x}", symbol.address, symbol.size);
            assert!(
                listed
                    .lines()
                    .any(|l| l.starts_with(&line) && l.ends_with(name)),
                "{line} {name} in {listed}"
            );
            let offset = elf.offset_of_vaddr(symbol.address).unwrap();
            assert_eq!(elf.vaddr_of_offset(offset), Some(symbol.address));
            assert!(elf.is_executable(symbol.address));
        }
    }
    let names = |table| {
        let all: Vec<&[u8]> = elf.symbols(table).map(|s| s.name).collect();
        (
            all.contains(&&b"hidden"[..]),
            all.contains(&&b"exported"[..]),
        )
    };
    assert_eq!(names(SymbolTable::Static), (true, true));
    assert_eq!(names(SymbolTable::Dynamic), (false, true));
    let data = elf.section_span(".data").unwrap();
    assert!(!elf.is_executable(data.start));
    assert_eq!(elf.offset_of_vaddr(u64::MAX), None);
    assert_eq!(elf.vaddr_of_offset(u64::MAX), None);
}

#[test]
fn sections_are_inflated_and_links_are_read() {
    if !have(&["gcc", "objcopy"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let plain = library(dir.path(), &[]);
    let packed = dir.path().join("packed.so");
    let debug = dir.path().join("lib.debug");
    let path = |p: &Path| p.to_str().unwrap().to_owned();
    run(
        "objcopy",
        &[
            "--compress-debug-sections=zlib",
            &path(&plain),
            &path(&packed),
        ],
    );
    run(
        "objcopy",
        &["--only-keep-debug", &path(&plain), &path(&debug)],
    );
    run(
        "objcopy",
        &[
            &format!("--add-gnu-debuglink={}", debug.display()),
            &path(&packed),
        ],
    );
    let (plain, packed) = (
        MappedFile::map(&std::fs::File::open(&plain).unwrap()).unwrap(),
        MappedFile::map(&std::fs::File::open(&packed).unwrap()).unwrap(),
    );
    let (plain, packed) = (Elf::parse(&plain).unwrap(), Elf::parse(&packed).unwrap());
    let section = |e: &Elf<'_>| e.section(".debug_info").unwrap().unwrap().into_owned();
    assert_eq!(section(&plain), section(&packed));
    assert_eq!(plain.section(".no_such_section").unwrap(), None);
    assert_eq!(plain.debug_link(), None);
    assert_eq!(packed.debug_link().unwrap().0, b"lib.debug");
    // A debug file has the sections' addresses but not their bytes.
    let debug = MappedFile::map(&std::fs::File::open(&debug).unwrap()).unwrap();
    let debug = Elf::parse(&debug).unwrap();
    assert_eq!(debug.section(".text").unwrap(), None);
    assert_eq!(debug.section_span(".text"), plain.section_span(".text"));
    assert!(debug.has_static_symbols());
}

#[test]
fn broken_files_are_errors_or_partial_and_never_worse() {
    assert!(matches!(Elf::parse(b""), Err(ElfError::NotElf(_))));
    assert!(matches!(Elf::parse(b"#!/bin/sh"), Err(ElfError::NotElf(_))));
    assert!(matches!(
        Elf::parse(b"\x7fELF\x02\x01\x01"),
        Err(ElfError::Malformed(_))
    ));
    if !have(&["gcc"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = library(dir.path(), &["-gz=zlib"]);
    let bytes = std::fs::read(&file).unwrap();
    let mut parsed = 0;
    let mut look = |bytes: &[u8]| {
        let Ok(elf) = Elf::parse(bytes) else { return };
        parsed += 1;
        let _ = (elf.build_id(), elf.debug_link(), elf.debug_alt_link());
        let _ = (
            elf.code_sections(),
            elf.plt_entries(),
            elf.mini_debug_data(),
        );
        let _ = (elf.section(".debug_info"), elf.section_span(".plt"));
        for table in [SymbolTable::Static, SymbolTable::Dynamic] {
            for symbol in elf.symbols(table) {
                let offset = elf.offset_of_vaddr(symbol.address);
                let _ = offset.map(|o| elf.vaddr_of_offset(o));
            }
        }
    };
    for end in (0..bytes.len()).step_by(61) {
        look(&bytes[..end]);
    }
    // Every bit of the file header and the program headers, then of the section headers.
    let tail = bytes.len() - 64 * 40;
    for at in (0..64 + 56 * 9).chain(tail..bytes.len()) {
        for bit in [0, 3, 7] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            look(&flipped);
        }
    }
    assert!(parsed > 1000, "only {parsed} were parsed at all");
}
