//! `cargo xtask verify --dist`: the Debian package in a fresh system, installed, used and purged.
//!
//! The system is made by `debootstrap`, or is the folder that `--system DIR` names. It runs in a mount namespace
//! of its own with the host's `/proc` and `/sys`, in the host's process namespace, so eBPF measures as on a host.
//! The agent runs as the packaged user with the capabilities that the packaged unit lists, and no others.
//! It must tell its service manager that it is ready (`Type=notify`). With `--boot VMLINUZ` the system is booted in an
//! emulator, too, with systemd as its first process (`boot.rs`).

use std::os::unix::{fs::PermissionsExt as _, net::UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::boot;
use super::sums::name;
use crate::{Outcome, installed, root};

const MIRROR: &str = "http://deb.debian.org/debian";
/// Mounts and enters the system `$1`, then runs the other arguments in it.
const ENTER: &str = "\
    mount --rbind /proc \"$1/proc\" && mount --rbind /sys \"$1/sys\" && mount --rbind /dev \"$1/dev\" || exit 99; \
    exec chroot \"$@\"";

/// The service manager's socket, as the agent names it.
const NOTIFY: &str = "/run/wallscope/notify";

/// A system to install into.
struct System {
    folder: PathBuf,
    /// Removes the folder at the end, if this task made it.
    _made: Option<tempfile::TempDir>,
}

/// Options of the task.
struct Options<'a> {
    suite: &'a str,
    system: Option<&'a Path>,
    package: Option<&'a Path>,
    kernel: Option<&'a Path>,
}

