//! Reads a waiting thread from outside, without stopping it: its block reason, and its stack.
//!
//! `/proc/PID/task/TID/syscall` gives the system call, the stack pointer and the program counter of
//! a thread that is not running, and its memory can be read while it stays so. The file is read
//! again afterwards: a thread that moved on in between gives no stack rather than a wrong one.
//!
//! Only those two registers are known, and the call's arguments. The stack ends at code that finds its frame by another
//! register, unless a function below has saved that register on the stack. If the code keeps a frame pointer, its
//! instructions tell the distance of the stack pointer from it. Nothing is guessed.

use std::{cell::RefCell, fs, os::unix::fs::MetadataExt};

use wallscope_model::{BlockReason, StackEnd};
use wallscope_observe::{StackBytes, StackMemory};
use wallscope_unwind::native::{FrameWord, MemoryTables, Registers, StackStart, Unwinder};

use crate::syscalls;

const PAGE: u64 = 4096;
/// Most pages read for one stack.
const PAGES: usize = 512;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub number: u32,
    /// Its first five arguments.
    pub arguments: [u64; 5],
}

/// Content of the `syscall` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallState {
    /// On a CPU, or waiting for one.
    Running,
    /// Blocked.
    Blocked {
        /// The system call; `None`: it got there by an exception or signal.
        call: Option<Call>,
        /// Stack pointer.
        sp: u64,
        /// Program counter.
        pc: u64,
    },
}

impl SyscallState {
    /// Parses the file's one line; `None` where it has an unknown form.
    pub fn parse(text: &str) -> Option<SyscallState> {
        let text = text.trim_end();
        if text == "running" {
            return Some(SyscallState::Running);
        }
        let hex = |t: &str| u64::from_str_radix(t.strip_prefix("0x")?, 16).ok();
        let fields: Vec<&str> = text.split(' ').collect();
        match fields[..] {
            ["-1", sp, pc] => Some(SyscallState::Blocked {
                call: None,
                sp: hex(sp)?,
                pc: hex(pc)?,
            }),
            [nr, a, b, c, d, e, _, sp, pc] => Some(SyscallState::Blocked {
                call: Some(Call {
                    number: nr.parse().ok()?,
                    arguments: [hex(a)?, hex(b)?, hex(c)?, hex(d)?, hex(e)?],
                }),
                sp: hex(sp)?,
                pc: hex(pc)?,
            }),
            _ => None,
        }
    }
}

/// Block reasons of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reasons {
    /// By its call and the kernel's function in which it waits.
    pub by_place: BlockReason,
    /// By its call alone.
    pub by_call: BlockReason,
}

impl Reasons {
    /// Replaces `from` with `to` in both.
    pub fn replace(&mut self, from: BlockReason, to: BlockReason) {
        for reason in [&mut self.by_place, &mut self.by_call] {
            if *reason == from {
                *reason = to;
            }
        }
    }
}

/// A wait as the kernel shows it.
#[derive(Clone, Copy, Debug)]
pub struct KernelWait<'a> {
    /// The kernel's function that it waits in; empty where that cannot be read.
    pub wchan: &'a str,
    /// The system call; `None`: it got there by an exception or signal.
    pub call: Option<Call>,
    /// Reason of the thread's previous wait, to which an interrupted call goes back.
    pub previous: BlockReason,
    /// It is stopped by its state letter, which is read only if neither call nor function tells.
    pub stopped: bool,
}

impl KernelWait<'_> {
    /// Whether the kernel's function begins with one of `words`.
    fn is_in(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.wchan.starts_with(word))
    }

    /// Whether it may be a wait for a page of which the kernel's function could not be read: it was over too soon, or
    /// the user may not. Outside of calls a thread waits for a page, or is stopped by a signal.
    fn may_be_fault(&self) -> bool {
        is_unknown(self.wchan) && !self.stopped
    }
}

/// Whether the kernel does not tell the function that a thread waits in.
pub fn is_unknown(wchan: &str) -> bool {
    matches!(wchan, "" | "0")
}

