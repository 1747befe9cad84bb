//! Every verb takes every kind of live target: `top` and `stat` of commands, cgroups and the machine;
//! and they show threads that stand still.

use serde_json::Value;
use wallscope_testkit::{Error, Program, Tool, program, with_tool};

/// What the tool prints, if it ends with `status`.
fn said(tool: &Tool, arguments: &[&str], status: i32) -> Result<String, Error> {
    let output = tool.run(arguments)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(code) if code == status => Ok(format!("{text}{errors}")),
        Some(3) => Err(Error::CannotRunHere(errors)),
        code => Err(Error::Output(format!(
            "{arguments:?}: status {code:?}: {text}{errors}"
        ))),
    }
}

fn holds(text: &str, words: &[&str]) -> Result<(), Error> {
    match words.iter().find(|w| !text.contains(**w)) {
        None => Ok(()),
        Some(word) => Err(Error::Output(format!("{word} is missing: {text}"))),
    }
}

/// The values of the first interval that `stat --json -I` prints.
fn first_interval(text: &str) -> Result<Value, Error> {
    let lines = text
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let mut values = lines.map(|v| v["values"].clone()).filter(Value::is_object);
    values
        .next()
        .ok_or_else(|| Error::Output(format!("no interval in {text}")))
}

#[test]
fn threads_that_stand_still_are_there() {
    with_tool("standing still", |tool| {
        let mut program = Program::start("parked", &["--threads", "20", "--seconds", "600"])?;
        program.release()?;
        let pid = program.pids()[0].to_string();
        let text = said(
            tool,
            &["stat", "-p", &pid, "-d", "1", "-I", "400ms", "--json"],
            0,
        )?;
        let values = first_interval(&text)?;
        let threads = values["threads"].as_f64().unwrap_or(0.0);
        let wall = values["wall"].as_f64().unwrap_or(0.0);
        if threads < 22.0 || wall < 22.0 * 0.3e9 {
            return Err(Error::Output(format!("not all 22 threads: {values}")));
        }
        let arguments = ["top", "-p", &pid, "--once", "-I", "400ms", "--idle", "show"];
        holds(&said(tool, &arguments, 0)?, &["22 threads", "parked"])
    });
}

#[test]
fn top_shows_the_machine_and_commands() {
    with_tool("top of any target", |tool| {
        let all = said(
            tool,
            &["top", "-a", "--once", "-I", "300ms", "--idle", "show"],
            0,
        )?;
        holds(&all, &["threads", "tid"])?;
        let truth = program::path().to_string_lossy().into_owned();
        let command = [
            "top",
            "--once",
            "-I",
            "300ms",
            "--",
            &truth,
            "mix",
            "--seconds",
            "60",
        ];
        let text = said(tool, &command, 0)?;
        holds(&text, &["mix"])?;
        // What the command prints is kept from the screen, and found.
        let command = [
            "top",
            "--once",
            "-I",
            "300ms",
            "--",
            "sh",
            "-c",
            "printf out-of%s -the-way; sleep 60",
        ];
        let text = said(tool, &command, 0)?;
        let path = text
            .split_whitespace()
            .rfind(|w| w.contains("wallscope-top-"));
        let path = path.ok_or_else(|| Error::Output(format!("no file is named: {text}")))?;
        let kept = std::fs::read_to_string(path);
        // The file is the command's; the test's folder is not to grow by it.
        let _ = std::fs::remove_file(path);
        match kept {
            Ok(kept) if kept.contains("out-of-the-way") && !text.contains("out-of-the-way") => {
                Ok(())
            }
            other => Err(Error::Output(format!("{text}: {other:?}"))),
        }
    });
}

#[test]
fn stat_counts_a_cgroup_and_the_machine() {
    with_tool("stat of any target", |tool| {
        let mut program = Program::start("throttled", &["--seconds", "600"])?;
        let folder = program.cgroup()?;
        program.release()?;
        let folder = folder.to_string_lossy();
        let text = said(tool, &["stat", "--cgroup", &folder, "-d", "1"], 0)?;
        holds(&text, &["cgroup", "throttled", "page-faults"])?;
        let text = said(tool, &["stat", "-a", "-d", "500ms"], 0)?;
        holds(&text, &["on cpu", "page-faults", "voluntary"])
    });
}
