//! The kernel's ticks, which divide on-CPU time between user and kernel.

use crate::event::{Dump, FLAG_KERNEL_THREAD};

/// Sums of the kernel's ticks over all threads that have a user mode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks {
    pub user: u64,
    pub kernel: u64,
}

impl Ticks {
    /// Sums the ticks in the last figures of each thread.
    pub fn of<'a>(books: impl Iterator<Item = &'a Dump>) -> Ticks {
        let mut ticks = Ticks::default();
        books.for_each(|dump| ticks.add(dump));
        ticks
    }

    pub fn add(&mut self, d: &Dump) {
        if d.flags & FLAG_KERNEL_THREAD == 0 {
            self.user = self.user.saturating_add(d.utime);
            self.kernel = self.kernel.saturating_add(d.stime);
        }
    }

    /// The part of `own` that was spent in the kernel.
    pub fn kernel_part(&self, own: u64) -> u64 {
        let all = u128::from(self.user) + u128::from(self.kernel);
        (u128::from(own) * u128::from(self.kernel))
            .checked_div(all)
            .unwrap_or(0) as u64
    }
}
