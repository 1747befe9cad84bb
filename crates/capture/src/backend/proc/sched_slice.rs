//! Asks the scheduler to run this thread soon after it wakes.
//!
//! A poll that has to wait for a CPU runs when some thread has just blocked. That is no random moment of that
//! thread: the waits that follow computing are seen too often. The scheduler runs a thread with a short
//! slice sooner (Linux 6.12). Other threads lose nothing by it: such a thread runs sooner, not more. Any user
//! may ask for that.
//!
//! Not every late poll waited for a CPU: on some virtual machines an idle CPU takes up to half a millisecond
//! to wake, whatever the threads do meanwhile. There the polls in time are not at random moments, because a
//! CPU wakes sooner if it was busy just before. The scheduler's counter of our own run-queue latency tells
//! the two apart.

use std::{fs::File, mem, os::unix::fs::FileExt as _};
use wallscope_procfs::kernel_file;

use wallscope_procfs::process::SchedStat;

/// The scheduler slice that we ask for, ns: the shortest that the kernel grants.
const TURN: u64 = 100_000;

/// Asks for a short slice for the calling thread and the threads that it will make. Does nothing on older
/// kernels and under other scheduling policies than the usual one.
pub fn request_short_slice() {
    // SAFETY: all zeroes is a valid value, and the kernel writes one such structure into it, then reads
    // it; both calls are about the calling thread.
    unsafe {
        let mut wanted: libc::sched_attr = mem::zeroed();
        let size = size_of::<libc::sched_attr>() as u32;
        let own: libc::pid_t = 0;
        let flags = 0u32;
        if libc::syscall(libc::SYS_sched_getattr, own, &raw mut wanted, size, flags) != 0
            || wanted.sched_policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        (wanted.size, wanted.sched_runtime) = (size, TURN);
        // Refused: polls come as late as before.
        libc::syscall(libc::SYS_sched_setattr, own, &raw const wanted, flags);
    }
}

/// Run-queue latency of the thread that made it.
pub struct RunDelayMeter(Option<File>);

impl RunDelayMeter {
    /// The meter of the calling thread.
    pub fn of_own_thread() -> RunDelayMeter {
        RunDelayMeter(kernel_file::open("/proc/thread-self/schedstat").ok())
    }

    /// Latency since the thread's birth, ns; `None`: the kernel does not show it.
    pub fn ns(&self) -> Option<u64> {
        let mut line = [0; 96];
        let length = self.0.as_ref()?.read_at(&mut line, 0).ok()?;
        let text = std::str::from_utf8(&line[..length]).ok()?;
        Some(SchedStat::parse(text)?.run_delay_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_queue_latency_is_told_from_sleep() {
        // Two threads share one CPU: the one that does not run is queued.
        let busy = std::thread::spawn(|| {
            on_first_cpu();
            let begun = std::time::Instant::now();
            while begun.elapsed().as_millis() < 200 {}
        });
        let line = RunDelayMeter::of_own_thread();
        let before = line.ns().expect("the kernel tells");
        std::thread::sleep(std::time::Duration::from_millis(5));
        let slept = line.ns().unwrap() - before;
        on_first_cpu();
        while !busy.is_finished() {}
        busy.join().unwrap();
        let stood = line.ns().unwrap() - before - slept;
        assert!(stood > 20_000_000, "{stood}");
    }

    fn on_first_cpu() {
        let own = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..1024).find(|cpu| own.is_set(*cpu)).unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(first);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
    }

    #[test]
    fn the_kernel_grants_short_turns_or_knows_none() {
        std::thread::spawn(|| {
            request_short_slice();
            // SAFETY: as above.
            let granted = unsafe {
                let mut now: libc::sched_attr = mem::zeroed();
                let size = size_of::<libc::sched_attr>() as u32;
                let own: libc::pid_t = 0;
                libc::syscall(libc::SYS_sched_getattr, own, &raw mut now, size, 0u32);
                now.sched_runtime
            };
            match granted {
                0 => println!("skipped: this kernel does not give threads turns of their own"),
                ns => assert_eq!(ns, TURN),
            }
        })
        .join()
        .unwrap();
    }
}
