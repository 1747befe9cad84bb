//! Shared test code: compiles the programs, and loads a process's mappings into a store.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use wallscope_unwind::native::{
    FileKey, FrameWord, MappingSpec, SinkError, Source, TableSink, TableStore,
};

/// The path of a test program's source.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// Runs a compiler; panics with its output if it fails.
pub fn compile(compiler: &str, args: &[&str], sources: &[&str], out: &Path) {
    let output = Command::new(compiler)
        .args(sources.iter().map(|s| program(s)))
        .args(args)
        .arg("-w")
        .arg("-o")
        .arg(out)
        .output()
        .unwrap_or_else(|e| panic!("{compiler} cannot be run: {e}"));
    assert!(
        output.status.success(),
        "{compiler} {args:?} {sources:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// An executable mapping of a process.
#[derive(Debug)]
pub struct Mapped {
    pub start: u64,
    pub end: u64,
    pub pgoff: u64,
    pub path: String,
}

/// The executable mappings of a process.
pub fn executable(pid: u32) -> Vec<Mapped> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process lives");
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let flags = words.next()?;
            let pgoff = words.next()?;
            let path = words.nth(2).unwrap_or("").to_string();
            let hex = |s| u64::from_str_radix(s, 16).expect("a number");
            (flags.contains('x') && path != "[vsyscall]").then(|| Mapped {
                start: hex(start),
                end: hex(end),
                pgoff: hex(pgoff),
                path,
            })
        })
        .collect()
}

/// Loads all executable mappings of `pid` into `store`; returns them with the ids of their files.
pub fn load<S: TableSink>(
    store: &mut TableStore<S>,
    pid: u32,
) -> Result<Vec<(Mapped, u16)>, SinkError> {
    enum Opened {
        File(File, FileKey),
        Bytes(Vec<u8>, FileKey),
        None,
    }
    let mapped = executable(pid);
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let opened: Vec<Opened> = mapped
        .iter()
        .map(|m| {
            if m.path == "[vdso]" {
                let mut bytes = vec![0; (m.end - m.start) as usize];
                memory.read_exact_at(&mut bytes, m.start).expect("the vdso");
                let key = FileKey::of_bytes(&bytes);
                Opened::Bytes(bytes, key)
            } else if m.path.starts_with('/') {
                let file = File::open(&m.path).expect("a mapped file");
                let key = FileKey::of_file(&file).expect("its key");
                Opened::File(file, key)
            } else {
                Opened::None
            }
        })
        .collect();
    let specs: Vec<MappingSpec<'_>> = mapped
        .iter()
        .zip(&opened)
        .map(|(m, o)| MappingSpec {
            start: m.start,
            end: m.end,
            pgoff: m.pgoff,
            source: match o {
                Opened::File(file, key) => Source::File {
                    key,
                    file: Some(file),
                },
                Opened::Bytes(bytes, key) => Source::Bytes { key, bytes },
                Opened::None => Source::Anonymous,
            },
        })
        .collect();
    let ids = store.set_process(pid, &specs)?;
    Ok(mapped.into_iter().zip(ids).collect())
}

/// The address of a frame in a process with these mappings.
pub fn address(frame: FrameWord, mapped: &[(Mapped, u16)]) -> u64 {
    if frame.file() == 0 {
        return frame.offset();
    }
    let inside = frame.lookup_offset();
    mapped
        .iter()
        .find(|(m, id)| {
            *id == frame.file() && inside >= m.pgoff && inside - m.pgoff < m.end - m.start
        })
        .map_or(0, |(m, _)| frame.offset() - m.pgoff + m.start)
}

/// Reads another process's memory; returns the bytes read.
pub fn read_process(pid: u32, addr: u64, to: &mut [u8]) -> usize {
    let page = 4096 - (addr as usize & 4095);
    for len in [to.len(), page.min(to.len())] {
        let local = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: len,
        };
        let remote = libc::iovec {
            iov_base: addr as *mut libc::c_void,
            iov_len: len,
        };
        // SAFETY: `local` is our buffer with its length; the kernel checks `remote`.
        let got = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
        if got > 0 {
            return got as usize;
        }
    }
    0
}

/// Reads exactly `to.len()` bytes; false at the end.
pub fn read_all(from: &mut impl io::Read, to: &mut [u8]) -> bool {
    match from.read_exact(to) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => false,
        Err(e) => panic!("reading from the program: {e}"),
    }
}
