//! Cost of probes on this machine, measured on a child of ours.
//!
//! Costs differ by a factor of ten between machines and between instructions. So they are measured
//! before anything is placed into the target, with the very programs that will run there. A child
//! calls small functions of known form, with no other probes in between. The measurement also gives the
//! time by which a call seems longer than it is. It takes a child because this process must not be probed: its own
//! calls would count.
//!
//! The cost of a probe depends on the code that ran before it. In a row its code and data are in the caches. After
//! the thread has waited they are not, and the same probe costs two to three times as much, the more
//! the longer the CPU was idle or busy with others. So each kind has several costs: in a row, and after
//! waits of some lengths. Calls after waits are measured one by one, in turn with a twin without a probe, so that
//! both find the machine in the same state. The programs count which of the two each run of a probe was
//! (`note_met` in `call_open.h`), and [`Costs::spent`] combines them. A child takes some 40 ms for each kind
//! of probe.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use rustix::pipe::{PipeFlags, pipe_with};
use wallscope_binfmt::elf::Elf;
use wallscope_procfs::maps;

use super::{
    abi::{Cookie, Met, Site},
    modules::Module,
    plan::{Handler, PlannedSite},
    programs::Programs,
};
use crate::Error;

// Global: the dev profile puts these and their callers into different objects.
std::arch::global_asm!(
    ".pushsection .text.wallscope_calibrate,\"ax\",@progbits",
    ".balign 16",
    // Entry emulated.
    ".globl wallscope_calibrate_push",
    ".hidden wallscope_calibrate_push",
    "wallscope_calibrate_push:",
    "push %rbp",
    "pop %rbp",
    "ret",
    ".balign 16",
    // Entry single-stepped.
    ".globl wallscope_calibrate_move",
    ".hidden wallscope_calibrate_move",
    "wallscope_calibrate_move:",
    "mov %rdi, %rax",
    "ret",
    // Their twins, never probed.
    ".balign 16",
    ".globl wallscope_calibrate_push_twin",
    ".hidden wallscope_calibrate_push_twin",
    "wallscope_calibrate_push_twin:",
    "push %rbp",
    "pop %rbp",
    "ret",
    ".balign 16",
    ".globl wallscope_calibrate_move_twin",
    ".hidden wallscope_calibrate_move_twin",
    "wallscope_calibrate_move_twin:",
    "mov %rdi, %rax",
    "ret",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    fn wallscope_calibrate_push(x: u64) -> u64;
    fn wallscope_calibrate_move(x: u64) -> u64;
    fn wallscope_calibrate_push_twin(x: u64) -> u64;
    fn wallscope_calibrate_move_twin(x: u64) -> u64;
}

/// Calls in one batch, and batches, of which the median counts.
const BATCH: u32 = 100;
const BATCHES: usize = 9;
/// Waits before calls that come one by one, ns, and how many such calls with a probe and without.
const APART: [u64; 2] = [100_000, 1_000_000];
const RARE: [usize; 2] = [64, 12];
/// Bits of an order to the child: calls one by one, after the first of these waits, or after the second.
const ONE_BY_ONE: [u8; 2] = [0x40, 0x80];
/// Longest that a batch may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Costs of probes, ns. Arrays are indexed by `Site as usize`.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// Cost of each kind in a row.
    pub in_a_row: [u64; 16],
    /// Cost of each kind after the thread has waited, by the waits of `APART`.
    pub cold: [[u64; 16]; 2],
    /// Time by which a call seems longer, by whether its entry is single-stepped and by the kind of its end.
    pub bias: [[u64; 16]; 2],
}

impl Costs {
    /// The most that a call which meets probes of these kinds costs, if such come every 200 µs or more often.
    pub fn of(&self, kinds: &[Site]) -> u64 {
        let sum = |costs: &[u64; 16]| -> u64 { kinds.iter().map(|k| costs[*k as usize]).sum() };
        sum(&self.cold[0]).max(sum(&self.in_a_row))
    }

    /// Cost of the probes that threads met between `before` and `met`, `ns` later; both by CPU.
    pub fn spent(&self, before: &[Met], met: &[Met], ns: u64) -> u64 {
        let of_cpu = |(before, met): (&Met, &Met)| -> f64 {
            let grown = |kind: usize| {
                let (a, b) = (&before.kind[kind], &met.kind[kind]);
                let all = b.count.saturating_sub(a.count);
                (all, b.cold.saturating_sub(a.cold).min(all))
            };
            let most = (0..Site::COUNT).map(|k| grown(k).1).max().unwrap_or(0);
            let far = remoteness(ns as f64 / most.max(1) as f64);
            (0..Site::COUNT)
                .map(|kind| {
                    let (all, cold) = grown(kind);
                    let near = self.cold[0][kind] as f64;
                    let each = near + (self.cold[1][kind] as f64 - near) * far;
                    (all - cold) as f64 * self.in_a_row[kind] as f64 + cold as f64 * each
                })
                .sum()
        };
        before.iter().zip(met).map(of_cpu).sum::<f64>() as u64
    }
}