/// Installs the package in a fresh system and uses it there. Whether each step succeeded.
///
/// `arguments`: `[--suite NAME] [--system DIR] [--deb FILE] [--boot VMLINUZ]`.
///
/// # Errors
/// An unknown flag; `debootstrap` is missing or fails; there is no package.
pub fn verify(arguments: &[&str]) -> Outcome<bool> {
    let mut options = Options {
        suite: "bookworm",
        system: None,
        package: None,
        kernel: None,
    };
    for pair in arguments.chunks(2) {
        match pair {
            ["--suite", suite] => options.suite = suite,
            ["--system", folder] => options.system = Some(Path::new(folder)),
            ["--deb", file] => options.package = Some(Path::new(file)),
            ["--boot", image] => options.kernel = Some(Path::new(image)),
            _ => {
                let text =
                    "verify --dist takes --suite NAME, --system DIR, --deb FILE, --boot VMLINUZ";
                return Err(text.into());
            }
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let usual = root().join(format!("target/dist/wallscope_{version}-1_amd64.deb"));
    let package = options.package.unwrap_or(&usual);
    if !package.is_file() {
        let text = format!("{} is missing: cargo xtask dist", package.display());
        return Err(text.into());
    }
    let system = System::get(&options)?;
    system.steps(package, options.kernel)
}

impl System {
    fn get(options: &Options) -> Outcome<System> {
        if let Some(folder) = options.system {
            return Ok(System {
                folder: folder.to_owned(),
                _made: None,
            });
        }
        let debootstrap = installed("debootstrap").unwrap_or("/usr/sbin/debootstrap".into());
        let made = tempfile::tempdir()?;
        let status = Command::new(debootstrap)
            .args(["--variant=minbase", options.suite])
            .arg(made.path())
            .arg(MIRROR)
            .status()
            .map_err(|e| format!("cannot start debootstrap ({e}): apt-get install debootstrap"))?;
        if !status.success() {
            return Err(format!("debootstrap cannot make {}", options.suite).into());
        }
        Ok(System {
            folder: made.path().to_owned(),
            _made: Some(made),
        })
    }

    /// Runs a command of the system.
    fn command(&self, command: &[&str]) -> Command {
        let mut enter = Command::new("unshare");
        enter
            .args(["--mount", "--propagation", "private", "sh", "-c", ENTER])
            .arg("enter")
            .arg(&self.folder)
            .args(command)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .envs(std::env::vars().filter(|(name, _)| name == "http_proxy"));
        enter
    }

    /// Runs a command, which must succeed and print `wanted`; prints a line about it.
    fn step(&self, command: &[&str], wanted: &str) -> Outcome<bool> {
        let output = self.command(command).output()?;
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let good = output.status.success() && text.contains(wanted);
        let verdict = if good { "ok    " } else { "FAILED" };
        println!("{verdict} {}", command.join(" "));
        if !good {
            println!("{}: {text}", output.status);
        }
        Ok(good)
    }

    fn steps(&self, package: &Path, kernel: Option<&Path>) -> Outcome<bool> {
        let inside = format!("/root/{}", name(package)?);
        fs::copy(package, self.folder.join(&inside[1..]))?;
        // Not dpkg: apt gets the packages that this one depends on.
        let install = [
            "apt-get",
            "install",
            "--yes",
            "--no-install-recommends",
            &inside,
        ];
        let mut good = self.step(&install, "Setting up wallscope")?;
        for (command, wanted) in [
            (&["dpkg", "--verify", "wallscope"][..], ""),
            (&["wallscope", "agent", "check"], "fine. Windows of 10 s"),
            (
                &["sh", "-c", "wallscope record -o /root/r.pb.gz -- sleep 1"],
                "",
            ),
            (&["wallscope", "report", "/root/r.pb.gz"], "blocked"),
        ] {
            good &= self.step(command, wanted)?;
        }
        good &= self.agent()?;
        if let Some(kernel) = kernel {
            good &= self.boots(kernel)?;
        }
        good &= self.step(&["dpkg", "--purge", "wallscope"], "")?;
        for left in ["var/lib/wallscope", "etc/wallscope", "usr/bin/wallscope"] {
            if self.folder.join(left).exists() {
                println!("FAILED /{left} is left after the purge");
                good = false;
            }
        }
        Ok(good)
    }

    /// Installs systemd, and boots the system.
    fn boots(&self, kernel: &Path) -> Outcome<bool> {
        // Windows of the agent that ran before are another boot's.
        let empty = ["sh", "-c", "rm -rf /var/lib/wallscope /run/wallscope"];
        let install = [
            "apt-get",
            "install",
            "--yes",
            "--no-install-recommends",
            "systemd-sysv",
        ];
        let enable = ["systemctl", "enable", "wallscope-agent"];
        let mut good = self.step(&empty, "")?;
        good &= self.step(&install, "")?;
        good &= self.step(&enable, "")?;
        good &= boot::boot(&self.folder, kernel)?;
        Ok(good)
    }

    /// The service manager's socket at [`NOTIFY`].
    fn manager(&self) -> Outcome<UnixDatagram> {
        let path = self.folder.join(&NOTIFY[1..]);
        // Of an earlier run in the same system.
        let _ = fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        manager.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(manager)
    }

    /// Runs the agent as the unit would; it must say that it is ready, keep windows, and end by SIGTERM with success.
    fn agent(&self) -> Outcome<bool> {
        let unit = self
            .folder
            .join("usr/lib/systemd/system/wallscope-agent.service");
        let capabilities = capabilities(&fs::read_to_string(unit)?);
        let capabilities = format!("-all,{}", capabilities.join(","));
        for folder in ["/var/lib/wallscope", "/run/wallscope"] {
            let make = [
                "install",
                "-d",
                "-m",
                "700",
                "-o",
                "wallscope",
                "-g",
                "wallscope",
                folder,
            ];
            self.step(&make, "")?;
        }
        let manager = self.manager()?;
        let mut agent = self
            .command(&[
                "setpriv",
                "--reuid=wallscope",
                "--regid=wallscope",
                "--init-groups",
            ])
            .arg("--no-new-privs")
            .arg(format!("--bounding-set={capabilities}"))
            .arg(format!("--inh-caps={capabilities}"))
            .arg(format!("--ambient-caps={capabilities}"))
            .args(["wallscope", "agent"])
            .env("NOTIFY_SOCKET", NOTIFY)
            .spawn()?;
        let ready = is_ready(&manager);
        let verdict = if ready { "ok    " } else { "FAILED" };
        println!("{verdict} the agent says READY=1");
        thread::sleep(Duration::from_secs(25));
        let status = self.step(
            &["wallscope", "agent", "status"],
            "store '/var/lib/wallscope'",
        );
        // The shell has become the agent by exec, so its number is the agent's.
        let ended = rustix::process::kill_process(
            rustix::process::Pid::from_child(&agent),
            rustix::process::Signal::TERM,
        );
        let code = agent.wait()?;
        ended?;
        let mut good = ready && status?;
        println!(
            "{} the agent ended: {code}",
            if code.success() { "ok    " } else { "FAILED" }
        );
        good &= code.success();
        good &= self.step(&["wallscope", "report", "/var/lib/wallscope"], "blocked")?;
        Ok(good)
    }
}

/// Whether READY=1 comes within a minute.
fn is_ready(manager: &UnixDatagram) -> bool {
    let started = Instant::now();
    let mut buffer = [0; 4096];
    while started.elapsed() < Duration::from_secs(60) {
        let n = manager.recv(&mut buffer).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..n]);
        if text.lines().any(|line| line == "READY=1") {
            return true;
        }
    }
    false
}

/// The capabilities that a unit gives, as `setpriv` takes them.
fn capabilities(unit: &str) -> Vec<String> {
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("AmbientCapabilities="));
    let names = line.unwrap_or_default().split_whitespace();
    names
        .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect()
}
