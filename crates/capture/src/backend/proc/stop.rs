//! Short stops of running threads, if they are permitted: the only way to a running thread's stack without perf
//! events.
//!
//! A running thread is interrupted, its registers and its stack are copied, and it is released: detached, so that
//! nothing it does later concerns us. A waiting thread is not touched, because an interrupted wait may end with
//! EINTR. A few microseconds pass between the check that a thread runs and its interruption. A thread that has no CPU
//! or is in the kernel does not halt at once. It halts when it is about to run user code again. Its stack is then
//! still that of the interruption, is copied, and the thread is released.
//!
//! Worker threads do all this, one for each thread that is to halt. A worker sleeps until its thread has halted, which
//! takes no CPU from other threads, and then releases it at once. When a tracer ends, however it ends, the kernel
//! releases all threads that it traces: nothing stays stopped, even if this program is killed.

use std::{
    io, mem,
    os::unix::fs::FileExt,
    sync::mpsc::{Receiver, Sender, channel},
};
use wallscope_observe::CpuDeparture;
use wallscope_procfs::{kernel_file, process::SchedStat};
use wallscope_unwind::native::Registers;

use super::{
    last_ran,
    thread::{AfterReading, Files, line, path},
    waiting::{SyscallState, read_memory},
};
use crate::{
    backend::perf::BELOW,
    clock::now,
    session::{
        cost::thread_cpu_ns,
        managed::{Interpreted, Walk},
        unwound::ManagedStack,
    },
};

/// Time for which a worker waits for a halt without sleeping, ns: a thread in user code halts sooner.
const AT_ONCE: u64 = 30_000;
/// Most threads that are to halt at a time.
const MAX_STOPPING: usize = 64;
/// Bytes of stack that are copied while a thread stands still: more would take longer. Code of VMs and
/// the functions in C below it need as much.
const STACK: usize = 32 * 1024;

/// A running thread as it was when it halted.
pub struct Halted {
    /// Its user registers.
    pub registers: Registers,
    /// The number of the system call it was in, if it was in one.
    pub call: Option<usize>,
    /// Its stack from the stack pointer on.
    pub stack: Vec<u8>,
    /// Memory below the stack pointer, as in [`Running`](crate::backend::perf::Running).
    pub below: Vec<u8>,
    /// Python's frames, if it has any.
    pub managed: Option<ManagedStack>,
    /// When it halted, ns on the recording's clock.
    pub at: u64,
    /// Its scheduler counters then.
    pub books: SchedStat,
    /// When it left its CPU for that, if that is of use.
    pub left: Option<CpuDeparture>,
}

/// A thread that was runnable, and is blocked again.
#[derive(Clone, Copy, Debug)]
pub struct Asleep {
    /// When it was found blocked, ns on the recording's clock.
    pub at: u64,
    /// Its scheduler counters then.
    pub books: SchedStat,
}

/// Result for a thread that was to halt.
pub enum StopResult {
    /// It halted.
    Halted(Box<Halted>),
    /// It was blocked, and was not touched.
    Asleep(Asleep),
}

/// A thread that a worker is to stop.
pub struct StopRequest {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Those of its files that are open.
    pub files: Files,
    /// Its frames of Python are to be read.
    pub python: Option<Interpreted>,
    /// Whether it waits for pages: then it matters when it left its CPU.
    pub faults: bool,
}

impl StopRequest {
    /// Whether it is on a CPU, or waits for one.
    fn runs(&mut self) -> bool {
        let path = || path(self.pid, self.tid, "syscall");
        let mut buffer = [0u8; 256];
        let text = line(
            &mut self.files.place,
            AfterReading::Close,
            path,
            &mut buffer,
        );
        text.is_ok_and(|text| SyscallState::parse(text) == Some(SyscallState::Running))
    }

    /// When it left its CPU, if that was asked for.
    fn last_ran(&mut self) -> Option<CpuDeparture> {
        let path = || path(self.pid, self.tid, "sched");
        let mut buffer = [0u8; 2048];
        let text = self.faults.then(|| {
            line(
                &mut self.files.departure,
                AfterReading::Close,
                path,
                &mut buffer,
            )
        });
        last_ran::parse(text?.ok()?)
    }

    /// Its scheduler counters now.
    fn books(&mut self) -> Option<SchedStat> {
        let path = || path(self.pid, self.tid, "schedstat");
        let mut buffer = [0u8; 96];
        SchedStat::parse(
            line(
                &mut self.files.books,
                AfterReading::Close,
                path,
                &mut buffer,
            )
            .ok()?,
        )
    }
}

/// Result of a worker.
struct Reply {
    worker: usize,
    tid: u32,
    /// `None`: the thread is gone; an error: it may not be traced.
    outcome: io::Result<Option<StopResult>>,
    /// Time for which the thread stood still, ns.
    stopped_ns: u64,
    /// CPU time that the stop took the worker, ns.
    cpu_ns: u64,
}

