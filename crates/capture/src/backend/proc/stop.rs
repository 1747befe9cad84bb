//! Short stops of running threads, where they were permitted: the only way to a running thread's
//! stack without perf events.
//!
//! A thread that runs is interrupted, its registers and what lies on its stack are copied, and it is
//! let go: detached, so that nothing it does later concerns us. One that waits is not touched,
//! because an interrupted wait may end with EINTR; between seeing it run and interrupting it lie a
//! few microseconds. One that does not come to a halt at once, because it has no CPU or is in the
//! kernel, is halted when it comes to run user code again, gives its stack then, which is that of the
//! moment at which it was told to halt, and is let go.
//!
//! All this is done by a thread of its own. The kernel lets go whatever a thread traces when that
//! thread ends, however it ends: nothing stays stopped, even if this program is killed.

use std::{
    io, mem,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use wallscope_object::process::SchedStat;
use wallscope_unwind::native::Registers;

use super::waiting::read_memory;
use crate::session::now;

/// Longest wait for a thread to halt, ns: one that has a CPU and runs user code does at once.
const PATIENCE: u64 = 200_000;
/// Bytes of stack that are copied while it stands: reading the rest would need it to stand longer.
const STACK: usize = 8192;

/// A running thread as it was.
pub struct Halted {
    /// Its user registers.
    pub registers: Registers,
    /// The number of the system call it was in, if it was in one.
    pub call: Option<usize>,
    /// Its stack from the stack pointer on.
    pub stack: Vec<u8>,
    /// When it was found to stand still, ns on the recording's clock.
    pub at: u64,
    /// The scheduler's books of it then.
    pub books: SchedStat,
}

/// What became of an attempt.
enum Outcome {
    Halted(Box<Halted>),
    /// It will halt later.
    Owing,
    Missed,
    /// It may not be traced.
    Refused(String),
}

struct Reply {
    outcome: Outcome,
    /// For how long threads stood still since the last reply, ns.
    stopped_ns: u64,
    /// Threads that have halted late.
    late: Vec<(u32, Halted)>,
}

/// What a look at a running thread gave.
pub enum Glance {
    /// Its stack: it had a CPU.
    Running(Halted),
    /// It has none, or is in the kernel; its stack comes later.
    Later,
    /// Nothing.
    None,
}

/// The thread that stops others.
pub struct Stopper {
    ask: Option<Sender<(u32, u32)>>,
    answer: Receiver<Reply>,
    thread: Option<JoinHandle<()>>,
    /// Time for which threads stood still, summed, ns.
    pub stopped_ns: u64,
    /// Stops that gave a stack.
    pub stops: u64,
    /// Why a thread could not be traced, once one could not.
    pub refused: Option<String>,
    /// Stacks of threads that halted later than they were looked at.
    pub late: Vec<(u32, Halted)>,
}

impl Stopper {
    /// Starts it.
    pub fn start() -> Stopper {
        let (ask, asked) = channel();
        let (tell, answer) = channel();
        let thread = std::thread::Builder::new()
            .name("stopper".into())
            .spawn(move || work(&asked, &tell))
            .ok();
        Stopper {
            ask: Some(ask),
            answer,
            thread,
            stopped_ns: 0,
            stops: 0,
            refused: None,
            late: Vec::new(),
        }
    }

    /// Looks at a thread that runs or wants to.
    pub fn look(&mut self, pid: u32, tid: u32) -> Glance {
        if self.refused.is_some() {
            return Glance::None;
        }
        let reply = self
            .ask
            .as_ref()
            .and_then(|ask| ask.send((pid, tid)).ok())
            .and_then(|()| self.answer.recv().ok());
        let Some(reply) = reply else {
            return Glance::None;
        };
        self.stopped_ns += reply.stopped_ns;
        self.stops += reply.late.len() as u64;
        self.late.extend(reply.late);
        match reply.outcome {
            Outcome::Halted(halted) => {
                self.stops += 1;
                Glance::Running(*halted)
            }
            Outcome::Owing => Glance::Later,
            Outcome::Missed => Glance::None,
            Outcome::Refused(why) => {
                self.refused = Some(why);
                Glance::None
            }
        }
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // It never panics, and if it did, its end has let everybody go.
            let _ = thread.join();
        }
    }
}