/// Position of calls that are `apart` ns apart between the two measured waits, by the logarithm: 0 to 1.
fn remoteness(apart: f64) -> f64 {
    // A call of the twin lay between two with a probe.
    let [near, far] = APART.map(|ns| 2.0 * ns as f64);
    ((apart / near).ln() / (far / near).ln()).clamp(0.0, 1.0)
}

/// Measured cost of one kind of probe, ns.
#[derive(Clone, Copy)]
struct ProbeCost {
    in_a_row: u64,
    cold: [u64; 2],
}

impl ProbeCost {
    fn without(self, other: ProbeCost) -> ProbeCost {
        ProbeCost {
            in_a_row: self.in_a_row.saturating_sub(other.in_a_row),
            cold: [0, 1].map(|i| self.cold[i].saturating_sub(other.cold[i])),
        }
    }
}

/// Measures the cost of each kind of probe that counting or timing needs. Entries have `handler`:
/// [`Handler::Count`], or [`Handler::Met`] where calls are timed.
///
/// # Errors
/// The child cannot be made, or the kernel refuses the simplest probe.
pub fn measure(programs: &mut Programs, handler: Handler) -> Result<Costs, Error> {
    let mut costs = Costs::default();
    let modules = [own_module()?];
    let place = |f: usize| own_offset(&modules[0], f as u64);
    let push = place(wallscope_calibrate_push as *const () as usize)?;
    let step = place(wallscope_calibrate_move as *const () as usize)?;
    let slot = (programs.functions() - 1) as u16;
    let site = |offset, handler, site| PlannedSite {
        module: 0,
        offset,
        semaphore: 0,
        handler,
        cookie: Cookie::new(slot, site),
    };

    let run =
        |programs: &mut Programs, sites: &[PlannedSite], which: u8| -> Result<ProbeCost, Error> {
            let child = Child::start()?;
            programs.add_targets(&[child.pid])?;
            let kept = programs.attached();
            let outcome = programs
                .attach(&modules, sites, Some(child.pid))
                .and_then(|()| child.find(which));
            programs.detach_to(kept);
            outcome
        };
    let keep = |costs: &mut Costs, kind: Site, found: ProbeCost| {
        costs.in_a_row[kind as usize] = found.in_a_row;
        for (row, cold) in costs.cold.iter_mut().zip(found.cold) {
            row[kind as usize] = cold;
        }
    };
    let entry = run(programs, &[site(push, handler, Site::Entry)], 0)?;
    let stepped = run(programs, &[site(step, handler, Site::SteppedEntry)], 1)?;
    // The child ends with calls open, which end with it.
    for kind in [
        Site::Entry,
        Site::Jump,
        Site::Branch,
        Site::Indirect,
        Site::Catch,
        Site::Begin,
        Site::End,
    ] {
        keep(&mut costs, kind, entry);
    }
    keep(&mut costs, Site::SteppedEntry, stepped);
    if handler == Handler::Count {
        return Ok(costs);
    }
    for (kind, handler, at) in [
        (Site::Return, Handler::Return, push),
        (Site::Ret, Handler::Met, push + 2),
    ] {
        let before = programs.lengths(slot as usize);
        let sites = [
            site(push, Handler::Met, Site::Entry),
            site(at, handler, kind),
        ];
        let both = run(programs, &sites, 0)?;
        let seen = programs.lengths(slot as usize).since(&before);
        let bias = seen.quantile(0.5).unwrap_or(0);
        keep(&mut costs, kind, both.without(entry));
        costs.bias[0][kind as usize] = bias;
        costs.bias[1][kind as usize] = bias + stepped.without(entry).in_a_row;
    }
    for row in &mut costs.bias {
        for kind in [Site::Jump, Site::Branch, Site::Indirect, Site::Catch] {
            row[kind as usize] = row[Site::Ret as usize];
        }
    }
    Ok(costs)
}

/// A child that calls the functions on order.
struct Child {
    pid: u32,
    order: OwnedFd,
    answer: OwnedFd,
}