/// Reasons of a wait of a thread of process `pid`. Without a call, only the kernel's function tells a reason.
pub fn reasons(table: &[u8; syscalls::TABLE], pid: u32, wait: KernelWait<'_>) -> Reasons {
    // Each descriptor is asked for once: that takes longer than all the rest.
    let known: RefCell<Vec<(u64, Option<DescriptorKind>)>> = RefCell::default();
    let kind = |fd: u64| {
        if let Some((_, kind)) = known.borrow().iter().find(|(of, _)| *of == fd) {
            return *kind;
        }
        let kind = DescriptorKind::of(pid, fd);
        known.borrow_mut().push((fd, kind));
        kind
    };
    let by_place = judge(table, wait, kind);
    let by_call = match wait.call {
        Some(_) => judge(table, KernelWait { wchan: "", ..wait }, kind),
        None => by_place,
    };
    Reasons { by_place, by_call }
}

/// Kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DescriptorKind {
    /// A socket, but for one of this machine's own.
    Socket,
    /// A file, a folder, a disk.
    File,
    /// A `timerfd`.
    Timer,
    /// A pipe, a unix socket, a terminal, an eventfd.
    Pipe,
}

impl DescriptorKind {
    /// Kind of descriptor `fd` of process `pid`; `None`: it cannot be read.
    pub(super) fn of(pid: u32, fd: u64) -> Option<DescriptorKind> {
        // Descriptors are ints: the upper half of the register means nothing.
        let path = format!("/proc/{pid}/fd/{}", fd as u32);
        let mode = fs::metadata(&path).ok()?.mode();
        Some(match mode & libc::S_IFMT {
            libc::S_IFSOCK if is_unix(&path) => DescriptorKind::Pipe,
            libc::S_IFSOCK => DescriptorKind::Socket,
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => DescriptorKind::File,
            // Files without a name have no kind either: only their link tells a timer.
            0 if is_timer(&path) => DescriptorKind::Timer,
            _ => DescriptorKind::Pipe,
        })
    }
}

/// Whether a descriptor, by its link in `/proc`, is a timer.
fn is_timer(path: &str) -> bool {
    fs::read_link(path).is_ok_and(|link| link.as_os_str() == "anon_inode:[timerfd]")
}

/// Whether a descriptor of a socket is of a unix socket: the kernel tells the protocol's name as an attribute.
fn is_unix(path: &str) -> bool {
    let mut name = [0u8; 32];
    rustix::fs::getxattr(path, "system.sockprotoname", &mut name[..])
        .is_ok_and(|_| name.starts_with(b"UNIX"))
}

/// Functions of the kernel in which a stopped thread waits, by their first letters.
const STOPPED: &[&str] = &[
    "do_signal_stop",
    "ptrace_stop",
    "__refrigerator",
    "get_signal",
    "do_freezer",
];
/// Functions in which it waits for a lock of the kernel.
const KERNEL_LOCK: &[&str] = &[
    "rwsem_",
    "__mutex",
    "mutex_",
    "__down",
    "down_",
    "percpu_down",
];
/// Functions in which it waits for a disk.
const DISK: &[&str] = &[
    "io_schedule",
    "folio_wait",
    "wait_on_page",
    "submit_bio",
    "blk_",
    "bio_",
    "__blkdev",
    "__iomap",
    "jbd2_",
    "wait_on_buffer",
];
/// Functions in which it waits for a page, outside of calls; [`DISK`] too.
const PAGE_FAULT: &[&str] = &[
    "handle_userfault",
    "do_swap",
    "filemap_fault",
    "lock_mm",
    "__handle_mm",
];
/// Functions in which `fcntl` waits for a lock on a file.
const FILE_LOCK: &[&str] = &["fcntl_setlk", "locks_lock"];
/// Functions in which `splice` waits for its pipe.
const SPLICED_PIPE: &[&str] = &["pipe_", "wait_for_space"];
/// Functions in which the opening of a named pipe waits for the other end.
const NAMED_PIPE: &[&str] = &["wait_for_partner", "fifo_open"];

