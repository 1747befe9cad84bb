//! A reference receiver of windows that fails at random.
//!
//! It keeps the promise of the protocol `PUT /v1/windows/HOST/BOOT/EPOCH/SEQUENCE`: the body is on the disk
//! before the answer is 200, and a key that comes again replaces nothing and counts once. By its faults it
//! breaks everything else: it answers 500 or 503, closes connections before, during and after the body, and
//! loses answers after the window is durable.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most bytes of a window.
const MAX_BODY: usize = 256 << 20;
const PREFIX: &str = "/v1/windows/";

/// The ways in which a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection ends before the request is read.
    CloseAtOnce,
    /// It ends in the middle of the body.
    CloseInBody,
    /// An error is answered, and nothing is kept.
    Status(u16),
    /// The window is durable, and the answer is lost.
    LoseAnswer,
    /// The window is durable, and an error is answered.
    StatusAfter(u16),
}

/// Every fault, in equal parts.
const FAULTS: [Fault; 6] = [
    Fault::CloseAtOnce,
    Fault::CloseInBody,
    Fault::Status(500),
    Fault::Status(503),
    Fault::LoseAnswer,
    Fault::StatusAfter(500),
];

/// Counts of requests by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Times that the window came whole.
    pub times: u32,
    /// Times that 200 was answered.
    pub acknowledged: u32,
    /// Whether a later body differed from the first.
    pub differed: bool,
}

/// State that the threads of a receiver share.
#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    /// Percent of requests that fail.
    failing: AtomicU32,
    stop: AtomicBool,
    random: Mutex<u64>,
    received: Mutex<BTreeMap<String, Received>>,
}

/// A receiver on a port of its own; it ends when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Keeps windows in `dir`; `failing` percent of the requests fail, chosen by `seed`.
    ///
    /// # Errors
    /// No port can be had.
    pub fn start(dir: &Path, failing: u32, seed: u64) -> io::Result<Receiver> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            failing: AtomicU32::new(failing),
            stop: AtomicBool::new(false),
            random: Mutex::new(seed),
            received: Mutex::default(),
        });
        let own = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.stop.load(Ordering::Acquire) {
                    return;
                }
                // The sender notices a broken connection.
                let _ = stream.and_then(|s| serve(&own, s));
            }
        });
        Ok(Receiver {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// Its address: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, this percentage of requests fails.
    pub fn set_failing(&self, percent: u32) {
        self.shared.failing.store(percent, Ordering::Release);
    }

    /// The requests so far, by key.
    pub fn received(&self) -> BTreeMap<String, Received> {
        lock(&self.shared.received).clone()
    }

    /// The windows on the disk: key and content.
    ///
    /// # Errors
    /// Their directory cannot be read.
    pub fn windows(&self) -> io::Result<BTreeMap<String, Vec<u8>>> {
        let mut windows = BTreeMap::new();
        for entry in fs::read_dir(&self.shared.dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().replace('_', "/");
            if !name.starts_with('.') {
                windows.insert(name, fs::read(entry.path())?);
            }
        }
        Ok(windows)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if TcpStream::connect(self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    /// A random number below `n` (SplitMix64).
    fn below(&self, n: u64) -> u64 {
        let mut state = lock(&self.random);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn fault(&self) -> Option<Fault> {
        let fails = self.below(100) < u64::from(self.failing.load(Ordering::Acquire));
        fails.then(|| FAULTS[self.below(FAULTS.len() as u64) as usize])
    }

    /// Keeps a window; it is durable when this returns.
    fn keep(&self, key: &str, body: &[u8]) -> io::Result<()> {
        let path = self.dir.join(key.replace('/', "_"));
        let old = fs::read(&path).ok();
        if old.is_none() {
            let new = self.dir.join(".new");
            let mut file = File::create(&new)?;
            file.write_all(body)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
        }
        let mut received = lock(&self.received);
        let entry = received.entry(key.to_string()).or_default();
        entry.times += 1;
        entry.differed |= old.is_some_and(|old| old != body);
        Ok(())
    }
}

fn serve(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let fault = shared.fault();
    if fault == Some(Fault::CloseAtOnce) {
        return Ok(());
    }
    let (head, mut body) = head(&mut stream)?;
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    let Some(length @ 0..=MAX_BODY) = length else {
        return answer(&mut stream, 411);
    };
    let wanted = match fault {
        Some(Fault::CloseInBody) => length / 2,
        _ => length,
    };
    let mut chunk = [0; 64 << 10];
    while body.len() < wanted {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            n => body.extend_from_slice(&chunk[..n]),
        }
    }
    match fault {
        Some(Fault::CloseInBody | Fault::CloseAtOnce) => return Ok(()),
        Some(Fault::Status(status)) => return answer(&mut stream, status),
        _ => {}
    }
    // A body that is not read would reset the connection, and the answer with it.
    let key = path.strip_prefix(PREFIX).filter(|k| is_key(k));
    let Some(key) = key.filter(|_| method == "PUT") else {
        return answer(&mut stream, 400);
    };
    shared.keep(key, &body)?;
    match fault {
        Some(Fault::LoseAnswer) => Ok(()),
        Some(Fault::StatusAfter(status)) => answer(&mut stream, status),
        _ => {
            // Counted before it is told: the sender may act on it at once.
            if let Some(r) = lock(&shared.received).get_mut(key) {
                r.acknowledged += 1;
            }
            answer(&mut stream, 200)
        }
    }
}

/// The head of a request, and the first part of its body.
fn head(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(end) = end {
            let body = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), body));
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&chunk[..n]),
        }
        if bytes.len() > 64 << 10 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Whether a path names a window: four parts, none of which leads elsewhere.
fn is_key(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-' || c == '/';
    key.split('/').count() == 4 && key.chars().all(plain) && !key.contains("..")
}

fn answer(stream: &mut TcpStream, status: u16) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status} Answer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}
