//! Files that a command will map, as far as they are known before it runs: the program (or the interpreter of a
//! script), the dynamic loader, and the libraries that they name.
//!
//! Their unwind tables are built before the command is released, so that its first stacks are whole. A wrong guess
//! costs only that completeness: the mapping records of the kernel decide.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use wallscope_binfmt::{elf::Elf, mapped::MappedFile};
use wallscope_procfs::target_file::open_named_by_user;

/// Folders that loaders search; multiarch first.
const LIBRARY_FOLDERS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];
/// Most files to prepare.
const MAX_FILES: usize = 64;

/// Files that starting `command` will map, the command itself first.
pub fn files_of(command: &OsStr) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut todo: Vec<PathBuf> = locate(command).into_iter().collect();
    while let Some(path) = todo.pop() {
        let Ok(path) = path.canonicalize() else {
            continue;
        };
        if found.len() >= MAX_FILES || !seen.insert(path.clone()) {
            continue;
        }
        let Ok(file) = open_named_by_user(&path).and_then(|f| MappedFile::map(&f)) else {
            continue;
        };
        let bytes: &[u8] = &file;
        if let Some(line) = bytes.strip_prefix(b"#!") {
            let line = &line[..line.iter().position(|c| *c == b'\n').unwrap_or(0)];
            let mut words = line
                .split(|c| c.is_ascii_whitespace())
                .filter(|w| !w.is_empty());
            let program = words.next().map(OsStr::from_bytes);
            todo.extend(program.map(PathBuf::from));
            if program.is_some_and(|p| Path::new(p).ends_with("env")) {
                todo.extend(words.next().and_then(|w| locate(OsStr::from_bytes(w))));
            }
            continue;
        }
        if let Ok(elf) = Elf::parse(bytes) {
            todo.extend(needs(&elf, &path));
            found.push(path);
        }
    }
    found
}

/// The file that `execvp` would run.
pub fn locate(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(command.into());
    }
    env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(command))
        .find(|p| p.is_file())
}

/// The loader and the libraries that an ELF file names.
fn needs(elf: &Elf<'_>, path: &Path) -> Vec<PathBuf> {
    let section = |name| elf.section(name).ok().flatten().unwrap_or_default();
    let text =
        |bytes: &[u8]| -> Vec<u8> { bytes.split(|b| *b == 0).next().unwrap_or_default().to_vec() };
    let mut files = Vec::new();
    let interpreter = text(&section(".interp"));
    if !interpreter.is_empty() {
        files.push(PathBuf::from(OsStr::from_bytes(&interpreter)));
    }
    let (dynamic, strings) = (section(".dynamic"), section(".dynstr"));
    let (mut libraries, mut folders) = (Vec::new(), Vec::new());
    for entry in dynamic.chunks_exact(16) {
        let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap_or_default());
        let Some(name) = strings.get(word(8) as usize..) else {
            continue;
        };
        match word(0) {
            1 => libraries.push(text(name)),
            15 | 29 => folders.extend(text(name).split(|c| *c == b':').map(<[u8]>::to_vec)), // RPATH, RUNPATH
            _ => {}
        }
    }
    let own = path.parent().unwrap_or(Path::new("/"));
    let folders: Vec<PathBuf> = folders
        .iter()
        .map(|f| {
            String::from_utf8_lossy(f)
                .replace("$ORIGIN", &own.to_string_lossy())
                .into()
        })
        .chain(LIBRARY_FOLDERS.iter().map(PathBuf::from))
        .collect();
    for library in libraries {
        let name = OsStr::from_bytes(&library);
        files.extend(folders.iter().map(|f| f.join(name)).find(|p| p.is_file()));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_needs_its_loader_and_its_library() {
        let files = files_of(OsStr::new("sh"));
        let has = |part: &str| files.iter().any(|f| f.to_string_lossy().contains(part));
        assert!(has("libc.so") && has("ld-"), "{files:?}");
    }

    #[test]
    fn what_does_not_exist_needs_nothing() {
        assert!(files_of(OsStr::new("no-such-command-here")).is_empty());
    }
}
