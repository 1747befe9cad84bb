//! The Ruby truth program, run by the Ruby of this machine.

use std::process::{Command, Stdio};

use crate::{Error, Program};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/ruby/truth.rb");

/// Starts it with `flags`, up to its READY. `WALLSCOPE_RUBY` names another Ruby than the one that is found by name.
///
/// # Errors
/// [`Error::CannotRunHere`] where there is no Ruby, or only one without a known frame layout; as
/// [`Program::start_command`].
pub fn start(flags: &[&str]) -> Result<Program, Error> {
    let ruby = std::env::var_os("WALLSCOPE_RUBY").unwrap_or_else(|| "ruby".into());
    let about = Command::new(&ruby)
        .args([
            "--disable-gems",
            "-e",
            "print RUBY_ENGINE, ' ', RUBY_VERSION",
        ])
        .stderr(Stdio::null())
        .output();
    let Ok(about) = about else {
        return Err(Error::CannotRunHere("Ruby is not installed".into()));
    };
    let told = String::from_utf8_lossy(&about.stdout).into_owned();
    let known = ["2.7.", "3.0.", "3.1.", "3.2.", "3.3.", "3.4."];
    let version = told.strip_prefix("ruby ").unwrap_or_default();
    if !known.iter().any(|k| version.starts_with(k)) {
        return Err(Error::CannotRunHere(format!(
            "{told} is not Ruby 2.7 to 3.4"
        )));
    }
    let mut command = Command::new(&ruby);
    command.args(["--disable-gems", PROGRAM]).args(flags);
    Program::start_command("truth.rb", command)
}
