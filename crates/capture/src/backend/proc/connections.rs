//! Connections of the watched processes by polling them: the peer, and whether a request is in flight.
//!
//! There is no event for a send or a receive here. For each TCP connection the kernel keeps when data last went either
//! way (by its tick, some milliseconds), and the number of segments. The side that received last has to send next. A
//! unix socket shows its queues only: unread data is in flight, and without any the state is not known. Every round of
//! polls reads some of the connections. The state that a poll finds stands for the time since the last poll of that
//! connection. Requests are counted by segments: one direction mostly has one segment for each request.
//!
//! The thread of a request cannot be seen. A wait is taken to be for the connections that its call names (a
//! descriptor, a poll list, an epoll set). A wait that names only listening sockets has nothing in flight. Any other
//! wait that names no connection has nothing in flight if its process has nothing in flight, and is not judged
//! otherwise.
//!
//! Connections that come and go between two listings (a second; 10 ms or more if a wait names a new one) are not seen.

use std::{collections::HashSet, fs, io};

use rustc_hash::FxHashMap;
use wallscope_model::WaitSeen;
use wallscope_procfs::sockets::{self, Asker, Ends, Socket};

use super::{connection::Connection, polled, waiting::Call};
use crate::{
    clock,
    event::SocketRecord,
    session::peers::{self, Listening, Lookup},
    syscalls::{self, Argument},
};

/// Least time between two listings, ns; they take a hundredth of the time at most.
const LIST_EVERY: u64 = 1_000_000_000;
/// Least time between two listings, ns, where a wait names a connection that no listing has shown yet.
const LIST_SOON: u64 = 10_000_000;
const LIST_SHARE: u64 = 100;
/// Connections that are asked for in one round.
const EACH_ROUND: usize = 8;
/// Least time for which an epoll set is believed to stay the same, ns. Reading sets takes at most a two-hundredth of
/// the time.
const SET_LASTS: u64 = 10_000_000;
const SET_SHARE: u64 = 200;

/// Kind of a socket of a watched process at the last listing.
enum Known {
    /// A connection, by its cookie.
    Connection(u64),
    /// It listens, and will never be a connection.
    Listens,
    /// Not connected yet, or nothing that is.
    Other,
}

/// Results of polling connections.
pub struct PolledConnections {
    /// The connections, in the order of their cookies.
    pub all: Vec<SocketRecord>,
    /// The process at the other end of each at the start, by cookie.
    pub others: Vec<(u64, (u32, String))>,
}

/// The connections of the watched processes.
pub struct Connections {
    asker: Option<Asker>,
    /// By cookie.
    open: FxHashMap<u64, Connection>,
    gone: Vec<SocketRecord>,
    /// The watched processes' sockets, by inode.
    inodes: FxHashMap<u32, Known>,
    /// Epoll sets by process and descriptor: until when they are believed, and the inodes of their sockets.
    sets: FxHashMap<(u32, u32), (u64, Vec<u32>)>,
    talkers: HashSet<u32>,
    arguments: [u8; syscalls::TABLE],
    /// Connections of the next rounds, in the order of cookies.
    turn: Vec<u64>,
    /// When to list again: `soon_ns` if a wait named an unknown connection, `due_ns` in any case.
    soon_ns: u64,
    due_ns: u64,
    /// A wait named a connection that is not known yet.
    wanted: bool,
    /// When they were listed the first time.
    begun_ns: Option<u64>,
    /// The other end at the start, by cookie.
    others: FxHashMap<u64, (u32, String)>,
    /// Number of polls of connections so far.
    pub asked: u64,
    /// Why connections cannot be polled.
    pub problem: Option<String>,
}

impl Connections {
    /// Begins with the connections that `pids` have now.
    pub fn begin(pids: &[u32], now: u64) -> Connections {
        let mut all = Connections {
            asker: None,
            open: FxHashMap::default(),
            gone: Vec::new(),
            inodes: FxHashMap::default(),
            sets: FxHashMap::default(),
            talkers: HashSet::new(),
            arguments: syscalls::arguments(),
            turn: Vec::new(),
            soon_ns: 0,
            due_ns: now,
            wanted: false,
            begun_ns: None,
            others: FxHashMap::default(),
            asked: 0,
            problem: None,
        };
        let begun = Asker::open().and_then(|asker| {
            all.asker = Some(asker);
            all.list(pids.iter().copied(), now)
        });
        // The time of the first listing is no part of the recording.
        all.soon_ns = now;
        match begun {
            Ok(listed) if !all.open.is_empty() => {
                let owners = sockets::owners();
                let lookup = Lookup {
                    sockets: &listed,
                    owners: &owners,
                };
                let other = |c: &Connection| Some((c.record.cookie, lookup.other_end(&c.record)?));
                all.others = all.open.values().filter_map(other).collect();
            }
            Ok(_) => {}
            Err(e) => all.problem = Some(e.to_string()),
        }
        all
    }

