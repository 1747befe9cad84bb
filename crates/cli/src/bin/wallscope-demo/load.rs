//! The load generator: as many clients as the service has workers, each asking again as soon as
//! it has its answer.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;

use crate::outcome::Outcome;
use crate::service::WORKERS;

fn client(address: &str) -> Outcome<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut requests = stream;
    let mut line = String::new();
    for page in 0u64.. {
        requests.write_all(format!("GET /page/{page} HTTP/1.1\r\n").as_bytes())?;
        line.clear();
        if answers.read_line(&mut line)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Runs the clients until the service is gone.
pub fn run(address: &str) -> Outcome<()> {
    let clients: Vec<_> = (0..WORKERS)
        .map(|_| {
            let address = address.to_string();
            // A service that ends in the middle of a request is how it always ends.
            thread::spawn(move || client(&address).ok())
        })
        .collect();
    println!("started");
    for client in clients {
        client.join().map_err(|_| "a client panicked")?;
    }
    Ok(())
}
