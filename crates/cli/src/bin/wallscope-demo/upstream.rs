//! The upstream: another team's service, which takes its time.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::outcome::Outcome;

/// Time that an answer takes.
const THINKING: Duration = Duration::from_millis(14);

fn answer(stream: TcpStream) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let mut queries = BufReader::new(stream.try_clone()?);
    let mut answers = stream;
    let mut line = String::new();
    while queries.read_line(&mut line)? > 0 {
        thread::sleep(THINKING);
        answers.write_all(b"42\n")?;
        line.clear();
    }
    Ok(())
}

/// Listens, prints where, and answers for as long as it lives.
pub fn run() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        // A service that hangs up is no fault of this side.
        thread::spawn(move || answer(stream).ok());
    }
    Ok(())
}