/// How long to sleep between two looks at threads that are to halt.
fn nap(owing: &[Owing]) -> Duration {
    let youngest = owing.iter().map(|o| o.since).max().unwrap_or(0);
    if now() < youngest + 20_000_000 {
        Duration::from_micros(200)
    } else {
        Duration::from_millis(1)
    }
}

/// A thread that was told to halt and has not yet.
struct Owing {
    pid: u32,
    tid: u32,
    since: u64,
}

fn work(asked: &Receiver<(u32, u32)>, tell: &Sender<Reply>) {
    let mut owing: Vec<Owing> = Vec::new();
    let mut late = Vec::new();
    let (mut late_ns, mut looked) = (0, now());
    loop {
        // While a halt is owing, it must not last longer than it takes to notice.
        let next = if owing.is_empty() {
            asked.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            asked.recv_timeout(nap(&owing))
        };
        owing.retain(|o| match halt_of(o.pid, o.tid) {
            Halt::NotYet => true,
            Halt::Gone => false,
            Halt::At(signal) => {
                late.extend(copy(o.pid, o.tid).map(|halted| (o.tid, halted)));
                let_go(o.tid, signal);
                // At most since it was looked at before.
                late_ns += now().saturating_sub(looked.max(o.since));
                false
            }
        });
        looked = now();
        let (pid, tid) = match next {
            Ok(whom) => whom,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => continue,
        };
        let (outcome, ns) = if owing.iter().any(|o| o.tid == tid) {
            (Outcome::Owing, 0)
        } else {
            halt(pid, tid, &mut owing)
        };
        let reply = Reply {
            outcome,
            stopped_ns: ns + mem::take(&mut late_ns),
            late: mem::take(&mut late),
        };
        if tell.send(reply).is_err() {
            return;
        }
    }
}

fn halt(pid: u32, tid: u32, owing: &mut Vec<Owing>) -> (Outcome, u64) {
    let place = std::fs::read(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    if !place.starts_with(b"running") {
        return (Outcome::Missed, 0);
    }
    let since = now();
    if let Err(e) = trace(libc::PTRACE_SEIZE, tid, 0) {
        return match e.raw_os_error() {
            Some(libc::ESRCH) => (Outcome::Missed, 0),
            _ => (Outcome::Refused(e.to_string()), 0),
        };
    }
    let mut wait_for_it = || owing.push(Owing { pid, tid, since });
    if trace(libc::PTRACE_INTERRUPT, tid, 0).is_err() {
        // It is ending: its last word is still to be taken.
        wait_for_it();
        return (Outcome::Missed, 0);
    }
    let signal = loop {
        match halt_of(pid, tid) {
            Halt::At(signal) => break signal,
            Halt::Gone => return (Outcome::Missed, 0),
            Halt::NotYet if now() > since + PATIENCE => {
                wait_for_it();
                return (Outcome::Owing, 0);
            }
            Halt::NotYet => std::thread::yield_now(),
        }
    };
    let halted = copy(pid, tid);
    let_go(tid, signal);
    let took = now().saturating_sub(since);
    match halted {
        Some(halted) => (Outcome::Halted(Box::new(halted)), took),
        None => (Outcome::Missed, took),
    }
}

/// What a thread that stands still has in its registers, on its stack, and in the scheduler's books.
fn copy(pid: u32, tid: u32) -> Option<Halted> {
    let at = now();
    let (registers, call) = registers(tid)?;
    let stack = read_memory(tid, registers.general[7], STACK);
    let books = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    Some(Halted {
        registers,
        call,
        stack,
        at,
        books: SchedStat::parse(&books)?,
    })
}

/// Whether a traced thread stands still.
enum Halt {
    NotYet,
    /// It has ended.
    Gone,
    /// It does, and this signal is to be handed on when it is let go.
    At(i32),
}

fn halt_of(pid: u32, tid: u32) -> Halt {
    // One call for both: of a traced thread the kernel tells a halt even when asked for ends only.
    match wait(tid, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT) {
        Ok(None) => Halt::NotYet,
        Ok(Some((libc::CLD_TRAPPED | libc::CLD_STOPPED, status))) => {
            if status >> 8 == libc::PTRACE_EVENT_STOP {
                Halt::At(0)
            } else {
                Halt::At(status & 0x7f)
            }
        }
        Ok(Some(_)) => {
            // A traced thread that has ended stays for its tracer to wait for. A child of our own
            // that is no thread is left to those who started it.
            let stat = wallscope_object::process::stat(pid);
            if tid != pid || !stat.is_ok_and(|s| s.parent == std::process::id()) {
                let _ = wait(tid, libc::WEXITED);
            }
            Halt::Gone
        }
        Err(_) => Halt::Gone,
    }
}

/// How a traced thread has changed in one of the ways of `which` (`CLD_…`), and its status.
fn wait(tid: u32, which: i32) -> io::Result<Option<(i32, i32)>> {
    // SAFETY: all zeroes is a valid siginfo_t, and the call writes no more than that.
    let (result, info, pid, status) = unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let flags = which | libc::WNOHANG | libc::__WALL;
        let result = libc::waitid(libc::P_PID, tid, &raw mut info, flags);
        (result, info, info.si_pid(), info.si_status())
    };
    match (result, pid) {
        (0, 0) => Ok(None),
        (0, _) => Ok(Some((info.si_code, status))),
        _ => Err(io::Error::last_os_error()),
    }
}

