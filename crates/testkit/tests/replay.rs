//! A kept log gives the recording again: live equals replay, byte for byte.

use std::path::Path;

use wallscope_testkit::{Error, Program, Tool, with_tool};

fn run(tool: &Tool, arguments: &[&str]) -> Result<String, Error> {
    let output = tool.run(arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(errors),
        Some(3) => Err(Error::CannotRunHere(errors)),
        code => Err(Error::Output(format!("{arguments:?}: {code:?}: {errors}"))),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is UTF-8")
}

/// Records a truth program with these `more` arguments, replays its log, and compares the files.
fn live_equals_replay(name: &str, flags: &[&str], more: &[&str]) {
    with_tool(&format!("replay of {name}"), |tool| {
        let folder = tempfile::tempdir().map_err(|e| Error::Output(e.to_string()))?;
        let at = |name: &str| folder.path().join(name);
        let (log, live, again) = (at("log"), at("live.pb.gz"), at("again.pb.gz"));
        let mut program = Program::start(name, flags)?;
        program.release()?;
        let pid = program.pids()[0].to_string();
        let fixed = [
            "record",
            "--keep-log",
            text(&log),
            "-o",
            text(&live),
            "-d",
            "1.5",
            "-p",
            &pid,
        ];
        run(tool, &[&fixed, more].concat())?;
        drop(program);
        run(tool, &["replay", text(&log), "-o", text(&again)])?;
        let read = |path: &Path| std::fs::read(path).map_err(|e| Error::Output(e.to_string()));
        let (live, again) = (read(&live)?, read(&again)?);
        match live == again {
            true => Ok(()),
            false => Err(Error::Output(format!(
                "{name}: {} bytes live, {} replayed, and they differ",
                live.len(),
                again.len()
            ))),
        }
    });
}

/// The proc backend's own observations.
const POLLS: [&str; 2] = ["--backend", "proc"];

#[test]
fn polls_of_locks_and_requests() {
    live_equals_replay("convoy", &["--seconds", "60"], &POLLS);
    live_equals_replay("rpc", &["--seconds", "60"], &POLLS);
}

#[test]
fn polls_of_programs_that_come_and_go() {
    live_equals_replay("execs", &["--seconds", "60"], &POLLS);
    live_equals_replay("short", &["--seconds", "60"], &POLLS);
    live_equals_replay("jit", &["--seconds", "60"], &POLLS);
}

#[test]
fn polls_with_stops_of_running_threads() {
    let stops = [&POLLS[..], &["--allow-stop"]].concat();
    live_equals_replay("convoy", &["--seconds", "60"], &stops);
    live_equals_replay("faults", &["--seconds", "60"], &stops);
}

/// Switches that perf events record, beside polls.
const SWITCHES: [&str; 2] = ["--backend", "perf"];

#[test]
fn switches_of_locks_and_requests() {
    let timeline = [&SWITCHES[..], &["--timeline"]].concat();
    live_equals_replay("convoy", &["--seconds", "60"], &timeline);
    live_equals_replay("rpc", &["--seconds", "60"], &SWITCHES);
}

#[test]
fn switches_of_programs_that_come_and_go() {
    live_equals_replay("execs", &["--seconds", "60"], &SWITCHES);
    live_equals_replay("short", &["--seconds", "60"], &SWITCHES);
    live_equals_replay("jit", &["--seconds", "60"], &SWITCHES);
}

#[test]
fn switches_of_threads_that_are_recorded_in_turns() {
    live_equals_replay("pingpong", &["--seconds", "60"], &SWITCHES);
    live_equals_replay("crowd", &["--seconds", "60"], &SWITCHES);
}

#[test]
fn switches_beside_stacks_at_events() {
    let events = [&SWITCHES[..], &["-e", "page-faults"]].concat();
    live_equals_replay("faults", &["--seconds", "60"], &events);
    live_equals_replay("short", &["--seconds", "60"], &events);
}

#[test]
fn locks_and_their_holders() {
    live_equals_replay("convoy", &["--seconds", "60"], &["--timeline"]);
    live_equals_replay("held", &["--seconds", "60"], &[]);
}

#[test]
fn requests_and_peers() {
    live_equals_replay("rpc", &["--seconds", "60"], &[]);
}

#[test]
fn programs_that_come_and_go() {
    live_equals_replay("execs", &["--seconds", "60"], &["--interpreter-frames"]);
    live_equals_replay("short", &["--seconds", "60"], &[]);
}

#[test]
fn events_and_code_made_at_run_time() {
    live_equals_replay("faults", &["--seconds", "60"], &["-e", "page-faults"]);
    live_equals_replay("jit", &["--seconds", "60"], &[]);
}
