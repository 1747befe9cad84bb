//! Places in which wallscope runs: its user, and the host's refusals.

use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

/// An ordinary user that every system has: nobody.
pub const USER: u32 = 65534;

/// A place in which wallscope runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Root,
    /// Root without `bpf()`, as in many containers.
    RootNoBpf,
    User,
    /// An ordinary user where `perf_event_paranoid` is 3 or more.
    UserParanoid,
    /// An ordinary user under a filter as containers have it.
    Filtered,
    /// A filtered user that may not read the memory of others: Yama 1 refuses that of processes that were not
    /// started by oneself.
    NoMemory,
}

impl Place {
    /// What is refused here, and with which error.
    fn refused(self) -> (&'static [libc::c_long], i32) {
        const BPF: libc::c_long = libc::SYS_bpf;
        const PERF: libc::c_long = libc::SYS_perf_event_open;
        const PTRACE: libc::c_long = libc::SYS_ptrace;
        const MEMORY: libc::c_long = libc::SYS_process_vm_readv;
        match self {
            Place::Root | Place::User => (&[], 0),
            Place::RootNoBpf => (&[BPF], libc::EPERM),
            Place::UserParanoid => (&[PERF], libc::EACCES),
            Place::Filtered => (&[BPF, PERF, PTRACE], libc::EPERM),
            Place::NoMemory => (&[BPF, PERF, PTRACE, MEMORY], libc::EPERM),
        }
    }

    pub fn is_root(self) -> bool {
        matches!(self, Place::Root | Place::RootNoBpf)
    }

    /// Makes a command run here.
    pub fn enter(self, command: &mut Command) {
        if !self.is_root() {
            command.uid(USER).gid(USER);
        }
        let (calls, errno) = self.refused();
        if !calls.is_empty() {
            // SAFETY: plain system calls, on memory of the stack.
            unsafe { command.pre_exec(move || refuse(calls, errno)) };
        }
    }
}

/// Denies system calls to this process and its children.
fn refuse(calls: &[libc::c_long], errno: i32) -> io::Result<()> {
    const NONE: libc::sock_filter = libc::sock_filter {
        code: 0,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let step = |code: u32, jt: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: 0,
        k,
    };
    let mut filter = [NONE; 8];
    let n = calls.len();
    filter[0] = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    for (index, call) in calls.iter().enumerate() {
        let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter[1 + index] = step(equals, n - index, *call as u32);
    }
    let answer = libc::BPF_RET | libc::BPF_K;
    filter[1 + n] = step(answer, 0, libc::SECCOMP_RET_ALLOW);
    filter[2 + n] = step(answer, 0, libc::SECCOMP_RET_ERRNO | errno as u32);
    let program = libc::sock_fprog {
        len: (n + 3) as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program outlives the calls, and its length is right.
    let ok = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    if ok {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The beginning of a command line that runs the rest of it somewhere else; `None`, and one line that
/// says so, where this machine has no such place.
pub fn through(what: &str, line: &[&str]) -> Option<Vec<String>> {
    let works = Command::new(line[0])
        .args(&line[1..])
        .arg("true")
        .stdin(Stdio::null())
        .output();
    match works {
        Ok(output) if output.status.success() => Some(line.iter().map(|s| (*s).into()).collect()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("skipped {what}: {}", said.trim());
            None
        }
        Err(e) => {
            println!("skipped {what}: {}: {e}", line[0]);
            None
        }
    }
}

/// A program of 32 bits that does nothing but wait, written to `path`: whether this machine runs it.
pub fn program_of_32_bits(path: &Path) -> io::Result<()> {
    const AT: u32 = 0x0804_8000;
    // mov eax, 29 (pause); int 0x80; jmp back
    let code: [u8; 9] = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
    let mut file = Vec::from(*b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |file: &mut Vec<u8>, v: u16| file.extend(v.to_le_bytes());
    let word = |file: &mut Vec<u8>, v: u32| file.extend(v.to_le_bytes());
    half(&mut file, 2);
    half(&mut file, 3);
    for v in [1, AT + 84, 52, 0, 0] {
        word(&mut file, v);
    }
    for v in [52, 32, 1, 0, 0, 0] {
        half(&mut file, v);
    }
    let size = 84 + code.len() as u32;
    for v in [1, 0, AT, AT, size, size, 5, 0x1000] {
        word(&mut file, v);
    }
    file.extend(code);
    std::fs::write(path, file)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode)
}
