//! Records as they lie in the ring.

use perf_event_open_sys::bindings as b;
use wallscope_observe::{StackBytes, StackMemory};
use wallscope_unwind::native::Registers;

use super::ran_since::RanSince;
use crate::{
    backend::ebpf::sideband::{self, Change},
    session::unwound::ManagedStack,
};

/// One record.
#[derive(Debug)]
pub enum Record {
    /// A thread on a CPU.
    Sample(Box<Running>),
    /// A thread on its way off a CPU, and the number of such switches that it stands for.
    Leaving {
        /// Switches.
        of: u64,
        /// The thread as it was.
        thread: Box<Running>,
    },
    /// A thread got a CPU.
    In {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// A thread left its CPU.
    Out {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// It would have gone on.
        preempted: bool,
    },
    /// A thread was born; it wants a CPU from then on.
    Born(Birth),
    /// A thread ended.
    Ended {
        /// Its process.
        pid: u32,
        /// Its id.
        tid: u32,
    },
    /// A thread has this name now.
    Name(Renaming),
    /// A thread on a CPU when an event by name happened.
    Hit(Box<EventSample>),
    /// How often an event by name happened to a thread that has ended.
    Counted(EventCount),
    /// A new mapping.
    Change(Box<Change>),
    /// So many records did not fit.
    Lost(u64),
}

/// The birth of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// The process that made it.
    pub parent: u32,
    /// The thread that made it.
    pub parent_tid: u32,
}

/// A new name of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renaming {
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// The name.
    pub name: String,
    /// Whether that is because it runs a new program: all earlier mappings are void.
    pub exec: bool,
}

/// Bytes below the stack pointer in which a function may keep data that its frame is found by: the ABI's red zone.
/// V8's frames reach half as far from their pointer.
pub const BELOW: u64 = 128;

/// A running thread as it was.
#[derive(Debug)]
pub struct Running {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The time that the sample stands for, ns.
    pub period_ns: u64,
    /// The CPU it was on, of samples of the clock.
    pub cpu: Option<u32>,
    /// Whether it was in user mode.
    pub user_mode: bool,
    /// Its user registers.
    pub registers: Registers,
    /// Its user stack from the stack pointer on.
    pub stack: Vec<u8>,
    /// The [`BELOW`] bytes below that; empty if they were not copied (the kernel does not copy them).
    pub below: Vec<u8>,
    /// Python's frames, as far as they could be read in time.
    pub managed: Option<ManagedStack>,
    /// The thread has run for so long since that these frames do not match the registers.
    pub late: bool,
    /// Time that it has run since, if that is known.
    pub moved: Option<RanSince>,
    /// Of a window on newborn threads.
    pub first: Option<FirstSample>,
}

/// A thread met at an age that was drawn for the threads born in a certain time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstSample {
    /// That stretch, ns: a thread born outside of it does not count.
    pub born_ns: std::ops::Range<u64>,
    /// Time that the sample stands for, ns.
    pub stands_for_ns: u64,
}

impl Running {
    /// Copies the stack from `address` on, as far as it is there. The bytes right below the stack pointer, where a
    /// frame that is only being made is searched, are zeros if they were not copied.
    pub fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let sp = self.registers.general[7];
        if self.is_below(address) {
            return 0;
        }
        let depth = sp.saturating_sub(address) as usize;
        let (lower, to) = to.split_at_mut(depth.min(to.len()));
        match self.below.len().checked_sub(depth) {
            Some(from) => lower.copy_from_slice(&self.below[from..][..lower.len()]),
            None => lower.fill(0),
        }
        let from = usize::try_from(address.saturating_sub(sp))
            .ok()
            .and_then(|at| self.stack.get(at..))
            .unwrap_or_default();
        let n = from.len().min(to.len());
        to[..n].copy_from_slice(&from[..n]);
        lower.len() + n
    }

    /// Whether an address lies below the stack.
    pub fn is_below(&self, address: u64) -> bool {
        self.registers.general[7].saturating_sub(address) > BELOW
    }

    /// The stack that was copied with it, as a log holds it.
    pub fn memory(&self, time: u64) -> StackMemory {
        StackMemory {
            time,
            pid: self.pid,
            tid: self.tid,
            ticket: 0,
            pc: self.registers.ip,
            registers: self.registers.general,
            start: self.registers.general[7],
            holes: 0,
            bytes: StackBytes(self.stack.clone()),
        }
    }

    /// Whether it lies right below, where nothing was copied.
    pub fn is_not_copied(&self, address: u64) -> bool {
        address < self.registers.general[7] && !self.is_below(address) && self.below.is_empty()
    }

    /// Whether the thread had no memory any more, because it was about to end.
    pub fn is_ending(&self) -> bool {
        self.registers.ip == 0 && self.stack.is_empty()
    }

    /// The first address beyond the copy.
    pub fn end(&self) -> u64 {
        self.registers.general[7].wrapping_add(self.stack.len() as u64)
    }
}

