//! Drives `wallscope count` and `wallscope latency` (and other verbs) as a script would: waits for the
//! line that says that measuring is live, stops it with SIGINT, reads its JSON.

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;

use crate::program::{Owned, lines_of};
use crate::tool::no_panic;
use crate::{Error, Tool};

const LIVE_LIMIT: Duration = Duration::from_secs(60);

/// A measurement under way.
#[derive(Debug)]
pub struct Prober {
    child: Owned,
    output: Receiver<String>,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Prober {
    /// Starts `wallscope ARGUMENTS --json` and returns when it is live.
    ///
    /// # Errors
    /// [`Error::CannotRunHere`] where it exits with 3; otherwise its standard error.
    pub fn start(tool: &Tool, arguments: &[&str]) -> Result<Prober, Error> {
        let mut prober = Prober::spawn(tool, &[arguments, &["--json"]].concat())?;
        prober.until("wallscope: measuring")?;
        Ok(prober)
    }

    /// Starts `wallscope ARGUMENTS`, whatever the verb.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(tool: &Tool, arguments: &[&str]) -> Result<Prober, Error> {
        let mut child = Command::new(tool.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::Start(format!("{}: {error}", tool.path().display())))?;
        Ok(Prober {
            lines: lines_of(child.stderr.take().expect("stderr is piped")),
            output: lines_of(child.stdout.take().expect("stdout is piped")),
            child: Owned(child),
            said: Vec::new(),
        })
    }

    /// Waits until it says a line with `words` on standard error.
    ///
    /// # Errors
    /// [`Error::CannotRunHere`] where it exits with 3 before; otherwise its standard error.
    pub fn until(&mut self, words: &str) -> Result<(), Error> {
        loop {
            match self.lines.recv_timeout(LIVE_LIMIT) {
                Ok(line) => {
                    let said = line.contains(words);
                    self.said.push(line);
                    if said {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failed(&format!("did not say {words:?} in time")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.0.wait().ok().and_then(|s| s.code());
                    return Err(match status {
                        Some(3) => Error::CannotRunHere(self.said.join(" / ")),
                        _ => self.failed(&format!("ended with {status:?} before {words:?}")),
                    });
                }
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Waits until it ends by itself. Returns its status, standard output and standard error.
    ///
    /// # Errors
    /// It does not.
    pub fn ends(mut self) -> Result<(Option<i32>, String, String), Error> {
        let mut text = Vec::new();
        loop {
            match self.output.recv_timeout(LIVE_LIMIT) {
                Ok(line) => text.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(self.failed("did not end in time")),
            }
        }
        let status = self.child.0.wait();
        let status = status.map_err(|e| Error::Start(format!("wait: {e}")))?;
        self.said.extend(self.lines.iter());
        no_panic(&self.said.join("\n"));
        Ok((status.code(), text.join("\n"), self.said.join("\n")))
    }

    fn failed(&self, how: &str) -> Error {
        no_panic(&self.said.join("\n"));
        Error::Output(format!("{how}; it said: {}", self.said.join(" / ")))
    }

    /// Its standard error so far.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    /// Stops it with SIGINT and reads its output.
    ///
    /// # Errors
    /// When it fails or prints anything but JSON.
    pub fn stop(mut self) -> Result<Value, Error> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.0.id() as i32) {
            // It may have ended by itself, which its status will tell.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let text: Vec<String> = self.output.iter().collect();
        let status = self
            .child
            .0
            .wait()
            .map_err(|e| Error::Start(format!("wait: {e}")))?;
        self.said.extend(self.lines.iter());
        if !status.success() {
            return Err(self.failed(&format!("ended with {status}")));
        }
        serde_json::from_str(&text.join("\n")).map_err(|e| Error::Output(format!("--json: {e}")))
    }
}
