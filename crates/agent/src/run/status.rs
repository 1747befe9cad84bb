//! `agent status` and `snap`: a line in, a JSON document out, over a unix socket that only the agent's user may
//! open. `status` asks for the status; `close` asks for the end of the open window first.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::published::Published;

/// The socket's name in the run directory.
const SOCKET: &str = "agent.sock";
/// Most bytes of an answer.
const MAX_ANSWER: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request.
const MAX_REQUEST: u64 = 16;
/// Time for a window to be closed, named and kept.
const CLOSING: Duration = Duration::from_secs(10);

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
    ask(run_dir, "status", PATIENCE)
}

/// Has the agent that has the run directory `run_dir` close its open window; the status after that. Its last window
/// ends before the request if the agent was too slow.
///
/// # Errors
/// There is none, or it does not answer.
pub fn close_window(run_dir: &Path) -> io::Result<Status> {
    ask(run_dir, "close", CLOSING + PATIENCE)
}

fn ask(run_dir: &Path, request: &str, patience: Duration) -> io::Result<Status> {
    let mut stream = UnixStream::connect(run_dir.join(SOCKET))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
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
    /// Answers from `published`. The run directory is locked, so an old socket there is nobody's.
    pub(super) fn bind(run_dir: &Path, published: Arc<Published>) -> io::Result<StatusSocket> {
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
                    let _ = stream.and_then(|s| answer(s, &published));
                }
            })?;
        Ok(StatusSocket {
            path,
            stop,
            thread: Some(thread),
        })
    }
}

fn answer(mut stream: UnixStream, published: &Published) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = String::new();
    (&stream).take(MAX_REQUEST).read_to_string(&mut request)?;
    match request.trim() {
        "status" => {}
        "close" => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now = now.map_or(0, |d| d.as_nanos() as u64);
            published.close_window(now, CLOSING);
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    let text = serde_json::to_vec_pretty(&published.status()).map_err(io::Error::other)?;
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
