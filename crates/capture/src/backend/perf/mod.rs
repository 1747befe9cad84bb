//! Perf events of an ordinary user: what running threads run, and every switch.
//!
//! One software clock event for each thread there is and each CPU, inherited by what the thread
//! makes later, writes to one ring a CPU: samples with user registers and 8 KiB of stack, which are
//! unwound here; each switch, with whether the thread was put off the CPU or left it; new mappings
//! and programs. Waiting threads are looked at as the `proc` backend does, and so are the totals:
//! the scheduler's own counters.
//!
//! Where the kernel may not be sampled (`perf_event_paranoid` 2), samples fall on user code only;
//! the rest of the time on a CPU is told by the tick. It does not see kernel stacks.

mod record;

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::{self as perf, bindings as b};

pub use record::{Record, Running};

const PAGE: usize = 4096;
/// Data pages of one CPU's ring: with the first page just what an ordinary user may lock.
const DATA_PAGES: usize = 128;
/// Fewest that are worth having: some dozen samples.
const FEWEST_PAGES: usize = 32;
/// Bytes of stack with each sample.
const STACK: u32 = 8192;
/// ax, bx, cx, dx, si, di, bp, sp, ip and r8 … r15.
const REGISTERS: u64 = 0xff_01ff;

/// The events and their rings.
pub struct Clock {
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    /// Whether samples fall on the kernel too.
    pub with_kernel: bool,
    /// Time between two samples of a running thread, ns.
    pub period_ns: u64,
    /// Threads whose events were refused.
    pub left_out: u64,
    /// Records that did not fit.
    pub lost: u64,
}

struct Ring {
    base: *mut u8,
    pages: usize,
    event: OwnedFd,
}

impl Clock {
    /// Opens events for `threads` at `hz` on `cpus`.
    ///
    /// # Errors
    /// Not even the first thread's event is allowed, or no ring.
    pub fn open(threads: &[u32], cpus: &[u32], hz: u32) -> io::Result<Clock> {
        let mut clock = Clock {
            rings: Vec::new(),
            events: Vec::new(),
            with_kernel: true,
            period_ns: 1_000_000_000 / u64::from(hz.max(1)),
            left_out: 0,
            lost: 0,
        };
        let first = *threads.first().ok_or(io::ErrorKind::NotFound)?;
        for cpu in cpus {
            let event = match clock.event(first, *cpu) {
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(e) if clock.with_kernel && clock.rings.is_empty() && is_refusal(&e) => {
                    clock.with_kernel = false;
                    clock.event(first, *cpu)?
                }
                other => other?,
            };
            clock.rings.push(Ring::map(event)?);
        }
        for tid in &threads[1..] {
            clock.left_out += u64::from(clock.join(*tid, cpus).is_err());
        }
        Ok(clock)
    }

