//! The service: a pool of workers, a cache behind one lock, and a compaction that holds the lock
//! for as long as a slow disk takes.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::outcome::Outcome;

/// Threads that serve.
pub const WORKERS: usize = 4;
/// Computing for one page, and for reading its request.
const RENDER: Duration = Duration::from_millis(6);
const PARSE: Duration = Duration::from_millis(1);
/// Time that a segment takes to reach the disk, and time until the next one is due.
const SEGMENT: Duration = Duration::from_millis(38);
const BETWEEN_SEGMENTS: Duration = Duration::from_millis(8);

/// Time spent on the requests so far.
#[derive(Clone, Copy, Default)]
struct Account {
    requests: u32,
    wall: Duration,
    computing: Duration,
    cache: Duration,
    upstream: Duration,
}

struct Shared {
    cache: Mutex<HashMap<u64, u64>>,
    account: Mutex<Account>,
    turns_per_ms: u64,
}

/// A service under way.
pub struct Service {
    shared: Arc<Shared>,
}

/// Only a panic elsewhere poisons a lock, and these hold plain figures.
fn locked<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

macro_rules! turns {
    ($count:expr) => {{
        let mut x = 0x9e37_79b9u64;
        let mut left: u64 = $count;
        while left > 0 {
            x = x.rotate_left(5) ^ left;
            left -= 1;
        }
        black_box(x)
    }};
}

/// How much of this program's kind of computing fits into a millisecond here.
fn calibrate() -> u64 {
    const TURNS: u64 = 400_000;
    let fastest = (0..8).map(|_| {
        let start = thread_cpu();
        turns!(black_box(TURNS));
        thread_cpu() - start
    });
    let fastest = fastest
        .min()
        .unwrap_or_default()
        .max(Duration::from_nanos(1));
    (TURNS as f64 / fastest.as_secs_f64() / 1e3) as u64
}

impl Shared {
    fn turns_for(&self, time: Duration) -> u64 {
        self.turns_per_ms * time.as_millis() as u64
    }
}

#[inline(never)]
fn parse_request(shared: &Shared, line: &str) -> u64 {
    turns!(shared.turns_for(PARSE));
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}

#[inline(never)]
fn render_page(shared: &Shared, cached: u64, fresh: &str) -> String {
    let body = turns!(shared.turns_for(RENDER));
    format!("200 {cached} {} {body}\n", fresh.trim())
}

#[inline(never)]
fn cache_get(shared: &Shared, page: u64) -> u64 {
    let mut cache = shared.cache.lock().unwrap_or_else(PoisonError::into_inner);
    *cache.entry(page % 512).or_insert(page)
}

#[inline(never)]
fn query_upstream(upstream: &mut BufReader<TcpStream>, page: u64) -> Outcome<String> {
    upstream
        .get_mut()
        .write_all(format!("{page}\n").as_bytes())?;
    let mut line = String::new();
    upstream.read_line(&mut line)?;
    Ok(line)
}

#[inline(never)]
fn handle_request(
    shared: &Shared,
    upstream: &mut BufReader<TcpStream>,
    line: &str,
) -> Outcome<String> {
    let (wall, cpu) = (Instant::now(), thread_cpu());
    let page = parse_request(shared, line);
    let at_cache = Instant::now();
    let cached = cache_get(shared, page);
    let at_upstream = Instant::now();
    let fresh = query_upstream(upstream, page)?;
    let upstream_took = at_upstream.elapsed();
    let answer = render_page(shared, cached, &fresh);
    let mut account = locked(&shared.account);
    account.requests += 1;
    account.wall += wall.elapsed();
    account.computing += thread_cpu() - cpu;
    account.cache += at_upstream - at_cache;
    account.upstream += upstream_took;
    Ok(answer)
}

fn is_reset(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
}

#[inline(never)]
fn serve_connection(shared: &Shared, stream: TcpStream, upstream: &str) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let connection = TcpStream::connect(upstream)?;
    connection.set_nodelay(true)?;
    let mut upstream = BufReader::new(connection);
    let mut requests = BufReader::new(stream.try_clone()?);
    let mut answers = stream;
    let mut line = String::new();
    while requests.read_line(&mut line)? > 0 {
        answers.write_all(handle_request(shared, &mut upstream, &line)?.as_bytes())?;
        line.clear();
    }
    Ok(())
}

/// Writes a segment and waits until a slow disk has it.
#[inline(never)]
fn write_segment(segment: &mut File, entries: &HashMap<u64, u64>) -> Outcome<()> {
    let until = Instant::now() + SEGMENT;
    let bytes: Vec<u8> = entries
        .values()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    segment.write_all(&bytes)?;
    segment.sync_data()?;
    // The simulated disk is slow on every machine.
    thread::sleep(until.saturating_duration_since(Instant::now()));
    Ok(())
}

/// The reason: the lock is held for as long as the disk takes.
#[inline(never)]
fn compaction(shared: &Shared, segment: &mut File) -> Outcome<()> {
    let mut cache = locked(&shared.cache);
    write_segment(segment, &cache)?;
    cache.clear();
    Ok(())
}

fn compact_for_ever(shared: &Shared) -> Outcome<()> {
    let mut segment = tempfile::tempfile()?;
    loop {
        segment.set_len(0)?;
        compaction(shared, &mut segment)?;
        thread::sleep(BETWEEN_SEGMENTS);
    }
}

impl Service {
    /// Starts the workers and the compaction.
    pub fn start(listener: TcpListener, upstream: String) -> Outcome<Service> {
        let shared = Arc::new(Shared {
            cache: Mutex::default(),
            account: Mutex::default(),
            turns_per_ms: calibrate(),
        });
        let listener = Arc::new(listener);
        for number in 0..WORKERS {
            let (shared, listener) = (shared.clone(), listener.clone());
            let upstream = upstream.clone();
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || {
                    while let Ok((stream, _)) = listener.accept() {
                        // A client that goes away with an answer unread resets its connection.
                        if let Err(error) = serve_connection(&shared, stream, &upstream)
                            && !is_reset(&*error)
                        {
                            eprintln!("wallscope-demo: a connection ended early: {error}");
                        }
                    }
                })?;
        }
        let compacted = shared.clone();
        thread::Builder::new()
            .name("compaction".into())
            .spawn(move || {
                if let Err(error) = compact_for_ever(&compacted) {
                    eprintln!("wallscope-demo: compaction ended: {error}");
                }
            })?;
        Ok(Service { shared })
    }

    /// Time spent on the requests, as measured by the service itself.
    pub fn summary(&self) -> Summary {
        Summary(*locked(&self.shared.account))
    }
}

/// The account in words.
pub struct Summary(Account);

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account {
            requests,
            wall,
            computing,
            cache,
            upstream,
        } = self.0;
        if requests == 0 {
            return write!(f, "no request was finished");
        }
        let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(requests);
        let share = |time: Duration| 100.0 * time.as_secs_f64() / wall.as_secs_f64();
        let rest = wall.saturating_sub(computing + cache + upstream);
        let mut row = |what: &str, time: Duration| {
            writeln!(f, "  {:7.2} ms {:5.1} %  {what}", each(time), share(time))
        };
        row(&format!("a request, of {requests}"), wall)?;
        row("computing (parse_request, render_page)", computing)?;
        row(
            "cache_get, waiting for the lock that compaction holds",
            cache,
        )?;
        row("query_upstream, waiting for the answer", upstream)?;
        row("waiting for a CPU, and the rest", rest)
    }
}
