//! The target of a measurement, and the start of a command of our own.
//!
//! A command is forked at once and held at a pipe just before its `exec`, so that measuring can be
//! live before its first instruction runs and its exec failure is still reported as such.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};
use wallscope_procfs::kernel_file;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::Access,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, WaitOptions, WaitStatus, pidfd_open},
};
use wallscope_procfs::{process, target_file::open_named_by_user};

use crate::{Error, session::command};

/// Target of a measurement.
#[derive(Clone, Debug)]
pub enum Target {
    /// These processes, their threads and children.
    Pids(Vec<u32>),
    /// A command to start, its threads and children.
    Command(Vec<OsString>),
    /// The tasks of a cgroup (v1 or v2) and of those below it.
    Cgroup(PathBuf),
    /// The whole machine.
    All,
}

impl Target {
    /// The target in words, for the domain.
    pub fn describe(&self) -> String {
        match self {
            Target::Pids(pids) => {
                let list: Vec<_> = pids.iter().map(u32::to_string).collect();
                format!("pid {}", list.join(", "))
            }
            Target::Command(argv) => {
                let list: Vec<_> = argv.iter().map(|a| a.to_string_lossy()).collect();
                format!("command: {}", list.join(" "))
            }
            Target::Cgroup(path) => format!("cgroup {}", path.display()),
            Target::All => wallscope_model::Domain::WHOLE_MACHINE.into(),
        }
    }

    /// This target without processes that have ended. `None`: all named processes have.
    pub fn alive(&self) -> Option<Target> {
        let Target::Pids(pids) = self else {
            return Some(self.clone());
        };
        let runs = |pid: &u32| watch(*pid).is_ok_and(|process| !has_ended(&process));
        let pids: Vec<u32> = pids.iter().copied().filter(runs).collect();
        (!pids.is_empty()).then_some(Target::Pids(pids))
    }
}

/// End of a command of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// It left with this status.
    Status(u8),
    /// It died of this signal.
    Signal(u8),
}

impl CommandEnd {
    /// Exit code as a shell would report it: the status, or 128 + signal.
    pub fn exit_code(self) -> u8 {
        match self {
            CommandEnd::Status(s) => s,
            CommandEnd::Signal(n) => 128u8.saturating_add(n),
        }
    }
}

/// A command that waits for [`Held::release`] before its `exec`.
pub struct Held {
    pid: Pid,
    command: String,
    go: Option<OwnedFd>,
    failed: OwnedFd,
    ended: Option<CommandEnd>,
}

