//! Asks the scheduler to run this thread soon after it wakes.
//!
//! A look that has to wait for a CPU comes when some thread has just blocked, which is no random moment
//! of that thread: what follows computing is seen too often. Who asks for short turns is given them
//! soon (Linux 6.12), at nobody's cost: turns are sooner, not more. Anybody may ask for that.

use std::mem;

/// The length of turn asked for, ns: the shortest that the kernel grants.
const TURN: u64 = 100_000;

/// Asks for the calling thread, and those that it will make. Older kernels and other policies than the
/// usual one are left as they are.
pub fn ask_for_short_turns() {
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
        // Refused: looks come as late as they did.
        libc::syscall(libc::SYS_sched_setattr, own, &raw const wanted, flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_grants_short_turns_or_knows_none() {
        std::thread::spawn(|| {
            ask_for_short_turns();
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
