//! Stream sockets of the machine from `sock_diag`, which every user may read, without tracing: addresses,
//! and when data was last sent and received. `/proc/PID/fd` shows the processes that own them.

mod talk;

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustc_hash::FxHashMap;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

pub use talk::{Asker, Talk};

/// The two ends of a stream socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// TCP.
    Tcp {
        /// Own end.
        local: SocketAddr,
        /// The other end; port 0 of a listening socket.
        peer: SocketAddr,
    },
    /// A unix socket.
    Unix {
        /// Path it is bound to (an accepted socket has its listener's path); an abstract name begins with `@`.
        path: Option<String>,
        /// Inode of the other end, 0 where there is none.
        peer_inode: u32,
    },
}

/// A stream socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its cookie: a number that no other socket has had since boot.
    pub cookie: u64,
    /// Its inode, 0 for one that no descriptor holds (any more).
    pub inode: u32,
    /// Whether it waits for connections.
    pub listens: bool,
    /// Name of the TCP state, such as `established`; empty for unix sockets.
    pub state: &'static str,
    /// Lengths of the queues. Listening TCP socket: connections to be accepted, and their maximum. Any other
    /// socket: bytes received and not read, and bytes sent and not acknowledged. `None`: not known.
    pub queues: Option<(u32, u32)>,
    /// Number of retransmitted segments; 0 if unknown.
    pub retransmits: u32,
    /// Data of less than a segment was written and is not sent, because earlier data is not acknowledged yet.
    pub held_back: bool,
    /// Addresses.
    pub ends: Ends,
    /// How long ago data was last sent, received, and acknowledged by the other side, ms, by the kernel's tick; `None`:
    /// not known.
    pub last_ms: Option<(u32, u32, u32)>,
    /// Bytes that were sent and acknowledged, and received; `None`: not known.
    pub bytes: Option<(u64, u64)>,
}

const TYPE_SOCK_DIAG: u16 = 20;
const TYPE_TCP_DIAG: u16 = 18;
const FLAGS_DUMP: u16 = 0x301; // NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
const DONE: u16 = 3;
const ERROR: u16 = 2;
const TCP: u8 = 6;
const TCP_LISTEN: u8 = 10;
/// All states of [`TCP_STATES`], without sockets that are only bound: for these the kernel would search one more
/// table.
const ALL_STATES: u32 = (1 << TCP_STATES.len()) - 2;
const ATTRIBUTE_TCP_INFO: u16 = 2;

/// TCP's states by their numbers in the kernel.
const TCP_STATES: [&str; 13] = [
    "",
    "established",
    "syn-sent",
    "syn-received",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "close",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
    "syn-received",
];

fn open_diag() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?)
}

/// Lists the TCP sockets in the given states (one bit each, by the kernel's numbers). It uses the older of the two
/// requests, which lists both address families at once: for each list the kernel searches its whole table, which is
/// long on a large machine.
fn list_tcp(netlink: &OwnedFd, states: u32, mut take: impl FnMut(Socket)) -> io::Result<()> {
    // struct inet_diag_req: family, lengths of addresses, extensions, addresses, states, one word more.
    let mut request = vec![0, 0, 0, 1 << (ATTRIBUTE_TCP_INFO - 1)];
    request.extend([0; 48]);
    request.extend(states.to_ne_bytes());
    request.extend([0; 4]);
    dump(netlink, TYPE_TCP_DIAG, &request, |body| {
        if let Some(socket) = tcp(body) {
            take(socket);
        }
    })
}

/// The TCP sockets of this network namespace that wait for connections: cheap, however many
/// connections there are.
///
/// # Errors
/// The kernel has no `sock_diag`, or refuses it.
pub fn listening() -> io::Result<Vec<Socket>> {
    let mut all = Vec::new();
    list_tcp(&open_diag()?, 1 << TCP_LISTEN, |s| all.push(s))?;
    Ok(all)
}

/// Every TCP and unix stream socket of this network namespace, except TCP sockets that are only bound.
///
/// # Errors
/// The kernel has no `sock_diag`, or refuses it.
pub fn list() -> io::Result<Vec<Socket>> {
    list_all().map_err(told)
}

/// Adds the remedy to an error if it means that the kernel cannot load the modules that list sockets.
fn told(e: io::Error) -> io::Error {
    let missing = [libc::EOPNOTSUPP, libc::ENOENT, libc::EPROTONOSUPPORT];
    if !e.raw_os_error().is_some_and(|code| missing.contains(&code)) {
        return e;
    }
    let text =
        format!("the kernel cannot list sockets ({e}); as root: modprobe -a tcp_diag unix_diag");
    io::Error::new(e.kind(), text)
}

