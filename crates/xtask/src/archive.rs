//! Initial file systems of Linux: cpio archives in the kernel's "newc" format.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// An archive that grows.
pub struct Archive {
    out: BufWriter<File>,
    folders: BTreeSet<PathBuf>,
    written: usize,
    entries: u32,
}

impl Archive {
    /// Begins an archive.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> io::Result<Archive> {
        Ok(Archive {
            out: BufWriter::new(File::create(path)?),
            folders: BTreeSet::new(),
            written: 0,
            entries: 0,
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.entry(Path::new("/TRAILER!!!"), 0, (0, 0), &[])?;
        self.out.flush()
    }

    /// All of the folder `from`, as the root: files, links and folders, with their modes, owned by root. Folders for
    /// which `is_wanted` does not hold, by their path in the archive, are left empty.
    ///
    /// # Errors
    /// Something cannot be read, or the archive cannot be written.
    pub fn tree(&mut self, from: &Path, is_wanted: &impl Fn(&Path) -> bool) -> io::Result<()> {
        self.below(from, Path::new("/"), is_wanted)
    }

    fn below(
        &mut self,
        from: &Path,
        at: &Path,
        is_wanted: &impl Fn(&Path) -> bool,
    ) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (path, to) = (entry.path(), at.join(entry.file_name()));
            let metadata = entry.metadata()?;
            let (kind, mode) = (metadata.file_type(), metadata.mode());
            if kind.is_dir() {
                self.folders.insert(to.clone());
                self.entry(&to, mode, (0, 0), &[])?;
                if is_wanted(&to) {
                    self.below(&path, &to, is_wanted)?;
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(&path)?;
                self.entry(&to, mode, (0, 0), target.as_os_str().as_bytes())?;
            } else if kind.is_file() {
                self.entry(&to, mode, (0, 0), &fs::read(&path)?)?;
            }
        }
        Ok(())
    }

    /// A folder, and those above it.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn folder(&mut self, path: &Path) -> io::Result<()> {
        let above: Vec<&Path> = path.ancestors().filter(|p| p.parent().is_some()).collect();
        for path in above.into_iter().rev() {
            if self.folders.insert(path.to_path_buf()) {
                self.entry(path, 0o040_755, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// An entry: its mode with the kind of file, the numbers of a device, and its contents.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn entry(
        &mut self,
        path: &Path,
        mode: u32,
        device: (u32, u32),
        bytes: &[u8],
    ) -> io::Result<()> {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        self.entries += 1;
        let mut head = String::from("070701");
        let length = bytes.len() as u32;
        for field in [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ] {
            head.push_str(&format!("{field:08x}"));
        }
        self.put(head.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.align()?;
        self.put(bytes)?;
        self.align()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.out.write_all(bytes)
    }

    fn align(&mut self) -> io::Result<()> {
        self.put(&[0; 3][..self.written.next_multiple_of(4) - self.written])
    }
}
