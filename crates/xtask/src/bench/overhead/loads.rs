//! Loads: each does as much as it can for a window, and tells how much that was.

use std::any::Any;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wallscope_testkit::Program;

use super::exchange_client::{CONNECTIONS, Exchange, PAYLOAD};
use super::limit::Limit;
use super::work::Work;
use crate::bench::servers::{self, Server};
use crate::{Outcome, installed};

/// A load.
pub(super) struct Load {
    pub name: &'static str,
    /// Program, client and parameters.
    pub about: &'static str,
    /// The server's main process, where there is one.
    pub pid: Option<u32>,
    /// Works for so many seconds.
    pub work: Box<dyn Fn(u64) -> Outcome<Work>>,
    /// The server or program, which ends with the load.
    _held: Option<Box<dyn Any>>,
}

/// What each way to watch is to reach under a load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub stat: Option<Limit>,
    /// `record -a`.
    pub all: Option<Limit>,
    /// `record -p`.
    pub process: Option<Limit>,
}

/// A load that can be prepared.
pub(super) struct LoadKind {
    pub name: &'static str,
    pub needs: &'static [&'static str],
    pub limits: Limits,
    pub prepare: fn(&Path) -> Outcome<Load>,
}

pub(super) const ALL: &[LoadKind] = &[
    LoadKind {
        name: "postgres",
        needs: &["pgbench"],
        limits: Limits {
            stat: Some(Limit::Kept(0.97)),
            all: Some(Limit::Kept(0.95)),
            process: Some(Limit::Kept(0.955)),
        },
        prepare: postgres,
    },
    LoadKind {
        name: "redis",
        needs: &["redis-server", "redis-benchmark"],
        limits: OF_NETWORKS,
        prepare: redis,
    },
    LoadKind {
        name: "nginx",
        needs: &["nginx", "wrk"],
        limits: OF_NETWORKS,
        prepare: nginx,
    },
    LoadKind {
        name: "pingpong",
        needs: &[],
        limits: Limits {
            stat: None,
            all: None,
            process: None,
        },
        prepare: |_| Ok(pingpong()),
    },
    LoadKind {
        name: "memcached",
        needs: &["memcached"],
        limits: OF_NETWORKS,
        prepare: |_| memcached(),
    },
    LoadKind {
        name: "go-echo",
        needs: &["go"],
        limits: OF_NETWORKS,
        prepare: go_echo,
    },
    LoadKind {
        name: "tokio",
        needs: &["cargo"],
        limits: OF_NETWORKS,
        prepare: tokio_echo,
    },
    LoadKind {
        name: "sleepers",
        needs: &[],
        limits: Limits {
            stat: None,
            all: Some(Limit::Lost(0.5)),
            process: None,
        },
        prepare: |_| sleepers(),
    },
    LoadKind {
        name: "starts",
        needs: &[],
        limits: Limits {
            stat: None,
            all: Some(Limit::Own(2.0)),
            process: None,
        },
        prepare: |_| Ok(starts()),
    },
];

/// Of servers that answer many short messages.
const OF_NETWORKS: Limits = Limits {
    stat: Some(Limit::KeptOrCheap(0.97)),
    all: Some(Limit::KeptOrCheap(0.97)),
    process: Some(Limit::KeptOrCheap(0.97)),
};

impl LoadKind {
    /// The first program that is missing.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let mut needs = self.needs.iter();
        needs.find(|p| installed(p).is_none()).copied()
    }
}

