//! `agent status` and `snap`: a line in, a JSON document out, over a unix socket that only the agent's user may
//! open. `status` asks for the status; `close` asks for the end of the open window first; `flight` asks for the
//! single intervals of the last minutes, as bytes.

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

use wallscope_capture::session::FlightSnapshot;

use super::published::Published;
use super::status::Status;

/// The socket's name in the run directory.
const SOCKET: &str = "agent.sock";
/// Most bytes of a document.
const MAX_ANSWER: u64 = 1 << 20;
/// Most bytes of single intervals.
const MAX_FLIGHT: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a request.
const MAX_REQUEST: u64 = 16;
/// Time for a window to be closed, named and kept.
const CLOSING: Duration = Duration::from_secs(10);

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

/// The single intervals that the agent with the run directory `run_dir` has kept; `None`: it keeps none.
///
/// # Errors
/// There is no agent, it does not answer, or it is of another version.
pub fn ask_flight(run_dir: &Path) -> io::Result<Option<FlightSnapshot>> {
    let bytes = bytes(run_dir, "flight", PATIENCE, MAX_FLIGHT)?;
    match bytes.is_empty() {
        true => Ok(None),
        false => FlightSnapshot::decode(&bytes)
            .map(Some)
            .map_err(io::Error::other),
    }
}

fn ask(run_dir: &Path, request: &str, patience: Duration) -> io::Result<Status> {
    let text = bytes(run_dir, request, patience, MAX_ANSWER)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The answer to a request, at most `most` bytes of it.
fn bytes(run_dir: &Path, request: &str, patience: Duration, most: u64) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(run_dir.join(SOCKET))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    (&stream).take(most).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The socket of a running agent; removed when it is dropped.
#[derive(Debug)]
pub(super) struct StatusSocket {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Answers from `published`. The run directory is locked, so no agent uses an old socket there.
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
                    // On an error the client has gone away, and nothing is left to do.
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
        "flight" => {
            let bytes = published.flight().map(|f| f.snapshot().encode());
            return stream.write_all(&bytes.unwrap_or_default());
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
