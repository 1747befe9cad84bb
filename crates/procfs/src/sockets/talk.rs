//! Queries one connection: which end sent last, and how much. Takes a few microseconds, however many
//! connections there are.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use super::{
    ATTRIBUTE_TCP_INFO, Ends, Request, Socket, TCP, TYPE_SOCK_DIAG, attributes, double, exchange,
    open_diag, word,
};

/// `NLM_F_REQUEST`.
const FLAGS_ONE: u16 = 1;
const ATTRIBUTE_UNIX_QUEUES: u16 = 4;
const SHOW_UNIX_QUEUES: u32 = 0x10;

/// The kernel's counters of the data that went over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// Counters of a TCP connection.
    Tcp {
        /// How long ago data was last sent, received, and acknowledged by the other side, ms. The
        /// kernel dates them by its tick.
        ago_ms: (u32, u32, u32),
        /// Bytes that were sent and acknowledged (with the connection's own SYN), and received.
        bytes: (u64, u64),
        /// Segments with data that were sent, and received. Written data that is held back counts as sent, such as
        /// the rest of an answer that Nagle's algorithm holds back.
        segments: (u32, u32),
        /// Whether something that was sent has not been acknowledged.
        unacknowledged: bool,
        /// Bytes that were received and have not been read.
        unread: u32,
    },
    /// Counters of a unix socket, which keeps no times.
    Unix {
        /// Bytes that were received and have not been read.
        unread: u32,
        /// Memory of the data that was sent and that the other side has not read, bytes.
        unread_there: u32,
    },
}

/// Asks the kernel for single sockets.
pub struct Asker {
    netlink: OwnedFd,
}

impl Asker {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has no `sock_diag`, or refuses it.
    pub fn open() -> io::Result<Asker> {
        Ok(Asker {
            netlink: open_diag()?,
        })
    }

    /// The present counters of `socket`; `None`: it is gone, or the kernel gave none.
    pub fn talk(&self, socket: &Socket) -> Option<Talk> {
        match &socket.ends {
            Ends::Tcp { local, peer } => self.tcp(*local, *peer, socket.cookie),
            Ends::Unix { .. } => self.unix(socket),
        }
    }

    fn ask(&self, request: &[u8], mut read: impl FnMut(&[u8]) -> Option<Talk>) -> Option<Talk> {
        let mut talk = None;
        let take = |body: &[u8]| talk = read(body);
        let request = Request {
            kind: TYPE_SOCK_DIAG,
            flags: FLAGS_ONE,
            body: request,
        };
        let done = exchange(&self.netlink, &request, take);
        done.ok().and(talk)
    }

