//! The descriptors that a thread polls.

use wallscope_procfs::kernel_file;

use super::waiting::{Call, read_memory};
use crate::syscalls::Argument;

/// Most descriptors of a set or a list that are read.
const MAX_DESCRIPTORS: usize = 256;

/// Descriptors in the list that `call`, a poll of process `pid`, names.
pub fn list(pid: u32, call: Call) -> Vec<u32> {
    let [first, second, ..] = call.arguments;
    let most = (second as usize).min(MAX_DESCRIPTORS);
    // struct pollfd: descriptor, events, returned events. A negative descriptor is ignored by poll(2).
    let rows = read_memory(pid, first, most * 8);
    let fds = rows.chunks_exact(8).map(|row| {
        let fd = [row[0], row[1], row[2], row[3]];
        i32::from_ne_bytes(fd)
    });
    fds.filter_map(|fd| u32::try_from(fd).ok()).collect()
}

/// Descriptors in an epoll set; none where `fd` of process `pid` is something else.
pub fn set(pid: u32, fd: u32) -> Vec<u32> {
    let text = kernel_file::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    members(&text).take(MAX_DESCRIPTORS).collect()
}

/// All descriptors that `call` of process `pid` polls. `arguments`: kind of the arguments of each system call.
pub fn all(arguments: &[u8], pid: u32, call: Call) -> Vec<u32> {
    match arguments.get(call.number as usize).copied() {
        Some(a) if a == Argument::PollList as u8 => list(pid, call),
        // Descriptors are ints: the upper half of the register means nothing.
        Some(a) if a == Argument::Descriptor as u8 => set(pid, call.arguments[0] as u32),
        _ => Vec::new(),
    }
}

/// Members of a set, as its `fdinfo` lists them.
fn members(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| {
        let rest = line.strip_prefix("tfd:")?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoll_set_lists_its_members() {
        let text = "pos:\t0\nflags:\t02000002\ntfd:        4 events:       19 data:  4\n\
                    tfd:       17 events: 1 data: 11  pos:0 ino:5\n";
        assert_eq!(members(text).collect::<Vec<_>>(), [4, 17]);
    }

    #[test]
    fn a_list_has_no_negative_descriptors() {
        let row = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let rows = [row(3), row(-1), row(7)];
        let number = u32::try_from(libc::SYS_poll).unwrap();
        let arguments = [rows.as_ptr() as u64, 3, 0, 0, 0];
        let call = Call { number, arguments };
        assert_eq!(list(std::process::id(), call), [3, 7]);
        assert_eq!(
            all(&crate::syscalls::arguments(), std::process::id(), call),
            [3, 7]
        );
    }
}
