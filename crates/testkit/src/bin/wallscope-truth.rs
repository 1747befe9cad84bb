//! `wallscope-truth NAME [flags]`: becomes the truth programs' own binary, which the build put
//! beside the library that one of them loads. `wallscope-truth list` lists them.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let program = wallscope_testkit::program::path();
    let error = Command::new(program)
        .args(std::env::args_os().skip(1))
        .exec();
    eprintln!(
        "wallscope-truth: {} could not be started: {error}; build it again: cargo build -p wallscope-testkit",
        program.display()
    );
    ExitCode::FAILURE
}