fn judge(
    table: &[u8; syscalls::TABLE],
    wait: KernelWait<'_>,
    kind: impl Fn(u64) -> Option<DescriptorKind>,
) -> BlockReason {
    if wait.is_in(STOPPED) {
        return BlockReason::Stopped;
    }
    if wait.is_in(KERNEL_LOCK) {
        return BlockReason::KernelLock;
    }
    let io = wait.is_in(DISK);
    let Some(call) = wait.call else {
        return match io || wait.is_in(PAGE_FAULT) || wait.may_be_fault() {
            true => BlockReason::PageFault,
            false => BlockReason::Other,
        };
    };
    let known = match table.get(call.number as usize) {
        Some(entry) => reason_of_call(*entry, wait, call, kind),
        None => BlockReason::Other,
    };
    if io && known != BlockReason::Poll {
        BlockReason::Disk
    } else {
        known
    }
}

/// Reason of a wait in `call`, by the call's entry in the table.
fn reason_of_call(
    entry: u8,
    wait: KernelWait<'_>,
    call: Call,
    kind: impl Fn(u64) -> Option<DescriptorKind>,
) -> BlockReason {
    let [first, second, third, _, fifth] = call.arguments;
    let sleeps = |asleep| match asleep {
        true => BlockReason::Timer,
        false => BlockReason::Poll,
    };
    match entry {
        syscalls::RESTART => wait.previous,
        syscalls::BY_FD => match kind(first) {
            Some(DescriptorKind::Socket) => BlockReason::Network,
            Some(DescriptorKind::File) => BlockReason::Disk,
            Some(DescriptorKind::Timer) => BlockReason::Timer,
            Some(DescriptorKind::Pipe) => BlockReason::Pipe,
            None => BlockReason::Other,
        },
        syscalls::BY_SOCKET => match kind(first) {
            Some(DescriptorKind::Pipe) => BlockReason::Pipe,
            _ => BlockReason::Network,
        },
        syscalls::BY_FCNTL if wait.is_in(FILE_LOCK) => BlockReason::Lock,
        syscalls::BY_FCNTL => BlockReason::Disk,
        syscalls::BY_POLL => {
            // The limit of `poll` is a number, -1 for none, that of `ppoll` a pointer.
            let limited = match libc::c_long::from(call.number) {
                libc::SYS_poll => third as i32 >= 0,
                _ => third != 0,
            };
            sleeps(second == 0 && limited)
        }
        syscalls::BY_SELECT => sleeps(first == 0 && fifth != 0),
        syscalls::BY_PLACE if wait.is_in(SPLICED_PIPE) => BlockReason::Pipe,
        // Data goes from the first to the third. If the kernel does not show which end is waited for, it is taken to be
        // the slower one: the network.
        syscalls::BY_PLACE => match [first, third].map(kind) {
            ends if ends.contains(&Some(DescriptorKind::Socket)) => BlockReason::Network,
            _ => BlockReason::Pipe,
        },
        reason => match BlockReason::ALL.get(reason as usize).copied() {
            // A named pipe that is opened while its other end is closed.
            Some(BlockReason::Disk) if wait.is_in(NAMED_PIPE) => BlockReason::Pipe,
            Some(reason) => reason,
            None => BlockReason::Other,
        },
    }
}

/// A thread, and its place in its code.
#[derive(Clone, Copy, Debug)]
pub struct WaitingThread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub pc: u64,
    /// The system call that it waits in; `None`: it is in none, or that is not known.
    pub call: Option<Call>,
}

/// Memory of a process, read once and kept for one stack.
pub struct Pages {
    thread: WaitingThread,
    /// Memory from the stack pointer on.
    first: Vec<u8>,
    /// Single pages beyond.
    more: Vec<(u64, Vec<u8>)>,
    /// Most pages in `more`.
    most: usize,
}

/// The stack of a thread as it was copied, and whether more had to be read for it.
pub struct Read {
    /// Frames, innermost first.
    pub frames: Vec<FrameWord>,
    /// How it ended.
    pub end: StackEnd,
    /// Memory beyond the first copy was read: the thread may have moved on by then.
    pub again: bool,
}

