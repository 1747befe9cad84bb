//! A process made to be inspected: it waits in `pause` and dies with its reader.

use std::{io, os::fd::AsRawFd};
use wallscope_procfs::kernel_file;

use rustix::pipe::{PipeFlags, pipe_with};

/// A waiting process; killed when dropped.
pub struct Subject {
    pid: i32,
    is_child: bool,
}

impl Subject {
    /// A child of ours.
    pub fn child() -> io::Result<Subject> {
        // SAFETY: the child calls async-signal-safe functions only and never returns.
        let pid = unsafe {
            let parent = libc::getpid();
            let pid = libc::fork();
            if pid == 0 {
                wait_for_the_end(parent);
            }
            pid
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let subject = Subject {
            pid,
            is_child: true,
        };
        subject.wait_until_it_waits();
        Ok(subject)
    }

    /// A process of the same user that does not descend from us: its parent ends at once.
    pub fn stranger() -> io::Result<Subject> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: as in `child`; the number is written from the stack.
        let between = unsafe {
            let ours = libc::getpid();
            let between = libc::fork();
            if between == 0 {
                let pid = libc::fork();
                if pid == 0 {
                    // Our own death cannot be watched from there: an alarm ends it in any case.
                    libc::alarm(10);
                    wait_for_the_end(0);
                }
                libc::write(write.as_raw_fd(), (&raw const pid).cast(), 4);
                libc::_exit(i32::from(ours == 0));
            }
            between
        };
        if between < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(write);
        let mut number = [0u8; 4];
        let got = rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut number));
        // SAFETY: a child of ours, waited for once.
        unsafe { libc::waitpid(between, std::ptr::null_mut(), 0) };
        let pid = i32::from_ne_bytes(number);
        if got != Ok(4) || pid <= 0 {
            return Err(io::Error::other("no process could be forked"));
        }
        let subject = Subject {
            pid,
            is_child: false,
        };
        subject.wait_until_it_waits();
        Ok(subject)
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{0}/task/{0}/{name}", self.pid)
    }

    /// Returns when its state is no longer `R`, or cannot be seen.
    fn wait_until_it_waits(&self) {
        for _ in 0..10_000 {
            match wallscope_procfs::process::stat(self.pid as u32) {
                Ok(s) if s.state == 'R' => std::thread::yield_now(),
                _ => return,
            }
        }
    }

    /// Reads the scheduler's counters of it.
    pub fn schedstat(&self) -> io::Result<()> {
        let pid = self.pid as u32;
        let books = wallscope_procfs::process::sched_stat(pid, pid)?;
        if books.timeslices == 0 {
            return Err(io::Error::other(
                "all zero: this kernel keeps no such books",
            ));
        }
        Ok(())
    }

    /// Reads the system call in which it waits.
    pub fn syscall(&self) -> io::Result<()> {
        kernel_file::read_to_string(self.file("syscall")).map(drop)
    }

    /// Reads a word of its stack, which lies where ours does.
    pub fn memory(&self) -> io::Result<()> {
        let mine = 0u64;
        let mut to = 0u64;
        let local = libc::iovec {
            iov_base: (&raw mut to).cast(),
            iov_len: 8,
        };
        let remote = libc::iovec {
            iov_base: (&raw const mine).cast_mut().cast(),
            iov_len: 8,
        };
        // SAFETY: the kernel writes at most 8 bytes to `to`.
        match unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) } {
            8 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Reads where in the kernel it waits.
    pub fn wchan(&self) -> io::Result<()> {
        match kernel_file::read_to_string(self.file("wchan"))?.as_str() {
            "0" | "" => Err(io::Error::other("it is hidden")),
            _ => Ok(()),
        }
    }

    /// Reads its kernel stack.
    pub fn stack(&self) -> io::Result<()> {
        if kernel_file::read_to_string(self.file("stack"))?
            .trim()
            .is_empty()
        {
            return Err(io::Error::other("it is empty"));
        }
        Ok(())
    }

    /// Attaches to it as a tracer, without stopping it.
    pub fn ptrace(&self) -> io::Result<()> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: no memory is passed. A tracer's end releases its tracees, and the process is
        // killed soon after.
        match unsafe { libc::ptrace(libc::PTRACE_SEIZE, self.pid, none, none) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // SAFETY: our own process (a stranger ends by its alarm at the latest, long after this).
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            if self.is_child {
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Body of the process. It ends with `parent`, if that is not 0.
///
/// # Safety
/// To be called between fork and exec: it calls async-signal-safe functions only.
unsafe fn wait_for_the_end(parent: i32) -> ! {
    // SAFETY: plain system calls.
    unsafe {
        if parent != 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                libc::_exit(0);
            }
        }
        loop {
            libc::pause();
        }
    }
}
