//! The files of one package, with their modes, before they are written anywhere.
//!
//! Files belong to root. Folders follow from the files and have mode 0755. The order is that of the paths, so an
//! archive depends on nothing but its content.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tar::{Builder, EntryType, Header};

/// Mode of a program or script.
pub const PROGRAM: u32 = 0o755;
/// Mode of all other files.
pub const DATA: u32 = 0o644;
const FOLDER: u32 = 0o755;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Permission bits.
    pub mode: u32,
    /// Content.
    pub content: Vec<u8>,
}

/// Files by path; paths are relative and have `/` between folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, File>);

impl Tree {
    /// Adds a file that everybody may read.
    pub fn data(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.add(path.into(), DATA, content.into());
    }

    /// Adds a file that everybody may run.
    pub fn program(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.add(path.into(), PROGRAM, content.into());
    }

    fn add(&mut self, path: String, mode: u32, content: Vec<u8>) {
        self.0.insert(path, File { mode, content });
    }

    /// Files by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Folders that the files lie in, parents first.
    pub fn folders(&self) -> BTreeSet<&str> {
        self.0
            .keys()
            .flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]))
            .collect()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|file| file.content.len() as u64).sum()
    }

    /// Writes the files below `folder`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        for path in self.folders() {
            fs::create_dir_all(folder.join(path))?;
            fs::set_permissions(folder.join(path), Permissions::from_mode(FOLDER))?;
        }
        for (path, file) in self.files() {
            fs::write(folder.join(path), &file.content)?;
            fs::set_permissions(folder.join(path), Permissions::from_mode(file.mode))?;
        }
        Ok(())
    }

    /// Writes a tar archive; `time` is that of each entry, s since 1970.
    ///
    /// # Errors
    /// Those of `out`; a path that is too long for the format.
    pub fn tar(&self, out: impl Write, time: u64) -> io::Result<()> {
        let mut archive = Builder::new(out);
        let header = |kind, mode, size| {
            let mut header = Header::new_ustar();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(size);
            header.set_mtime(time);
            header.set_uid(0);
            header.set_gid(0);
            header
        };
        for path in self.folders() {
            let mut header = header(EntryType::Directory, FOLDER, 0);
            archive.append_data(&mut header, format!("{path}/"), io::empty())?;
        }
        for (path, file) in self.files() {
            let size = file.content.len() as u64;
            let mut header = header(EntryType::Regular, file.mode, size);
            archive.append_data(&mut header, path, file.content.as_slice())?;
        }
        archive.finish()
    }

    /// Reads a tar archive of files and folders.
    ///
    /// # Errors
    /// It is damaged, or holds links or devices.
    pub fn read_tar(archive: impl io::Read) -> io::Result<Tree> {
        let mut tree = Tree::default();
        for entry in tar::Archive::new(archive).entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_string_lossy().into_owned();
            match entry.header().entry_type() {
                EntryType::Directory => {}
                EntryType::Regular => {
                    let mut content = Vec::new();
                    io::copy(&mut entry, &mut content)?;
                    tree.add(path, entry.header().mode()?, content);
                }
                _ => {
                    let text = format!("{path} is neither a file nor a folder");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
        }
        Ok(tree)
    }
}
