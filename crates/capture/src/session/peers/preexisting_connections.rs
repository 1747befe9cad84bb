//! Threads that wait for the answer to an earlier request as a recording begins.
//!
//! The kernel tells little about a connection from before: nothing for a unix socket. On a TCP connection the
//! last data may be a request from long ago to which no answer is expected any more. But a thread that reads
//! a connection which its process made, or polls it alone, does wait for an answer. A program that hangs like
//! this has to be seen, however long it has hung.

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
    /// The readers of `pid`, looked up when they are first needed.
    pub fn of(pid: u32) -> Readers {
        Readers { pid, found: None }
    }

    /// Puts a request in flight on the connection `inode`, if a thread waits there for an answer; that thread
    /// awaits it. A request of unknown age begins with the recording.
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
