//! Debug files beside a program: found by build id or by debug link, in the target's file system
//! first and then in the host's.
//!
//! * `DIR/.build-id/xx/yyyy.debug` in every debug directory (usually `/usr/lib/debug`);
//! * the `.gnu_debuglink` name beside the file, in `.debug` beside it, and under every debug
//!   directory.
//!
//! A file counts only where its build id is the same, or where the program has none and the CRC in
//! the link is that of the file. No debuginfod: resolving never uses the network.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use wallscope_binfmt::elf::Elf;
use wallscope_binfmt::mapped::MappedFile;

use crate::source::{TargetRoot, open_seen_from};

/// Where to look.
pub(crate) struct Search<'a> {
    /// The target's root; the host's is always searched too.
    pub root: Option<&'a TargetRoot>,
    /// Directories with debug files.
    pub directories: &'a [PathBuf],
    /// Path of the program itself, as the target sees it.
    pub module: &'a Path,
}

impl Search<'_> {
    /// The debug file of `elf`.
    pub(crate) fn debug_file(&self, elf: &Elf<'_>) -> Option<MappedFile> {
        let id = elf.build_id();
        if let Some(id) = &id
            && let Some(found) = self.by_build_id(id)
        {
            return Some(found);
        }
        let (link, crc) = elf.debug_link()?;
        let link = Path::new(OsStr::from_bytes(link));
        // A link is a bare name; anything else would lead elsewhere.
        let name = link.file_name()?;
        self.linked_paths(name).into_iter().find_map(|path| {
            self.open(&path, |data| {
                let found = Elf::parse(data).ok();
                match (&id, found.and_then(|f| f.build_id())) {
                    (Some(ours), Some(theirs)) => *ours == theirs,
                    _ => crc32fast::hash(data) == crc,
                }
            })
        })
    }

    /// The supplementary file that `dwz` made, which `elf` refers to.
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
        // Shorter ones are no build ids, and would make paths that mean something else.
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

    /// Opens `path` in the target's root, then in the host's, and takes the first that is `right`.
    fn open(&self, path: &Path, right: impl Fn(&[u8]) -> bool) -> Option<MappedFile> {
        let in_root = self.root.map(Some);
        in_root.into_iter().chain([None]).find_map(|root| {
            let file = open_seen_from(root, path).ok()?;
            let map = MappedFile::map(&file).ok()?;
            right(&map).then_some(map)
        })
    }
}

/// `a/b/../c` as `a/c`: the directory `xx` of a build id that was put in to be left again does not
/// exist.
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