fn list_all() -> io::Result<Vec<Socket>> {
    let netlink = open_diag()?;
    let mut all = Vec::new();
    list_tcp(&netlink, ALL_STATES, |s| all.push(s))?;
    // struct unix_diag_req: family, protocol, padding, states, inode, wanted attributes, cookie.
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [u32::MAX, 0, 1 | 4, 0, 0] {
        request.extend(word.to_ne_bytes());
    }
    dump(&netlink, TYPE_SOCK_DIAG, &request, |body| {
        all.extend(unix(body))
    })?;
    Ok(all)
}

fn dump(netlink: &OwnedFd, kind: u16, request: &[u8], take: impl FnMut(&[u8])) -> io::Result<()> {
    let request = Request {
        kind,
        flags: FLAGS_DUMP,
        body: request,
    };
    exchange(netlink, &request, take)
}

/// A netlink request.
struct Request<'a> {
    /// Type of the message.
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

/// Sends a request and takes the answers: all of a dump, otherwise one.
fn exchange(
    netlink: &OwnedFd,
    request: &Request<'_>,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut message = Vec::new();
    message.extend((16 + request.body.len() as u32).to_ne_bytes());
    message.extend(request.kind.to_ne_bytes());
    message.extend(request.flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(request.body);
    send(netlink, &message, SendFlags::empty())?;
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let (n, _) = recv(netlink, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..n];
        while let Some(length) = word(rest, 0).map(|l| l as usize) {
            let Some(own) = rest.get(..length).filter(|m| m.len() >= 16) else {
                break;
            };
            match u16::from_ne_bytes([own[4], own[5]]) {
                DONE => return Ok(()),
                ERROR => {
                    let code = word(own, 16).unwrap_or(0) as i32;
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => take(&own[16..]),
            }
            if request.flags != FLAGS_DUMP {
                return Ok(());
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn double(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The attributes of a message: number and bytes.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*rest.first()?, *rest.get(1)?]));
        let number = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((number & 0x3fff, value))
    })
}

/// `struct inet_diag_msg`.
fn tcp(body: &[u8]) -> Option<Socket> {
    let end = |port_at: usize, at: usize| -> Option<SocketAddr> {
        let port = u16::from_be_bytes(body.get(port_at..port_at + 2)?.try_into().ok()?);
        let address: IpAddr = if i32::from(body[0]) == libc::AF_INET {
            Ipv4Addr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?).into()
        } else {
            Ipv6Addr::from(<[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?).into()
        };
        Some(SocketAddr::new(address, port))
    };
    let info = attributes(body.get(72..)?).find(|(number, _)| *number == ATTRIBUTE_TCP_INFO);
    let info = info.map(|(_, bytes)| bytes);
    // Fields of struct tcp_info: tcpi_last_data_sent, _data_recv and _ack_recv, tcpi_bytes_acked and _received.
    let last_ms = info.and_then(|i| Some((word(i, 44)?, word(i, 52)?, word(i, 56)?)));
    let bytes = info.and_then(|i| Some((double(i, 120)?, double(i, 128)?)));
    let state = *body.get(1)?;
    Some(Socket {
        cookie: double(body, 44)?,
        inode: word(body, 68)?,
        listens: state == TCP_LISTEN,
        state: TCP_STATES.get(usize::from(state)).unwrap_or(&""),
        queues: word(body, 56).zip(word(body, 60)),
        retransmits: info.and_then(|i| word(i, 100)).unwrap_or(0),
        held_back: info.and_then(held_back).unwrap_or(false),
        ends: Ends::Tcp {
            local: end(4, 8)?,
            peer: end(6, 24)?,
        },
        last_ms,
        bytes,
    })
}

/// Whether Nagle's algorithm holds data back, by `struct tcp_info`. Neither the receiver's window nor the
/// network's can be the reason for holding back less than a segment: more than that is in flight, or was before.
fn held_back(info: &[u8]) -> Option<bool> {
    let (segment, unacknowledged) = (word(info, 16)?, word(info, 24)?);
    let (window, unsent) = (word(info, 80)?, word(info, 144)?);
    Some(unsent > 0 && unsent < segment && (1..window).contains(&unacknowledged))
}

/// `struct unix_diag_msg`.
fn unix(body: &[u8]) -> Option<Socket> {
    let kind = i32::from(*body.get(1)?);
    if kind != libc::SOCK_STREAM && kind != libc::SOCK_SEQPACKET {
        return None;
    }
    let (mut path, mut peer_inode) = (None, 0);
    for (number, value) in attributes(body.get(16..)?) {
        match number {
            0 => {
                let text = match value {
                    [0, name @ ..] => format!("@{}", String::from_utf8_lossy(name)),
                    name => String::from_utf8_lossy(name).into_owned(),
                };
                path = Some(text.trim_end_matches('\0').to_string());
            }
            2 => peer_inode = word(value, 0).unwrap_or(0),
            _ => {}
        }
    }
    Some(Socket {
        cookie: double(body, 8)?,
        inode: word(body, 4)?,
        listens: *body.get(2)? == TCP_LISTEN,
        state: "",
        queues: None,
        retransmits: 0,
        held_back: false,
        ends: Ends::Unix { path, peer_inode },
        last_ms: None,
        bytes: None,
    })
}