fn let_go(tid: u32, signal: i32) {
    // Refused only where it was killed meanwhile: whoever stands still can be let go.
    let _ = trace(libc::PTRACE_DETACH, tid, signal as usize);
}

fn trace(request: libc::c_uint, tid: u32, data: usize) -> io::Result<()> {
    // SAFETY: none of these requests takes an address in our memory.
    match unsafe { libc::ptrace(request, tid as libc::pid_t, 0usize, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn registers(tid: u32) -> Option<(Registers, Option<usize>)> {
    // SAFETY: all zeroes is a valid value, and the kernel writes one such structure.
    let r = unsafe {
        let mut r: libc::user_regs_struct = mem::zeroed();
        match libc::ptrace(libc::PTRACE_GETREGS, tid as libc::pid_t, 0usize, &raw mut r) {
            -1 => return None,
            _ => r,
        }
    };
    let registers = Registers {
        ip: r.rip,
        general: [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ],
    };
    // Outside of calls it is negative.
    let call = (r.orig_rax as i64).try_into().ok();
    Some((registers, call))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    struct Busy(std::process::Child);

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn busy() -> Busy {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Busy(command.stdin(Stdio::null()).spawn().expect("a shell"))
    }

    #[test]
    fn a_running_thread_gives_its_stack_and_runs_on() {
        let child = busy();
        let pid = child.0.id();
        let mut stopper = Stopper::start();
        let halted = loop {
            if let Glance::Running(halted) = stopper.look(pid, pid) {
                break halted;
            }
            if let Some((_, halted)) = stopper.late.pop() {
                break halted;
            }
            if let Some(why) = &stopper.refused {
                println!("skipped: ptrace of a child is refused: {why}");
                return;
            }
        };
        assert!(halted.registers.ip > 0 && !halted.stack.is_empty());
        assert!(stopper.stopped_ns > 0 && stopper.stops > 0);
        drop(stopper);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("TracerPid:\t0"), "{status}");
        assert!(!status.contains("(stopped)") && !status.contains("(tracing stop)"));
    }

    #[test]
    fn whoever_waits_or_is_gone_is_let_be() {
        let mut stopper = Stopper::start();
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let pid = child.id();
        // A program that is still being loaded waits now and then, too, and runs on.
        let sleeps = |line: &str| {
            let call = line.split(' ').next().and_then(|n| n.parse().ok());
            call.is_some_and(|n| [libc::SYS_nanosleep, libc::SYS_clock_nanosleep].contains(&n))
        };
        while !std::fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|l| sleeps(&l)) {
            std::thread::yield_now();
        }
        assert!(matches!(stopper.look(pid, pid), Glance::None));
        assert_eq!((stopper.stopped_ns, &stopper.refused), (0, &None));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(stopper.look(pid, pid), Glance::None));
    }
}
