//! Makes a recording in some place, beside the truth of its target.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use wallscope_testkit::{
    Error, Program, Tool, Truth, folded, live, report::Report, tool::no_panic,
};

use crate::place::{Place, USER};

/// A recording made in some place, and the truth of its target.
pub struct Outcome {
    pub truth: Truth,
    pub report: Report,
    pub domain: serde_json::Value,
    pub cost: serde_json::Value,
    pub processes: serde_json::Value,
    pub stacks: Vec<folded::Line>,
    /// What it said on standard error.
    pub said: String,
}

pub fn tool() -> Option<Tool> {
    match Tool::find() {
        Ok(tool) => Some(tool),
        Err(e) => {
            live::cannot_run("the tiers", &e.to_string());
            None
        }
    }
}

/// Makes an experiment while no other one runs.
pub fn measured(what: &str, run: impl Fn() -> Result<String, Error>) {
    live::test_where_offered(what, || run().into());
}

/// A folder that everybody may write to.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    folder
}

pub fn read(tool: &Tool, file: &Path, truth: Truth, said: String) -> Result<Outcome, Error> {
    let file = file.to_str().expect("a plain path");
    let text = |arguments: &[&str]| {
        let output = tool.run(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        Ok(String::from_utf8(output.stdout).expect("text"))
    };
    let json = text(&["report", file, "--json"])?;
    let whole: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let folded = ["export", file, "--format", "folded", "--view", "wall"];
    let with = [&folded[..], &["--with", "thread,state"]].concat();
    Ok(Outcome {
        truth,
        report: serde_json::from_str(&json).expect("the contract's JSON"),
        domain: whole["domain"].clone(),
        cost: whole["cost"].clone(),
        processes: whole["processes"].clone(),
        stacks: folded::parse(&text(&with)?)?,
        said,
    })
}

/// Starts `record` with `arguments` in some place and returns when it is live.
pub fn start(
    tool: &Tool,
    place: Place,
    file: &Path,
    arguments: &[OsString],
) -> Result<Recording, Error> {
    let mut command = Command::new(tool.path());
    command.arg("record").arg("-o").arg(file).args(arguments);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    place.enter(&mut command);
    let mut child = command.spawn().map_err(|e| Error::Start(e.to_string()))?;
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut said = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        let live = line.contains("wallscope: recording");
        said.push(line);
        if live {
            return Ok(Recording { child, lines, said });
        }
    }
    let status = child.wait().map_err(|e| Error::Start(e.to_string()))?;
    let said = said.join(" / ");
    no_panic(&said);
    Err(match status.code() {
        Some(3) => Error::CannotRunHere(said),
        _ => Error::Output(format!("{status}: {said}")),
    })
}

/// A recording under way, which ends with its owner.
pub struct Recording {
    pub child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    said: Vec<String>,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Recording {
    /// Stops it and waits for the file. What it said.
    pub fn stop(mut self) -> Result<String, Error> {
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        self.said.extend(self.lines.by_ref().map_while(Result::ok));
        let status = self.child.wait().map_err(|e| Error::Start(e.to_string()))?;
        let said = self.said.join("\n");
        no_panic(&said);
        if status.success() {
            Ok(said)
        } else {
            Err(Error::Output(format!("{status}: {said}")))
        }
    }
}

/// How long a truth program works, s. Where single requests are polled, a share needs some hundred of them.
fn seconds(name: &str) -> &'static str {
    match name {
        "upstream" => "12",
        _ => "1.5",
    }
}

/// Measures a truth program that runs already, from before its work to after it. `own`: it runs as
/// the same user. `arguments`: of `record`, by the program's process id.
pub fn record_of(
    tool: &Tool,
    place: Place,
    own: bool,
    name: &str,
    arguments: impl Fn(u32) -> Vec<OsString>,
) -> Result<Outcome, Error> {
    record_into(tool, place, own, name, None, arguments)
}

/// [`record_of`], with the recording kept as `keep`.
pub fn record_into(
    tool: &Tool,
    place: Place,
    own: bool,
    name: &str,
    keep: Option<&Path>,
    arguments: impl Fn(u32) -> Vec<OsString>,
) -> Result<Outcome, Error> {
    let mut command = Command::new(wallscope_testkit::program::path());
    command.args([name, "--seconds", seconds(name), "--hold", "--linger"]);
    if own && !place.is_root() {
        command.uid(USER).gid(USER);
    }
    let mut program = Program::start_command(name, command)?;
    let folder = folder();
    let file = folder.path().join("recording.pb.gz");
    let recording = start(tool, place, &file, &arguments(program.pids()[0]))?;
    program.release()?;
    let truth = program.truth(Duration::from_secs(120))?;
    let said = recording.stop()?;
    program.finish()?;
    if let Some(keep) = keep {
        fs::copy(&file, keep).map_err(|e| Error::Output(e.to_string()))?;
    }
    read(tool, &file, truth, said)
}