/// Inodes of the sockets that a process has open.
pub fn of_process(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    entries
        .filter_map(|e| inode_of(&fs::read_link(e.ok()?.path()).ok()?))
        .collect()
}

/// The inode of the socket that a descriptor's link in `/proc` names, if it names one.
pub fn inode_of(link: &Path) -> Option<u32> {
    let text = link.to_str()?;
    text.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// The processes that have each socket open, if this process may see them.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// The first two processes by inode; the second is 0 if there is only one.
    first_two: FxHashMap<u32, (u32, u32)>,
}

impl Owners {
    /// A process that has the socket of this inode open, preferably not `pid`: children inherit both ends of a
    /// pair, and often leave both open.
    pub fn other_than(&self, pid: u32, inode: u32) -> Option<u32> {
        let (first, second) = *self.first_two.get(&inode)?;
        Some(match first == pid && second > 0 {
            true => second,
            false => first,
        })
    }

    fn add(&mut self, inode: u32, pid: u32) {
        let (first, second) = self.first_two.entry(inode).or_insert((pid, 0));
        if *first != pid && *second == 0 {
            *second = pid;
        }
    }
}

/// Finds the processes that have sockets open.
pub fn owners() -> Owners {
    let mut owners = Owners::default();
    for pid in crate::process::processes().unwrap_or_default() {
        for inode in of_process(pid) {
            owners.add(inode, pid);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn find_listener(sockets: &[Socket], at: SocketAddr) -> &Socket {
        let same = |s: &&Socket| matches!(&s.ends, Ends::Tcp { local, .. } if *local == at);
        sockets.iter().find(same).expect("it listens")
    }

    #[test]
    fn of_several_who_have_a_socket_the_other_one_is_asked_for() {
        let mut owners = Owners::default();
        for (inode, pid) in [(5, 10), (5, 10), (5, 11), (5, 12), (6, 10)] {
            owners.add(inode, pid);
        }
        assert_eq!(owners.other_than(10, 5), Some(11));
        assert_eq!(owners.other_than(11, 5), Some(10));
        assert_eq!(owners.other_than(10, 6), Some(10));
        assert_eq!(owners.other_than(10, 7), None);
    }

    #[test]
    fn a_connection_is_found_from_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        let sockets = match list() {
            Ok(sockets) => sockets,
            Err(e) => {
                eprintln!("skipped: no sock_diag here: {e}");
                return;
            }
        };
        let own = of_process(std::process::id());
        let find = |local: SocketAddr, peer: Option<SocketAddr>| {
            let same = |s: &&Socket| match &s.ends {
                Ends::Tcp { local: l, peer: p } => *l == local && peer.is_none_or(|q| *p == q),
                Ends::Unix { .. } => false,
            };
            sockets.iter().find(same).expect("it is open")
        };
        let (a, b) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let (ours, theirs) = (find(a, Some(b)), find(b, Some(a)));
        assert!(own.contains(&ours.inode) && own.contains(&theirs.inode));
        assert_ne!(ours.cookie, theirs.cookie);
        assert!(!ours.listens && sockets.iter().any(|s| s.listens));
        assert_eq!((ours.state, ours.queues), ("established", Some((0, 0))));
        let waiting = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let listeners = listening().unwrap();
        let at = find_listener(&listeners, listener.local_addr().unwrap());
        let (queued, room) = at.queues.expect("it is told");
        assert!(queued == 1 && room >= 1, "{queued} of {room}");
        drop(waiting);
        assert_eq!(theirs.bytes.map(|(_, received)| received), Some(8));
        assert_eq!(owners().other_than(0, ours.inode), Some(std::process::id()));
    }

    #[test]
    fn data_that_nagle_holds_back_is_told_from_a_full_window() {
        let info = |segment: u32, unacknowledged: u32, window: u32, unsent: u32| {
            let mut info = [0u8; 160];
            let places = [
                (16, segment),
                (24, unacknowledged),
                (80, window),
                (144, unsent),
            ];
            for (at, value) in places {
                info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            }
            held_back(&info)
        };
        assert_eq!(info(1448, 1, 10, 1), Some(true));
        // Nothing is unsent; a whole segment is unsent; the window is full.
        assert_eq!(info(1448, 1, 10, 0), Some(false));
        assert_eq!(info(1448, 1, 10, 1448), Some(false));
        assert_eq!(info(1448, 10, 10, 1), Some(false));
        assert_eq!(held_back(&[0; 100]), None);
    }
}
