//! A client with many connections: one request is in flight on each, and the next follows its answer.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::work::Work;
use crate::Outcome;

/// Connections.
pub(super) const CONNECTIONS: usize = 64;
/// Payload of a message, bytes.
pub(super) const PAYLOAD: usize = 100;
/// Longest wait for any answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What a client sends, and how long each answer is.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub request: Vec<u8>,
    /// Length of the answer, bytes.
    pub answer: usize,
}

/// One connection: bytes of the answer that are still to come.
struct Connection {
    stream: TcpStream,
    missing: usize,
}

impl Exchange {
    fn ask(&self, connection: &mut Connection) -> Outcome<()> {
        connection.stream.write_all(&self.request)?;
        connection.missing = self.answer;
        Ok(())
    }

    /// Exchanges messages for so many seconds. The rate is by the client's own clock.
    ///
    /// # Errors
    /// The server closes a connection, or does not answer for 10 s.
    pub(super) fn run(&self, server: SocketAddr, seconds: u64) -> Outcome<Work> {
        let connect = |_| -> Outcome<Connection> {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            Ok(Connection { stream, missing: 0 })
        };
        let mut connections: Vec<Connection> =
            (0..CONNECTIONS).map(connect).collect::<Outcome<_>>()?;
        let began = Instant::now();
        for connection in &mut connections {
            self.ask(connection)?;
        }
        let mut units = 0u64;
        let limit = ANSWER_LIMIT.try_into()?;
        while began.elapsed() < Duration::from_secs(seconds) {
            let streams = connections
                .iter()
                .map(|c| PollFd::new(&c.stream, PollFlags::IN));
            let mut polled: Vec<PollFd<'_>> = streams.collect();
            if poll(&mut polled, Some(&limit))? == 0 {
                return Err(format!("{server} does not answer for {ANSWER_LIMIT:?}").into());
            }
            let ready: Vec<bool> = polled.iter().map(|p| !p.revents().is_empty()).collect();
            for (connection, _) in connections
                .iter_mut()
                .zip(ready)
                .filter(|(_, ready)| *ready)
            {
                if connection.take()? {
                    units += 1;
                    self.ask(connection)?;
                }
            }
        }
        Ok(Work {
            units: units as f64,
            rate: units as f64 / began.elapsed().as_secs_f64(),
        })
    }
}

impl Connection {
    /// Reads bytes that are there; returns whether the answer is whole.
    fn take(&mut self) -> Outcome<bool> {
        let mut buffer = [0; 4096];
        let wanted = self.missing.min(buffer.len());
        let taken = self.stream.read(&mut buffer[..wanted])?;
        if taken == 0 {
            return Err("the server closed a connection".into());
        }
        self.missing -= taken;
        Ok(self.missing == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn each_whole_answer_counts_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let answered = std::thread::spawn(move || {
            let mut answered = 0;
            let mut threads = Vec::new();
            for _ in 0..CONNECTIONS {
                let (mut stream, _) = listener.accept().expect("a connection");
                threads.push(std::thread::spawn(move || {
                    let (mut request, mut n) = ([0; 3], 0u64);
                    while stream.read_exact(&mut request).is_ok() {
                        // In two pieces, as networks may deliver it.
                        let sent = stream
                            .write_all(b"ab")
                            .and_then(|()| stream.write_all(b"cde"));
                        n += u64::from(sent.is_ok());
                    }
                    n
                }));
            }
            for thread in threads {
                answered += thread.join().expect("a count");
            }
            answered
        });
        let exchange = Exchange {
            request: b"get".to_vec(),
            answer: 5,
        };
        let work = exchange.run(address, 1).expect("work");
        let answered = answered.join().expect("a count") as f64;
        // At the end one request is in flight on each connection.
        assert!(work.units > 0.0 && work.units <= answered);
        assert!(answered - work.units <= CONNECTIONS as f64);
    }
}