impl Pages {
    /// Copies the memory at the stack pointer. Most stacks are whole in it, so unwinding may take its time. The memory
    /// is that of the thread, not of its process: a leader that has ended before the others has none.
    pub fn copy(thread: WaitingThread) -> Pages {
        let WaitingThread { tid, sp, .. } = thread;
        let end = (sp & !(PAGE - 1)).saturating_add(2 * PAGE);
        Pages {
            thread,
            first: read_memory(tid, sp, (end - sp.min(end)) as usize),
            more: Vec::new(),
            most: PAGES,
        }
    }

    /// No memory of the stack, only its registers: the memory has changed since.
    pub fn none(thread: WaitingThread) -> Pages {
        Pages {
            thread,
            first: Vec::new(),
            more: Vec::new(),
            most: 0,
        }
    }

    /// Memory from the stack pointer on, as a log holds it. Two registers of a waiting thread are known.
    pub fn memory(&self, time: u64) -> StackMemory {
        let WaitingThread {
            pid, tid, sp, pc, ..
        } = self.thread;
        let mut registers = [0; 16];
        registers[7] = sp;
        StackMemory {
            time,
            pid,
            tid,
            ticket: 0,
            pc,
            registers,
            start: sp,
            holes: 0,
            bytes: StackBytes(self.first.clone()),
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.thread.pid
    }

    /// The words that were copied, from the stack pointer on.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let (words, _) = self.first.as_chunks::<8>();
        words.iter().map(|w| u64::from_ne_bytes(*w))
    }

    /// The program counter.
    pub fn pc(&self) -> u64 {
        self.thread.pc
    }

    /// Unwinds the stack, reading more where it is deeper.
    pub fn unwind(&mut self, unwinder: &mut Unwinder, tables: &MemoryTables) -> Read {
        let WaitingThread {
            pid, sp, pc, call, ..
        } = self.thread;
        let (registers, known) = registers(pc, sp, call);
        let read = |address, to: &mut [u8]| self.read(address, to);
        let start = StackStart::new(pid, &registers).knowing(known);
        let stack = unwinder.unwind(tables, start, read);
        let end = stack.end.into();
        Read {
            frames: stack.frames,
            end,
            again: !self.more.is_empty(),
        }
    }

    fn read(&mut self, address: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let Some(at) = address.checked_add(done as u64) else {
                break;
            };
            let from = self.chunk(at);
            let n = from.len().min(to.len() - done);
            if n == 0 {
                break;
            }
            to[done..done + n].copy_from_slice(&from[..n]);
            done += n;
        }
        done
    }

    /// Known memory from `address` on, without a gap.
    fn chunk(&mut self, address: u64) -> &[u8] {
        let offset = address.wrapping_sub(self.thread.sp) as usize;
        if offset < self.first.len() {
            return &self.first[offset..];
        }
        let page = address & !(PAGE - 1);
        let index = match self.more.iter().position(|(p, _)| *p == page) {
            Some(index) => index,
            None if self.more.len() >= self.most => return &[],
            None => {
                self.more
                    .push((page, read_memory(self.thread.tid, page, PAGE as usize)));
                self.more.len() - 1
            }
        };
        self.more[index]
            .1
            .get((address - page) as usize..)
            .unwrap_or(&[])
    }
}

/// The registers of a thread that waits, and which of them are known: a bit each, by DWARF number.
fn registers(pc: u64, sp: u64, call: Option<Call>) -> (Registers, u16) {
    const RAX: usize = 0;
    const RSP: usize = 7;
    /// Registers of the arguments: rdi, rsi, rdx, r10, r8.
    const ARGUMENTS: [usize; 5] = [5, 4, 1, 10, 8];
    let mut registers = Registers {
        ip: pc,
        ..Registers::default()
    };
    let mut known = 0;
    let mut set = |register: usize, value| {
        registers.general[register] = value;
        known |= 1 << register;
    };
    set(RSP, sp);
    if let Some(call) = call {
        // The kernel's value there until the call has its result. It is never zero: a new thread has zero there.
        set(RAX, -i64::from(libc::ENOSYS) as u64);
        for (register, value) in ARGUMENTS.into_iter().zip(call.arguments) {
            set(register, value);
        }
    }
    (registers, known)
}

