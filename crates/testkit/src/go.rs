//! The Go truth program, compiled here, by the Go in use or by others.

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// A Go that is here.
#[derive(Clone, Debug)]
pub struct Go {
    path: PathBuf,
    /// `go1.19.8`.
    pub version: String,
}

/// All of them, one of each version: the one in use first, then those that `WALLSCOPE_GOS` names (paths, with
/// `:` between them).
///
/// # Errors
/// [`Error::CannotRunHere`] where there is none.
pub fn installed() -> Result<Vec<Go>, Error> {
    let named = std::env::var_os("WALLSCOPE_GOS").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|p| p.is_absolute());
    let mut all: Vec<Go> = Vec::new();
    for path in std::iter::once(PathBuf::from(IN_USE)).chain(named) {
        let mut command = Command::new(&path);
        in_its_folder(&mut command, &path);
        let Ok(output) = command.args(["env", "GOVERSION"]).output() else {
            continue;
        };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && all.iter().all(|go| go.version != version) {
            all.push(Go { path, version });
        }
    }
    match all.is_empty() {
        true => Err(Error::CannotRunHere("Go is not installed".into())),
        false => Ok(all),
    }
}

/// Lets a Go that is not the one in use find the files beside it, and take no other.
fn in_its_folder(command: &mut Command, path: &Path) {
    if path != Path::new(IN_USE) {
        command.env_remove("GOROOT");
    }
    command.env("GOTOOLCHAIN", "local");
}

impl Go {
    /// Compiles the program.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn build(&self, build: Build) -> Result<GoProgram, Error> {
        let folder = tempfile::tempdir().map_err(|e| Error::Start(format!("a folder: {e}")))?;
        let mut command = Command::new(&self.path);
        in_its_folder(&mut command, &self.path);
        command
            .args(["build", "-o"])
            .arg(folder.path().join(NAME))
            .args(build.flags)
            .args(build.files.iter().map(|f| Path::new(FOLDER).join(f)))
            .current_dir(folder.path())
            .env("GO111MODULE", "off")
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
}

impl GoProgram {
    /// Compiles it with the Go in use.
    ///
    /// # Errors
    /// As [`installed`] and [`Go::build`].
    pub fn build(build: Build) -> Result<GoProgram, Error> {
        installed()?[0].build(build)
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
const IN_USE: &str = "go";
