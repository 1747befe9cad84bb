//! The JavaScript truth program, and the Node.js of this machine that can run it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Program};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/node/truth.js");
/// The program with workers that have names.
const NAMES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/node/names.js");
/// The versions that wallscope supports.
const SUPPORTED: std::ops::RangeInclusive<u32> = 18..=24;

/// A Node.js that is here, of a version that wallscope supports.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its executable.
    pub path: PathBuf,
    /// `20.20.2`.
    pub version: String,
}

/// All of them, one of each version: the one in use first, then those of the usual managers of versions,
/// and those that `WALLSCOPE_NODES` names (paths, with `:` between them).
///
/// # Errors
/// [`Error::CannotRunHere`] where there is none.
pub fn installed() -> Result<Vec<Node>, Error> {
    let mut paths = vec![PathBuf::from("node")];
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    for (folder, inside) in [
        (home.join(".nvm/versions/node"), "bin/node"),
        (
            home.join(".local/share/fnm/node-versions"),
            "installation/bin/node",
        ),
        (PathBuf::from("/usr/local/n/versions/node"), "bin/node"),
    ] {
        let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join(inside))
            .collect();
        found.sort();
        paths.extend(found);
    }
    let named = std::env::var_os("WALLSCOPE_NODES").unwrap_or_default();
    paths.extend(std::env::split_paths(&named).filter(|p| p.is_absolute()));
    let mut seen = BTreeSet::new();
    let all: Vec<_> = paths
        .iter()
        .filter_map(|path| about(path))
        .filter(|node| seen.insert(node.version.clone()))
        .collect();
    if all.is_empty() {
        let (first, last) = (SUPPORTED.start(), SUPPORTED.end());
        return Err(Error::CannotRunHere(format!(
            "no Node.js between {first} and {last} is installed"
        )));
    }
    Ok(all)
}

/// What the Node.js at `path` says of itself.
fn about(path: &Path) -> Option<Node> {
    let output = Command::new(path).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.trim().strip_prefix('v')?.to_owned();
    let major = version.split('.').next()?.parse::<u32>().ok()?;
    SUPPORTED.contains(&major).then(|| Node {
        path: path.to_owned(),
        version,
    })
}

impl Node {
    /// Starts the program with workers that have names, and so many threads in libuv's pool and in V8's, up to its
    /// READY.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start_names(&self, pools: (u32, u32), flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.env("UV_THREADPOOL_SIZE", pools.0.to_string());
        command.arg(format!("--v8-pool-size={}", pools.1));
        command.arg(NAMES).args(flags);
        Program::start_command("names.js", command)
    }

    /// Starts the truth program, with `options` for Node.js and `flags` of its own, up to its READY.
    ///
    /// # Errors
    /// As [`Program::start_command`].
    pub fn start(&self, options: &[&str], flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(&self.path);
        command.args(options).arg(PROGRAM).args(flags);
        Program::start_command("truth.js", command)
    }
}
