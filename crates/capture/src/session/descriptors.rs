//! Meaning of a descriptor of a process, looked up from outside: the other end of a connection, the connections of an
//! epoll set, the process that a pidfd refers to.
//!
//! It is looked up while the process is there and its descriptors are open, which may be a little after the
//! wait that named one.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    sync::OnceLock,
};
use wallscope_procfs::kernel_file;

use wallscope_model::BlockReason;
use wallscope_procfs::process;

use crate::{
    syscalls::{self, Argument},
    target::read_memory,
};

/// Most peers that an epoll set's name lists.
const MAX_PEERS: usize = 3;

/// Names the thing that a call of `pid` with these first two arguments waits for, in the kernel programs' form. It
/// covers the facts of one descriptor: files, locks on files, and the ends of processes. `reason` is the call's
/// block reason.
pub fn awaited(
    pid: u32,
    call: u32,
    [first, second]: [u64; 2],
    reason: BlockReason,
) -> Option<String> {
    let number = libc::c_long::from(call);
    match reason {
        BlockReason::Lock | BlockReason::Disk if by_first_descriptor(call) => {
            // Descriptors are ints: the upper half of the register means nothing.
            let link = fs::read_link(format!("/proc/{pid}/fd/{}", first as u32)).ok()?;
            let path = link.to_str().filter(|l| l.starts_with('/'))?;
            Some(format!("{} {path}", syscalls::name(call)))
        }
        BlockReason::Child if number == libc::SYS_wait4 && first as i32 > 0 => {
            outer_pid(pid, first as u32).map(end_of)
        }
        BlockReason::Poll if [libc::SYS_poll, libc::SYS_ppoll].contains(&number) && second == 1 => {
            let mut list = [0; 16];
            list[..8].copy_from_slice(&first.to_ne_bytes());
            let fd = polled(pid, &list)?;
            let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
            let process = process_of(pid, fd).filter(|_| link.to_string_lossy().contains("pidfd"));
            process.map(end_of)
        }
        _ => None,
    }
}

/// Whether the first argument of a call that waits for a file, or a lock on one, is its descriptor.
fn by_first_descriptor(call: u32) -> bool {
    let arguments = ARGUMENTS.get_or_init(syscalls::arguments);
    arguments.get(call as usize) == Some(&(Argument::Descriptor as u8))
}

static ARGUMENTS: OnceLock<[u8; syscalls::TABLE]> = OnceLock::new();

/// The descriptor in the first row of a list that process `pid` polls; `list`: its address.
pub fn polled(pid: u32, list: &[u8; 16]) -> Option<i32> {
    let address = u64::from_ne_bytes(*list.first_chunk()?);
    let mut fd = [0; 4];
    (address > 0 && read_memory(pid, address, &mut fd) == fd.len()).then(|| i32::from_ne_bytes(fd))
}

/// Returns the meaning of a descriptor of `pid`, looked up from outside.
pub fn by_descriptor(pid: u32, fd: i32) -> Option<String> {
    if let Some(process) = process_of(pid, fd) {
        return Some(end_of(process));
    }
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    let link = link.to_string_lossy();
    let inner = |kind: &str| link.strip_prefix(kind)?.strip_suffix(']');
    if let Some(inode) = inner("socket:[") {
        let peers = peers_of(pid, &BTreeSet::from([inode.to_owned()]));
        return Some(match peers.first() {
            Some(peer) => format!("peer {peer} (fd {fd})"),
            None => format!("socket (fd {fd})"),
        });
    }
    Some(match inner("anon_inode:[") {
        Some(what) => format!("{what} (fd {fd})"),
        None if inner("pipe:[").is_some() => format!("{link} (fd {fd})"),
        None => link.into_owned(),
    })
}

/// A wait for the end of a process.
pub fn end_of(pid: u32) -> String {
    match process::comm(pid, pid) {
        Ok(name) => format!("end of process {name} ({pid})"),
        Err(_) => format!("end of process {pid}"),
    }
}

/// Our id of the child that process `pid` calls `child`.
pub fn outer_pid(pid: u32, child: u32) -> Option<u32> {
    if process::inner_pid(pid).is_ok_and(|inner| inner == pid) {
        return Some(child);
    }
    let tasks = process::threads(pid).ok()?;
    let children = tasks.into_iter().flat_map(|tid| {
        let list = kernel_file::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let ids = list.unwrap_or_default();
        let ids = ids.split_ascii_whitespace().map(|c| c.parse().ok());
        ids.collect::<Vec<Option<u32>>>()
    });
    let mut children = children.flatten();
    children.find(|c| process::inner_pid(*c).is_ok_and(|inner| inner == child))
}

/// The process that a descriptor of `pid` stands for, if it is one of a process.
pub fn process_of(pid: u32, fd: i32) -> Option<u32> {
    let info = kernel_file::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let mut lines = info.lines().filter_map(|l| l.strip_prefix("Pid:"));
    lines.next()?.trim().parse().ok()
}