    /// Lists sockets to find new connections, if it is time to.
    pub fn follow(&mut self, pids: impl Iterator<Item = u32>, now: u64) {
        let soon = self.wanted && now >= self.soon_ns;
        if self.problem.is_some() || (now < self.due_ns && !soon) {
            return;
        }
        // If a later listing is refused, known connections stay known.
        let _ = self.list(pids, now);
    }

    fn list(&mut self, pids: impl Iterator<Item = u32>, now: u64) -> io::Result<Vec<Socket>> {
        let of = |pid| sockets::of_process(pid).into_iter().map(move |i| (pid, i));
        let own: Vec<(u32, u32)> = pids.flat_map(of).collect();
        self.wanted = false;
        self.sets.clear();
        // The kernel scans all its tables for a listing, however short that is.
        let known = |inode| !matches!(self.inodes.get(inode), None | Some(Known::Other));
        let nothing_new = own.iter().all(|(_, inode)| known(inode));
        let all = match nothing_new {
            true => Vec::new(),
            false => sockets::list()?,
        };
        let took = clock::now().saturating_sub(now);
        self.soon_ns = now + LIST_SOON.max(took * LIST_SHARE);
        self.due_ns = self.soon_ns.max(now + LIST_EVERY);
        if nothing_new {
            return Ok(all);
        }
        let by_inode: FxHashMap<u32, &Socket> = all.iter().map(|s| (s.inode, s)).collect();
        let listening = Listening::of(&all);
        self.inodes.clear();
        for (pid, inode) in own {
            let socket = by_inode.get(&inode);
            if socket.is_some() {
                self.talkers.insert(pid);
            }
            let connected = socket.filter(|s| !s.listens && is_connected(s));
            let known = match (connected, socket) {
                (Some(s), _) => Known::Connection(s.cookie),
                (None, Some(s)) if s.listens => Known::Listens,
                _ => Known::Other,
            };
            self.inodes.insert(inode, known);
            let Some(socket) = connected.filter(|s| !self.open.contains_key(&s.cookie)) else {
                continue;
            };
            if let Some(mut record) = peers::record(socket, pid, &listening, now) {
                // These figures are counted by the polls from here on.
                (record.since, record.requests) = (0, 0);
                let mut connection = Connection::new(socket, record, now);
                if let Some(talk) = self.asker.as_ref().and_then(|a| a.talk(socket)) {
                    connection.take(&talk, now);
                    if let Some(begun) = self.begun_ns {
                        connection.was_asked(&talk, now.saturating_sub(begun));
                    }
                    self.open.insert(socket.cookie, connection);
                    self.turn.push(socket.cookie);
                }
            }
        }
        self.begun_ns.get_or_insert(now);
        Ok(all)
    }

    /// One round: polls the connections that are due.
    pub fn poll(&mut self, now: u64) {
        let Some(asker) = &self.asker else { return };
        let round = EACH_ROUND.min(self.turn.len());
        let mut again = Vec::with_capacity(round);
        for cookie in self.turn.drain(..round) {
            let Some(connection) = self.open.get_mut(&cookie) else {
                continue;
            };
            self.asked += 1;
            match asker.talk(&connection.socket) {
                Some(talk) => {
                    connection.take(&talk, now);
                    again.push(cookie);
                }
                None => self
                    .gone
                    .extend(self.open.remove(&cookie).map(Connection::ended)),
            }
        }
        self.turn.append(&mut again);
    }

