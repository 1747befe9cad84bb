//! Tools that measure: wallscope, or another one that is installed.
//!
//! A tool is attached to a program that works. The compared stretch begins when the tool is known to measure,
//! so that no figure holds its start: wallscope and py-spy say so, perf acknowledges over a pipe, `offcputime`
//! goes to sleep once its hooks are in place.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use wallscope_testkit::report::Report;
use wallscope_testkit::tool::{Options, Recorder};
use wallscope_testkit::{Error, Tool};

use crate::installed;

/// A tool that measures.
#[derive(Clone, Debug)]
pub struct Peer {
    /// For the table.
    pub name: String,
    how: PeerTool,
}

#[derive(Clone, Debug)]
enum PeerTool {
    Wallscope(Tool, Options),
    Perf(PathBuf, Vec<&'static str>),
    OffCpuTime(PathBuf),
    PySpy(PathBuf),
}

/// A tool that does not outlive the comparison.
pub struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // Both without effect on one that has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Longest until a tool measures: compiling its kernel programs first, some take seconds.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// A measurement under way.
pub enum Running {
    /// By wallscope.
    Wallscope(Recorder),
    /// By a tool that SIGINT ends, and the folder it writes to.
    Tool(Owned, tempfile::TempDir),
}

impl Peer {
    /// wallscope with further arguments of `record`.
    pub fn wallscope(tool: &Tool, more: &[&str]) -> Peer {
        let options = Options {
            hz: 99,
            more: more.iter().map(ToString::to_string).collect(),
        };
        let name = [&["wallscope"], more].concat().join(" ");
        Peer {
            name,
            how: PeerTool::Wallscope(tool.clone(), options),
        }
    }

    /// perf with the given arguments of `record`, if it is installed.
    pub fn perf(arguments: &[&'static str]) -> Option<Peer> {
        Some(Peer {
            name: format!("perf record {}", arguments.join(" ")),
            how: PeerTool::Perf(installed("perf")?, arguments.to_vec()),
        })
    }

    /// The `offcputime` of libbpf-tools or of bcc, if it is installed.
    pub fn offcputime(program: &str) -> Option<Peer> {
        Some(Peer {
            name: program.into(),
            how: PeerTool::OffCpuTime(installed(program)?),
        })
    }

    /// py-spy at 99 Hz, if it is installed; it stops its target for each sample unless told not to.
    pub fn py_spy() -> Option<Peer> {
        Some(Peer {
            name: "py-spy record -r 99".into(),
            how: PeerTool::PySpy(installed("py-spy")?),
        })
    }

    /// Measures a process, from now on.
    ///
    /// # Errors
    /// When it cannot be started or ends before it measures.
    pub fn attach(&self, pids: &[u32]) -> Result<Running, Error> {
        match &self.how {
            PeerTool::Wallscope(tool, options) => {
                Ok(Running::Wallscope(tool.attach(pids, options)?))
            }
            PeerTool::Perf(path, arguments) => self.perf_attach(path, arguments, pids),
            PeerTool::OffCpuTime(path) => self.offcputime_attach(path, pids),
            PeerTool::PySpy(path) => self.py_spy_attach(path, pids),
        }
    }

    fn fails(&self, why: impl std::fmt::Display) -> Error {
        Error::Start(format!("{}: {why}", self.name))
    }

    fn perf_attach(&self, path: &PathBuf, more: &[&str], pids: &[u32]) -> Result<Running, Error> {
        let folder = tempfile::tempdir().map_err(|e| self.fails(e))?;
        let (control, answer) = (folder.path().join("control"), folder.path().join("answer"));
        for fifo in [&control, &answer] {
            rustix::fs::mkfifoat(rustix::fs::CWD, fifo, 0o600.into()).map_err(|e| self.fails(e))?;
        }
        // Both ways, so that opening does not wait for perf, which might never come.
        let both = |path| fs::File::options().read(true).write(true).open(path);
        let mut ask = both(&control).map_err(|e| self.fails(e))?;
        let told = both(&answer).map_err(|e| self.fails(e))?;
        let fifos = format!("fifo:{},{}", control.display(), answer.display());
        let mut child = Owned(
            Command::new(path)
                .args(["record", "-q", "-D", "-1", "--control", &fifos, "-o"])
                .arg(folder.path().join("perf.data"))
                .args(more)
                .args(["-p", &list(pids)])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|e| self.fails(e))?,
        );
        ask.write_all(b"enable\n").map_err(|e| self.fails(e))?;
        self.until(&mut child, || readable(&told))?;
        let mut said = [0; 16];
        let length = (&told).read(&mut said).map_err(|e| self.fails(e))?;
        if !said[..length].starts_with(b"ack") {
            return Err(self.fails("did not acknowledge"));
        }
        Ok(Running::Tool(child, folder))
    }