impl Held {
    /// Forks the command and holds it. With an `output`, that is its standard output and error, and
    /// its input is empty.
    ///
    /// # Errors
    /// An empty command, an argument with a NUL byte, or a fork that the system refuses.
    pub fn start(argv: &[OsString], output: Option<&File>) -> Result<Held, Error> {
        let command = argv
            .first()
            .map(|a| a.to_string_lossy().into_owned())
            .unwrap_or_default();
        let fail = |source: io::Error| Error::Start {
            command: command.clone(),
            code: 126,
            cause: source,
        };
        match command::locate(argv.first().map_or(OsStr::new(""), OsString::as_os_str)) {
            None => return Err(not_found(&command)),
            Some(path) if rustix::fs::access(&path, Access::EXISTS).is_err() => {
                return Err(not_found(&command));
            }
            Some(path) => rustix::fs::access(&path, Access::EXEC_OK).map_err(|e| fail(e.into()))?,
        }
        let args: Vec<CString> = argv
            .iter()
            .map(|a| CString::new(a.as_bytes()).map_err(|e| fail(e.into())))
            .collect::<Result<_, _>>()?;
        let mut pointers: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail(e.into()))?;
        let (failed, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail(e.into()))?;
        let nothing = output.map(|_| discarding()).transpose().map_err(&fail)?;
        // SAFETY: between fork and exec the child calls only async-signal-safe functions and
        // allocates nothing; all it uses was made before.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::close(go.as_raw_fd());
                let mut byte = 0u8;
                // End of file: the parent that holds us is gone, or has given up.
                if libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                    libc::_exit(125);
                }
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                if let (Some(output), Some(nothing)) = (output, &nothing) {
                    libc::dup2(nothing.as_raw_fd(), 0);
                    libc::dup2(output.as_raw_fd(), 1);
                    libc::dup2(output.as_raw_fd(), 2);
                }
                libc::execvp(pointers[0], pointers.as_ptr());
                let errno = *libc::__errno_location();
                libc::write(tell.as_raw_fd(), (&raw const errno).cast(), 4);
                libc::_exit(127);
            }
            pid
        };
        let pid = Pid::from_raw(pid).ok_or_else(|| fail(io::Error::last_os_error()))?;
        if pid.as_raw_nonzero().get() < 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        Ok(Held {
            pid,
            command,
            go: Some(go),
            failed,
            ended: None,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Lets it run.
    ///
    /// # Errors
    /// The `exec` failed: not found (127) or not executable (126).
    pub fn release(&mut self) -> Result<(), Error> {
        let fail = |source: io::Error| {
            let code = if source.kind() == io::ErrorKind::NotFound {
                127
            } else {
                126
            };
            Error::Start {
                command: self.command.clone(),
                code,
                cause: source,
            }
        };
        if let Some(go) = self.go.take() {
            rustix::io::write(&go, b"x").map_err(|e| fail(e.into()))?;
        }
        let mut errno = [0u8; 4];
        match rustix::io::retry_on_intr(|| rustix::io::read(self.failed.as_fd(), &mut errno)) {
            Ok(4) => {
                let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
                Err(fail(io::Error::from_raw_os_error(i32::from_ne_bytes(
                    errno,
                ))))
            }
            _ => Ok(()),
        }
    }

    /// Asks it to end (SIGTERM), and makes it end after two seconds.
    pub fn end(&mut self) -> Option<CommandEnd> {
        if self.try_wait().is_none() {
            let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::TERM);
            if let Ok(fd) = watch(self.pid()) {
                let mut fds = [PollFd::new(&fd, PollFlags::IN)];
                let patience = Timespec {
                    tv_sec: 2,
                    tv_nsec: 0,
                };
                let _ = poll(&mut fds, Some(&patience));
            }
            if self.try_wait().is_none() {
                let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
            }
        }
        self.wait()
    }

    /// Waits for its end, for as long as it takes.
    pub fn wait(&mut self) -> Option<CommandEnd> {
        if self.ended.is_none() {
            let waited = rustix::process::waitpid(Some(self.pid), WaitOptions::empty())
                .ok()
                .flatten();
            self.ended = waited.and_then(|(_, status)| command_end(status));
        }
        self.ended
    }

    /// Its end, if it has ended.
    fn try_wait(&mut self) -> Option<CommandEnd> {
        if self.ended.is_none() {
            let waited = rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG)
                .ok()
                .flatten();
            self.ended = waited.and_then(|(_, status)| command_end(status));
        }
        self.ended
    }
}

fn not_found(command: &str) -> Error {
    Error::Start {
        command: command.to_owned(),
        code: 127,
        cause: io::Error::from_raw_os_error(libc::ENOENT),
    }
}

fn command_end(status: WaitStatus) -> Option<CommandEnd> {
    match status.exit_status() {
        Some(code) => Some(CommandEnd::Status(code as u8)),
        None => status
            .terminating_signal()
            .map(|n| CommandEnd::Signal(n as u8)),
    }
}

/// A descriptor that becomes readable when process `pid` ends.
///
/// # Errors
/// No such process, or a kernel without pidfds (before 5.3).
pub fn watch(pid: u32) -> Result<OwnedFd, Error> {
    let id = Pid::from_raw(pid as i32).ok_or(Error::NoSuchProcess { pid })?;
    pidfd_open(id, PidfdFlags::empty()).map_err(|e| match e {
        rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => Error::NoSuchProcess { pid },
        e => Error::io(format!("cannot watch pid {pid}"), e),
    })
}

/// Whether a process has ended, though its parent may not have asked for its status yet.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// `pids` and the processes that descend from them now, each once, the given ones first.
pub fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = process::processes()
        .unwrap_or_default()
        .into_iter()
        .filter(|pid| *pid != std::process::id())
        .filter_map(|pid| Some((pid, process::stat(pid).ok()?.parent)))
        .collect();
    let mut family = pids.to_vec();
    let mut next = 0;
    while let Some(pid) = family.get(next).copied() {
        next += 1;
        for (child, parent) in &parents {
            if *parent == pid && !family.contains(child) {
                family.push(*child);
            }
        }
    }
    family
}

