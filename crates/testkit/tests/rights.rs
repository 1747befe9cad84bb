//! A target cannot make a recorder that runs as root show files that the target may not read.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use wallscope_testkit::tool::{Options, Recorded};
use wallscope_testkit::{Error, Program, Tool, program, with_tool};

/// The user of the target.
const USER: u32 = 54_321;
/// A perf map that names every address.
const SECRET: &str = "1000 7fffffffe000 a_line_of_root\n";

/// Records the program with code made at run time as an ordinary user runs it.
fn record(tool: &Tool, backend: &str, more: &[&str]) -> Result<Recorded, Error> {
    let mut command = Command::new(program::path());
    command.args(["jit", "--seconds", "0.5", "--hold", "--linger"]);
    command.args(more).uid(USER).gid(USER);
    let mut program = Program::start_command("jit", command)?;
    let options = Options {
        more: vec!["--backend".into(), backend.into()],
        ..Options::at(499)
    };
    let recorder = tool.attach(program.pids(), &options)?;
    program.release()?;
    program.truth(Duration::from_secs(60))?;
    program.finish()?;
    recorder.ends_with(0)
}

/// Whether a recorded stack has a function with `name` in its name.
fn is_named(recorded: &Recorded, name: &str) -> Result<bool, Error> {
    let stacks = recorded.folded("wall")?;
    let mut frames = stacks.iter().flat_map(|line| &line.frames);
    Ok(frames.any(|frame| frame.name.contains(name)))
}

fn secret_in(folder: &Path) -> Result<String, Error> {
    let path = folder.join("secret");
    let failed = |e: std::io::Error| Error::Start(format!("{}: {e}", path.display()));
    std::fs::write(&path, SECRET).map_err(failed)?;
    for (path, mode) in [(folder, 0o755), (&path, 0o600)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).map_err(failed)?;
    }
    Ok(path.to_string_lossy().into_owned())
}

#[test]
fn a_perf_map_that_is_a_link_to_a_file_of_root_is_refused() {
    with_tool("a perf map that is a link", |tool| {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::CannotRunHere("needs root's rights".into()));
        }
        let folder = tempfile::tempdir().map_err(|e| Error::Start(e.to_string()))?;
        let secret = secret_in(folder.path())?;
        for backend in ["ebpf", "perf"] {
            let recorded = record(tool, backend, &["--link-to", &secret])?;
            assert!(!is_named(&recorded, "a_line_of_root")?, "{backend}");
            let report = recorded.json(&["report"])?.to_string();
            let told = report.contains("perf map refused: a symbolic link");
            assert!(told, "{backend}: {report}");
            // The map of the same user is read where it is a file.
            let recorded = record(tool, backend, &[])?;
            assert!(is_named(&recorded, "jit_")?, "{backend}");
        }
        Ok(())
    });
}

#[test]
fn a_recording_is_its_owner_s_alone() {
    with_tool("the mode of a recording", |tool| {
        let recorded = record(tool, "proc", &[])?;
        let meta = std::fs::metadata(recorded.path()).map_err(|e| Error::Start(e.to_string()))?;
        assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
        Ok(())
    });
}