/// Whether a sample was taken in user mode.
pub fn is_user_mode(misc: u16) -> bool {
    u32::from(misc) & b::PERF_RECORD_MISC_CPUMODE_MASK == b::PERF_RECORD_MISC_USER
}

/// The part of a sample from `at` on: its user registers, and the copied part of the user stack. Both are empty for
/// a thread of the kernel or one that has lost its memory. `None`: the record ends before that.
pub fn user_part(body: &[u8], at: usize) -> Option<(Registers, Vec<u8>)> {
    let word = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    if word(at)? == 0 {
        return Some((Registers::default(), Vec::new()));
    }
    let mut values = [0u64; 17];
    for (i, value) in values.iter_mut().enumerate() {
        *value = word(at + 8 + 8 * i)?;
    }
    let [
        ax,
        bx,
        cx,
        dx,
        si,
        di,
        bp,
        sp,
        ip,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
    ] = values;
    let registers = Registers {
        ip,
        general: [
            ax, dx, cx, bx, si, di, bp, sp, r8, r9, r10, r11, r12, r13, r14, r15,
        ],
    };
    let at = at + 8 + 8 * values.len();
    let size = word(at)? as usize;
    let bytes = body.get(at + 8..(at + 8).checked_add(size)?)?;
    let valid = if size == 0 {
        0
    } else {
        word(at + 8 + size)? as usize
    };
    Some((registers, bytes.get(..valid.min(size))?.to_vec()))
}

/// Reads one record: its time and its content; `None` for kinds that are of no use.
pub fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<(u64, Record)> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    match kind {
        b::PERF_RECORD_SAMPLE => {
            let (pid, tid, time) = (u32_at(0)?, u32_at(4)?, u64_at(8)?);
            // Samples of the clock tell their period here, those at switches an address, which is none.
            let period_ns = u64_at(16)?;
            let is_leaving = period_ns == 0;
            let (registers, stack) = user_part(body, if is_leaving { 32 } else { 24 })?;
            let running = Box::new(Running {
                pid,
                tid,
                period_ns,
                cpu: None,
                user_mode: is_user_mode(misc),
                registers,
                stack,
                below: Vec::new(),
                managed: None,
                late: false,
                moved: None,
                first: None,
            });
            let record = match is_leaving {
                true => Record::Leaving {
                    of: u64_at(24)?,
                    thread: running,
                },
                false => Record::Sample(running),
            };
            Some((time, record))
        }
        b::PERF_RECORD_SWITCH => {
            let (pid, tid, time) = (u32_at(0)?, u32_at(4)?, u64_at(8)?);
            let record = if u32::from(misc) & b::PERF_RECORD_MISC_SWITCH_OUT == 0 {
                Record::In { pid, tid }
            } else {
                let preempted = u32::from(misc) & b::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0;
                Record::Out {
                    pid,
                    tid,
                    preempted,
                }
            };
            Some((time, record))
        }
        b::PERF_RECORD_FORK => Some((
            u64_at(16)?,
            Record::Born(Birth {
                pid: u32_at(0)?,
                parent: u32_at(4)?,
                tid: u32_at(8)?,
                parent_tid: u32_at(12)?,
            }),
        )),
        b::PERF_RECORD_EXIT => Some((
            u64_at(16)?,
            Record::Ended {
                pid: u32_at(0)?,
                tid: u32_at(8)?,
            },
        )),
        b::PERF_RECORD_COMM => {
            // The name is padded to whole words and followed by the id: thread and time.
            let time = u64_at(body.len().checked_sub(8)?)?;
            let name = body.get(8..body.len().checked_sub(16)?)?;
            let len = name.iter().position(|c| *c == 0).unwrap_or(name.len());
            Some((
                time,
                Record::Name(Renaming {
                    pid: u32_at(0)?,
                    tid: u32_at(4)?,
                    name: String::from_utf8_lossy(&name[..len]).into_owned(),
                    exec: u32::from(misc) & b::PERF_RECORD_MISC_COMM_EXEC != 0,
                }),
            ))
        }
        _ => match sideband::parse(kind, misc, body)? {
            (time, Change::Lost(n)) => Some((time, Record::Lost(n))),
            (time, change) => Some((time, Record::Change(Box::new(change)))),
        },
    }
}

/// A stack at an event.
#[derive(Debug)]
pub struct EventSample {
    /// Number of the event.
    pub event: usize,
    /// The kernel's number of the event, which was opened or inherited. Threads that have inherited the same event
    /// exchange it, so the number does not tell the running thread.
    pub stream: u64,
    /// Whether that event was opened, not inherited.
    pub opened: bool,
    /// The thread as it was.
    pub running: Running,
}