    /// State of the connections that a call of a thread of `pid` waits for.
    pub fn seen(&mut self, pid: u32, call: Option<Call>, now: u64) -> WaitSeen {
        let talks = self.talkers.contains(&pid);
        if self.asker.is_none() || self.problem.is_some() {
            return WaitSeen {
                in_flight: None,
                awaits: false,
                talks,
            };
        }
        let (named, alone) = call.map_or_else(Default::default, |c| self.named(pid, c, now));
        let mut known = Some(false);
        let (mut any, mut awaits, mut new) = (false, false, false);
        let (mut listens, mut other) = (false, false);
        for inode in named {
            let state = match self.inodes.get(&inode) {
                Some(Known::Listens) => {
                    listens = true;
                    continue;
                }
                Some(Known::Other) => {
                    other = true;
                    continue;
                }
                Some(Known::Connection(cookie)) => {
                    let open = self.open.get(cookie);
                    // A thread that reads the connection waits for just that.
                    let awaits = |c: &Connection| alone && c.overdue && c.record.inbound == 0;
                    open.and_then(|c| if awaits(c) { Some(true) } else { c.pending })
                }
                None => {
                    self.wanted = true;
                    new = true;
                    None
                }
            };
            any = true;
            awaits |= state == Some(true) && self.asks(inode);
            known = match (known, state) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            };
        }
        // The process may have asked this peer a moment ago.
        if new && !awaits {
            known = None;
        }
        if !any && listens && !other {
            // It waits for the next connection, whatever other threads of its process do.
            known = Some(false);
        } else if !any {
            let own = self.open.values().filter(|c| c.record.pid == pid);
            let all_quiet = own.clone().all(|c| c.pending == Some(false));
            known = all_quiet.then_some(false);
        }
        WaitSeen {
            in_flight: known,
            awaits: awaits && known == Some(true),
            talks,
        }
    }

    /// Whether requests on the connection of that inode are the process's own.
    fn asks(&self, inode: u32) -> bool {
        let Some(Known::Connection(cookie)) = self.inodes.get(&inode) else {
            return false;
        };
        let open = self.open.get(cookie);
        open.is_some_and(|c| c.record.inbound == 0)
    }

    /// Inodes of the sockets that a call names, and whether it is for one descriptor alone.
    fn named(&mut self, pid: u32, call: Call, now: u64) -> (Vec<u32>, bool) {
        let argument = self.arguments.get(call.number as usize).copied();
        match argument {
            Some(a) if a == Argument::Descriptor as u8 => {
                // Descriptors are ints: the upper half of the register means nothing.
                let fd = call.arguments[0] as u32;
                match socket_of(pid, fd) {
                    Some(inode) => (vec![inode], true),
                    None => (self.set(pid, fd, now), false),
                }
            }
            Some(a) if a == Argument::PollList as u8 => {
                let list = polled::list(pid, call);
                let alone = list.len() == 1;
                let sockets = list.into_iter().filter_map(|fd| socket_of(pid, fd));
                (sockets.collect(), alone)
            }
            _ => Default::default(),
        }
    }

    /// The sockets of an epoll set.
    fn set(&mut self, pid: u32, fd: u32, now: u64) -> Vec<u32> {
        if let Some((until, inodes)) = self.sets.get(&(pid, fd))
            && now < *until
        {
            return inodes.clone();
        }
        let began = clock::now();
        let members = polled::set(pid, fd).into_iter();
        let inodes: Vec<u32> = members.filter_map(|fd| socket_of(pid, fd)).collect();
        let took = clock::now().saturating_sub(began);
        let until = now + SET_LASTS.max(took * SET_SHARE);
        self.sets.insert((pid, fd), (until, inodes.clone()));
        inodes
    }

    /// What polls have found so far.
    pub fn so_far(&self) -> PolledConnections {
        let open = self.open.values().map(|c| c.record);
        let mut all: Vec<SocketRecord> = self.gone.iter().copied().chain(open).collect();
        all.sort_by_key(|s| s.cookie);
        // A connection that seemed to be gone and was listed again is one connection.
        all.dedup_by(|again, s| {
            let is_same = again.cookie == s.cookie;
            if is_same {
                s.in_flight = s.in_flight.saturating_add(again.in_flight);
                s.requests = s.requests.saturating_add(again.requests);
            }
            is_same
        });
        let mut others: Vec<_> = (self.others.iter())
            .map(|(cookie, process)| (*cookie, process.clone()))
            .collect();
        others.sort_unstable();
        PolledConnections { all, others }
    }
}

/// Whether a socket has a peer.
fn is_connected(socket: &Socket) -> bool {
    match &socket.ends {
        Ends::Tcp { peer, .. } => peer.port() != 0,
        Ends::Unix { peer_inode, .. } => *peer_inode != 0,
    }
}

fn socket_of(pid: u32, fd: u32) -> Option<u32> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    sockets::inode_of(&link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_an_unlisted_connection_is_not_known_to_be_owed_only() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let own = std::process::id();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut caller = std::net::TcpStream::connect(at).unwrap();
        let (served, _) = listener.accept().unwrap();
        caller.write_all(b"question").unwrap();
        let mut all = Connections::begin(&[own], clock::now());
        if all.problem.is_some() {
            eprintln!("skipped: no sock_diag here");
            return;
        }
        let polled = |fds: &[i32]| -> Vec<libc::pollfd> {
            let row = |fd: &i32| libc::pollfd {
                fd: *fd,
                events: libc::POLLIN,
                revents: 0,
            };
            fds.iter().map(row).collect()
        };
        let mut seen = |list: &[libc::pollfd]| {
            let call = Call {
                number: libc::SYS_poll as u32,
                arguments: [list.as_ptr() as u64, list.len() as u64, 1000, 0, 0],
            };
            all.seen(own, Some(call), clock::now())
        };
        let known = seen(&polled(&[served.as_raw_fd()]));
        assert_eq!((known.in_flight, known.awaits), (Some(true), false));
        // A thread that takes new connections owes nothing. A wait that names no socket is not judged.
        assert_eq!(
            seen(&polled(&[listener.as_raw_fd()])).in_flight,
            Some(false)
        );
        assert_eq!(seen(&polled(&[])).in_flight, None);
        // The upstream that the process asks by then.
        let upstream = std::net::TcpStream::connect(at).unwrap();
        let both = seen(&polled(&[served.as_raw_fd(), upstream.as_raw_fd()]));
        assert_eq!((both.in_flight, both.awaits), (None, false));
    }
}
