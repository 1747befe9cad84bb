//! The files whose code a target runs, or is going to run.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustc_hash::FxHashMap;
use wallscope_binfmt::{
    elf::Elf,
    mapped::{MappedFile, open_regular},
};
use wallscope_procfs::{maps, process};
use wallscope_symbolize::TargetRoot;

use crate::{Error, target::with_descendants};

/// A file with code.
pub struct Module {
    /// Its path as the target sees it.
    pub path: String,
    /// The path by which this process, and so the kernel for it, reaches the very same file.
    pub reach: PathBuf,
    /// Its bytes.
    pub bytes: MappedFile,
    /// The root directory of a process that has it, for debug files.
    pub root: Option<Arc<TargetRoot>>,
    /// Target processes that map it now; empty for a command that has not started.
    pub pids: Vec<u32>,
}

impl Module {
    /// Its file name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Its headers; `None` where it is no ELF file that can be read, or of another machine.
    pub fn elf(&self) -> Option<Elf<'_>> {
        Elf::parse(&self.bytes).ok().filter(Elf::is_x86_64)
    }

    /// Whether the user may mean it by `asked`: a path, the file's name, or that without its version
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

    /// Whether it is Go.
    pub fn is_go(&self) -> bool {
        self.elf()
            .is_some_and(|e| e.section_span(".gopclntab").is_some())
    }
}

/// Whether nobody but these processes maps the file now: a probe placed for whoever runs it is met by
/// them alone, and by what they will fork.
pub fn is_theirs(module: &Module, pids: &[u32]) -> bool {
    let Ok(meta) = fs::metadata(&module.reach) else {
        return false;
    };
    // Whoever may not be looked into would pay for probes that it meets, and not be counted.
    let maps_it = |pid: u32| {
        let mappings = maps::read(pid).unwrap_or_default();
        (mappings.iter()).any(|m| m.execute && m.inode == meta.ino())
    };
    // Children come and go meanwhile: who maps it is looked at again once their parents are known.
    let users: Vec<u32> = (process::processes().unwrap_or_default().into_iter())
        .filter(|pid| maps_it(*pid))
        .collect();
    let theirs = with_descendants(pids);
    let mut others = users.into_iter().filter(|pid| !theirs.contains(pid));
    !others.any(maps_it)
}

/// Why what these processes run is not known, if reading it is refused.
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
        let root = TargetRoot::open(*pid).ok().map(Arc::new);
        for m in mappings.iter().filter(|m| m.execute && m.is_file()) {
            let Some((reach, file)) = reach(*pid, m) else {
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
                path: m.path.clone(),
                reach,
                bytes,
                root: root.clone(),
                pids: vec![*pid],
            });
        }
    }
    modules
}

/// The files that a command will map, as far as they can be told before it starts.
pub fn of_files(paths: &[PathBuf]) -> Vec<Module> {
    let open = |path: &PathBuf| {
        let bytes = MappedFile::map(&open_regular(path).ok()?).ok()?;
        Some(Module {
            path: path.to_string_lossy().into_owned(),
            reach: path.clone(),
            bytes,
            root: None,
            pids: Vec::new(),
        })
    };
    paths.iter().filter_map(open).collect()
}

/// A path to the mapped file: its own, where that is still the same file, else by the mapping.
fn reach(pid: u32, m: &maps::Mapping) -> Option<(PathBuf, File)> {
    let within = format!("/proc/{pid}/root{}", m.path);
    let paths = [
        PathBuf::from(within),
        PathBuf::from(&m.path),
        format!("/proc/{pid}/map_files/{}", m.map_file_name()).into(),
    ];
    let (last, by_name) = paths.split_last()?;
    for path in by_name {
        let same = fs::metadata(path).is_ok_and(|meta| meta.ino() == m.inode);
        if same
            && !m.deleted
            && let Ok(file) = open_regular(path)
        {
            return Some((path.clone(), file));
        }
    }
    let file = File::open(last).ok()?;
    Some((last.clone(), file))
}