/// What a client prints.
fn said(command: &mut Command) -> Outcome<String> {
    let out = command.stdin(Stdio::null()).output()?;
    if !out.status.success() {
        let name = command.get_program().to_string_lossy().into_owned();
        let error = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{name}: {}: {}", out.status, error.trim()).into());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The first number after `label`.
fn number_after(text: &str, label: &str) -> Outcome<f64> {
    let rest = text.split_once(label).map_or("", |(_, rest)| rest);
    let rest = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    let number = rest[..end.unwrap_or(rest.len())].parse();
    number.map_err(|_| format!("the client does not say '{label}': {text}").into())
}

fn postgres(folder: &Path) -> Outcome<Load> {
    let (server, client) = servers::postgres(folder)?;
    let work = move |seconds: u64| {
        let mut command = client();
        command.args(["-n", "-S", "-M", "prepared", "-c", "4", "-T"]);
        let text = said(command.args([&seconds.to_string(), "postgres"]))?;
        Ok(Work {
            units: number_after(&text, "actually processed:")?,
            rate: number_after(&text, "tps =")?,
        })
    };
    Ok(Load {
        name: "postgres",
        about: "pgbench -S -M prepared -c 4, scale 5, over a unix socket: transactions",
        pid: Some(server.pid()),
        work: Box::new(work),
        _held: Some(Box::new(server)),
    })
}

fn redis_gets(socket: &PathBuf, requests: u64) -> Outcome<Work> {
    let mut command = Command::new("redis-benchmark");
    command.arg("-s").arg(socket);
    command.args(["--csv", "-P", "1", "-c", "50", "-t", "get", "-n"]);
    let text = said(command.arg(requests.to_string()))?;
    Ok(Work {
        units: requests as f64,
        rate: number_after(&text, "\"GET\",")?,
    })
}

fn redis(folder: &Path) -> Outcome<Load> {
    let (server, socket) = servers::redis(folder)?;
    // Its client takes a number of requests, not a time.
    let rate = redis_gets(&socket, 50_000)?.rate;
    Ok(Load {
        name: "redis",
        about: "redis-benchmark -P 1 -c 50 -t get, over a unix socket: requests",
        pid: Some(server.pid()),
        work: Box::new(move |seconds| redis_gets(&socket, (rate * seconds as f64) as u64)),
        _held: Some(Box::new(server)),
    })
}

fn nginx(folder: &Path) -> Outcome<Load> {
    let (server, url) = servers::nginx(folder)?;
    let work = move |seconds: u64| {
        let mut command = Command::new("wrk");
        command.args(["-t", "1", "-c", "16", "-d"]);
        let text = said(command.arg(format!("{seconds}s")).arg(&url))?;
        let rate = number_after(&text, "Requests/sec:")?;
        let counted = text.lines().find(|l| l.contains("requests in"));
        let units = counted.and_then(|l| l.split_whitespace().next()?.parse().ok());
        let units = units.ok_or("wrk does not say how many requests it made")?;
        Ok(Work { units, rate })
    };
    Ok(Load {
        name: "nginx",
        about: "wrk -t 1 -c 16, a file of 4 KiB over loopback, one worker: requests",
        pid: Some(server.pid()),
        work: Box::new(work),
        _held: Some(Box::new(server)),
    })
}

fn pingpong() -> Load {
    const PIECE: u64 = 2000;
    let work = |seconds: u64| {
        let piece = PIECE.to_string();
        let mut program = Program::start("pingpong", &["--until-line", "--piece", &piece])?;
        let began = Instant::now();
        program.release()?;
        std::thread::sleep(Duration::from_secs(seconds));
        program.enough()?;
        let pieces = program.truth(Duration::from_secs(60))?.piece_ends.len();
        let units = pieces as f64 * PIECE as f64;
        let rate = units / began.elapsed().as_secs_f64();
        program.finish()?;
        Ok(Work { units, rate })
    };
    Load {
        name: "pingpong",
        about: "a byte through two pipes, two threads on one CPU: turns",
        pid: None,
        work: Box::new(work),
        _held: None,
    }
}

/// A server that a client of this program exchanges messages with.
fn exchanged(
    (name, about): (&'static str, &'static str),
    (server, address): (Server, SocketAddr),
    exchange: Exchange,
) -> Load {
    Load {
        name,
        about,
        pid: Some(server.pid()),
        work: Box::new(move |seconds| exchange.run(address, seconds)),
        _held: Some(Box::new(server)),
    }
}

fn memcached() -> Outcome<Load> {
    let head = format!("VALUE k 0 {PAYLOAD}\r\n");
    let exchange = Exchange {
        request: b"get k\r\n".to_vec(),
        answer: head.len() + PAYLOAD + b"\r\nEND\r\n".len(),
    };
    let about = "64 connections over loopback, values of 100 bytes, two threads: gets";
    assert_eq!((CONNECTIONS, PAYLOAD), (64, 100));
    Ok(exchanged(
        ("memcached", about),
        servers::memcached(PAYLOAD)?,
        exchange,
    ))
}

/// Messages that come back as they are.
fn echoed() -> Exchange {
    Exchange {
        request: vec![b'x'; PAYLOAD],
        answer: PAYLOAD,
    }
}

fn go_echo(folder: &Path) -> Outcome<Load> {
    let about = "64 connections over loopback, a goroutine each, messages of 100 bytes: messages";
    Ok(exchanged(
        ("go-echo", about),
        servers::go_echo(folder)?,
        echoed(),
    ))
}

fn tokio_echo(folder: &Path) -> Outcome<Load> {
    let about = "64 connections over loopback, a task each, two worker threads, messages of 100 bytes: messages";
    Ok(exchanged(
        ("tokio", about),
        servers::tokio_echo(folder)?,
        echoed(),
    ))
}

/// A host of threads that sleep a second at a time. Its work is the time itself.
fn sleepers() -> Outcome<Load> {
    let flags = ["--until-line", "--threads", "10000", "--wake-ms", "1000"];
    let mut program = Program::start("parked", &flags)?;
    program.release()?;
    let work = |seconds: u64| {
        std::thread::sleep(Duration::from_secs(seconds));
        Ok(Work {
            units: seconds as f64,
            rate: 1.0,
        })
    };
    Ok(Load {
        name: "sleepers",
        about: "10,000 threads that wake once a second: seconds",
        pid: Some(program.pids()[0]),
        work: Box::new(work),
        _held: Some(Box::new(program)),
    })
}

/// Starts in a second.
const STARTS: u32 = 1000;

fn starts() -> Load {
    let work = |seconds: u64| {
        let began = Instant::now();
        let each = Duration::from_secs(1) / STARTS;
        let all = seconds as u32 * STARTS;
        for n in 0..all {
            let mut command = Command::new("/bin/true");
            let status = command.stdin(Stdio::null()).status()?;
            if !status.success() {
                return Err(format!("/bin/true: {status}").into());
            }
            std::thread::sleep((each * (n + 1)).saturating_sub(began.elapsed()));
        }
        Ok(Work {
            units: f64::from(all),
            rate: f64::from(all) / began.elapsed().as_secs_f64(),
        })
    };
    Load {
        name: "starts",
        about: "/bin/true, 1,000 times a second: processes",
        pid: None,
        work: Box::new(work),
        _held: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_clients_are_found() {
        let pgbench = "number of transactions actually processed: 1234\nlatency average = 0.1 ms\n\
                       tps = 5678.9 (without initial connection time)\n";
        assert_eq!(
            number_after(pgbench, "actually processed:").expect("units"),
            1234.0
        );
        assert_eq!(number_after(pgbench, "tps =").expect("rate"), 5678.9);
        assert!(number_after(pgbench, "Requests/sec:").is_err());
        let redis = "\"test\",\"rps\"\n\"GET\",\"94339.62\",\"0.1\"\n";
        assert_eq!(number_after(redis, "\"GET\",").expect("rate"), 94339.62);
    }
}
