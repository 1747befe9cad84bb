//! Who waits, as a recording begins, for the answer to what it asked before.
//!
//! What the kernel knows of a connection from before tells little: of a unix socket nothing, and that the last word
//! of a TCP connection was a question says, when it was long ago, perhaps only that it was forgotten. But a thread
//! that reads a connection which it made, or polls it alone, waits for its answer: a program that hangs so has to
//! be seen, however long it has hung.

use rustc_hash::FxHashMap;
use wallscope_procfs::{process, sockets};

use crate::{
    backend::proc::waiting::Call,
    event::SocketRecord,
    session::{descriptors::polled, lock_owner},
    syscalls::{self, Argument},
};

/// The threads of a process that wait for one descriptor each, by its inode.
pub(super) struct Readers {
    pid: u32,
    found: Option<FxHashMap<u32, u32>>,
}

impl Readers {
    /// Of `pid`, looked for when they are first asked for.
    pub fn of(pid: u32) -> Readers {
        Readers { pid, found: None }
    }

    /// Makes an answer on the connection `inode`, for which somebody may wait, that thread's to wait for; the
    /// question is as old as the recording where it is not known.
    pub fn asked(
        &mut self,
        inode: u32,
        record: &mut SocketRecord,
        now: u64,
        asked_ms: Option<u32>,
    ) {
        let pid = self.pid;
        let found = self.found.get_or_insert_with(|| readers(pid));
        if let Some(tid) = found.get(&inode) {
            let ago = u64::from(asked_ms.unwrap_or(0)) * 1_000_000;
            record.since = now.saturating_sub(ago);
            record.first = record.since;
            (record.requests, record.unanswered) = (1, 1);
            (record.owner, record.reader) = (*tid, *tid);
        }
    }
}

fn readers(pid: u32) -> FxHashMap<u32, u32> {
    let arguments = syscalls::arguments();
    let threads = process::threads(pid).unwrap_or_default();
    let reads = threads.into_iter().filter_map(|tid| {
        let call = lock_owner::call(pid, tid)?;
        let fd = descriptor(pid, &call, &arguments)?;
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
        Some((sockets::inode_of(&link)?, tid))
    });
    reads.collect()
}

/// The one descriptor that a call is about.
fn descriptor(pid: u32, call: &Call, arguments: &[u8]) -> Option<i32> {
    let [first, second, ..] = call.arguments;
    let argument = *arguments.get(call.number as usize)?;
    if argument == Argument::Descriptor as u8 {
        // Descriptors are ints: the upper half of the register means nothing.
        return Some(first as i32);
    }
    let mut list = [0; 16];
    list[..8].copy_from_slice(&first.to_ne_bytes());
    let one = argument == Argument::PollList as u8 && second == 1;
    one.then(|| polled(pid, &list)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_about_one_descriptor_or_a_list_of_one() {
        let (own, table) = (std::process::id(), syscalls::arguments());
        let list = [7i32, 0];
        let about = |number: libc::c_long, first: u64, second: u64| {
            let call = Call {
                number: number as u32,
                arguments: [first, second, 0, 0, 0],
            };
            descriptor(own, &call, &table)
        };
        assert_eq!(about(libc::SYS_recvfrom, 5, 0), Some(5));
        assert_eq!(about(libc::SYS_poll, list.as_ptr() as u64, 1), Some(7));
        assert_eq!(about(libc::SYS_poll, list.as_ptr() as u64, 2), None);
        assert_eq!(about(libc::SYS_nanosleep, 5, 0), None);
    }
}
