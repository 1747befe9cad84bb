//! Watchers of a load: wallscope, or perf.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use wallscope_testkit::Tool;
use wallscope_testkit::tool::{Options, Recorder};

use super::floor::{self, EmptyHooks};
use super::limit::Limit;
use super::loads::{Limits, Load};
use crate::{Outcome, installed};

/// A way to watch.
pub(super) struct Watcher {
    pub name: &'static str,
    /// What is to be reached, if there is a limit.
    pub limit: Option<Limit>,
    how: Observer,
}

enum Observer {
    /// `record` with these arguments; `-p` of the server with none.
    Record(Tool, &'static [&'static str]),
    Stat(Tool),
    /// `perf record -q -a` with these arguments.
    Perf(PathBuf, &'static [&'static str]),
    /// Programs that return at once, at these tracepoints.
    Empty(&'static [&'static str]),
}

/// A watcher that watches.
pub(super) enum Watching {
    Record(Recorder),
    Other(Other),
    Empty { _hooks: EmptyHooks },
}

/// A process that SIGINT ends, and the folder it writes to.
pub(super) struct Other {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Other {
    fn drop(&mut self) {
        // Both without effect on one that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Longest until a watcher is live.
const LIVE_LIMIT: Duration = Duration::from_secs(30);

/// All that can watch `load` here.
pub(super) fn all(tool: &Tool, load: &Load, limits: &Limits) -> Vec<Watcher> {
    let mut watchers = vec![
        Watcher {
            name: "stat -a",
            limit: limits.stat,
            how: Observer::Stat(tool.clone()),
        },
        Watcher {
            name: "record -a",
            limit: limits.all,
            how: Observer::Record(tool.clone(), &["-a"]),
        },
    ];
    if load.pid.is_some() {
        watchers.push(Watcher {
            name: "record -p",
            limit: limits.process,
            how: Observer::Record(tool.clone(), &[]),
        });
    }
    watchers.extend(perf("perf record -F 99 -g -a", &["-F", "99", "-g"]));
    watchers
}

/// A recording of the whole machine, and the parts that nothing of its kind can do without, each alone: hooks that do
/// nothing, and the timer of samples.
pub(super) fn floors(tool: &Tool, _: &Load, limits: &Limits) -> Vec<Watcher> {
    let empty = |name, hooks| Watcher {
        name,
        limit: None,
        how: Observer::Empty(hooks),
    };
    let mut watchers = vec![
        Watcher {
            name: "record -a",
            limit: limits.all,
            how: Observer::Record(tool.clone(), &["-a"]),
        },
        empty("empty hooks of a ledger", floor::LEDGER),
        empty("empty hooks of a recording", floor::RECORDING),
    ];
    watchers.extend(perf("perf record -F 1 -a", &["-F", "1"]));
    watchers.extend(perf("perf record -F 99 -a", &["-F", "99"]));
    watchers
}

fn perf(name: &'static str, arguments: &'static [&'static str]) -> Option<Watcher> {
    Some(Watcher {
        name,
        limit: None,
        how: Observer::Perf(installed("perf")?, arguments),
    })
}

impl Watcher {
    /// Starts it; returns when it is live.
    ///
    /// # Errors
    /// It cannot be started, or ends at once.
    pub(super) fn start(&self, load: &Load) -> Outcome<Watching> {
        let folder = tempfile::tempdir()?;
        match &self.how {
            Observer::Record(tool, target) => {
                let options = Options {
                    hz: 99,
                    more: Vec::new(),
                };
                let pid = load.pid.unwrap_or_default().to_string();
                let own = ["-p", &pid];
                let target = if target.is_empty() { &own } else { *target };
                Ok(Watching::Record(tool.record(target, &options)?))
            }
            Observer::Stat(tool) => {
                let mut command = Command::new(tool.path());
                command.args(["stat", "-a", "--json", "-o"]);
                let file = folder.path().join("stat");
                other(command.arg(file), folder, |pid| bpf_links(pid) > 0)
            }
            Observer::Empty(hooks) => Ok(Watching::Empty {
                _hooks: EmptyHooks::attach(hooks)?,
            }),
            Observer::Perf(perf, arguments) => {
                let mut command = Command::new(perf);
                command
                    .args(["record", "-q", "-a"])
                    .args(*arguments)
                    .arg("-o");
                let file = folder.path().join("perf.data");
                let its = file.clone();
                // It writes the head of its file once its events are open.
                let live = move |_| fs::metadata(&its).is_ok_and(|m| m.len() > 0);
                other(command.arg(file), folder, live)
            }
        }
    }
}

impl Watching {
    /// CPU time of the watcher's own process until now, s.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn own_cpu_s(&self) -> Outcome<f64> {
        let pid = match self {
            Watching::Record(recorder) => recorder.pid(),
            Watching::Other(other) => other.child.id(),
            Watching::Empty { .. } => return Ok(0.0),
        };
        let mut ns = 0;
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread that ends meanwhile takes its last moments along.
            ns += ran_ns(&task?.path()).unwrap_or(0);
        }
        Ok(ns as f64 * 1e-9)
    }

    /// Ends it. What wallscope prints as its overhead in this recording, s of CPU, where it does.
    ///
    /// # Errors
    /// It does not end as it should.
    pub(super) fn stop(self) -> Outcome<Option<f64>> {
        match self {
            Watching::Record(recorder) => {
                let cost = recorder.stop()?.report()?.cost;
                Ok(Some(cost.total_ns() as f64 * 1e-9))
            }
            Watching::Other(mut other) => {
                if let Some(pid) = Pid::from_raw(other.child.id() as i32) {
                    let _ = kill_process(pid, Signal::INT);
                }
                other.child.wait()?;
                Ok(None)
            }
            Watching::Empty { .. } => Ok(None),
        }
    }
}

/// Starts a command, and waits until it is `live`, as its process id shows.
fn other(
    command: &mut Command,
    folder: tempfile::TempDir,
    live: impl Fn(u32) -> bool,
) -> Outcome<Watching> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut other = Other {
        child: quiet.stderr(Stdio::null()).spawn()?,
        _folder: folder,
    };
    let limit = Instant::now() + LIVE_LIMIT;
    while !live(other.child.id()) {
        if let Some(status) = other.child.try_wait()? {
            return Err(format!("{command:?} ended before it was live: {status}").into());
        }
        if Instant::now() > limit {
            return Err(format!("{command:?} is not live after {LIVE_LIMIT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // The last of its hooks.
    std::thread::sleep(Duration::from_millis(200));
    Ok(Watching::Other(other))
}

/// Hooks of kernel programs that a process holds.
fn bpf_links(pid: u32) -> usize {
    let Ok(all) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return 0;
    };
    let targets = all.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    targets
        .filter(|to| {
            to.to_string_lossy().contains("bpf_link") || to.to_string_lossy().contains("bpf-link")
        })
        .count()
}

/// CPU time of the thread with this folder in `/proc`, ns.
///
/// # Errors
/// The thread has ended.
pub(super) fn ran_ns(task: &Path) -> Outcome<u64> {
    let text = fs::read_to_string(task.join("schedstat"))?;
    let ran = text.split(' ').next().unwrap_or_default();
    Ok(ran.parse()?)
}
