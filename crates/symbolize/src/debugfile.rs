//! Finds separate debug files by build id or debug link, first in the target's file system, then in
//! the host's.
//!
//! * `DIR/.build-id/xx/yyyy.debug` in every debug directory (usually `/usr/lib/debug`);
//! * the `.gnu_debuglink` name beside the file, in `.debug` beside it, and under every debug
//!   directory.
//!
//! A file counts only if its build id is equal, or, for a program without one, if its CRC is that
//! of the link. There is no debuginfod: resolving never uses the network.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wallscope_binfmt::elf::Elf;
use wallscope_binfmt::mapped::MappedFile;
use wallscope_procfs::target_file::{Purpose, Refusal, TargetPath, TargetRoot};

use crate::source::root_for_everybody;

/// Maximum bytes of a debug file for which a checksum is computed. A file with a build id needs no checksum.
const MAX_CHECKSUM_BYTES: usize = 4 << 30;

/// Places to search.
pub(crate) struct Search<'a> {
    /// The target's root and the host's, in this order, both with the target's rights.
    roots: Vec<&'a TargetRoot>,
    /// Directories with debug files.
    directories: &'a [PathBuf],
    /// Path of the program itself, as the target sees it.
    module: &'a Path,
    /// Reasons for which files that exist were not opened.
    refusals: RefCell<Vec<Refusal>>,
}

impl<'a> Search<'a> {
    /// Creates a search in `roots` for debug files of `module`, a path as the target sees it.
    pub(crate) fn new(
        roots: &'a Roots,
        directories: &'a [PathBuf],
        module: &'a Path,
    ) -> Search<'a> {
        Search {
            roots: roots.0.iter().flatten().map(|root| &**root).collect(),
            directories,
            module,
            refusals: RefCell::default(),
        }
    }

    /// Reasons for which files that exist were not opened, so far.
    pub(crate) fn refusals(self) -> Vec<Refusal> {
        self.refusals.into_inner()
    }

    /// Finds the debug file of `elf`.
    pub(crate) fn debug_file(&self, elf: &Elf<'_>) -> Option<MappedFile> {
        let id = elf.build_id();
        if let Some(id) = &id
            && let Some(found) = self.by_build_id(id)
        {
            return Some(found);
        }
        let (link, crc) = elf.debug_link()?;
        let link = Path::new(OsStr::from_bytes(link));
        // A link is a bare name; a path in it could lead elsewhere.
        let name = link.file_name()?;
        self.linked_paths(name).into_iter().find_map(|path| {
            self.open(&path, |data| {
                let found = Elf::parse(data).ok();
                match (&id, found.and_then(|f| f.build_id())) {
                    (Some(ours), Some(theirs)) => *ours == theirs,
                    _ => data.len() <= MAX_CHECKSUM_BYTES && crc32fast::hash(data) == crc,
                }
            })
        })
    }

    /// Finds the supplementary file by `dwz` that `elf` refers to.
    pub(crate) fn supplementary(&self, elf: &Elf<'_>) -> Option<MappedFile> {
        let (path, id) = elf.debug_alt_link()?;
        let right = |data: &[u8]| {
            let found = Elf::parse(data).ok().and_then(|f| f.build_id());
            found.as_deref() == Some(id.as_str())
        };
        let path = Path::new(OsStr::from_bytes(path));
        let mut paths = vec![];
        if path.is_absolute() {
            paths.push(path.to_owned());
        } else {
            // Relative to the debug file, which lies in `DIR/.build-id/xx/` or `DIR/its/path/`.
            paths.extend(self.directories.iter().flat_map(|dir| {
                [
                    dir.join(".build-id/xx").join(path),
                    dir.join(".dwz").join(path.file_name().unwrap_or_default()),
                ]
            }));
        }
        paths
            .iter()
            .map(|p| without_dots(p))
            .find_map(|p| self.open(&p, right))
            .or_else(|| self.by_build_id(&id))
    }

    fn by_build_id(&self, id: &str) -> Option<MappedFile> {
        // A shorter id is no build id, and would give the path of another file.
        let (head, tail) = id.split_at_checked(2).filter(|(_, t)| t.len() >= 2)?;
        self.directories.iter().find_map(|dir| {
            let path = dir.join(format!(".build-id/{head}/{tail}.debug"));
            self.open(&path, |data| {
                Elf::parse(data).is_ok_and(|f| f.build_id().as_deref() == Some(id))
            })
        })
    }

    fn linked_paths(&self, name: &OsStr) -> Vec<PathBuf> {
        let dir = self.module.parent().unwrap_or(Path::new("/"));
        let mut paths = vec![dir.join(name), dir.join(".debug").join(name)];
        let below = dir.strip_prefix("/").unwrap_or(dir);
        paths.extend(self.directories.iter().map(|d| d.join(below).join(name)));
        paths
    }

    /// Opens `path` in the target's root, then in the host's; returns the first file that is
    /// `right`.
    fn open(&self, path: &Path, right: impl Fn(&[u8]) -> bool) -> Option<MappedFile> {
        let path = TargetPath::new(path);
        self.roots.iter().find_map(|root| {
            let file = match root.open(&path, Purpose::Object) {
                Ok(file) => file,
                Err(refusal) => {
                    if !refusal.is_absent() {
                        self.refusals.borrow_mut().push(refusal);
                    }
                    return None;
                }
            };
            let map = MappedFile::map(&file).ok()?;
            right(&map).then_some(map)
        })
    }
}

/// The root directories to search for debug files: the target's, then the host's.
pub(crate) struct Roots([Option<Arc<TargetRoot>>; 2]);

impl Roots {
    /// The target's root directory and the host's with the target's rights.
    pub(crate) fn of(target: Option<Arc<TargetRoot>>) -> Roots {
        let host = match &target {
            Some(target) => target.host().ok().map(Arc::new),
            None => root_for_everybody(),
        };
        Roots([target, host])
    }
}

/// Simplifies `a/b/../c` to `a/c`. The path passes through a placeholder directory `xx` that does
/// not exist.
fn without_dots(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