impl Child {
    fn start() -> Result<Child, Error> {
        let pipe = || {
            pipe_with(PipeFlags::CLOEXEC)
                .map_err(|e| Error::io("cannot make a pipe to find out what probes cost", e))
        };
        let ((orders, order), (answer, answers)) = (pipe()?, pipe()?);
        // SAFETY: the child calls only async-signal-safe functions and allocates nothing.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::close(order.as_raw_fd());
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The child's sleeps must not be 50 µs longer than asked (the default timer slack).
                libc::prctl(libc::PR_SET_TIMERSLACK, 1);
                serve(orders.as_raw_fd(), answers.as_raw_fd());
            }
            pid
        };
        if pid < 0 {
            return Err(Error::io(
                "cannot fork to find out what probes cost",
                std::io::Error::last_os_error(),
            ));
        }
        Ok(Child {
            pid: pid as u32,
            order,
            answer,
        })
    }

    /// Measures the cost of calls with the probes that are in place.
    fn find(&self, which: u8) -> Result<ProbeCost, Error> {
        Ok(ProbeCost {
            in_a_row: self.median(which)?,
            cold: [
                self.batch(which | ONE_BY_ONE[0])?,
                self.batch(which | ONE_BY_ONE[1])?,
            ],
        })
    }

    /// The median cost of a call among many in a row, ns.
    fn median(&self, which: u8) -> Result<u64, Error> {
        let mut each = Vec::with_capacity(BATCHES);
        for _ in 0..BATCHES {
            each.push(self.batch(which)? / u64::from(BATCH));
        }
        each.sort_unstable();
        Ok(each[BATCHES / 2])
    }

    /// The child's answer, ns: the time of a batch; or, for calls one by one, the difference of the medians of
    /// a call and of one of its twin.
    fn batch(&self, which: u8) -> Result<u64, Error> {
        let failed = |e: std::io::Error| Error::io("a trial of probes failed", e);
        rustix::io::write(&self.order, &[which]).map_err(|e| failed(e.into()))?;
        let mut fds = [rustix::event::PollFd::new(
            &self.answer,
            rustix::event::PollFlags::IN,
        )];
        let patience = rustix::event::Timespec {
            tv_sec: PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&patience)).map_err(|e| failed(e.into()))?;
        let mut bytes = [0u8; 8];
        let ready = !fds[0].revents().is_empty();
        match ready.then(|| rustix::io::read(&self.answer, &mut bytes)) {
            Some(Ok(8)) => Ok(u64::from_ne_bytes(bytes)),
            _ => Err(failed(std::io::Error::other("the child gave no answer"))),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the pid is that of our own child, which has not been waited for.
        unsafe {
            libc::kill(self.pid as i32, libc::SIGKILL);
            libc::waitpid(self.pid as i32, std::ptr::null_mut(), 0);
        }
    }
}

/// Main loop of the child: runs batches on order until no order comes any more.
///
/// # Safety
/// To be called in a child just forked; it does not return.
unsafe fn serve(orders: i32, answers: i32) -> ! {
    let now = || {
        // SAFETY: the call writes to the local value alone.
        unsafe {
            let mut t: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t);
            t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
        }
    };
    loop {
        let mut which = 0u8;
        // SAFETY: plain system calls on descriptors that the child owns; the two functions keep to the
        // C calling convention and touch no memory.
        unsafe {
            if libc::read(orders, (&raw mut which).cast(), 1) != 1 {
                libc::_exit(0);
            }
            let call = |i| match which & 1 {
                0 => wallscope_calibrate_push(i),
                _ => wallscope_calibrate_move(i),
            };
            let twin = |i| match which & 1 {
                0 => wallscope_calibrate_push_twin(i),
                _ => wallscope_calibrate_move_twin(i),
            };
            let took;
            if let Some(wait) = ONE_BY_ONE.iter().position(|bit| which & bit != 0) {
                let apart = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: APART[wait] as i64,
                };
                let mut each = [[0; RARE[0]]; 2];
                let [probed, bare] = &mut each;
                let alone = |call: &dyn Fn(u64) -> u64, i: u64| {
                    libc::nanosleep(&apart, std::ptr::null_mut());
                    let start = now();
                    call(i);
                    now() - start
                };
                for i in 0..RARE[wait] {
                    probed[i] = alone(&call, i as u64);
                    bare[i] = alone(&twin, i as u64);
                }
                let median = |all: &mut [u64]| {
                    all.sort_unstable();
                    all[all.len() / 2]
                };
                let typical = [probed, bare].map(|all| median(&mut all[..RARE[wait]]));
                took = typical[0].saturating_sub(typical[1]);
            } else {
                let start = now();
                for i in 0..u64::from(BATCH) {
                    call(i);
                }
                took = now() - start;
            }
            libc::write(answers, (&raw const took).cast(), 8);
        }
    }
}

/// The file that this code is in.
fn own_module() -> Result<Module, Error> {
    let failed = |e| Error::io("cannot read this program's own file", e);
    let path = std::env::current_exe().map_err(failed)?;
    // Also reached where the file was replaced or removed meanwhile.
    let place = std::path::Path::new("/proc/self/exe");
    Module::named_by_user(place, path.to_string_lossy().into_owned()).map_err(failed)
}

/// File offset of an address of this process.
fn own_offset(module: &Module, address: u64) -> Result<u64, Error> {
    let failed = |e| Error::io("cannot find own code in own file", e);
    let mappings = maps::read(std::process::id()).map_err(failed)?;
    let m = mappings
        .iter()
        .find(|m| m.execute && (m.start..m.end).contains(&address));
    let offset = m.map(|m| address - m.start + m.offset);
    let code = offset.filter(|o| {
        Elf::parse(&module.bytes)
            .ok()
            .and_then(|e| e.vaddr_of_offset(*o))
            .is_some()
    });
    code.ok_or_else(|| failed(std::io::Error::other("it is not mapped from there")))
}
