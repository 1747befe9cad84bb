//! The Python truth program, and the interpreters of this machine that can run it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Program};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/python/truth.py");

/// The program with tasks that know the thing that they await.
const TASKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/python/tasks.py");

/// The program with threads that Python names.
const NAMES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/python/names.py");

/// The program with a process of one trouble per case.
pub(crate) const TROUBLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/python/trouble.py");

/// An interpreter that is here, of a version that wallscope supports.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// Its executable.
    pub path: PathBuf,
    /// `3.11`.
    pub version: String,
}

/// All of them, one path each: the system's, the one in use, those that pyenv has installed, and those that
/// `WALLSCOPE_PYTHONS` names (paths, with `:` between them).
///
/// # Errors
/// [`Error::CannotRunHere`] where there is none.
pub fn interpreters() -> Result<Vec<Interpreter>, Error> {
    let mut paths = vec![PathBuf::from("/usr/bin/python3"), PathBuf::from("python3")];
    let home = std::env::var_os("HOME").unwrap_or_default();
    let installed = std::fs::read_dir(Path::new(&home).join(".pyenv/versions"));
    let mut more: Vec<PathBuf> = installed
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/python3"))
        .collect();
    more.sort();
    paths.extend(more);
    paths.push(PathBuf::from("python3.14"));
    let named = std::env::var_os("WALLSCOPE_PYTHONS").unwrap_or_default();
    paths.extend(std::env::split_paths(&named).filter(|p| p.is_absolute()));
    let mut seen = BTreeSet::new();
    let all: Vec<_> = paths.iter().filter_map(|p| about(p, &mut seen)).collect();
    if all.is_empty() {
        return Err(Error::CannotRunHere(
            "no CPython between 3.8 and 3.14 is installed".into(),
        ));
    }
    Ok(all)
}

/// What the interpreter at `path` says of itself; `None` where there is none, or it was seen.
fn about(path: &Path, seen: &mut BTreeSet<PathBuf>) -> Option<Interpreter> {
    let ask = "import os, sys, sysconfig; print(*sys.version_info[:2], os.path.realpath(sys.executable), \
               sys.implementation.name, sysconfig.get_config_var('Py_GIL_DISABLED') or 0)";
    let output = Command::new(path).args(["-c", ask]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut words = text.split_whitespace();
    let (major, minor) = (words.next()?, words.next()?.parse::<u32>().ok()?);
    let executable = PathBuf::from(words.next()?);
    let supported = (major, words.next()?, words.next()?) == ("3", "cpython", "0");
    (supported && (8..=14).contains(&minor) && seen.insert(executable.clone())).then(|| {
        Interpreter {
            // What starts it may do more than it could itself, as to find its libraries.
            path: match path.is_absolute() {
                true => path.to_owned(),
                false => executable,
            },
            version: format!("{major}.{minor}"),
        }
    })
}

impl Interpreter {
    /// `11` of 3.11.
    pub fn minor(&self) -> u32 {
        let minor = self.version.rsplit('.').next();
        minor.and_then(|n| n.parse().ok()).unwrap_or_default()
    }

    /// Starts the program with tasks that know the thing that they await, up to its READY.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start_tasks(&self, flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.arg(TASKS).args(flags);
        Program::start_command("tasks.py", command)
    }

    /// Starts the program with threads that Python names, up to its READY.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start_names(&self, flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.arg(NAMES).args(flags);
        Program::start_command("names.py", command)
    }

    /// Starts the truth program with `flags`, up to its READY.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start(&self, flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.arg(PROGRAM).args(flags);
        Program::start_command("truth.py", command)
    }

    /// Starts it with a trampoline of machine code before each function, as for perf (from 3.12 on). It
    /// leaves a perf map behind.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start_with_trampolines(&self, flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.args(["-X", "perf", PROGRAM]).args(flags);
        Program::start_command("truth.py", command)
    }
}
