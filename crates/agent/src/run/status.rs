//! `agent status`: one JSON document over a unix socket that only the agent's user may open.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The socket's name in the run directory.
const SOCKET: &str = "agent.sock";
/// Most bytes of an answer.
const MAX_ANSWER: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// State of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Schema of this document: `wallscope.agent-status/1`.
    pub schema: String,
    /// Version of the agent.
    pub version: String,
    /// Start of the agent, ns since the epoch.
    pub epoch: u64,
    /// Windows since then.
    pub windows: u64,
    /// End of the last window, ns since the epoch; 0: there was none.
    pub last_window_unix_ns: u64,
    /// Directory of the store.
    pub store_dir: PathBuf,
    /// Its bytes.
    pub store_bytes: u64,
    /// Its windows.
    pub store_windows: u64,
    /// Windows that could not be written.
    pub failed_windows: u64,
    /// By target.
    pub targets: BTreeMap<String, TargetStatus>,
    /// The last error, of writing, of a reload or of a trigger.
    pub error: Option<String>,
}

/// State of the delivery to one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Windows that wait.
    pub pending: u64,
    /// Windows acknowledged.
    pub delivered: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Windows refused for good.
    pub refused: u64,
    /// Windows that may have counted twice.
    pub maybe_twice: u64,
    /// The last error, until a window is delivered.
    pub error: Option<String>,
}

/// Asks the agent that has the run directory `run_dir`.
///
/// # Errors
/// There is none, or it does not answer.
pub fn ask_status(run_dir: &Path) -> io::Result<Status> {
    let stream = UnixStream::connect(run_dir.join(SOCKET))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    (&stream).take(MAX_ANSWER).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The socket of a running agent; removed when it is dropped.
#[derive(Debug)]
pub(super) struct StatusSocket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Answers with the document of `status`. The run directory is locked, so an old socket there is nobody's.
    pub(super) fn bind(
        run_dir: &Path,
        status: impl Fn() -> Status + Send + 'static,
    ) -> io::Result<StatusSocket> {
        let path = run_dir.join(SOCKET);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("wallscope-status".to_string())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::Acquire) {
                        return;
                    }
                    // The asker has gone away: nobody is left to tell.
                    let _ = stream.and_then(|s| answer(s, &status()));
                }
            })?;
        Ok(StatusSocket {
            path,
            stop,
            thread: Some(thread),
        })
    }
}

fn answer(mut stream: UnixStream, status: &Status) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let text = serde_json::to_vec_pretty(status).map_err(io::Error::other)?;
    stream.write_all(&text)
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}