    /// Adds a further thread's events.
    fn join(&mut self, tid: u32, cpus: &[u32]) -> io::Result<()> {
        for (index, cpu) in cpus.iter().enumerate().take(self.rings.len()) {
            let event = self.event(tid, *cpu)?;
            let to = self.rings[index].event.as_raw_fd();
            // SAFETY: both descriptors are perf events of ours.
            if unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), to) } < 0 {
                return Err(io::Error::last_os_error());
            }
            self.events.push(event);
        }
        Ok(())
    }

    fn event(&self, tid: u32, cpu: u32) -> io::Result<OwnedFd> {
        let mut a = b::perf_event_attr {
            size: size_of::<b::perf_event_attr>() as u32,
            type_: b::PERF_TYPE_SOFTWARE,
            config: b::PERF_COUNT_SW_CPU_CLOCK.into(),
            // The records' trailing id must end with the time: no CPU, no id.
            sample_type: (b::PERF_SAMPLE_TID
                | b::PERF_SAMPLE_TIME
                | b::PERF_SAMPLE_REGS_USER
                | b::PERF_SAMPLE_STACK_USER)
                .into(),
            sample_regs_user: REGISTERS,
            sample_stack_user: STACK,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        a.__bindgen_anon_1.sample_period = self.period_ns;
        a.set_inherit(1);
        a.set_exclude_hv(1);
        a.set_exclude_kernel((!self.with_kernel).into());
        a.set_use_clockid(1);
        a.set_sample_id_all(1);
        a.set_context_switch(1);
        a.set_mmap(1);
        a.set_mmap2(1);
        a.set_comm(1);
        a.set_comm_exec(1);
        let flags = b::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: the attributes are whole and outlive the call.
        let fd = unsafe { perf::perf_event_open(&mut a, tid as i32, cpu as i32, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just returned this descriptor to us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Takes everything that is there, in time order.
    pub fn drain(&mut self) -> Vec<(u64, Record)> {
        let mut records = Vec::new();
        for ring in &mut self.rings {
            self.lost += ring.drain(&mut records);
        }
        records.sort_by_key(|(time, _)| *time);
        records
    }

    /// Descriptors that become readable when a ring is half full.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.rings.iter().map(|r| &r.event)
    }

    /// Bytes of the rings.
    pub fn bytes(&self) -> u64 {
        self.rings
            .iter()
            .map(|r| ((r.pages + 1) * PAGE) as u64)
            .sum()
    }

    /// Stops all events; what is in the rings stays.
    pub fn stop(&mut self) {
        self.events.clear();
        for ring in &self.rings {
            // SAFETY: a perf event of ours.
            unsafe { perf::ioctls::DISABLE(ring.event.as_raw_fd(), 0) };
        }
    }
}

fn is_refusal(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

impl Ring {
    /// Maps the ring of an event, as large as is allowed.
    fn map(event: OwnedFd) -> io::Result<Ring> {
        let mut pages = DATA_PAGES;
        loop {
            // SAFETY: a fresh shared mapping of the event's ring, where the kernel likes.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    (pages + 1) * PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    event.as_raw_fd(),
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                return Ok(Ring {
                    base: base.cast(),
                    pages,
                    event,
                });
            }
            let e = io::Error::last_os_error();
            if pages / 2 < FEWEST_PAGES {
                return Err(e);
            }
            pages /= 2;
        }
    }

    /// Takes what is there; returns how many records are missing.
    fn drain(&mut self, records: &mut Vec<(u64, Record)>) -> u64 {
        let page = self.base.cast::<b::perf_event_mmap_page>();
        // SAFETY: the first page is this structure; both are aligned words shared with the kernel.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        let mut lost = 0;
        let mut body = Vec::new();
        while at < end {
            self.copy(at, 8, &mut body);
            let kind = u32::from_ne_bytes([body[0], body[1], body[2], body[3]]);
            let misc = u16::from_ne_bytes([body[4], body[5]]);
            let size = u64::from(u16::from_ne_bytes([body[6], body[7]]));
            if size < 8 {
                break; // never written by a kernel; do not loop on it
            }
            self.copy(at + 8, (size - 8) as usize, &mut body);
            match record::parse(kind, misc, &body) {
                Some((_, Record::Lost(n))) => lost += n,
                Some(record) => records.push(record),
                None => {}
            }
            at += size;
        }
        tail.store(end, Ordering::Release);
        lost
    }

    /// Copies `len` bytes from position `at` of the ring, which may wrap, to `out`.
    fn copy(&self, at: u64, len: usize, out: &mut Vec<u8>) {
        let size = self.pages * PAGE;
        let start = at as usize % size;
        let first = len.min(size - start);
        out.clear();
        // SAFETY: both pieces lie within the data pages behind the first page; the kernel does not
        // write there again before the tail is moved.
        unsafe {
            let data = self.base.add(PAGE);
            out.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            out.extend_from_slice(std::slice::from_raw_parts(data, len - first));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, with this length.
        unsafe { libc::munmap(self.base.cast(), (self.pages + 1) * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_of_our_own_is_sampled() {
        let cpus = crate::backend::ebpf::timer::parse_cpu_list(
            &std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap(),
        );
        // SAFETY: no arguments.
        let tid = unsafe { libc::gettid() } as u32;
        let mut clock = match Clock::open(&[tid], &cpus, 997) {
            Ok(clock) => clock,
            Err(e) => {
                println!("skipped: perf events of own threads are refused: {e}");
                return;
            }
        };
        let mut samples = Vec::new();
        while samples.len() < 3 {
            for (time, record) in clock.drain() {
                if let Record::Sample(r) = record {
                    samples.push((time, r));
                }
            }
        }
        for (time, r) in &samples {
            assert_eq!((r.pid, r.tid), (std::process::id(), tid));
            assert!(*time > 0 && !r.stack.is_empty());
        }
    }
}