/// The threads that stop others.
pub struct Stopper {
    /// Channel to each worker.
    workers: Vec<Sender<StopRequest>>,
    idle: Vec<usize>,
    tell: Sender<Reply>,
    answer: Receiver<Reply>,
    /// Time for which threads stood still, summed, ns.
    pub stopped_ns: u64,
    /// CPU time that stopping them took, ns.
    pub cpu_ns: u64,
    /// Stops that gave a stack.
    pub stops: u64,
    /// Why a thread could not be traced, once one could not.
    pub refused: Option<String>,
}

impl Stopper {
    /// A stopper without workers.
    pub fn new() -> Stopper {
        let (tell, answer) = channel();
        Stopper {
            workers: Vec::new(),
            idle: Vec::new(),
            tell,
            answer,
            stopped_ns: 0,
            cpu_ns: 0,
            stops: 0,
            refused: None,
        }
    }

    /// Asks for the stack of a runnable thread. Returns whether there will be an answer.
    pub fn ask(&mut self, asked: StopRequest) -> bool {
        if self.refused.is_some() {
            return false;
        }
        let worker = self.idle.pop().or_else(|| self.hire());
        worker.is_some_and(|worker| self.workers[worker].send(asked).is_ok())
    }

    /// Results for threads that were asked for; `None`: the thread is gone.
    pub fn take(&mut self) -> Vec<(u32, Option<StopResult>)> {
        let mut all = Vec::new();
        while let Ok(reply) = self.answer.try_recv() {
            all.push((reply.tid, self.settle(reply)));
        }
        all
    }

    /// One more worker, by its number.
    fn hire(&mut self) -> Option<usize> {
        let number = self.workers.len();
        if number == MAX_STOPPING {
            return None;
        }
        let (ask, asked) = channel();
        let tell = self.tell.clone();
        let thread = std::thread::Builder::new().name("stopper".into());
        thread.spawn(move || work(number, &asked, &tell)).ok()?;
        self.workers.push(ask);
        Some(number)
    }

    fn settle(&mut self, reply: Reply) -> Option<StopResult> {
        self.idle.push(reply.worker);
        self.stopped_ns += reply.stopped_ns;
        self.cpu_ns += reply.cpu_ns;
        match reply.outcome {
            Ok(found) => {
                self.stops += u64::from(matches!(found, Some(StopResult::Halted(_))));
                found
            }
            Err(e) => {
                self.refused = Some(e.to_string());
                None
            }
        }
    }
}

/// Stops the threads that it is asked to stop, until the sender is gone. A thread that has not stopped by then is
/// released when it stops, or with this process.
fn work(worker: usize, asked: &Receiver<StopRequest>, tell: &Sender<Reply>) {
    let mut walk = Walk::default();
    let books = kernel_file::open("/proc/thread-self/schedstat").ok();
    let queued_ns = || {
        let mut text = [0u8; 96];
        let n = books.as_ref().and_then(|f| f.read_at(&mut text, 0).ok());
        let text = std::str::from_utf8(&text[..n.unwrap_or(0)]);
        text.ok()
            .and_then(SchedStat::parse)
            .map_or(0, |b| b.run_delay_ns)
    };
    while let Ok(mut asked) = asked.recv() {
        let (tid, mut stopped_ns, cpu) = (asked.tid, 0, thread_cpu_ns());
        let outcome = halt(&mut asked, &mut walk, queued_ns, &mut stopped_ns);
        let reply = Reply {
            worker,
            tid,
            outcome,
            stopped_ns,
            cpu_ns: thread_cpu_ns() - cpu,
        };
        if tell.send(reply).is_err() {
            return;
        }
    }
}

/// Halts a running thread, and releases it. `queued_ns`: our run-queue latency so far, ns.
fn halt(
    asked: &mut StopRequest,
    walk: &mut Walk,
    queued_ns: impl Fn() -> u64,
    stopped_ns: &mut u64,
) -> io::Result<Option<StopResult>> {
    let (pid, tid) = (asked.pid, asked.tid);
    if !asked.runs() {
        let asleep = |books| StopResult::Asleep(Asleep { at: now(), books });
        return Ok(asked.books().map(asleep));
    }
    let mut since = now();
    match trace(libc::PTRACE_SEIZE, tid, 0) {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        other => other?,
    }
    // Refused if the thread is ending: its end is still to be reported.
    let _ = trace(libc::PTRACE_INTERRUPT, tid, 0);
    let mut halt = Halt::NotYet;
    while matches!(halt, Halt::NotYet) && now() < since + AT_ONCE {
        halt = halt_of(pid, tid, libc::WNOHANG);
    }
    let mut at = now();
    while matches!(halt, Halt::NotYet) {
        let before = queued_ns();
        halt = halt_of(pid, tid, 0);
        // Its halt woke us, so it halted as long ago as we have waited for a CPU since.
        at = now().saturating_sub(queued_ns().saturating_sub(before));
        since = at;
    }
    let Halt::At(signal) = halt else {
        return Ok(None);
    };
    let halted = copy(asked, at).map(|halted| Halted {
        managed: asked.python.and_then(|p| walk.once(p).0),
        ..halted
    });
    let_go(tid, signal);
    *stopped_ns = now().saturating_sub(since);
    Ok(halted.map(|halted| StopResult::Halted(Box::new(halted))))
}

