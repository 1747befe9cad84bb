//! Servers under load: PostgreSQL, redis, nginx and memcached, each on data in a folder of the benchmark, and
//! echo servers in Go and on tokio. Clients reach them by a unix socket or loopback.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Outcome, installed};

/// Makes a command of a client, without its load.
pub(super) type Client = Box<dyn Fn() -> Command>;

/// A server that does not outlive the benchmark.
pub(super) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let Some(pid) = Pid::from_raw(self.0.id() as i32) else {
            return;
        };
        // By SIGINT all of them end quickly, with their children.
        let _ = kill_process(pid, Signal::INT);
        let limit = Instant::now() + Duration::from_secs(10);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Its main process.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Starts it and waits until `ready`.
    pub(super) fn start(mut command: Command, ready: impl Fn() -> bool) -> Outcome<Server> {
        let name = command.get_program().to_string_lossy().into_owned();
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut server = Server(quiet.stderr(Stdio::null()).spawn()?);
        let limit = Instant::now() + Duration::from_secs(30);
        while !ready() {
            if let Some(status) = server.0.try_wait()? {
                return Err(format!("{name} ended before it was ready: {status}").into());
            }
            if Instant::now() > limit {
                return Err(format!("{name} does not get ready").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

/// Runs a command that is not measured.
pub(super) fn run(command: &mut Command) -> Outcome<()> {
    let out = command.stdin(Stdio::null()).output()?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let name = command.get_program().to_string_lossy().into_owned();
    Err(format!("{name}: {}: {}", out.status, said.trim()).into())
}

/// A command in the server's user: PostgreSQL refuses root.
fn as_user(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// User and group id of `name`, as the machine's own list has it.
fn user(name: &str) -> Option<(u32, u32)> {
    let list = fs::read_to_string("/etc/passwd").ok()?;
    let line = list.lines().find(|l| l.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Debian keeps PostgreSQL's server programs in a folder for each version.
fn postgres_folder() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> = versions.flatten().map(|v| v.path().join("bin")).collect();
    folders.sort();
    folders.pop()
}

/// PostgreSQL with pgbench's tables (scale 5), and pgbench without its load.
pub(super) fn postgres(folder: &Path) -> Outcome<(Server, Client)> {
    let programs =
        postgres_folder().ok_or("the server's programs are not in /usr/lib/postgresql")?;
    let owner = match rustix::process::getuid().is_root() {
        true => Some(user("postgres").ok_or("no user postgres")?),
        false => None,
    };
    if let Some((uid, gid)) = owner {
        chown(folder, Some(uid), Some(gid))?;
    }
    let data = folder.join("data");
    let mut init = as_user(&programs.join("initdb"), owner);
    run(init.args(["-A", "trust", "-U", "bench", "-D"]).arg(&data))?;
    let mut serve = as_user(&programs.join("postgres"), owner);
    serve
        .args(["-c", "listen_addresses=", "-k"])
        .arg(folder)
        .arg("-D")
        .arg(&data);
    let (host, socket) = (folder.to_path_buf(), folder.join(".s.PGSQL.5432"));
    let server = Server::start(serve, || {
        socket.exists()
            && Command::new(programs.join("pg_isready"))
                .arg("-qh")
                .arg(folder)
                .status()
                .is_ok_and(|s| s.success())
    })?;
    let bench = programs.join("pgbench");
    let client = move || {
        let mut command = Command::new(&bench);
        command.args(["-U", "bench", "-h"]).arg(&host);
        command
    };
    run(client().args(["-i", "-q", "-s", "5", "postgres"]))?;
    Ok((server, Box::new(client)))
}

/// redis without persistence, and its socket.
pub(super) fn redis(folder: &Path) -> Outcome<(Server, PathBuf)> {
    let socket = folder.join("socket");
    let mut serve = Command::new("redis-server");
    serve
        .args(["--port", "0", "--save", "", "--dir"])
        .arg(folder);
    serve.arg("--unixsocket").arg(&socket);
    let server = Server::start(serve, || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    })?;
    Ok((server, socket))
}

/// nginx with one worker and a file of 4 KiB, and the file's URL.
pub(super) fn nginx(folder: &Path) -> Outcome<(Server, String)> {
    // A worker of another user must see the files.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    fs::write(folder.join("page.html"), "x".repeat(4096))?;
    let port = free_address()?.port();
    let place = folder.display();
    let configuration = folder.join("nginx.conf");
    fs::write(
        &configuration,
        format!(
            "daemon off; worker_processes 1; pid {place}/pid; error_log {place}/errors;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log {place}/access; client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n\
         fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
         keepalive_requests 100000000; server {{ listen 127.0.0.1:{port}; root {place}; }} }}\n"
        ),
    )?;
    let mut serve = Command::new(installed("nginx").unwrap_or("nginx".into()));
    serve
        .arg("-c")
        .arg(&configuration)
        .arg("-e")
        .arg(folder.join("errors"));
    let server = Server::start(serve, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    Ok((server, format!("http://127.0.0.1:{port}/page.html")))
}

/// A loopback address that is free now.
fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// memcached with two threads and one value of so many bytes under the key `k`, and its address.
pub(super) fn memcached(bytes: usize) -> Outcome<(Server, SocketAddr)> {
    let address = free_address()?;
    let mut serve = Command::new("memcached");
    serve.args([
        "-u",
        "nobody",
        "-U",
        "0",
        "-t",
        "2",
        "-l",
        "127.0.0.1",
        "-p",
    ]);
    serve.arg(address.port().to_string());
    let server = Server::start(serve, || TcpStream::connect(address).is_ok())?;
    let mut client = TcpStream::connect(address)?;
    write!(client, "set k 0 0 {bytes}\r\n{}\r\n", "x".repeat(bytes))?;
    let mut answer = [0; 8];
    client.read_exact(&mut answer)?;
    match &answer == b"STORED\r\n" {
        true => Ok((server, address)),
        false => Err(format!("memcached: {}", String::from_utf8_lossy(&answer)).into()),
    }
}

/// An echo server in Go, built in `folder`, and its address.
pub(super) fn go_echo(folder: &Path) -> Outcome<(Server, SocketAddr)> {
    let (source, program) = (folder.join("echo.go"), folder.join("echo"));
    fs::write(&source, include_str!("echo.go"))?;
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&source);
    run(build
        .env("GOCACHE", folder.join("cache"))
        .env("GO111MODULE", "off"))?;
    saying_address(&program, folder)
}

/// An echo server on tokio with two worker threads, built in `folder` from `bench/tokio-echo`, and its address.
pub(super) fn tokio_echo(folder: &Path) -> Outcome<(Server, SocketAddr)> {
    let source = folder.join("tokio-echo");
    fs::create_dir_all(source.join("src"))?;
    let files = [
        ("Cargo.toml", include_str!("tokio-echo/Cargo.toml")),
        ("Cargo.lock", include_str!("tokio-echo/Cargo.lock")),
        ("src/main.rs", include_str!("tokio-echo/src/main.rs")),
    ];
    for (name, text) in files {
        fs::write(source.join(name), text)?;
    }
    let mut build = Command::new("cargo");
    build.args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--manifest-path",
    ]);
    run(build
        .arg(source.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", folder.join("target")))?;
    saying_address(&folder.join("target/release/tokio-echo"), folder)
}

/// A server that prints its address, and the address.
fn saying_address(program: &Path, folder: &Path) -> Outcome<(Server, SocketAddr)> {
    let said = folder.join("address");
    // Through a shell, since a server's own output goes nowhere.
    let mut serve = Command::new("sh");
    serve
        .args(["-c", "exec \"$0\" >\"$1\""])
        .arg(program)
        .arg(&said);
    let address = || fs::read_to_string(&said).ok()?.trim().parse().ok();
    let server = Server::start(serve, || address().is_some())?;
    let address = address().ok_or("the echo server does not say its address")?;
    Ok((server, address))
}
