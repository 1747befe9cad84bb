//! A small server: one request a connection, a few connections at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most headers of a request.
const MAX_HEADERS: usize = 64;

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a request's head.
    pub head: usize,
    /// Most bytes of its body.
    pub body: usize,
    /// Time for the whole request.
    pub time: Duration,
    /// Most connections at a time; further ones are closed.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: 16 << 10,
            body: 1 << 20,
            time: Duration::from_secs(10),
            connections: 8,
        }
    }
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of the header `name`, given in lower case; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value)
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Its media type.
    pub content_type: &'static str,
    /// Its body.
    pub body: Vec<u8>,
}

impl Response {
    /// An answer in words.
    pub fn text(status: u16, text: impl Into<String>) -> Response {
        let mut body = text.into().into_bytes();
        body.push(b'\n');
        Response {
            status,
            content_type: "text/plain; charset=utf-8",
            body,
        }
    }
}

/// Why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The connection ended or was too slow.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no request, or beyond the bounds; the answer says so.
    #[error("{text}")]
    Bad {
        /// The answer's status.
        status: u16,
        /// The reason.
        text: &'static str,
    },
}

impl RequestError {
    fn bad(status: u16, text: &'static str) -> RequestError {
        RequestError::Bad { status, text }
    }
}

/// A server, which ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers requests to `address` by `handler`.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn bind(
        address: SocketAddr,
        limits: Limits,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let accept = move || accept_all(&listener, limits, &stopped, &Arc::new(handler));
        let thread = std::thread::Builder::new()
            .name("wallscope-http".to_string())
            .spawn(accept)?;
        Ok(Server {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The connection wakes the thread that accepts.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn accept_all<H>(listener: &TcpListener, limits: Limits, stop: &AtomicBool, handler: &Arc<H>)
where
    H: Fn(&Request) -> Response + Send + Sync + 'static,
{
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors: it gets better, or it does not.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if busy.load(Ordering::Acquire) >= limits.connections {
            continue;
        }
        busy.fetch_add(1, Ordering::AcqRel);
        let (handler, count) = (handler.clone(), busy.clone());
        let answer = move || {
            answer(stream, limits, &*handler);
            count.fetch_sub(1, Ordering::AcqRel);
        };
        let spawned = std::thread::Builder::new()
            .name("wallscope-http".to_string())
            .spawn(answer);
        if spawned.is_err() {
            busy.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn answer(mut stream: TcpStream, limits: Limits, handler: &dyn Fn(&Request) -> Response) {
    let response = match read_request(&mut stream, limits) {
        Ok(request) => handler(&request),
        Err(RequestError::Bad { status, text }) => Response::text(status, text),
        Err(RequestError::Io(_)) => return,
    };
    // On an error the client has gone away, and nothing is left to do.
    let _ = write_response(&mut stream, &response);
}

/// Reads one request.
///
/// # Errors
/// [`RequestError`].
pub fn read_request(stream: &mut TcpStream, limits: Limits) -> Result<Request, RequestError> {
    let deadline = Instant::now() + limits.time;
    stream.set_write_timeout(Some(limits.time))?;
    let mut bytes = Vec::new();
    let (mut request, body_at) = loop {
        if let Some(parsed) = parse_head(&bytes)? {
            break parsed;
        }
        if bytes.len() >= limits.head {
            return Err(RequestError::bad(431, "the head is too long"));
        }
        let room = limits.head - bytes.len();
        read_some(stream, &mut bytes, room, deadline)?;
    };
    if !request.header("transfer-encoding").is_empty() {
        return Err(RequestError::bad(411, "a length is required"));
    }
    let length: usize = match request.header("content-length") {
        "" => 0,
        text => text
            .parse()
            .map_err(|_| RequestError::bad(400, "a wrong length"))?,
    };
    if length > limits.body {
        return Err(RequestError::bad(413, "the body is too long"));
    }
    let mut body = bytes.split_off(body_at);
    while body.len() < length {
        let room = length - body.len();
        read_some(stream, &mut body, room, deadline)?;
    }
    body.truncate(length);
    request.body = body;
    Ok(request)
}

/// Reads at least one and at most `room` bytes before `deadline`.
fn read_some(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    room: usize,
    deadline: Instant,
) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    let mut buffer = [0; 16 << 10];
    let room = room.min(buffer.len());
    match stream.read(&mut buffer[..room])? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n => {
            bytes.extend_from_slice(&buffer[..n]);
            Ok(())
        }
    }
}

/// The head of a request, and where its body begins; `None`: it is not whole yet.
fn parse_head(bytes: &[u8]) -> Result<Option<(Request, usize)>, RequestError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed
        .parse(bytes)
        .map_err(|_| RequestError::bad(400, "no HTTP request"))?;
    let httparse::Status::Complete(body_at) = status else {
        return Ok(None);
    };
    let target = parsed.path.unwrap_or_default();
    let header = |h: &httparse::Header| {
        let value = String::from_utf8_lossy(h.value).into_owned();
        (h.name.to_ascii_lowercase(), value)
    };
    let request = Request {
        method: parsed.method.unwrap_or_default().to_string(),
        path: target.split('?').next().unwrap_or_default().to_string(),
        headers: parsed.headers.iter().map(header).collect(),
        body: Vec::new(),
    };
    Ok(Some((request, body_at)))
}

/// Writes an answer; the connection ends with it.
///
/// # Errors
/// The connection's.
pub fn write_response(stream: &mut TcpStream, response: &Response) -> io::Result<()> {
    let reason = match response.status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "",
    };
    let mut message = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        response.status,
        response.content_type,
        response.body.len()
    )
    .into_bytes();
    message.extend_from_slice(&response.body);
    stream.write_all(&message)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn requests_are_answered_and_bounded() {
        let limits = Limits {
            head: 1000,
            body: 10,
            time: Duration::from_millis(300),
            ..Limits::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(address, limits, |r| {
            let body = String::from_utf8_lossy(&r.body);
            Response::text(200, format!("{} {} {}", r.method, r.path, body))
        })
        .unwrap();
        let fine = ask(
            &server,
            b"POST /a?b=c HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        );
        assert!(
            fine.starts_with("HTTP/1.1 200 OK\r\n") && fine.ends_with("\r\n\r\nPOST /a abc\n"),
            "{fine}"
        );
        for (request, status) in [
            (&b"\x16\x03\x01\r\n\r\n"[..], "400"),
            (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "400"),
            (b"GET / HTTP/1.1\r\nContent-Length: 11\r\n\r\n", "413"),
            (
                b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "411",
            ),
            (
                &[b"GET /".as_slice(), &[b'a'; 1200], b" HTTP/1.1\r\n\r\n"].concat(),
                "431",
            ),
        ] {
            let answer = ask(&server, request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
        }
        // A slow one is not waited for.
        assert_eq!(ask(&server, b"GET / HTTP/1.1\r\n"), "");
    }
}