/// The connected peers among the descriptors that an epoll set watches, and the processes.
pub fn peers_of_set(pid: u32, fd: i32) -> String {
    let info = kernel_file::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let (mut inodes, mut processes) = (BTreeSet::new(), Vec::new());
    let members = info.lines().filter_map(|l| l.strip_prefix("tfd:"));
    for tfd in members.filter_map(|m| m.split_whitespace().next()) {
        let Ok(link) = fs::read_link(format!("/proc/{pid}/fd/{tfd}")) else {
            continue;
        };
        let link = link.to_string_lossy();
        if let Some(inode) = link
            .strip_prefix("socket:[")
            .and_then(|l| l.strip_suffix(']'))
        {
            inodes.insert(inode.to_owned());
        } else if link.contains("pidfd") && processes.len() < MAX_PEERS {
            let process = tfd.parse().ok().and_then(|tfd| process_of(pid, tfd));
            processes.extend(process.map(end_of));
        }
    }
    let processes = match processes.is_empty() {
        true => String::new(),
        false => format!(": {}", processes.join(", ")),
    };
    if inodes.is_empty() {
        return processes;
    }
    let peers = peers_of(pid, &inodes);
    let more = peers.len().saturating_sub(MAX_PEERS);
    let listed: Vec<String> = peers.into_iter().take(MAX_PEERS).collect();
    let peers = match (listed.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(": peer {}", listed.join(", ")),
        (false, n) => format!(": peer {} and {n} more", listed.join(", ")),
    };
    peers + &processes
}

/// The peers of connections of `pid`, by the inodes of its sockets.
fn peers_of(pid: u32, inodes: &BTreeSet<String>) -> BTreeSet<String> {
    let mut peers = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text =
            kernel_file::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let established = fields.get(3) == Some(&"01");
            if established
                && fields.get(9).is_some_and(|inode| inodes.contains(*inode))
                && let Some(peer) = fields.get(2).and_then(|f| parse_peer(f))
            {
                peers.insert(peer);
            }
        }
    }
    peers
}

/// Parses an address of `/proc/net/tcp` such as `0100007F:1538`. Its words are in the machine's byte order.
fn parse_peer(field: &str) -> Option<String> {
    let (address, port) = field.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .map(|i| {
            let word = address.get(i * 8..i * 8 + 8)?;
            Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
        })
        .collect::<Option<_>>()?;
    match words.concat().as_slice() {
        [a, b, c, d] => Some(format!("{}:{port}", Ipv4Addr::new(*a, *b, *c, *d))),
        bytes => {
            let v6 = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
            Some(match v6.to_ipv4_mapped() {
                Some(v4) => format!("{v4}:{port}"),
                None => format!("[{v6}]:{port}"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::fd::AsRawFd, process::Command};

    #[test]
    fn peers_of_the_kernels_table() {
        assert_eq!(parse_peer("0100007F:1538").unwrap(), "127.0.0.1:5432");
        let v6 = parse_peer("00000000000000000000000001000000:0050").unwrap();
        assert_eq!(v6, "[::1]:80");
        assert_eq!(parse_peer("nonsense"), None);
    }

    #[test]
    fn descriptors_of_our_own_have_names() {
        let own = std::process::id();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mine = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut theirs, from) = listener.accept().unwrap();
        let name = by_descriptor(own, mine.as_raw_fd()).unwrap();
        assert!(
            name.starts_with(&format!("peer 127.0.0.1:{port} (fd ")),
            "{name}"
        );
        let name = by_descriptor(own, theirs.as_raw_fd()).unwrap();
        assert!(name.starts_with(&format!("peer {from} (fd ")), "{name}");
        drop(mine);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        assert_eq!(by_descriptor(own, -1), None);
    }

    #[test]
    fn the_end_of_a_child_is_named_by_it() {
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        assert_eq!(outer_pid(own, id), Some(id));
        // SAFETY: an id of a child that has not been waited for; gives a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) } as i32;
        assert_eq!(process_of(own, fd), Some(id));
        assert!(end_of(id).ends_with(&format!("({id})")), "{}", end_of(id));
        let wait4 = libc::SYS_wait4 as u32;
        let waits = |first: u64| awaited(own, wait4, [first, 0], BlockReason::Child);
        assert_eq!(waits(id.into()), Some(end_of(id)));
        assert_eq!(waits(-1i64 as u64), None);
        let list = [fd, 1];
        let poll = libc::SYS_poll as u32;
        let asked = [list.as_ptr() as u64, 1];
        assert_eq!(
            awaited(own, poll, asked, BlockReason::Poll),
            Some(end_of(id))
        );
        let mut at = [0; 16];
        at[..8].copy_from_slice(&(list.as_ptr() as u64).to_ne_bytes());
        assert_eq!(polled(own, &at), Some(fd));
        assert_eq!(polled(own, &[0; 16]), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn files_and_locks_on_them_have_their_paths() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().canonicalize().unwrap();
        let fd = file.as_raw_fd() as u64;
        let own = std::process::id();
        for (call, reason) in [
            (libc::SYS_flock, BlockReason::Lock),
            (libc::SYS_fcntl, BlockReason::Lock),
            (libc::SYS_fsync, BlockReason::Disk),
        ] {
            let name = awaited(own, call as u32, [fd, 0], reason).unwrap();
            let call = syscalls::name(call as u32);
            assert_eq!(name, format!("{call} {}", path.display()));
        }
        let futex = awaited(own, libc::SYS_futex as u32, [fd, 0], BlockReason::Lock);
        assert_eq!(futex, None);
    }
}
