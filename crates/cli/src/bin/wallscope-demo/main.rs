//! `wallscope-demo`: a small web service, with its load generator and its upstream, that is slow
//! for a reason no CPU profile shows.
//!
//! A handler computes for a sixth of its time. For the rest it waits: for the cache's lock, which
//! `compaction` holds while it writes a segment to a slow disk, and for an answer from upstream. A
//! CPU profile is all `render_page`, and making that twice as fast would help by a few percent.
//!
//! The service is one process; upstream and load generator are two more, which end with it. All
//! lengths are fixed, and at the end the service prints its own measurements.

mod load;
mod outcome;
mod service;
mod upstream;

use std::io::{BufRead, BufReader, Read, Write, stdin, stdout};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use outcome::Outcome;

const HELP: &str = "\
A web service that is slow for a reason no CPU profile shows.

usage: wallscope-demo [--seconds N]

It prints READY and its process id, serves its own load for N seconds (10 unless told), and ends
with what a request's time went into, as it measured that itself.

example: wallscope-demo --seconds 20 &
         wallscope record -d 10 -p $!
";

/// Starts this program in another role and returns the address that the child prints. The child exits
/// when its input pipe closes.
fn start_role(role: &str, address: &str) -> Outcome<(Child, String)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--role", role, address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("the child's output is piped")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok((child, line.trim().to_string()))
}

/// Ends this process when its parent is gone.
fn end_with_parent() {
    thread::spawn(|| {
        let mut rest = Vec::new();
        // End of input and a read error both mean that the parent is gone.
        let _ = stdin().read_to_end(&mut rest);
        std::process::exit(0);
    });
}

fn serve(seconds: f64) -> Outcome<()> {
    let (mut upstream, upstream_address) = start_role("upstream", "-")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let service = service::Service::start(listener, upstream_address)?;
    let (mut load, _) = start_role("load", &address)?;
    println!("READY {}", std::process::id());
    stdout().flush()?;
    thread::sleep(Duration::from_secs_f64(seconds));
    print!("{}", service.summary());
    for child in [&mut load, &mut upstream] {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

fn run(arguments: &[&str]) -> Outcome<()> {
    match arguments {
        [] => serve(10.0),
        ["--seconds", text] => match text.parse() {
            Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => serve(seconds),
            _ => Err(format!("--seconds wants a number up to 86400, not {text}").into()),
        },
        ["--role", "upstream", _] => {
            end_with_parent();
            upstream::run()
        }
        ["--role", "load", address] => {
            end_with_parent();
            load::run(address)
        }
        ["--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err("see: wallscope-demo --help".into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wallscope-demo: {error}");
            ExitCode::FAILURE
        }
    }
}