/// Copies the registers, the stack and the scheduler counters of a thread that stands still since `at`.
fn copy(asked: &mut StopRequest, at: u64) -> Option<Halted> {
    let tid = asked.tid;
    let (registers, call) = registers(tid)?;
    let sp = registers.general[7];
    let below = BELOW as usize;
    let mut whole = read_memory(tid, sp.saturating_sub(BELOW), below + STACK);
    let (below, stack) = if whole.len() > below {
        let stack = whole.split_off(below);
        (whole, stack)
    } else {
        // The lowest page of a stack, say.
        (Vec::new(), read_memory(tid, sp, STACK))
    };
    Some(Halted {
        registers,
        call,
        stack,
        below,
        managed: None,
        at,
        books: asked.books()?,
        left: asked.last_ran(),
    })
}

/// Whether a traced thread stands still.
enum Halt {
    NotYet,
    /// It has ended.
    Gone,
    /// It does, and this signal is to be delivered when it is released.
    At(i32),
}

/// Waits for the halt or the end of a traced thread, unless `flags` say not to.
fn halt_of(pid: u32, tid: u32, flags: i32) -> Halt {
    // One call for both: the kernel reports a halt of a traced thread even if asked for ends only.
    match wait(tid, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | flags) {
        Ok(None) => Halt::NotYet,
        Ok(Some((libc::CLD_TRAPPED | libc::CLD_STOPPED, status))) => {
            if status >> 8 == libc::PTRACE_EVENT_STOP {
                Halt::At(0)
            } else {
                Halt::At(status & 0x7f)
            }
        }
        Ok(Some(_)) => {
            // A traced thread that has ended stays until its tracer has waited for it. A child of our own
            // that is no thread is left to the code that started it.
            let stat = wallscope_procfs::process::stat(pid);
            if tid != pid || !stat.is_ok_and(|s| s.parent == std::process::id()) {
                let _ = wait(tid, libc::WEXITED | libc::WNOHANG);
            }
            Halt::Gone
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Halt::NotYet,
        Err(_) => Halt::Gone,
    }
}

/// Change of a traced thread (`CLD_…`) of those that `which` asks for, and its status.
fn wait(tid: u32, which: i32) -> io::Result<Option<(i32, i32)>> {
    // SAFETY: all zeroes is a valid siginfo_t, and the call writes no more than that.
    let (result, info, pid, status) = unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let flags = which | libc::__WALL;
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
    // Refused only if the thread was killed meanwhile: a stopped thread can be released.
    let _ = trace(libc::PTRACE_DETACH, tid, signal as usize);
}

/// Number of a ptrace request: signed in musl's headers, unsigned in glibc's.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

fn trace(request: Request, tid: u32, data: usize) -> io::Result<()> {
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

    fn asked(pid: u32) -> StopRequest {
        StopRequest {
            pid,
            tid: pid,
            files: Files::default(),
            python: None,
            faults: false,
        }
    }

    /// The answer to the one question that was asked.
    fn answer(stopper: &mut Stopper) -> Option<StopResult> {
        loop {
            if let Some((_, found)) = stopper.take().pop() {
                return found;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_running_thread_gives_its_stack_and_runs_on() {
        let child = busy();
        let pid = child.0.id();
        let mut stopper = Stopper::new();
        let halted = loop {
            if let Some(why) = &stopper.refused {
                return println!("skipped: ptrace of a child is refused: {why}");
            }
            // While it is loaded it may wait.
            assert!(stopper.ask(asked(pid)));
            if let Some(StopResult::Halted(halted)) = answer(&mut stopper) {
                break halted;
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
    fn waiting_and_ended_threads_are_not_touched() {
        let mut stopper = Stopper::new();
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
        assert!(stopper.ask(asked(pid)));
        let asleep = |found| matches!(found, Some(StopResult::Asleep(a)) if a.books.timeslices > 0);
        assert!(asleep(answer(&mut stopper)));
        assert_eq!((stopper.stopped_ns, &stopper.refused), (0, &None));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stopper.ask(asked(pid)) && answer(&mut stopper).is_none());
    }
}
