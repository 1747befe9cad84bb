//! Drives `wallscope count` and `wallscope latency` as a script would: waits for the line that says
//! that measuring is live, stops it with SIGINT, reads its JSON.

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;

use crate::program::{Owned, lines_of};
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
    /// [`Error::CannotRunHere`] where it exits with 3; otherwise what it said.
    pub fn start(tool: &Tool, arguments: &[&str]) -> Result<Prober, Error> {
        let mut child = Command::new(tool.path())
            .args(arguments)
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::Start(format!("{}: {error}", tool.path().display())))?;
        let mut prober = Prober {
            lines: lines_of(child.stderr.take().expect("stderr is piped")),
            output: lines_of(child.stdout.take().expect("stdout is piped")),
            child: Owned(child),
            said: Vec::new(),
        };
        loop {
            match prober.lines.recv_timeout(LIVE_LIMIT) {
                Ok(line) => {
                    let live = line.contains("wallscope: measuring");
                    prober.said.push(line);
                    if live {
                        return Ok(prober);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(prober.failed("was not live in time")),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = prober.child.0.wait().ok().and_then(|s| s.code());
                    return Err(match status {
                        Some(3) => Error::CannotRunHere(prober.said.join(" / ")),
                        _ => prober.failed(&format!("ended with {status:?} before it was live")),
                    });
                }
            }
        }
    }

    fn failed(&self, how: &str) -> Error {
        Error::Output(format!("{how}; it said: {}", self.said.join(" / ")))
    }

    /// What it has said on standard error so far.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    /// Stops it with SIGINT and reads what it prints.
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
