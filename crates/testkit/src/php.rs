//! The PHP truth program, run by the PHP of this machine.

use std::process::{Command, Stdio};

use crate::{Error, Program};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/php/truth.php");

/// Starts it with `flags`, up to its READY.
///
/// # Errors
/// [`Error::CannotRunHere`] where there is no PHP, or only one without a known frame layout; as
/// [`Program::start_command`].
pub fn start(flags: &[&str]) -> Result<Program, Error> {
    let about = Command::new("php")
        .args([
            "-n",
            "-r",
            "echo PHP_VERSION_ID >= 70300 && !PHP_ZTS ? 'yes' : PHP_VERSION;",
        ])
        .stderr(Stdio::null())
        .output();
    match about.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()) {
        Ok(told) if told == "yes" => {}
        Ok(told) => {
            let why = format!("PHP {told} is older than 7.3, or thread-safe");
            return Err(Error::CannotRunHere(why));
        }
        Err(_) => return Err(Error::CannotRunHere("PHP is not installed".into())),
    }
    let mut command = Command::new("php");
    command.arg(PROGRAM).args(flags);
    Program::start_command("truth.php", command)
}
