//! Made-up figures of threads, for tests of the ledgers.

use wallscope_model::{BlockReason, LedgerSlices};
use zerocopy::FromZeros;

use super::Accounts;
use crate::event::{Dump, ThreadEvent, how, state};

/// Start of the window, ns.
pub const START: u64 = 1000;
/// Width of a slice, ns.
pub const WIDTH: u64 = 100;
/// Process of threads for which a test names none.
pub const PROCESS: u32 = 9;

pub const DISK: usize = BlockReason::Disk as usize;
pub const LOCK: usize = BlockReason::Lock as usize;
pub const PIPE: usize = BlockReason::Pipe as usize;
pub const TIMER: usize = BlockReason::Timer as usize;

pub fn accounts() -> Accounts {
    Accounts::new(START, WIDTH)
}

/// Figures at `now` of the thread with record and thread number `id`: born at [`START`], on a CPU since
/// `now`, with no closed interval.
pub fn figures(id: u64, now: u64) -> Dump {
    let mut d = Dump::new_zeroed();
    (d.id, d.now, d.birth) = (id, now, START);
    d.of(PROCESS, id as u32).since(now, state::ON_CPU, 0)
}

impl Dump {
    pub fn of(mut self, pid: u32, tid: u32) -> Dump {
        (self.pid, self.tid) = (pid, tid);
        self
    }

    /// Sets an interval that is open since `since`.
    pub fn since(mut self, since: u64, state: u8, detail: u8) -> Dump {
        (self.since, self.state, self.detail) = (since, state, detail);
        self
    }

    pub fn on_cpu(mut self, ns: u64) -> Dump {
        self.acc.on_cpu = ns;
        self
    }

    pub fn blocked(mut self, reason: usize, ns: u64) -> Dump {
        self.acc.blocked[reason] = ns;
        self
    }
}

pub fn born(id: u64, time: u64) -> ThreadEvent {
    let mut e = ThreadEvent::new_zeroed();
    (e.id, e.time, e.how) = (id, time, how::BORN);
    (e.pid, e.tid) = (PROCESS, id as u32);
    e
}

pub fn named(mut e: ThreadEvent, name: &[u8]) -> ThreadEvent {
    e.comm[..name.len()].copy_from_slice(name);
    e
}

/// Slice and on-CPU time of each row.
pub fn on_cpu_by_slice(rows: &LedgerSlices) -> Vec<(u32, u64)> {
    rows.iter().map(|r| (r.slice, r.on_cpu_ns)).collect()
}

/// Slice and time blocked for `reason` of each row.
pub fn blocked_by_slice(rows: &LedgerSlices, reason: usize) -> Vec<(u32, u64)> {
    rows.iter().map(|r| (r.slice, r.blocked[reason])).collect()
}
