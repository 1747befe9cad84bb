//! The JavaScript truth program, run by the Node.js of this machine.

use std::process::{Command, Stdio};

use crate::{Error, Program};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/node/truth.js");

/// Whether there is a Node.js to run it.
///
/// # Errors
/// [`Error::CannotRunHere`] where there is none.
pub fn installed() -> Result<(), Error> {
    let there = Command::new("node")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match there {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::CannotRunHere("Node.js is not installed".into())),
    }
}

/// Starts it, with `options` for Node.js and `flags` of its own, up to its READY.
///
/// # Errors
/// As [`installed`] and [`Program::start_command`].
pub fn start(options: &[&str], flags: &[&str]) -> Result<Program, Error> {
    installed()?;
    let mut command = Command::new("node");
    command.args(options).arg(PROGRAM).args(flags);
    Program::start_command("truth.js", command)
}
