//! Where the bytes behind a module are to be had.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::ModuleId;
use wallscope_procfs::target_file::{Rights, TargetRoot};

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
    /// Root directory and rights for modules of which no process is known; `None`: this process's
    /// root, with the rights that everybody has.
    pub root: Option<Arc<TargetRoot>>,
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
            root: None,
            kallsyms: None,
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
            time_per_module: std::time::Duration::from_secs(10),
        }
    }
}

impl Sources {
    /// Root directory in which the files of a module are looked for that came from `source`.
    pub(crate) fn root_of(&self, source: Option<&ModuleSource>) -> Option<Arc<TargetRoot>> {
        let known = source.and_then(|s| s.root.as_ref()).or(self.root.as_ref());
        known.cloned().or_else(root_for_everybody)
    }
}

/// This process's root directory, with the rights that everybody has.
pub(crate) fn root_for_everybody() -> Option<Arc<TargetRoot>> {
    TargetRoot::of_host(Rights::of_nobody()).ok().map(Arc::new)
}