/// Up to `length` bytes at `address` of process `pid`; as many as can be read.
pub fn read_memory(pid: u32, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; length];
    let n = crate::target::read_memory(pid, address, &mut bytes);
    bytes.truncate(n);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_the_file() {
        assert_eq!(
            SyscallState::parse("running\n"),
            Some(SyscallState::Running)
        );
        assert_eq!(
            SyscallState::parse("-1 0x7ffc1 0x55aa\n"),
            Some(SyscallState::Blocked {
                call: None,
                sp: 0x7ffc1,
                pc: 0x55aa
            })
        );
        assert_eq!(
            SyscallState::parse("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ff0 0x401000\n"),
            Some(SyscallState::Blocked {
                call: Some(Call {
                    number: 202,
                    arguments: [1, 2, 3, 4, 5],
                }),
                sp: 0x7ff0,
                pc: 0x401000
            })
        );
        for bad in ["", "202 0x1", "x 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8", "-1 7 8"] {
            assert_eq!(SyscallState::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn reasons_as_the_kernel_programs_tell_them() {
        let table = syscalls::reasons();
        let of = |wchan: &str, call: Option<(i64, u64)>, kind| {
            let call = call.map(|(n, a)| Call {
                number: n as u32,
                arguments: [a, 0, 0, 0, a],
            });
            let wait = KernelWait {
                wchan,
                call,
                previous: BlockReason::Timer,
                stopped: false,
            };
            judge(&table, wait, |_| kind)
        };
        assert_eq!(
            of("futex_wait_queue", Some((libc::SYS_futex, 0)), None),
            BlockReason::Lock
        );
        assert_eq!(
            of(
                "pipe_read",
                Some((libc::SYS_read, 3)),
                Some(DescriptorKind::Pipe)
            ),
            BlockReason::Pipe
        );
        assert_eq!(
            of("0", Some((libc::SYS_read, 3)), Some(DescriptorKind::Socket)),
            BlockReason::Network
        );
        assert_eq!(of("0", Some((libc::SYS_read, 3)), None), BlockReason::Other);
        assert_eq!(
            of("0", Some((libc::SYS_read, 3)), Some(DescriptorKind::Timer)),
            BlockReason::Timer
        );
        assert_eq!(
            of("do_signal_stop", Some((libc::SYS_read, 3)), None),
            BlockReason::Stopped
        );
        assert_eq!(
            of("folio_wait_bit_common", None, None),
            BlockReason::PageFault
        );
        // It was over before the function was read, or that may not be read.
        assert_eq!(of("0", None, None), BlockReason::PageFault);
        assert_eq!(of("", None, None), BlockReason::PageFault);
        assert_eq!(of("do_exit", None, None), BlockReason::Other);
        assert_eq!(
            of(
                "hrtimer_nanosleep",
                Some((libc::SYS_restart_syscall, 0)),
                None
            ),
            BlockReason::Timer
        );
        assert_eq!(
            of("io_schedule", Some((libc::SYS_sendto, 0)), None),
            BlockReason::Disk
        );
        assert_eq!(of("0", Some((100_000, 0)), None), BlockReason::Other);
        // Opening a file waits for a disk, opening a named pipe for the other end.
        let open = Some((libc::SYS_openat, 3));
        assert_eq!(of("0", open, None), BlockReason::Disk);
        assert_eq!(of("wait_for_partner", open, None), BlockReason::Pipe);
        // Polls for time alone, for descriptors, and for a signal.
        let polls = |call: libc::c_long, arguments| {
            let call = Call {
                number: call as u32,
                arguments,
            };
            let wait = KernelWait {
                wchan: "0",
                call: Some(call),
                previous: BlockReason::Other,
                stopped: false,
            };
            judge(&table, wait, |_| None)
        };
        assert_eq!(polls(libc::SYS_poll, [0, 0, 5, 0, 0]), BlockReason::Timer);
        assert_eq!(polls(libc::SYS_poll, [9, 1, 5, 0, 0]), BlockReason::Poll);
        let forever = u64::from(-1i32 as u32);
        assert_eq!(
            polls(libc::SYS_poll, [0, 0, forever, 0, 0]),
            BlockReason::Poll
        );
        assert_eq!(
            polls(libc::SYS_ppoll, [0, 0, 0xffff_fff0, 0, 0]),
            BlockReason::Timer
        );
        assert_eq!(polls(libc::SYS_select, [0, 0, 0, 0, 9]), BlockReason::Timer);
        assert_eq!(polls(libc::SYS_select, [4, 9, 0, 0, 9]), BlockReason::Poll);
        assert_eq!(polls(libc::SYS_pselect6, [0; 5]), BlockReason::Poll);
        assert_eq!(
            of(
                "wait_woken",
                Some((libc::SYS_splice, 3)),
                Some(DescriptorKind::Socket)
            ),
            BlockReason::Network
        );
        assert_eq!(
            of(
                "pipe_wait_readable",
                Some((libc::SYS_splice, 3)),
                Some(DescriptorKind::Socket)
            ),
            BlockReason::Pipe
        );
    }

    #[test]
    fn kinds_of_descriptors_that_files_do_not_show_are_told_apart() {
        use std::os::fd::AsRawFd as _;
        let timer = rustix::time::timerfd_create(
            rustix::time::TimerfdClockId::Monotonic,
            rustix::time::TimerfdFlags::CLOEXEC,
        )
        .unwrap();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let table = syscalls::reasons();
        let of = |number: libc::c_long, fd: i32| {
            let call = Call {
                number: number as u32,
                arguments: [fd as u64, 0, 8, 0, 0],
            };
            let own = std::process::id();
            let wait = KernelWait {
                wchan: "0",
                call: Some(call),
                previous: BlockReason::Other,
                stopped: false,
            };
            reasons(&table, own, wait).by_call
        };
        let reads = |fd: i32| of(libc::SYS_read, fd);
        assert_eq!(reads(timer.as_raw_fd()), BlockReason::Timer);
        assert_eq!(reads(event.as_raw_fd()), BlockReason::Pipe);
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(reads(end.as_raw_fd()), BlockReason::Pipe);
        assert_eq!(reads(door.as_raw_fd()), BlockReason::Network);
        let receives = |fd: i32| of(libc::SYS_recvfrom, fd);
        assert_eq!(receives(end.as_raw_fd()), BlockReason::Pipe);
        assert_eq!(receives(door.as_raw_fd()), BlockReason::Network);
    }

    #[test]
    fn the_call_tells_a_reason_without_the_place() {
        let table = syscalls::reasons();
        let call = Call {
            number: libc::SYS_fdatasync as u32,
            arguments: [0; 5],
        };
        let of = |wchan: &str, call| {
            let wait = KernelWait {
                wchan,
                call,
                previous: BlockReason::Timer,
                stopped: false,
            };
            reasons(&table, 0, wait)
        };
        let mut synced = of("mutex_lock", Some(call));
        let both = (BlockReason::KernelLock, BlockReason::Disk);
        assert_eq!((synced.by_place, synced.by_call), both);
        synced.replace(BlockReason::Disk, BlockReason::Other);
        assert_eq!(synced.by_call, BlockReason::Other);
        let fault = of("folio_wait_bit_common", None);
        assert_eq!(fault.by_call, BlockReason::PageFault);
    }

    #[test]
    fn registers_are_those_that_the_kernel_tells() {
        let call = Call {
            number: 0,
            arguments: [1, 2, 3, 4, 5],
        };
        let (found, known) = registers(0x40, 0x70, Some(call));
        assert_eq!((found.ip, found.general[7], known), (0x40, 0x70, 0x5b3));
        let arguments = [5, 4, 1, 10, 8].map(|r| found.general[r]);
        assert_eq!(arguments, [1, 2, 3, 4, 5]);
        assert_ne!(found.general[0], 0, "no new thread");
        assert_eq!(registers(0x40, 0x70, None).1, 0x80);
    }

    #[test]
    fn memory_is_read_up_to_where_it_ends() {
        let mine = [7u8; 64];
        let own = std::process::id();
        assert_eq!(read_memory(own, mine.as_ptr() as u64, 64), mine);
        assert!(read_memory(own, 0x10, 64).is_empty());
    }
}