/// 32-bit programs have other system calls and another unwinder.
///
/// # Errors
/// `target` names a 32-bit program.
pub(crate) fn refuse_32_bit(target: &Target) -> Result<(), Error> {
    let (what, path) = match target {
        Target::Pids(pids) => {
            let exe = |pid: &u32| {
                (
                    format!("pid {pid}"),
                    PathBuf::from(format!("/proc/{pid}/exe")),
                )
            };
            match pids.iter().map(exe).find(|(_, exe)| is_32_bit(exe)) {
                Some(found) => found,
                None => return Ok(()),
            }
        }
        Target::Command(argv) => {
            let command = argv.first().map_or(OsStr::new(""), OsString::as_os_str);
            match command::locate(command).filter(|path| is_32_bit(path)) {
                Some(path) => (command.to_string_lossy().into_owned(), path),
                None => return Ok(()),
            }
        }
        // A 32-bit program among many is still measured by the scheduler's figures.
        Target::Cgroup(_) | Target::All => return Ok(()),
    };
    let target = fs::read_link(&path).unwrap_or(path);
    Err(Error::NotSupported {
        what: format!("{what}, a 32-bit program ({}),", target.display()),
        release: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        remedy:
            "wallscope measures 64-bit programs; with -a or --cgroup, the times of 32-bit ones \
                 too, without their stacks"
                .into(),
    })
}

/// The device that discards output.
#[expect(clippy::disallowed_methods, reason = "a device of the system")]
fn discarding() -> io::Result<fs::File> {
    fs::File::open("/dev/null")
}

fn is_32_bit(path: &Path) -> bool {
    let mut head = [0u8; 5];
    open_named_by_user(path)
        .and_then(|mut f| io::Read::read_exact(&mut f, &mut head))
        .is_ok()
        && head == *b"\x7fELF\x01"
}

/// Ids of the cgroup at `path` and of all below it, and the processes in them.
///
/// # Errors
/// The path is no cgroup directory.
pub fn cgroup_members(path: &Path) -> Result<(Vec<u64>, Vec<u32>), Error> {
    let fail = |why: String| Error::NoSuchCgroup {
        path: path.display().to_string(),
        why,
    };
    let (mut ids, mut pids, mut todo) = (Vec::new(), Vec::new(), vec![path.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        let text = match kernel_file::read_to_string(dir.join("cgroup.procs")) {
            Ok(text) => text,
            Err(e) if dir == path => return Err(fail(e.to_string())),
            Err(_) => continue, // removed while we were walking
        };
        pids.extend(text.lines().filter_map(|l| l.parse::<u32>().ok()));
        if let Ok(meta) = fs::metadata(&dir) {
            ids.push(meta.ino());
        }
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        todo.extend(
            entries
                .flatten()
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                .map(|e| e.path()),
        );
    }
    pids.sort_unstable();
    pids.dedup();
    Ok((ids, pids))
}

/// Copies pieces of memory (address, bytes) of process `pid` one after the other to `to`, which they
/// fill; whether each could be read.
pub(crate) fn read_pieces(pid: u32, wanted: &[(u64, usize)], to: &mut [u8]) -> Vec<bool> {
    /// Most pieces in one call.
    const AT_ONCE: usize = 512;
    let mut done = vec![false; wanted.len()];
    let (mut next, mut from) = (0, 0);
    while next < wanted.len() {
        let batch = &wanted[next..wanted.len().min(next + AT_ONCE)];
        let bytes: usize = batch.iter().map(|w| w.1).sum();
        let Some(room) = to.get_mut(from..from + bytes) else {
            return done;
        };
        let local = libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: bytes,
        };
        let remote: Vec<libc::iovec> = batch
            .iter()
            .map(|(address, bytes)| libc::iovec {
                iov_base: *address as *mut libc::c_void,
                iov_len: *bytes,
            })
            .collect();
        let count = remote.len() as libc::c_ulong;
        // SAFETY: the kernel writes at most `bytes` bytes to `room`, which has as many; the other
        // addresses are only looked up in the other process.
        let n = unsafe { libc::process_vm_readv(pid as i32, &local, 1, remote.as_ptr(), count, 0) };
        // The kernel stops at the first piece that it cannot read: go on behind that piece.
        let mut left = usize::try_from(n).unwrap_or(0);
        let mut tried = 0;
        for (_, bytes) in batch {
            tried += 1;
            from += bytes;
            if *bytes > left {
                break;
            }
            left -= bytes;
            done[next + tried - 1] = true;
        }
        next += tried;
    }
    done
}

/// Copies memory at `address` of process `pid`, without stopping it; returns how many bytes could
/// be read.
pub(crate) fn read_memory(pid: u32, address: u64, to: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: to.len(),
    };
    // SAFETY: the kernel writes at most `to.len()` bytes to `to`; the other address is only looked
    // up in the other process.
    let n = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    usize::try_from(n).unwrap_or(0)
}
