//! The Go truth program, compiled here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Program};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/go");

/// How a Go program is built.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// For people.
    pub name: &'static str,
    /// Arguments of `go build`.
    pub flags: &'static [&'static str],
    /// Files of the program.
    files: &'static [&'static str],
}

/// With everything that the compiler leaves in it.
pub const PLAIN: Build = Build {
    name: "plain",
    flags: &[],
    files: &["truth.go"],
};
/// As most programs are shipped: no symbols, no debug information, no fixed place in memory.
pub const STRIPPED: Build = Build {
    name: "stripped",
    flags: &["-buildmode=pie", "-ldflags=-s -w"],
    files: &["truth.go"],
};
/// With C that it calls, and that calls it.
pub const WITH_C: Build = Build {
    name: "with C",
    flags: &["-tags", "called"],
    files: &["truth.go", "called.go"],
};

/// A Go truth program, in a folder that goes when it is dropped.
#[derive(Debug)]
pub struct GoProgram {
    folder: tempfile::TempDir,
}

impl GoProgram {
    /// Compiles it.
    ///
    /// # Errors
    /// [`Error::CannotRunHere`] where Go is not installed; otherwise what the compiler said.
    pub fn build(build: Build) -> Result<GoProgram, Error> {
        let there = Command::new("go")
            .arg("version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if there.is_err() {
            return Err(Error::CannotRunHere("Go is not installed".into()));
        }
        let folder = tempfile::tempdir().map_err(|e| Error::Start(format!("a folder: {e}")))?;
        let mut command = Command::new("go");
        command
            .args(["build", "-o"])
            .arg(folder.path().join(NAME))
            .args(build.flags)
            .args(build.files.iter().map(|f| Path::new(FOLDER).join(f)))
            .current_dir(folder.path())
            .env("GO111MODULE", "off")
            .env("GOTOOLCHAIN", "local")
            .env_remove("GOFLAGS");
        if std::env::var_os("HOME").is_none() {
            command.env("GOCACHE", folder.path().join("cache"));
        }
        let output = command
            .output()
            .map_err(|e| Error::Start(format!("go build: {e}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            return Err(Error::Start(format!("go build: {said}")));
        }
        Ok(GoProgram { folder })
    }

    /// The executable.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Starts it with `flags`, up to its READY.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start(&self, flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(self.path());
        command.args(flags);
        Program::start_command("truth.go", command)
    }
}

const NAME: &str = "truth-go";
