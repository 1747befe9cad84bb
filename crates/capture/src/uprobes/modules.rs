//! The files with code that a target runs, or is going to run.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use wallscope_binfmt::{elf::Elf, mapped::MappedFile};
use wallscope_procfs::{
    maps, process,
    target_file::{MappedAt, TargetRoot, open_mapped, open_named_by_user},
};

use crate::{Error, target::with_descendants};

/// A file with code.
pub struct Module {
    /// Its path as the target sees it.
    pub path: String,
    /// The path by which this process, and so the kernel for it, reaches the very same file: its
    /// number among the files that this process has open.
    pub reach: PathBuf,
    /// The file, held open for `reach`.
    _file: File,
    /// Its bytes.
    pub bytes: MappedFile,
    /// The root directory of a process that has it, for debug files.
    pub root: Option<Arc<TargetRoot>>,
    /// Target processes that map it now; empty for a command that has not started.
    pub pids: Vec<u32>,
}

impl Module {
    fn of_file(path: String, file: File, bytes: MappedFile) -> Module {
        Module {
            path,
            reach: format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            _file: file,
            bytes,
            root: None,
            pids: Vec::new(),
        }
    }

    /// The file that this program's user names by `place`, which goes by the name `path`.
    ///
    /// # Errors
    /// It cannot be opened, is not a regular file, or is empty.
    pub fn named_by_user(place: &Path, path: String) -> io::Result<Module> {
        let file = open_named_by_user(place)?;
        let bytes = MappedFile::map(&file)?;
        Ok(Module::of_file(path, file, bytes))
    }

    /// Its file name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Its headers; `None` where it is no ELF file that can be read, or of another machine.
    pub fn elf(&self) -> Option<Elf<'_>> {
        Elf::parse(&self.bytes).ok().filter(Elf::is_x86_64)
    }

    /// Whether `asked` may name this file: by its path, its name, or its name without the version
    /// (`libc` is `libc.so.6`).
    pub fn is_called(&self, asked: &str) -> bool {
        let name = self.name();
        let versioned = |rest: &str| rest.starts_with(['.', '-']);
        asked == self.path
            || asked == name
            || name.strip_prefix(asked).is_some_and(versioned)
            || Path::new(asked)
                .canonicalize()
                .is_ok_and(|p| p == Path::new(&self.path))
    }

    /// Whether it is a Go program.
    pub fn is_go(&self) -> bool {
        self.elf()
            .is_some_and(|e| e.section_span(".gopclntab").is_some())
    }
}

/// Whether only these processes map the file now. Then only they, and processes that they will fork, meet a probe
/// that is placed for every process.
pub fn is_theirs(module: &Module, pids: &[u32]) -> bool {
    let Ok(meta) = fs::metadata(&module.reach) else {
        return false;
    };
    // A process that may not be inspected would pay for probes that it meets, and not be counted.
    let maps_it = |pid: u32| {
        let mappings = maps::read(pid).unwrap_or_default();
        (mappings.iter()).any(|m| m.execute && m.inode == meta.ino())
    };
    // Children come and go meanwhile: the mapping processes are read again once their parents are known.
    let users: Vec<u32> = (process::processes().unwrap_or_default().into_iter())
        .filter(|pid| maps_it(*pid))
        .collect();
    let theirs = with_descendants(pids);
    let mut others = users.into_iter().filter(|pid| !theirs.contains(pid));
    !others.any(maps_it)
}

/// The error if reading the mappings of one of these processes is refused.
pub fn refused(pids: &[u32]) -> Option<Error> {
    pids.iter().find_map(|pid| {
        let refused = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
        let why = maps::read(*pid).err().filter(refused)?;
        Some(Error::NotPermitted {
            what: format!("cannot read what code process {pid} has (/proc/{pid}/maps)"),
            why: why.to_string(),
            remedy: "run as root; `wallscope doctor -p PID` says what is allowed".into(),
        })
    })
}

/// The files with code of these processes, each once. Processes that are gone, or may not be read,
/// add nothing.
pub fn of_processes(pids: &[u32]) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    let mut known: FxHashMap<(u64, u64), usize> = FxHashMap::default();
    for pid in pids {
        let Ok(mappings) = maps::read(*pid) else {
            continue;
        };
        let root = TargetRoot::of_process(*pid).ok().map(Arc::new);
        // A probe is placed into the file's own pages: code that was moved does not meet it.
        for m in mappings
            .iter()
            .filter(|m| m.execute && m.is_file() && !m.moved)
        {
            let Ok(file) = open_mapped(&MappedAt::of_mapping(*pid, m), root.as_deref()) else {
                continue;
            };
            let Ok(meta) = file.metadata() else { continue };
            if let Some(at) = known.get(&(meta.dev(), meta.ino())) {
                let pids = &mut modules[*at].pids;
                if pids.last() != Some(pid) {
                    pids.push(*pid);
                }
                continue;
            }
            let Ok(bytes) = MappedFile::map(&file) else {
                continue;
            };
            known.insert((meta.dev(), meta.ino()), modules.len());
            modules.push(Module {
                root: root.clone(),
                pids: vec![*pid],
                ..Module::of_file(m.path.clone(), file, bytes)
            });
        }
    }
    modules
}

/// The files that a command will map, as far as they are known before it starts.
pub fn of_files(paths: &[PathBuf]) -> Vec<Module> {
    let open =
        |path: &PathBuf| Module::named_by_user(path, path.to_string_lossy().into_owned()).ok();
    paths.iter().filter_map(open).collect()
}