/// [`record_of`] for a program of the same user.
pub fn record(
    tool: &Tool,
    place: Place,
    name: &str,
    arguments: impl Fn(u32) -> Vec<OsString>,
) -> Result<Outcome, Error> {
    record_of(tool, place, true, name, arguments)
}

/// [`record`] by process id, with `more` arguments.
pub fn attach(tool: &Tool, place: Place, more: &[&str], name: &str) -> Result<Outcome, Error> {
    record(tool, place, name, |pid| {
        let mut arguments: Vec<OsString> = more.iter().map(Into::into).collect();
        arguments.extend(["-p".into(), pid.to_string().into()]);
        arguments
    })
}

/// Lets wallscope start a truth program itself.
pub fn launch(tool: &Tool, more: &[&str], enter: impl Fn(&mut Command)) -> Result<Outcome, Error> {
    launch_by(Command::new(tool.path()), tool, more, enter)
}

/// [`launch`] at the end of another command line.
pub fn launch_through(tool: &Tool, before: &[String], more: &[&str]) -> Result<Outcome, Error> {
    let mut command = Command::new(&before[0]);
    command.args(&before[1..]).arg(tool.path());
    launch_by(command, tool, more, |_| {})
}

fn launch_by(
    mut command: Command,
    tool: &Tool,
    more: &[&str],
    enter: impl Fn(&mut Command),
) -> Result<Outcome, Error> {
    let folder = folder();
    let file = folder.path().join("recording.pb.gz");
    command.arg("record").args(more).arg("-o").arg(&file);
    command.arg("--").arg(wallscope_testkit::program::path());
    command.args(["mix", "--seconds", "1"]).stdin(Stdio::null());
    enter(&mut command);
    let output = command.output().map_err(|e| Error::Start(e.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    no_panic(&said);
    match output.status.code() {
        Some(0) => {}
        Some(3) => return Err(Error::CannotRunHere(said)),
        _ => return Err(Error::Output(format!("{}: {said}", output.status))),
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let truth = text
        .lines()
        .rev()
        .find_map(|l| serde_json::from_str(l).ok());
    let truth = truth.ok_or_else(|| Error::Output(format!("no truth in {text:?}")))?;
    read(tool, &file, truth, said)
}

/// Totals within `percent` of the kernel's counts, ledgers closed, the domain honest.
pub fn judge(o: &Outcome, backend: &str, percent: f64) -> Result<String, Error> {
    let wrong = |what: String| Err(Error::Output(what));
    if o.domain["backend"] != backend {
        return wrong(format!("not by {backend}: {}", o.domain));
    }
    let (mut threads, mut worst) = (0, 0f64);
    for t in o.truth.threads.iter().filter(|t| t.work_wall_ns > 0) {
        let Some(seen) = o.report.thread(t.pid, t.tid) else {
            return wrong(format!("thread {} ({}) was not seen", t.tid, t.name));
        };
        threads += 1;
        let off = |a: u64, b: u64| (a as f64 - b as f64).abs() * 100.0 / seen.wall_ns as f64;
        // The counter leaves out time that the host of a virtual machine took, which is told apart.
        let stolen = seen.on_cpu.get("stolen").copied().unwrap_or(0);
        let here = off(seen.on_cpu_ns - stolen, t.on_cpu_ns);
        // The program's own figure leaves out its queueing before and after its work, which a busy
        // machine makes longer.
        let queue = off(seen.runnable_ns, t.run_delay_ns);
        worst = worst.max(here);
        if here > percent || queue > 1.0 {
            return wrong(format!(
                "{} is {here:.3} % off, its queueing {queue:.3} %: {seen:?} {t:?}",
                t.name
            ));
        }
        let residue = seen.residue_ns.unsigned_abs() as f64 / seen.wall_ns as f64;
        if residue > 1e-3 {
            return wrong(format!("residue of {}: {}", t.name, seen.residue_ns));
        }
    }
    if threads == 0 {
        return wrong("no thread of the program was seen".into());
    }
    Ok(format!(
        "{backend}, {threads} threads, totals within {worst:.3} % of wall"
    ))
}

/// A thread's blocked time, and the part of it with a stack that reached its root, ns.
pub fn blocked(o: &Outcome, thread: &str) -> (u64, u64) {
    let lines = o
        .stacks
        .iter()
        .filter(|l| l.thread == thread && l.state == "blocked");
    lines.fold((0, 0), |(all, whole), l| {
        let reached = l.truncated.is_none() && !l.is_unsampled();
        (all + l.ns, whole + if reached { l.ns } else { 0 })
    })
}
