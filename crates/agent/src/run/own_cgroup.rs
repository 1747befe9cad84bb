//! A control group of the agent's own, so that its CPU time and memory are counted apart.
//!
//! The agent makes a group below the one that it was started in, and enters it: limits of the outer group stay in
//! force. It never moves another process. A service manager that started it alone in a group has done that already.
//! Only hierarchies that count are entered (version 2, and `cpuacct` and `memory` of version 1).

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use wallscope_procfs::{cgroup, kernel_file};

/// Name of the group.
const NAME: &str = "wallscope-agent";
/// Controllers of version 1 that count; version 2 has one hierarchy for all.
const COUNTING: [&str; 2] = ["cpuacct", "memory"];

/// The groups that were entered; left and removed when it is dropped.
#[derive(Debug, Default)]
pub(super) struct OwnCgroup {
    entered: Vec<Entered>,
    /// Groups of its own, or why there are none, in words.
    pub words: String,
}

#[derive(Debug)]
struct Entered {
    dir: PathBuf,
    /// The group before.
    outer: PathBuf,
}

impl OwnCgroup {
    /// Enters a group of its own wherever that is allowed.
    pub(super) fn enter() -> OwnCgroup {
        let pid = std::process::id();
        let mut dirs: Vec<PathBuf> = (COUNTING.iter())
            .filter_map(|controller| cgroup::group_of(pid, controller))
            .map(|group| group.dir)
            .collect();
        dirs.dedup();
        let mut own = OwnCgroup::default();
        let mut words = Vec::new();
        for outer in dirs {
            match enter_below(&outer, pid) {
                Ok(None) => words.push(format!("own '{}'", outer.display())),
                Ok(Some(dir)) => {
                    words.push(format!("own '{}'", dir.display()));
                    own.entered.push(Entered { dir, outer });
                }
                Err(e) => words.push(format!("that of '{}', shared: {e}", outer.display())),
            }
        }
        own.words = match words.is_empty() {
            true => "none: no hierarchy that counts is mounted here".into(),
            false => words.join("; "),
        };
        own
    }
}

/// The group below `outer` that was entered; `None`: `outer` is its own.
fn enter_below(outer: &Path, pid: u32) -> io::Result<Option<PathBuf>> {
    let is_named = outer.file_name().is_some_and(|name| name == NAME);
    let members = kernel_file::read_to_string(outer.join("cgroup.procs"))?;
    if is_named || members.trim() == pid.to_string() {
        return Ok(None);
    }
    let dir = outer.join(NAME);
    match fs::create_dir(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    match put(&dir, pid) {
        Ok(()) => Ok(Some(dir)),
        Err(e) => {
            // Another agent may be in it.
            let _ = fs::remove_dir(&dir);
            Err(e)
        }
    }
}

/// Moves process `pid`, this one, into the group `dir`.
fn put(dir: &Path, pid: u32) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a cgroup's own file")]
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(dir.join("cgroup.procs"))?;
    file.write_all(pid.to_string().as_bytes())
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        for Entered { dir, outer } in &self.entered {
            // A group that stays is used again by the next start.
            if put(outer, std::process::id()).is_ok() {
                let _ = fs::remove_dir(dir);
            }
        }
    }
}
