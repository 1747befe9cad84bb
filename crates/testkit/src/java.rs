//! The Java truth program, and the virtual machines of this machine that can run it: those with a compiler
//! from its source, others as class files that one of these compiled.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use crate::{Error, Program};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/java/Truth.java");
const COLLECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/java/Collect.java");
const VIRTUAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/java/Virtual.java");
/// The first version that the program of pauses runs on; pauses can be told from 14 on.
const FIRST_COLLECT: u32 = 17;
/// The first version with virtual threads.
const FIRST_VIRTUAL: u32 = 21;
/// The first version in which those may wait in `synchronized` without their carrier.
const FIRST_UNPINNED: u32 = 24;
/// The first version that runs a program straight from its source.
const OLDEST: u32 = 11;

/// A Java that is here.
#[derive(Clone, Debug)]
pub struct Java {
    /// Its launcher.
    pub path: PathBuf,
    /// `17.0.15`.
    pub version: String,
    /// It was asked for by name.
    pub named: bool,
    /// The programs, compiled for it; `None`: it compiles them itself at each start.
    classes: Option<Arc<TempDir>>,
}

/// All of them: the one in use, those in the system's folder for them, and the launchers that
/// `WALLSCOPE_JAVAS` names (with `:` between them), also without a compiler.
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
    let mut all: Vec<_> = launchers
        .iter()
        .filter_map(|p| p.canonicalize().ok())
        .filter(|p| seen.insert(p.clone()))
        .filter_map(|p| about(&p))
        .filter(Java::compiles)
        .collect();
    let named = std::env::var_os("WALLSCOPE_JAVAS").unwrap_or_default();
    let named: Vec<_> = std::env::split_paths(&named)
        .filter_map(|p| p.canonicalize().ok())
        .filter(|p| seen.insert(p.clone()))
        .filter_map(|p| about(&p))
        .collect();
    for java in named {
        let classes = match java.compiles() {
            true => None,
            false => Some(Arc::new(java.compile(&all)?)),
        };
        all.push(Java {
            named: true,
            classes,
            ..java
        });
    }
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
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = release
        .lines()
        .find_map(|l| l.strip_prefix("JAVA_VERSION="))?
        .trim_matches('"');
    let java = Java {
        path: path.to_owned(),
        version: version.to_owned(),
        named: false,
        classes: None,
    };
    (java.major() >= OLDEST).then_some(java)
}

impl Java {
    fn major(&self) -> u32 {
        let major = self.version.split(['.', '+', '-']).next();
        major.and_then(|m| m.parse().ok()).unwrap_or(0)
    }

    fn compiler(&self) -> PathBuf {
        self.path.with_file_name("javac")
    }

    fn compiles(&self) -> bool {
        self.compiler().exists()
    }

    /// Compiles the programs once for all starts. Otherwise the launcher compiles a source at each start: JDK 17 then
    /// starts in 1.7 s and not in 0.25, with `-Xcomp` in 45 s and not in 10.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn compiled(self) -> Result<Java, Error> {
        if self.classes.is_some() {
            return Ok(self);
        }
        let classes = Some(Arc::new(self.compile(std::slice::from_ref(&self))?));
        Ok(Java { classes, ..self })
    }

    /// Compiles the programs for it, by the first of `others` that can.
    fn compile(&self, others: &[Java]) -> Result<TempDir, Error> {
        let Some(other) = others.iter().find(|o| o.major() >= self.major()) else {
            return Err(Error::CannotRunHere(format!(
                "no JDK that compiles for Java {} is installed",
                self.version
            )));
        };
        let folder = tempfile::tempdir().map_err(|e| Error::Start(format!("a folder: {e}")))?;
        let mut command = Command::new(other.compiler());
        command.args(["-nowarn", "--release", &self.major().to_string(), "-d"]);
        command.arg(folder.path()).arg(PROGRAM);
        if self.has_wait_barrier() {
            command.arg(COLLECT);
        }
        if self.has_virtual_threads() {
            command.arg(VIRTUAL);
        }
        let output = command
            .output()
            .map_err(|e| Error::Start(format!("javac: {e}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            return Err(Error::Start(format!("javac: {said}")));
        }
        Ok(folder)
    }

    /// What the launcher is told to run: a source, or the class that was compiled of it.
    fn program(&self, command: &mut Command, source: &str) {
        match &self.classes {
            None => command.arg(source),
            Some(classes) => command
                .arg("-cp")
                .arg(classes.path())
                .arg(Path::new(source).file_stem().unwrap_or_default()),
        };
    }

    /// Whether its pauses can be told, and the program of pauses runs on it.
    pub fn has_wait_barrier(&self) -> bool {
        self.major() >= FIRST_COLLECT
    }

    /// Whether it starts with this flag: not each vendor builds each collector.
    pub fn takes(&self, flag: &str) -> bool {
        let said = Command::new(&self.path).args([flag, "-version"]).output();
        said.is_ok_and(|said| said.status.success())
    }

    /// Starts the program that makes garbage with the collector of flag `collector`, up to its READY. The VM writes
    /// its pauses to `log`.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start_collect(
        &self,
        collector: &str,
        log: &Path,
        flags: &[&str],
    ) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        let file = log.display();
        command.args([collector, "-Xmx256m"]);
        command.arg(format!("-Xlog:safepoint:file=\"{file}\":none"));
        self.program(&mut command, COLLECT);
        command.arg("--log").arg(log).args(flags);
        Program::start_command("Collect.java", command)
    }

    /// Whether it has virtual threads.
    pub fn has_virtual_threads(&self) -> bool {
        self.major() >= FIRST_VIRTUAL
    }

    /// Whether a virtual thread that waits in `synchronized` holds its carrier.
    pub fn pins(&self) -> bool {
        self.major() < FIRST_UNPINNED
    }

    /// Starts the program of virtual threads, up to its READY; `vm`: flags of the VM.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start_virtual(&self, vm: &[&str], flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.args(vm);
        self.program(&mut command, VIRTUAL);
        command.args(flags);
        Program::start_command("Virtual.java", command)
    }

    /// Starts the truth program with `flags` on one CPU, up to its READY; `vm`: flags of the VM. One method of it is
    /// never compiled.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start(&self, vm: &[&str], flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new("taskset");
        // Of threads that are moved in their sleep, the kernel counts a part of it as waiting for
        // a CPU, and there would be no truth to compare with.
        command.arg("-c").arg(first_cpu().to_string());
        command.arg(&self.path).args([
            "-XX:CompileCommand=quiet",
            "-XX:CompileCommand=exclude,Truth::slow",
        ]);
        command.args(vm);
        self.program(&mut command, PROGRAM);
        command.args(flags);
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