/// Count of an event in a thread that has ended.
#[derive(Debug)]
pub struct EventCount {
    /// Number of the event.
    pub event: usize,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// How often it happened.
    pub hits: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(valid: u64) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(7u32.to_ne_bytes());
        body.extend(8u32.to_ne_bytes());
        for v in [99u64, 1000, 2] {
            body.extend(v.to_ne_bytes());
        }
        for register in 100..117u64 {
            body.extend(register.to_ne_bytes());
        }
        body.extend(32u64.to_ne_bytes());
        body.extend([5u8; 32]);
        body.extend(valid.to_ne_bytes());
        body
    }

    #[test]
    fn what_lies_below_is_read_where_it_was_copied() {
        let Some((_, Record::Sample(mut r))) = parse(b::PERF_RECORD_SAMPLE, 2, &sample(24)) else {
            panic!("a sample");
        };
        assert!(r.is_not_copied(107 - 8) && !r.is_not_copied(107));
        r.below = (0..BELOW as u8).collect();
        let mut to = [0u8; 8];
        assert_eq!(r.read(107 - 4, &mut to), 8);
        assert_eq!(to[..4], [124, 125, 126, 127]);
        assert_eq!(to[4..], r.stack[..4]);
        assert!(!r.is_not_copied(107 - 8));
        let sp = 1 << 20;
        r.registers.general[7] = sp;
        assert_eq!(r.read(sp - BELOW - 1, &mut to), 0);
    }

    #[test]
    fn a_sample_with_registers_and_stack() {
        let Some((99, Record::Sample(r))) = parse(b::PERF_RECORD_SAMPLE, 2, &sample(24)) else {
            panic!("a sample");
        };
        assert_eq!((r.pid, r.tid, r.period_ns, r.user_mode), (7, 8, 1000, true));
        // By DWARF number: rdx is second, rbx fourth, rsp eighth, r8 ninth, r15 last.
        let g = r.registers.general;
        assert_eq!((g[1], g[3], g[7], g[8], g[15]), (103, 101, 107, 109, 116));
        assert_eq!((r.registers.ip, r.stack.len(), r.end()), (108, 24, 131));
        let mut to = [0u8; 8];
        assert_eq!((r.read(107 + 20, &mut to), r.read(131, &mut to)), (4, 0));
        assert_eq!(
            (r.read(107 - 4, &mut to), to),
            (8, [0, 0, 0, 0, 5, 5, 5, 5])
        );
        assert_eq!((r.read(107 - 64, &mut to), to), (8, [0; 8]));
    }

    #[test]
    fn a_sample_at_a_switch_has_no_period() {
        let mut body = sample(24);
        // An address of zero, then for how many switches it stands.
        body[16..24].fill(0);
        body.splice(24..24, 31u64.to_ne_bytes());
        let Some((99, Record::Leaving { of: 31, thread })) = parse(b::PERF_RECORD_SAMPLE, 1, &body)
        else {
            panic!("a sample at a switch");
        };
        assert_eq!((thread.tid, thread.stack.len()), (8, 24));
        assert_eq!(thread.registers.ip, 108);
    }

    #[test]
    fn births_ends_and_names() {
        let words = |w: &[u32]| -> Vec<u8> { w.iter().flat_map(|v| v.to_ne_bytes()).collect() };
        let life = words(&[7, 5, 8, 6, 99, 0, 5, 6, 99, 0]);
        let Some((
            99,
            Record::Born(Birth {
                pid: 7,
                tid: 8,
                parent: 5,
                parent_tid: 6,
            }),
        )) = parse(b::PERF_RECORD_FORK, 0, &life)
        else {
            panic!("a birth");
        };
        let Some((99, Record::Ended { pid: 7, tid: 8 })) = parse(b::PERF_RECORD_EXIT, 0, &life)
        else {
            panic!("an end");
        };
        let mut named = words(&[7, 8]);
        named.extend(b"sh\0\0\0\0\0\0");
        named.extend(words(&[7, 8, 99, 0]));
        let exec = b::PERF_RECORD_MISC_COMM_EXEC as u16;
        for (misc, is_exec) in [(0, false), (exec, true)] {
            let Some((99, Record::Name(Renaming { name, exec, .. }))) =
                parse(b::PERF_RECORD_COMM, misc, &named)
            else {
                panic!("a name");
            };
            assert_eq!((name.as_str(), exec), ("sh", is_exec));
        }
        for len in 0..24 {
            assert!(parse(b::PERF_RECORD_FORK, 0, &life[..len]).is_none());
            assert!(parse(b::PERF_RECORD_COMM, 0, &named[..len]).is_none());
        }
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let whole = sample(24);
        for len in 0..whole.len() {
            assert!(
                parse(b::PERF_RECORD_SAMPLE, 2, &whole[..len]).is_none(),
                "length {len}"
            );
        }
        assert!(parse(b::PERF_RECORD_SWITCH, 0, &[0; 12]).is_none());
        // More stack said to be valid than was copied.
        let Some((_, Record::Sample(r))) = parse(b::PERF_RECORD_SAMPLE, 1, &sample(u64::MAX))
        else {
            panic!("a sample");
        };
        assert_eq!((r.stack.len(), r.user_mode), (32, false));
    }
}
