//! Starts a truth program, waits until its threads stand at the gate, releases them, and takes its
//! truth.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::{Error, Truth};

/// The binary with all truth programs in it.
pub fn path() -> &'static Path {
    Path::new(env!("WALLSCOPE_TRUTH_PROGRAM"))
}

/// The binary with all truth programs in it, without unwind information.
pub fn bare() -> &'static Path {
    Path::new(env!("WALLSCOPE_BARE_PROGRAM"))
}

/// The program without anything but libc and with calls at a steady rate.
pub fn plain() -> &'static Path {
    Path::new(env!("WALLSCOPE_PLAIN_PROGRAM"))
}

/// A truth program that has said READY and waits to be released. Killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Owned,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    pids: Vec<u32>,
}

/// A child process that does not outlive its owner.
#[derive(Debug)]
pub(crate) struct Owned(pub(crate) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        // Both without effect on one that has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a child's output as they come, read by a thread of their own.
pub(crate) fn lines_of(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(source).lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Program {
    /// Starts program `name` with `flags`; its work is held back until [`Program::release`], and
    /// it stays after its truth until [`Program::finish`] lets it go.
    ///
    /// # Errors
    /// [`Error::CannotRunHere`] where the program says so; otherwise its message, or that it did
    /// not get ready within 60 s.
    pub fn start(name: &str, flags: &[&str]) -> Result<Program, Error> {
        let mut command = Command::new(path());
        command.arg(name).args(flags).args(["--hold", "--linger"]);
        Program::start_command(name, command)
    }

    /// Like [`Program::start`], for a command that runs a truth program in some other way.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn start_command(name: &str, mut command: Command) -> Result<Program, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::Start(format!("{command:?}: {error}")))?;
        let lines = lines_of(child.stdout.take().expect("stdout is piped"));
        let errors = lines_of(child.stderr.take().expect("stderr is piped"));
        let mut program = Program {
            name: name.to_string(),
            stdin: child.stdin.take(),
            child: Owned(child),
            lines,
            errors,
            pids: Vec::new(),
        };
        let line = program.next_line(Duration::from_secs(60), "READY")?;
        let pids = line.strip_prefix("READY ").unwrap_or_default();
        program.pids = pids.split(' ').filter_map(|pid| pid.parse().ok()).collect();
        if program.pids.is_empty() {
            return Err(Error::Protocol(format!(
                "{name} said {line:?}, not READY and its process ids"
            )));
        }
        Ok(program)
    }

    /// Its processes: the main one first, then those it forked before READY.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// The folder of the cgroup that the program `throttled` has made for itself, wherever the kernel
    /// has its hierarchies.
    ///
    /// # Errors
    /// It has made none.
    pub fn cgroup(&self) -> Result<PathBuf, Error> {
        let name = format!("wallscope-truth-{}", self.pids[0]);
        ["", "unified", "cpu", "cpu,cpuacct"]
            .map(|parent| Path::new("/sys/fs/cgroup").join(parent).join(&name))
            .into_iter()
            .find(|folder| folder.is_dir())
            .ok_or_else(|| Error::Protocol(format!("no cgroup {name} was made")))
    }

    /// Lets its work begin.
    ///
    /// # Errors
    /// When it is gone.
    pub fn release(&mut self) -> Result<(), Error> {
        let stdin = self.stdin.as_mut().expect("stdin is open until finish");
        stdin
            .write_all(b"go\n")
            .map_err(|error| Error::Protocol(format!("{} is gone: {error}", self.name)))
    }

    /// Tells a program that works until a line comes that this is enough.
    ///
    /// # Errors
    /// When it is gone.
    pub fn enough(&mut self) -> Result<(), Error> {
        self.release()
    }

    /// Waits, at most `limit`, for its work to end and its truth to be told. It stays, so that a
    /// recording can be stopped while its threads still exist.
    ///
    /// # Errors
    /// When it ends without, says nonsense, or takes longer.
    pub fn truth(&mut self, limit: Duration) -> Result<Truth, Error> {
        let line = self.next_line(limit, "its truth")?;
        serde_json::from_str(&line)
            .map_err(|error| Error::Protocol(format!("the truth of {}: {error}", self.name)))
    }

    /// Waits, at most `limit`, for its work to end, whatever it tells then.
    ///
    /// # Errors
    /// When it ends without a word, or takes longer.
    pub fn ended(&mut self, limit: Duration) -> Result<(), Error> {
        self.next_line(limit, "that its work is over").map(drop)
    }

    /// Lets it go and waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn finish(mut self) -> Result<(), Error> {
        drop(self.stdin.take());
        self.child
            .0
            .wait()
            .map(drop)
            .map_err(|error| Error::Protocol(format!("waiting for {}: {error}", self.name)))
    }

    fn next_line(&mut self, limit: Duration, what: &str) -> Result<String, Error> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(Error::Protocol(format!(
                "{} did not say {what} within {} s",
                self.name,
                limit.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.0.wait().ok().and_then(|status| status.code());
                let said: Vec<String> = self.errors.iter().collect();
                let said = said.join(" / ");
                if status == Some(77) {
                    return Err(Error::CannotRunHere(said));
                }
                Err(Error::Protocol(format!(
                    "{} ended (status {status:?}) before it said {what}: {said}",
                    self.name
                )))
            }
        }
    }
}
