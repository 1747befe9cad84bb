//! Where the bytes behind a module are to be had.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use wallscope_binfmt::mapped::open_regular;
use wallscope_model::ModuleId;

/// The file system as a profiled process sees it: its root directory, kept open so that paths can
/// be looked up even after the process has ended.
#[derive(Debug)]
pub struct TargetRoot(OwnedFd);

impl TargetRoot {
    /// Opens the root of process `pid`.
    ///
    /// # Errors
    /// `NotFound` where there is no such process; `PermissionDenied` where it may not be inspected.
    pub fn open(pid: u32) -> io::Result<TargetRoot> {
        TargetRoot::at(Path::new(&format!("/proc/{pid}/root")))
    }

    /// Takes the directory at `path` for a root.
    ///
    /// # Errors
    /// What opening it says.
    pub fn at(path: &Path) -> io::Result<TargetRoot> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(TargetRoot(rustix::fs::openat(
            CWD,
            path,
            flags,
            Mode::empty(),
        )?))
    }

    /// Opens the regular file at `path` within this root. Symbolic links are followed as the
    /// target would follow them and cannot lead out: a container must not be able to make us read
    /// the host's files. Never blocks.
    ///
    /// # Errors
    /// What the kernel says; `InvalidInput` where it is no regular file. Kernels before 5.6 cannot
    /// resolve paths this way: `Unsupported`.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        let fd = rustix::fs::openat2(
            &self.0,
            path,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )?;
        let file = File::from(fd);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is not a regular file", path.display()),
            ));
        }
        Ok(file)
    }
}

/// What the capture knows of a module's bytes. Any part may be missing.
#[derive(Debug, Default)]
pub struct ModuleSource {
    /// The mapped file itself, opened while it was mapped: serves deleted files and other mount
    /// namespaces. For code made at run time: its perf map.
    pub file: Option<File>,
    /// The bytes themselves, for what is no file (the vDSO).
    pub bytes: Option<Vec<u8>>,
    /// A process that has it mapped, 0 where unknown.
    pub pid: u32,
    /// The root directory of that process, in which debug files are looked for before the host's.
    pub root: Option<Arc<TargetRoot>>,
}

impl ModuleSource {
    /// A source for the open `file`, as process `pid` maps it.
    pub fn from_file(file: File, pid: u32) -> ModuleSource {
        ModuleSource {
            file: Some(file),
            pid,
            ..ModuleSource::default()
        }
    }

    /// A source for bytes that are no file.
    pub fn from_bytes(bytes: Vec<u8>) -> ModuleSource {
        ModuleSource {
            bytes: Some(bytes),
            ..ModuleSource::default()
        }
    }

    /// The same, with the root directory of its process.
    pub fn with_root(mut self, root: Arc<TargetRoot>) -> ModuleSource {
        self.root = Some(root);
        self
    }
}

/// Everything names can be had from.
#[derive(Debug)]
pub struct Sources {
    /// By module. One that is missing is looked for under its path and taken where its build id
    /// is the recorded one.
    pub modules: FxHashMap<ModuleId, ModuleSource>,
    /// The text of `/proc/kallsyms`; `None`: read when the first kernel frame is met.
    pub kallsyms: Option<String>,
    /// Directories with separate debug files, in the target's root and in the host's.
    pub debug_directories: Vec<PathBuf>,
    /// The most time to spend on the debug information of one module.
    pub time_per_module: std::time::Duration,
}

impl Default for Sources {
    fn default() -> Self {
        Sources {
            modules: FxHashMap::default(),
            kallsyms: None,
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
            time_per_module: std::time::Duration::from_secs(10),
        }
    }
}

/// Opens `path`, seen from `root`, or from the host where there is none.
pub(crate) fn open_seen_from(root: Option<&TargetRoot>, path: &Path) -> io::Result<File> {
    match root {
        Some(root) => root.open_file(path),
        None => open_regular(path),
    }
}
