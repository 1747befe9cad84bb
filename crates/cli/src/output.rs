//! Where results go: standard output, or a file that is there whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::NamedTempFile;

use crate::failure::Failure;

/// A file under a temporary name beside its final one; dropped without [`Output::finish`], it
/// leaves nothing. A device or a FIFO cannot be replaced and is written to as it is;
/// `-` is standard output.
pub struct Output {
    file: BufWriter<Sink>,
    path: PathBuf,
    /// Another file that has the name by then keeps it, and this one gets a number.
    yields: bool,
}

enum Sink {
    Beside(NamedTempFile),
    Itself(File),
}

impl Write for Sink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Beside(file) => file.write(buf),
            Sink::Itself(file) => file.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Beside(file) => file.flush(),
            Sink::Itself(file) => file.flush(),
        }
    }
}

impl Output {
    /// Opens the temporary file: a folder that is missing or read-only shows here, before any
    /// work is done.
    pub fn create(path: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") {
            let own = io::stdout().as_fd().try_clone_to_owned();
            return Ok(Output {
                file: BufWriter::new(Sink::Itself(
                    own.context("standard output is closed")?.into(),
                )),
                path: path.to_path_buf(),
                yields: false,
            });
        }
        // A link stays one, and what it leads to is written.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            let file = File::options().write(true).open(path);
            let file = file.with_context(|| format!("cannot write to '{}'", path.display()))?;
            return Ok(Output {
                file: BufWriter::new(Sink::Itself(file)),
                path: path.to_path_buf(),
                yields: false,
            });
        }
        let folder = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        anyhow::ensure!(
            path.file_name().is_some() && !path.is_dir(),
            "cannot write '{}': it is a folder; name a file with -o",
            path.display()
        );
        let mut builder = tempfile::Builder::new();
        builder.prefix(".wallscope-");
        // As a file made in the ordinary way would be; the umask still applies.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(folder).with_context(|| {
            format!(
                "cannot write into '{}'; choose another place with -o",
                folder.display()
            )
        })?;
        Ok(Output {
            file: BufWriter::new(Sink::Beside(file)),
            path: path.to_path_buf(),
            yields: false,
        })
    }

    /// The same for a name that nobody asked for: whoever has it when this file is finished keeps
    /// it, and this one gets a number.
    pub fn create_beside(path: &Path) -> anyhow::Result<Output> {
        Ok(Output {
            yields: true,
            ..Output::create(path)?
        })
    }

    /// The name asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file and gives it its name, which is returned.
    pub fn finish(self) -> anyhow::Result<PathBuf> {
        let path = self.path;
        let failed = || {
            format!(
                "cannot write '{}'; make room, or choose another place with -o",
                path.display()
            )
        };
        let file = self
            .file
            .into_inner()
            .map_err(|e| e.into_error())
            .with_context(failed)?;
        let Sink::Beside(mut file) = file else {
            return Ok(path);
        };
        file.as_file().sync_all().with_context(failed)?;
        if !self.yields {
            let named = file.persist(&path).map_err(|e| e.error);
            named.with_context(failed)?;
            return Ok(path);
        }
        for number in 1.. {
            let name = numbered(&path, number);
            match file.persist_noclobber(&name) {
                Ok(_) => return Ok(name),
                Err(e) if e.error.kind() == ErrorKind::AlreadyExists => file = e.file,
                Err(e) => return Err(e.error).with_context(failed),
            }
        }
        unreachable!("there is no end of numbers")
    }
}

/// `path`, from 2 on with a number before its endings.
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

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Cells of a line on standard output: what COLUMNS says, or the terminal; `None` for a pipe.
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
        // Both begin before either is there.
        let mut both = [(); 2].map(|()| Output::create_beside(&path).unwrap());
        for (output, text) in both.iter_mut().zip(["first", "second"]) {
            output.write_all(text.as_bytes()).unwrap();
        }
        let [first, second] = both.map(|output| output.finish().unwrap());
        assert_eq!(first, path);
        assert_eq!(second, folder.path().join("wallscope-1-2.pb.gz"));
        assert_eq!(std::fs::read(first).unwrap(), b"first");
        assert_eq!(std::fs::read(second).unwrap(), b"second");
        // One that was asked for replaces what is there.
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"third").unwrap();
        assert_eq!(output.finish().unwrap(), path);
        assert_eq!(std::fs::read(&path).unwrap(), b"third");
    }
}
