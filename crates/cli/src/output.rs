//! Output of results: standard output, or a file that appears complete or not at all.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Seek as _, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tempfile::{NamedTempFile, TempPath};

use crate::failure::Failure;

/// Prefix of default names of recordings.
pub const UNASKED: &str = "wallscope-";

/// An output file that has no name before [`Output::finish`] (`O_TMPFILE`), in the folder of its final
/// name. However this process ends, it leaves no incomplete file there. On file systems without
/// `O_TMPFILE` the file has a temporary name, which an orderly exit removes. A device or a FIFO is
/// written in place; `-` is standard output.
pub struct Output {
    file: BufWriter<Sink>,
    /// The path as given by the user.
    path: PathBuf,
    /// The file that gets the contents: the target of `path` if `path` is a symbolic link.
    place: PathBuf,
    /// Whether this file gets a number if another file has its name at the end.
    yields: bool,
    readers: Readers,
}

/// The users that may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Its owner: a recording holds command lines, paths and names of every process it saw. Under sudo
    /// the owner is the user that called sudo.
    Owner,
    /// The users that the umask permits.
    Umask,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Readers::Owner => 0o600,
            Readers::Umask => 0o666,
        }
    }
}

enum Sink {
    Nameless(File),
    Beside(NamedTempFile),
    Itself(File),
}

impl Sink {
    fn file(&self) -> &File {
        match self {
            Sink::Beside(file) => file.as_file(),
            Sink::Nameless(file) | Sink::Itself(file) => file,
        }
    }
}

impl Write for Sink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Beside(file) => file.write(buf),
            Sink::Nameless(file) | Sink::Itself(file) => file.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Beside(file) => file.flush(),
            Sink::Nameless(file) | Sink::Itself(file) => file.flush(),
        }
    }
}

impl Output {
    /// Opens a file that `readers` may read. A missing or read-only folder is an error here, before any work
    /// is done.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user names the file, to be written"
    )]
    pub fn create(path: &Path, readers: Readers) -> anyhow::Result<Output> {
        let output = |sink, place: &Path| Output {
            file: BufWriter::new(sink),
            path: path.to_path_buf(),
            place: place.to_path_buf(),
            yields: false,
            readers,
        };
        if path == Path::new("-") {
            let own = io::stdout().as_fd().try_clone_to_owned();
            let own = own.context("standard output is closed")?;
            return Ok(output(Sink::Itself(own.into()), path));
        }
        // A symbolic link is followed: its target is written, and the link stays.
        let followed = path.is_symlink().then(|| path.canonicalize().ok());
        let place = &followed.flatten().unwrap_or_else(|| path.to_path_buf());
        if place.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            let file = File::options().write(true).open(place);
            let file = file.with_context(|| format!("cannot write to '{}'", path.display()))?;
            return Ok(output(Sink::Itself(file), place));
        }
        anyhow::ensure!(
            place.file_name().is_some() && !place.is_dir(),
            "cannot write '{}': it is a folder; name a file with -o",
            path.display()
        );
        let folder = folder(place);
        let sink = match nameless(folder, readers) {
            Ok(file) => Sink::Nameless(file),
            Err(_) => Sink::Beside(builder(readers).tempfile_in(folder).with_context(|| {
                format!(
                    "cannot write into '{}'; choose another place with -o",
                    folder.display()
                )
            })?),
        };
        if readers == Readers::Owner {
            give_to_caller(sink.file())
                .with_context(|| format!("cannot give '{}' to the user of sudo", path.display()))?;
        }
        Ok(output(sink, place))
    }

    /// Opens a file under a default name. If another file has the name when this one is finished, that
    /// file keeps it and this one gets a number.
    pub fn create_beside(path: &Path, readers: Readers) -> anyhow::Result<Output> {
        Ok(Output {
            yields: true,
            ..Output::create(path, readers)?
        })
    }

    /// Whether it is a file of its own, rather than standard output or a device.
    pub fn is_file(&self) -> bool {
        !matches!(self.file.get_ref(), Sink::Itself(_))
    }

    /// Whether it has a default name, which it leaves to another file that already has it.
    pub fn yields(&self) -> bool {
        self.yields
    }

    /// The folder of the name asked for.
    pub fn folder(&self) -> &Path {
        folder(&self.path)
    }

    /// The name asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file and gives it its name, which is returned.
    pub fn finish(self) -> anyhow::Result<PathBuf> {
        let path = self.path;
        let failed = || unwritable(&path);
        let sink = self.file.into_inner().map_err(|e| e.into_error());
        let mut file = match sink.with_context(failed)? {
            Sink::Itself(_) => return Ok(path),
            Sink::Beside(file) => {
                file.as_file().sync_all().with_context(failed)?;
                file.into_temp_path()
            }
            Sink::Nameless(file) => {
                file.sync_all().with_context(failed)?;
                named(file, folder(&self.place), self.readers).with_context(failed)?
            }
        };
        if !self.yields {
            let placed = file.persist(&self.place).map_err(|e| e.error);
            placed.with_context(failed)?;
            return Ok(path);
        }
        for number in 1.. {
            let name = numbered(&path, number);
            match file.persist_noclobber(&name) {
                Ok(()) => return Ok(name),
                Err(e) if e.error.kind() == ErrorKind::AlreadyExists => file = e.path,
                Err(e) => return Err(e.error).with_context(failed),
            }
        }
        unreachable!("there is no end of numbers")
    }
}

