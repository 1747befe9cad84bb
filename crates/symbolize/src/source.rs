//! Sources of a module's bytes.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::ModuleId;
use wallscope_procfs::target_file::{Rights, TargetRoot};

use crate::KernelSymbols;

/// The capture's knowledge of a module's bytes. Any part may be missing.
#[derive(Debug, Default)]
pub struct ModuleSource {
    /// The mapped file itself, opened while it was mapped, which also serves deleted files and
    /// other mount namespaces. For run-time code: its perf map.
    pub file: Option<File>,
    /// The bytes of a module that is no file (the vDSO).
    pub bytes: Option<Vec<u8>>,
    /// A process that maps the module; 0: unknown.
    pub pid: u32,
    /// The root directory of that process, in which debug files are searched before the host's.
    pub root: Option<Arc<TargetRoot>>,
}

impl ModuleSource {
    /// Creates a source for the open `file`, as process `pid` maps it.
    pub fn from_file(file: File, pid: u32) -> ModuleSource {
        ModuleSource {
            file: Some(file),
            pid,
            ..ModuleSource::default()
        }
    }

    /// Creates a source for bytes that are no file.
    pub fn from_bytes(bytes: Vec<u8>) -> ModuleSource {
        ModuleSource {
            bytes: Some(bytes),
            ..ModuleSource::default()
        }
    }

    /// Adds the root directory of its process.
    pub fn with_root(mut self, root: Arc<TargetRoot>) -> ModuleSource {
        self.root = Some(root);
        self
    }
}

/// All sources of names.
#[derive(Debug)]
pub struct Sources {
    /// Sources by module. A missing module is searched under its path, and used if its build id is the
    /// recorded one.
    pub modules: FxHashMap<ModuleId, ModuleSource>,
    /// Root directory and rights for modules of which no process is known; `None`: this process's
    /// root, with the rights of an unknown user.
    pub root: Option<Arc<TargetRoot>>,
    /// Code made at run time is looked up in the perf map of the process with the module's pid, if no
    /// source is given. Clear it if the pid may belong to another process by now.
    pub perf_maps: bool,
    /// The kernel's symbols; `None`: read from `/proc/kallsyms` at the first kernel frame.
    pub kallsyms: Option<Arc<KernelSymbols>>,
    /// Directories with separate debug files, in the target's root and in the host's.
    pub debug_directories: Vec<PathBuf>,
    /// Maximum time for the debug information of one module.
    pub time_per_module: std::time::Duration,
}

impl Default for Sources {
    fn default() -> Self {
        Sources {
            modules: FxHashMap::default(),
            root: None,
            perf_maps: true,
            kallsyms: None,
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
            time_per_module: std::time::Duration::from_secs(10),
        }
    }
}

impl Sources {
    /// Root directory to search for the files of a module from `source`.
    pub(crate) fn root_of(&self, source: Option<&ModuleSource>) -> Option<Arc<TargetRoot>> {
        let known = source.and_then(|s| s.root.as_ref()).or(self.root.as_ref());
        known.cloned().or_else(root_for_everybody)
    }
}

/// This process's root directory, with the rights of an unknown user.
pub(crate) fn root_for_everybody() -> Option<Arc<TargetRoot>> {
    TargetRoot::of_host(Rights::of_nobody()).ok().map(Arc::new)
}
