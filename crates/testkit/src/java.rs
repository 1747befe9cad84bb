//! The Java truth program, and the virtual machines of this machine that can run it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Program};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/java/Truth.java");
const VIRTUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/java/Virtual.java");
/// The first version with virtual threads.
const FIRST_VIRTUAL: u32 = 21;
/// The first version that runs a program straight from its source.
const OLDEST: u32 = 11;

/// A Java that is here, with a compiler.
#[derive(Clone, Debug)]
pub struct Java {
    /// Its launcher.
    pub path: PathBuf,
    /// `17.0.15`.
    pub version: String,
}

/// All of them: the one in use, and those in the system's folder for them.
///
/// # Errors
/// [`Error::CannotRunHere`] where there is none.
pub fn installed() -> Result<Vec<Java>, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut launchers: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|dir| dir.join("java"))
        .collect();
    let mut more: Vec<PathBuf> = std::fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/java"))
        .collect();
    more.sort();
    launchers.extend(more);
    let mut seen = BTreeSet::new();
    let all: Vec<_> = launchers
        .iter()
        .filter_map(|p| p.canonicalize().ok())
        .filter(|p| seen.insert(p.clone()))
        .filter_map(|p| about(&p))
        .collect();
    if all.is_empty() {
        return Err(Error::CannotRunHere(format!(
            "no JDK from {OLDEST} on is installed (a JRE does not do: the program is compiled)"
        )));
    }
    Ok(all)
}

/// What the folder of the launcher at `path` says of its version.
fn about(path: &Path) -> Option<Java> {
    let home = path.parent()?.parent()?;
    if !home.join("bin/javac").exists() {
        return None;
    }
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = release
        .lines()
        .find_map(|l| l.strip_prefix("JAVA_VERSION="))?
        .trim_matches('"');
    let major = version.split(['.', '+', '-']).next()?.parse::<u32>().ok()?;
    (major >= OLDEST).then(|| Java {
        path: path.to_owned(),
        version: version.to_owned(),
    })
}

impl Java {
    /// Whether it has virtual threads.
    pub fn has_virtual_threads(&self) -> bool {
        let major = self.version.split(['.', '+', '-']).next();
        major.and_then(|m| m.parse::<u32>().ok()) >= Some(FIRST_VIRTUAL)
    }

    /// Starts the program of virtual threads, up to its READY; `vm`: flags of the VM.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start_virtual(&self, vm: &[&str], flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.args(vm).arg(VIRTUAL).args(flags);
        Program::start_command("Virtual.java", command)
    }

    /// Starts the truth program with `flags` on one CPU, up to its READY. One method of it is never
    /// compiled.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start(&self, flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new("taskset");
        // Of threads that are moved in their sleep, the kernel counts a part of it as waiting for
        // a CPU, and there would be no truth to compare with.
        command.arg("-c").arg(first_cpu().to_string());
        command.arg(&self.path).args([
            "-XX:CompileCommand=quiet",
            "-XX:CompileCommand=exclude,Truth::slow",
        ]);
        command.arg(PROGRAM).args(flags);
        Program::start_command("Truth.java", command)
    }
}

/// The first CPU that this process may use.
fn first_cpu() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None);
    let first = |set: rustix::thread::CpuSet| {
        (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu))
    };
    allowed.ok().and_then(first).unwrap_or(0)
}