/// Message for a failed write to `path`, with the next step.
pub fn unwritable(path: &Path) -> String {
    format!(
        "cannot write '{}'; make room, or choose another place with -o",
        path.display()
    )
}

/// The folder that a file is in.
fn folder(place: &Path) -> &Path {
    match place.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// Makes temporary files that `readers` may read.
fn builder(readers: Readers) -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".wallscope-");
    builder.permissions(std::fs::Permissions::from_mode(readers.mode()));
    builder
}

/// User and group that called sudo, if this process runs under it.
pub fn caller() -> Option<(u32, u32)> {
    let id = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let caller = id("SUDO_UID").zip(id("SUDO_GID"));
    caller.filter(|_| rustix::process::geteuid().is_root())
}

/// Gives a new file to the user that called sudo, if this process runs under it.
pub fn give_to_caller(file: &File) -> io::Result<()> {
    match caller() {
        Some((user, group)) => std::os::unix::fs::fchown(file, Some(user), Some(group)),
        None => Ok(()),
    }
}

/// A file in `folder` without a name (`O_TMPFILE`). Fails on file systems without such files, and if the
/// file could not be named later.
#[expect(clippy::disallowed_methods, reason = "makes a file")]
fn nameless(folder: &Path, readers: Readers) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(readers.mode());
    let file = File::from(rustix::fs::open(folder, flags, mode)?);
    std::fs::metadata(by_number(&file))?;
    Ok(file)
}

/// Links `file` under a temporary name in `folder`; if it cannot be linked, the name gets a copy.
fn named(mut file: File, folder: &Path, readers: Readers) -> io::Result<TempPath> {
    let own = by_number(&file);
    let link = |name: &Path| {
        rustix::fs::linkat(CWD, &own, CWD, name, AtFlags::SYMLINK_FOLLOW).map_err(Into::into)
    };
    if let Ok(linked) = builder(readers).make_in(folder, link) {
        return Ok(linked.into_temp_path());
    }
    let mut copy = builder(readers).tempfile_in(folder)?;
    if readers == Readers::Owner {
        give_to_caller(copy.as_file())?;
    }
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file, &mut copy)?;
    copy.as_file().sync_all()?;
    Ok(copy.into_temp_path())
}

/// The path in `/proc` of a file without a name.
fn by_number(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// `path` with `number` before its endings; 1 is left out.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, endings) = name.split_at(name.find('.').unwrap_or(name.len()));
    match number {
        ..2 => path.to_path_buf(),
        _ => path.with_file_name(format!("{stem}-{number}{endings}")),
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes to standard output; a reader that goes away ends it quietly.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        Err(e) => Err(anyhow::Error::new(e)
            .context("cannot write to standard output")
            .into()),
    }
}

/// The file that results go to; `None`: standard output, for `-` or without an argument.
pub fn file(asked: Option<&Path>) -> Option<&Path> {
    asked.filter(|path| *path != Path::new("-"))
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Cells of a line on standard output, from COLUMNS or the terminal; `None` for a pipe.
pub fn width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok();
    let asked = columns.and_then(|c| c.parse().ok()).filter(|c| *c > 0);
    let size = || terminal_size::terminal_size_of(io::stdout()).map(|(w, _)| usize::from(w.0));
    asked.or_else(|| is_terminal().then(|| size().unwrap_or(80)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_asked_for_takes_nobodys_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wallscope-1.pb.gz");
        // Both are opened before either is finished.
        let mut both = [(); 2].map(|()| Output::create_beside(&path, Readers::Owner).unwrap());
        for (output, text) in both.iter_mut().zip(["first", "second"]) {
            output.write_all(text.as_bytes()).unwrap();
        }
        let [first, second] = both.map(|output| output.finish().unwrap());
        assert_eq!(first, path);
        assert_eq!(second, folder.path().join("wallscope-1-2.pb.gz"));
        assert_eq!(std::fs::read(first).unwrap(), b"first");
        assert_eq!(std::fs::read(second).unwrap(), b"second");
        // A file under a name given by the user replaces the existing one.
        let mut output = Output::create(&path, Readers::Owner).unwrap();
        output.write_all(b"third").unwrap();
        assert_eq!(output.finish().unwrap(), path);
        assert_eq!(std::fs::read(&path).unwrap(), b"third");
    }
    #[test]
    fn nothing_is_there_before_it_is_whole_and_a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let names = || -> Vec<String> {
            let mut names: Vec<_> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        let mut output = Output::create(&link, Readers::Umask).unwrap();
        output.write_all(b"new").unwrap();
        output.flush().unwrap();
        if nameless(folder.path(), Readers::Umask).is_ok() {
            assert_eq!(names(), ["link", "real"]);
        } else {
            println!("skipped: this file system has no files without a name");
        }
        assert_eq!(std::fs::read(&real).unwrap(), b"old");
        assert_eq!(output.finish().unwrap(), link, "the name asked for");
        assert_eq!(names(), ["link", "real"]);
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
    }
}
