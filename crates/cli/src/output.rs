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
        })
    }

    /// Syncs the file and gives it its name.
    pub fn finish(self) -> anyhow::Result<()> {
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
        let Sink::Beside(file) = file else {
            return Ok(());
        };
        file.as_file().sync_all().with_context(failed)?;
        file.persist(&path)
            .map_err(|e| e.error)
            .with_context(failed)?;
        Ok(())
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
