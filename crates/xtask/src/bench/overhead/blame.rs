//! What it costs to follow waits, to look at tasks and at garbage collection, on a busy database.
//!
//! A recording of the whole machine keeps its log. The log is replayed with and without following the waits,
//! alternating; the difference of the CPU times is the cost of following them. The thread that looks at tasks has its
//! CPU time measured during the recording. Garbage collectors are observed in processes that have one, and databases
//! have none: the pauses in the report are counted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use wallscope_testkit::Tool;
use wallscope_testkit::tool::{Options, Recorder};

use super::watch::ran_ns;
use super::{estimate, loads};
use crate::Outcome;

/// The load, by its name.
const LOAD: &str = "postgres";

/// The most that all three may take, percent of one CPU.
const LIMIT: f64 = 1.0;

/// CPU time of the thread of `recorder` with this name, s; 0 if it has none.
fn thread_cpu_s(recorder: &Recorder, name: &str) -> Outcome<f64> {
    for task in fs::read_dir(format!("/proc/{}/task", recorder.pid()))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim_end() == name {
            return Ok(ran_ns(&task)? as f64 * 1e-9);
        }
    }
    Ok(0.0)
}

/// CPU time of one replay of `log`, s.
fn replay_cpu_s(tool: &Tool, log: &Path, more: &[&str]) -> Outcome<f64> {
    let before = children_cpu_s();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    let mut command = Command::new(tool.path());
    command
        .arg("replay")
        .arg(log)
        .arg("-o")
        .arg(file)
        .args(more);
    let status = command.stderr(Stdio::null()).status()?;
    match status.success() {
        true => Ok(children_cpu_s() - before),
        false => Err(format!("replay of {} failed: {status}", log.display()).into()),
    }
}

/// CPU time of the children that have been waited for, s.
fn children_cpu_s() -> f64 {
    // SAFETY: the result is ours, and written by the call.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Measures the three in a recording of `seconds` and `rounds` replays; whether they keep to the limit.
///
/// # Errors
/// wallscope cannot record here, or PostgreSQL is not installed.
pub(crate) fn run(tool: &Tool, seconds: u64, rounds: usize) -> Outcome<bool> {
    let folder = tempfile::tempdir()?;
    let kind = loads::ALL.iter().find(|kind| kind.name == LOAD);
    let kind = kind.ok_or("no load of that name")?;
    if let Some(program) = kind.missing() {
        return Err(format!("{program} is not in PATH").into());
    }
    let load = (kind.prepare)(folder.path())?;
    let log = folder.path().join("log");
    let path = log.to_str().ok_or("a folder with an odd name")?;
    let options = Options::at(99).with(&["--keep-log", path]);
    let recorder = tool.record(&["-a"], &options)?;
    let tasks_before = thread_cpu_s(&recorder, "tasks")?;
    let work = (load.work)(seconds)?;
    let tasks_s = thread_cpu_s(&recorder, "tasks")? - tasks_before;
    let recorded = recorder.stop()?;
    let window = recorded.report()?.window;
    let window_s = (window.end_ns - window.start_ns) as f64 * 1e-9;
    let pauses = &recorded.json(&["report"])?["gc"]["pauses"];
    let pauses = pauses
        .as_array()
        .ok_or("report --json has no list of pauses")?
        .len();
    let name = load.name;
    drop(load);

    let mut lost = Vec::new();
    for round in 0..rounds {
        let mut cpu_s = [0.0; 2];
        for which in [round % 2, 1 - round % 2] {
            let more: &[&str] = [&["--without-blame"][..], &[]][which];
            cpu_s[which] = replay_cpu_s(tool, &log, more)?;
        }
        lost.push(100.0 * (cpu_s[1] - cpu_s[0]) / window_s);
    }
    let blame = estimate(lost);
    let tasks = 100.0 * tasks_s / window_s;
    println!(
        "{}: {:.0} a second, record -a, {window_s:.1} s; percent of one CPU",
        name, work.rate
    );
    println!(
        "  following waits {:.3} ({:.3} - {:.3}), {rounds} rounds of replay; looking at tasks {tasks:.3}; \
         pauses of collectors: {pauses}",
        blame.middle, blame.low, blame.high
    );
    let sum = blame.middle + tasks;
    println!(
        "  sum {sum:.3}, limit {LIMIT}: {}",
        if sum <= LIMIT {
            "reached"
        } else {
            "NOT REACHED"
        }
    );
    Ok(sum <= LIMIT)
}