    /// Waits until a tool is ready, as `ready` sees it.
    fn until(
        &self,
        child: &mut Owned,
        mut ready: impl FnMut() -> std::io::Result<bool>,
    ) -> Result<(), Error> {
        let limit = Instant::now() + READY_LIMIT;
        while !ready().map_err(|e| self.fails(e))? {
            if let Some(status) = child.0.try_wait().map_err(|e| self.fails(e))? {
                return Err(self.fails(format!("ended before it measured: {status}")));
            }
            if Instant::now() > limit {
                return Err(self.fails("does not get ready"));
            }
        }
        Ok(())
    }

    fn py_spy_attach(&self, path: &PathBuf, pids: &[u32]) -> Result<Running, Error> {
        let folder = tempfile::tempdir().map_err(|e| self.fails(e))?;
        let said = folder.path().join("said");
        let to = fs::File::create(&said).map_err(|e| self.fails(e))?;
        let mut child = Owned(
            Command::new(path)
                .args(["record", "-r", "99", "-d", "3600", "-f", "raw", "-o"])
                .arg(folder.path().join("stacks"))
                .args(["-p", &list(&pids[..1])])
                .stdin(Stdio::null())
                .stdout(to.try_clone().map_err(|e| self.fails(e))?)
                .stderr(to)
                .spawn()
                .map_err(|e| self.fails(e))?,
        );
        self.until(&mut child, || {
            std::thread::sleep(Duration::from_millis(10));
            Ok(fs::read_to_string(&said)?.contains("Sampling"))
        })?;
        Ok(Running::Tool(child, folder))
    }

    fn offcputime_attach(&self, path: &PathBuf, pids: &[u32]) -> Result<Running, Error> {
        let folder = tempfile::tempdir().map_err(|e| self.fails(e))?;
        let mut child = Owned(
            Command::new(path)
                .args(["-p", &list(&pids[..1])])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|e| self.fails(e))?,
        );
        let syscall = format!("/proc/{}/syscall", child.0.id());
        self.until(&mut child, || {
            std::thread::sleep(Duration::from_millis(10));
            // It is gone: told by its status.
            let text = fs::read_to_string(&syscall).unwrap_or_default();
            Ok(SLEEPS.contains(&text.split(' ').next().unwrap_or_default()))
        })?;
        Ok(Running::Tool(child, folder))
    }
}

impl Running {
    /// Ends it, and takes wallscope's report where it was that.
    ///
    /// # Errors
    /// When it does not end as it should.
    pub fn stop(self) -> Result<Option<Report>, Error> {
        match self {
            Running::Wallscope(recorder) => Ok(Some(recorder.stop()?.report()?)),
            Running::Tool(mut child, _folder) => {
                if let Some(pid) = Pid::from_raw(child.0.id() as i32) {
                    // It may have ended with its target.
                    let _ = kill_process(pid, Signal::INT);
                }
                let ended = child.0.wait();
                ended.map_err(|e| Error::Start(format!("waiting for a peer: {e}")))?;
                Ok(None)
            }
        }
    }
}

/// `select`, `nanosleep` and `clock_nanosleep` on x86-64: where `offcputime` waits for its end.
const SLEEPS: [&str; 3] = ["23", "35", "230"];

fn list(pids: &[u32]) -> String {
    let words: Vec<String> = pids.iter().map(ToString::to_string).collect();
    words.join(",")
}

/// Whether there is something to read within a tenth of a second.
fn readable(file: &fs::File) -> std::io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    Ok(poll(&mut fds, Some(&limit))? > 0)
}