    fn tcp(&self, local: SocketAddr, peer: SocketAddr, cookie: u64) -> Option<Talk> {
        let family = match local {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        // struct inet_diag_req_v2: family, protocol, extensions, padding, states, address.
        let mut request = vec![family as u8, TCP, 1 << (ATTRIBUTE_TCP_INFO - 1), 0];
        request.extend(u32::MAX.to_ne_bytes());
        request.extend(local.port().to_be_bytes());
        request.extend(peer.port().to_be_bytes());
        for end in [local.ip(), peer.ip()] {
            let mut bytes = [0u8; 16];
            match end {
                IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => bytes = v6.octets(),
            }
            request.extend(bytes);
        }
        request.extend(0u32.to_ne_bytes());
        request.extend(cookie.to_ne_bytes());
        self.ask(&request, tcp_talk)
    }

    fn unix(&self, socket: &Socket) -> Option<Talk> {
        // struct unix_diag_req: family, protocol, padding, states, inode, wanted attributes, cookie.
        let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
        for part in [u32::MAX, socket.inode, SHOW_UNIX_QUEUES] {
            request.extend(part.to_ne_bytes());
        }
        request.extend(socket.cookie.to_ne_bytes());
        self.ask(&request, |body| {
            let queues = attributes(body.get(16..)?).find(|(n, _)| *n == ATTRIBUTE_UNIX_QUEUES);
            let (_, queues) = queues?;
            Some(Talk::Unix {
                unread: word(queues, 0)?,
                unread_there: word(queues, 4)?,
            })
        })
    }
}

/// `struct inet_diag_msg` with `struct tcp_info`.
fn tcp_talk(body: &[u8]) -> Option<Talk> {
    let (_, info) =
        attributes(body.get(72..)?).find(|(number, _)| *number == ATTRIBUTE_TCP_INFO)?;
    let held_back = word(info, 144)?.div_ceil(word(info, 16)?.max(1));
    let sent = word(info, 156)?.wrapping_add(held_back);
    Some(Talk::Tcp {
        ago_ms: (word(info, 44)?, word(info, 52)?, word(info, 56)?),
        bytes: (double(info, 120)?, double(info, 128)?),
        segments: (sent, word(info, 152)?),
        unacknowledged: word(info, 24)? > 0,
        unread: word(body, 56)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::{list, of_process};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    fn own() -> Option<(Asker, Vec<Socket>)> {
        let (Ok(asker), Ok(all)) = (Asker::open(), list()) else {
            println!("skipped: no sock_diag here");
            return None;
        };
        let inodes = of_process(std::process::id());
        let own = all.into_iter().filter(|s| inodes.contains(&s.inode));
        Some((asker, own.collect()))
    }

    #[test]
    fn both_ends_of_a_connection_tell_what_went_over_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 4]).unwrap();
        let Some((asker, own)) = own() else { return };
        let of = |at: SocketAddr, to: SocketAddr| {
            let same = |s: &&Socket| matches!(&s.ends, Ends::Tcp { local, peer } if (*local, *peer) == (at, to));
            asker.talk(own.iter().find(same).expect("it is open"))
        };
        let (a, b) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let Some(Talk::Tcp {
            segments, bytes, ..
        }) = of(a, b)
        else {
            panic!("a TCP connection");
        };
        assert_eq!((segments, bytes.1), ((1, 0), 0));
        let Some(Talk::Tcp {
            segments,
            bytes,
            unread,
            ..
        }) = of(b, a)
        else {
            panic!("a TCP connection");
        };
        assert_eq!((segments, bytes.1, unread), ((0, 1), 8, 4));
    }

    #[test]
    fn what_is_held_back_counts_as_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap();
        let on = 1;
        // SAFETY: the value is an int, as the option wants it, and outlives the call.
        let corked = unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&client),
                libc::IPPROTO_TCP,
                libc::TCP_CORK,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(corked, 0);
        client.write_all(b"half an answer").unwrap();
        let Some((asker, own)) = own() else { return };
        let at = client.local_addr().unwrap();
        let same = |s: &&Socket| matches!(&s.ends, Ends::Tcp { local, .. } if *local == at);
        let talk = asker.talk(own.iter().find(same).expect("it is open"));
        let Some(Talk::Tcp { segments, .. }) = talk else {
            panic!("a TCP connection");
        };
        assert_eq!(segments, (1, 0));
    }

    #[test]
    fn unix_sockets_tell_what_is_unread() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(b"four").unwrap();
        let Some((asker, own)) = own() else { return };
        let inode = |s: &UnixStream| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(s);
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            crate::sockets::inode_of(&link).unwrap()
        };
        let of = |s: &UnixStream| {
            let inode = inode(s);
            asker.talk(own.iter().find(|s| s.inode == inode).expect("it is open"))
        };
        let Some(Talk::Unix { unread, .. }) = of(&there) else {
            panic!("a unix socket");
        };
        assert_eq!(unread, 4);
        let Some(Talk::Unix {
            unread,
            unread_there,
        }) = of(&here)
        else {
            panic!("a unix socket");
        };
        assert!(unread == 0 && unread_there > 0);
    }
}
