//! Requests between processes: the kernel's map of connections as peers of the recording.
//!
//! At the start, existing connections are put into the map with the facts that `sock_diag` has of them (which side
//! sent last). At the end, connections in the map and those that have gone are summed by process and peer.
//! The process at the other end is looked up on this machine: its socket has the same ends the other way
//! round.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use wallscope_procfs::kernel_file;

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, Peer, PeerStack, Recording, WaitSeen};
use wallscope_observe::{Connected, OtherEnd};
use wallscope_procfs::sockets::{self, Ends, Owners, Socket};

use super::{
    accounts::Accounts,
    naming::HostNames,
    sample_key::{SampleKey, UserPart},
};
use crate::{
    backend::ebpf::Programs,
    event::{SOCKET_OF_PROCESS, SocketRecord},
};

mod preexisting_connections;

/// Maximum age of a request from before the recording that still counts as unanswered, ms.
const BELIEVED_MS: u32 = 60_000;
/// Messages counted on a connection without any answer when the recording begins. One more, and the
/// connection is one-way (`WS_ONE_WAY_MESSAGES`).
const UNANSWERED: u32 = 7;

/// Connections seen so far, and the requests on them.
#[derive(Default)]
pub struct Peers {
    /// Connections that have gone.
    gone: Vec<SocketRecord>,
    /// Last sender with a sampled stack, by connection.
    asked: FxHashMap<u64, (u64, UserPart)>,
    /// Number and total time of the answered sampled requests, by connection, thread and stack.
    answered: FxHashMap<(u64, u64, UserPart), (u64, u64)>,
    /// Processes that have a stream socket.
    talkers: HashSet<u32>,
    /// Process at the other end of each connection at the start, by cookie.
    others: FxHashMap<u64, (u32, String)>,
    /// Connections in the map, as they were last, by cookie.
    open: BTreeMap<u64, SocketRecord>,
    /// Whether the kernel reports each send and receive.
    followed: bool,
}

/// Connections found before the first record was made.
#[derive(Default)]
pub struct Before {
    /// Processes that talk.
    pub connected: Connected,
    /// The other ends of their connections.
    pub others: Vec<OtherEnd>,
    /// Reason why connections that existed before are not known.
    pub problem: Option<String>,
}

impl Before {
    /// Puts the connections that `pids` have into the kernel's map; before the first record is made.
    pub fn find(programs: &mut Programs, pids: &[u32], now: u64) -> Before {
        let mut found = Before::default();
        let before = match sockets::list() {
            Ok(all) => all,
            Err(e) => {
                found.problem = Some(format!(
                    "connections that existed before the recording are not known: {e}"
                ));
                return found;
            }
        };
        let by_inode: FxHashMap<u32, &Socket> = before.iter().map(|s| (s.inode, s)).collect();
        let listening = Listening::of(&before);
        let mut connected = Vec::new();
        let mut old = 0;
        for pid in pids {
            let mut readers = preexisting_connections::Readers::of(*pid);
            for inode in sockets::of_process(*pid) {
                let Some(socket) = by_inode.get(&inode) else {
                    continue;
                };
                found.connected.talkers.push(*pid);
                if socket.listens {
                    continue;
                }
                let Some(mut record) = record(socket, *pid, &listening, now) else {
                    continue;
                };
                if record.since == 0 && listening.may_be_asked(socket, &record) {
                    readers.asked(
                        inode,
                        &mut record,
                        now,
                        socket.last_ms.map(|(sent, ..)| sent),
                    );
                }
                connected.push(record);
                old += u32::from(programs.put_socket(&record) && record.since > 0);
            }
        }
        found.connected.talkers.sort_unstable();
        found.connected.talkers.dedup();
        programs.set_old_requests(old);
        if !connected.is_empty() {
            let owners = sockets::owners();
            let lookup = Lookup {
                sockets: &before,
                owners: &owners,
            };
            let other = |s: &SocketRecord| OtherEnd {
                cookie: s.cookie,
                process: lookup.other_end(s),
                before: true,
            };
            found.others = connected.iter().map(other).collect();
            found.others.retain(|end| end.process.is_some());
        }
        found
    }
}

impl Peers {
    /// Takes over the processes that have stream sockets.
    pub fn connected(&mut self, connected: &Connected) {
        self.followed = connected.followed;
        self.talkers.extend(&connected.talkers);
    }

    /// Notes the state of an open connection.
    pub fn open(&mut self, record: SocketRecord) {
        self.open.insert(record.cookie, record);
    }

    /// Notes that a connection has gone.
    pub fn gone(&mut self, record: SocketRecord) {
        self.open.remove(&record.cookie);
        self.gone.push(record);
    }

    /// Notes the process at the other end of a connection before the recording.
    pub fn other_end(&mut self, end: &OtherEnd) {
        self.others
            .extend(end.process.clone().map(|process| (end.cookie, process)));
    }

    /// Forgets an ended process.
    pub fn forget(&mut self, pid: u32) {
        self.talkers.remove(&pid);
    }

    /// Forgets the connections that have gone: windows have no peers.
    pub fn end_window(&mut self) {
        for record in self.gone.drain(..) {
            self.asked.remove(&record.cookie);
            self.others.remove(&record.cookie);
        }
        self.answered.clear();
    }

    /// Returns the observations of the connections of a thread of `pid` in the waits of `key`.
    pub fn seen(&self, key: &SampleKey, pid: u32) -> WaitSeen {
        WaitSeen {
            in_flight: self.followed.then_some(key.in_flight),
            awaits: key.awaits,
            talks: key.talks || self.talkers.contains(&pid),
        }
    }

    /// Notes the stack of a sampled sender.
    pub fn asked(&mut self, cookie: u64, id: u64, user: UserPart) {
        self.asked.insert(cookie, (id, user));
    }

    /// Notes that a sampled request was answered after `ns`.
    pub fn answered(&mut self, cookie: u64, id: u64, ns: u64) {
        if let Some((_, user)) = self.asked.get(&cookie).filter(|(asker, _)| *asker == id) {
            let sum = self.answered.entry((cookie, id, *user)).or_default();
            sum.0 += 1;
            sum.1 += ns;
        }
    }

    /// Returns the peers. `now`: the end of the window. `stack` makes a sender's stack a stack of the
    /// recording.
    pub fn finish(
        self,
        now: u64,
        accounts: &Accounts,
        names: &dyn HostNames,
        mut stack: impl FnMut(UserPart, u32) -> wallscope_model::StackId,
    ) -> Vec<Peer> {
        let open = self.open.into_values();
        let mut all: Vec<SocketRecord> = self.gone.into_iter().chain(open).collect();
        end_with_processes(&mut all, accounts);
        let mut found = FoundPeers::new(&all, &self.others, now, &|s| names.other_end(s));
        let mut sums: Vec<_> = self.answered.into_iter().collect();
        sums.sort_unstable_by_key(|(key, (_, ns))| (std::cmp::Reverse(*ns), *key));
        for ((cookie, id, user), (requests, ns)) in sums {
            let (Some(peer), Some(context)) = (found.with(cookie), accounts.index(id)) else {
                continue;
            };
            let stack = stack(user, context);
            let context = ContextId(context);
            let same = |s: &&mut PeerStack| (s.context, s.stack) == (context, stack);
            match peer.stacks.iter_mut().find(same) {
                Some(s) => {
                    s.requests += requests;
                    s.ns += ns;
                }
                None => peer.stacks.push(PeerStack {
                    context,
                    stack,
                    requests,
                    ns,
                }),
            }
        }
        found.peers()
    }
}

/// Ends the open requests of processes that have ended. The kernel tells the end of a TCP connection alone.
fn end_with_processes(all: &mut [SocketRecord], accounts: &Accounts) {
    let open = |s: &&mut SocketRecord| s.since > 0;
    let mut ends: FxHashMap<u32, u64> = (all.iter_mut().filter(open).map(|s| (s.pid, 0))).collect();
    for index in 0..accounts.len() as u32 {
        if let Some(end) = ends.get_mut(&accounts.pid(index)) {
            *end = (*end).max(accounts.end(index));
        }
    }
    for s in all.iter_mut().filter(open) {
        let end = ends[&s.pid];
        // No thread of it is known, or it lives.
        if (1..u64::MAX).contains(&end) {
            s.in_flight += end.saturating_sub(s.since);
            s.since = 0;
        }
    }
}

/// A process, whether it asks, and its peer's address.
type PeerKey = (u32, bool, String);

/// Connections added up by process and peer.
pub(crate) struct FoundPeers {
    peers: BTreeMap<PeerKey, Peer>,
    /// Place of each connection, by cookie.
    places: FxHashMap<u64, PeerKey>,
}

impl FoundPeers {
    /// Adds up the connections in `all` that carried a request. `others`: the processes at the other ends at
    /// the start, by cookie; `other_end` looks up the rest. `now`: the time up to which open requests count.
    pub fn new(
        all: &[SocketRecord],
        others: &FxHashMap<u64, (u32, String)>,
        now: u64,
        other_end: &dyn Fn(&SocketRecord) -> Option<(u32, String)>,
    ) -> FoundPeers {
        let mut found = FoundPeers {
            peers: BTreeMap::new(),
            places: FxHashMap::default(),
        };
        let accepted = Accepted::among(all);
        for s in all {
            let running = if s.since > 0 {
                now.saturating_sub(s.since)
            } else {
                0
            };
            if s.requests == 0 && running == 0 && s.in_flight == 0 {
                continue;
            }
            let key = (s.pid, s.inbound == 0, address(s));
            found.places.insert(s.cookie, key.clone());
            let peer = (found.peers.entry(key)).or_insert_with_key(|(pid, asks, address)| Peer {
                pid: *pid,
                asks: *asks,
                address: Arc::from(address.as_str()),
                ..Peer::default()
            });
            peer.connections += 1;
            peer.requests += u64::from(s.requests);
            peer.requests_at_least |= s.at_least != 0;
            peer.in_flight_ns += s.in_flight + running;
            if peer.peer_pid == 0
                && let Some((pid, name)) = (others.get(&s.cookie).cloned())
                    // A process that had both ends at the start may have handed one on.
                    .filter(|(pid, _)| *pid != s.pid)
                    .or_else(|| other_end(s))
            {
                (peer.peer_pid, peer.peer_name) = (pid, Arc::from(name));
            } else if peer.peer_pid == 0 {
                peer.peer_pid = accepted.other_end(s);
            }
        }
        found
    }

    /// The peer at the other end of a connection.
    fn with(&mut self, cookie: u64) -> Option<&mut Peer> {
        self.peers.get_mut(self.places.get(&cookie)?)
    }

    /// The peers, those with the longest waits first.
    pub fn peers(self) -> Vec<Peer> {
        let mut peers: Vec<Peer> = self.peers.into_values().collect();
        peers.sort_by_key(|p| std::cmp::Reverse(p.in_flight_ns));
        peers
    }
}

/// Gives peers that are known by their id alone the names of the processes in `recording`.
pub(crate) fn name_measured(recording: &mut Recording) {
    let processes = &recording.processes;
    for peer in &mut recording.peers {
        let nameless = peer.peer_pid != 0 && peer.peer_name.is_empty();
        if let Some(process) = processes
            .iter()
            .find(|p| nameless && p.pid == peer.peer_pid)
        {
            peer.peer_name = process.name.clone();
        }
    }
}

/// Processes of the recording by the connections that they accepted. They are known even where they have ended, and
/// the host lists their sockets no more.
struct Accepted<'a> {
    /// By own port and address of the other end: a connection within a host has one address at both ends, or
    /// loopback. `None`: several processes, as in containers that use the same port.
    by_port: FxHashMap<(u16, &'a [u8; 16]), Option<u32>>,
}

impl Accepted<'_> {
    fn among(all: &[SocketRecord]) -> Accepted<'_> {
        let mut by_port = FxHashMap::default();
        let tcp = |s: &&SocketRecord| s.inbound != 0 && s.local_port != 0;
        for s in all.iter().filter(tcp) {
            let pid = by_port.entry((s.local_port, &s.peer));
            let pid = pid.or_insert(Some(s.pid));
            *pid = pid.filter(|pid| *pid == s.pid);
        }
        Accepted { by_port }
    }

    /// The process that accepted a connection that `s` made; 0: it is not in the recording.
    fn other_end(&self, s: &SocketRecord) -> u32 {
        let accepted = self.by_port.get(&(s.peer_port, &s.peer));
        let accepted = accepted.filter(|_| s.inbound == 0 && s.peer_port != 0);
        accepted.copied().flatten().unwrap_or(0)
    }
}

/// Ends at which connections are accepted.
pub(crate) struct Listening {
    ports: HashSet<u16>,
    paths: HashSet<String>,
    /// Inodes of the connections accepted at the paths.
    accepted: HashSet<u32>,
}

impl Listening {
    /// Collects the listening ends among `all`, the sockets of the machine.
    pub fn of(all: &[Socket]) -> Listening {
        let mut found = Listening {
            ports: HashSet::new(),
            paths: HashSet::new(),
            accepted: HashSet::new(),
        };
        for s in all.iter().filter(|s| s.listens) {
            match &s.ends {
                Ends::Tcp { local, .. } => {
                    found.ports.insert(local.port());
                }
                Ends::Unix { path, .. } => found.paths.extend(path.clone()),
            }
        }
        let accepted = |s: &&Socket| match &s.ends {
            Ends::Unix { path, .. } => path.as_ref().is_some_and(|p| found.paths.contains(p)),
            Ends::Tcp { .. } => false,
        };
        let accepted = all.iter().filter(|s| !s.listens).filter(accepted);
        found.accepted = accepted.map(|s| s.inode).collect();
        found
    }

    /// Whether the other end of a connection that the process made may owe it an answer from before, however
    /// old the request is. Nothing tells which side sent last on a unix socket.
    fn may_be_asked(&self, s: &Socket, record: &SocketRecord) -> bool {
        let asked = match &s.ends {
            Ends::Unix { peer_inode, .. } => self.accepted.contains(peer_inode),
            Ends::Tcp { .. } => asked_last(s),
        };
        record.inbound == 0 && asked
    }
}

/// Makes the kernel programs' record of a connection of `pid`. It has a request in flight if the last data on
/// the connection was one.
pub(crate) fn record(
    s: &Socket,
    pid: u32,
    listening: &Listening,
    now: u64,
) -> Option<SocketRecord> {
    let mut r = SocketRecord {
        cookie: s.cookie,
        pid,
        owner: pid | SOCKET_OF_PROCESS,
        ..SocketRecord::default()
    };
    match &s.ends {
        Ends::Tcp { local, peer } => {
            if peer.port() == 0 {
                return None;
            }
            r.local_port = local.port();
            r.peer_port = peer.port();
            r.inbound = listening.ports.contains(&local.port()).into();
            match peer.ip() {
                IpAddr::V4(v4) => {
                    r.family = libc::AF_INET as u16;
                    r.peer[..4].copy_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    r.family = libc::AF_INET6 as u16;
                    r.peer = v6.octets();
                }
            }
        }
        Ends::Unix { path, .. } => {
            r.family = libc::AF_UNIX as u16;
            if let Some(path) = path {
                r.inbound = listening.paths.contains(path).into();
                let bytes = path.as_bytes();
                let n = bytes.len().min(r.path.len() - 1);
                r.path[..n].copy_from_slice(&bytes[..n]);
            }
        }
    }
    let (Some((sent, received, _)), Some((acked, got))) = (s.last_ms, s.bytes) else {
        return Some(r);
    };
    // Acknowledged bytes count the connection's own SYN.
    let (said, heard) = (acked > 1, got > 0);
    let (asked_ms, pending) = if r.inbound != 0 {
        r.answered = said.into();
        (received, heard && (!said || received < sent))
    } else {
        r.answered = heard.into();
        (sent, asked_last(s))
    };
    if pending && asked_ms < BELIEVED_MS {
        r.since = now.saturating_sub(u64::from(asked_ms) * 1_000_000);
        // A sender that goes on without ever getting an answer does not wait for one.
        r.first = if r.answered == 0 { 1 } else { r.since };
        r.unanswered = if r.answered == 0 { UNANSWERED } else { 1 };
        r.requests = 1;
    }
    Some(r)
}

/// Whether the last data on a TCP connection was sent, not received. If both fall within one tick of the
/// kernel, the last acknowledgement decides. An answer is an acknowledgement too, so data acknowledged after
/// the last receipt is unanswered.
fn asked_last(s: &Socket) -> bool {
    let Some(((sent, received, acknowledged), (acked, got))) = s.last_ms.zip(s.bytes) else {
        return false;
    };
    let later = sent < received || (sent == received && acknowledged < received);
    acked > 1 && (got == 0 || later)
}

fn ip(s: &SocketRecord) -> IpAddr {
    if i32::from(s.family) == libc::AF_INET {
        let [a, b, c, d, ..] = s.peer;
        return Ipv4Addr::new(a, b, c, d).into();
    }
    Ipv6Addr::from(s.peer).to_canonical()
}

fn path(s: &SocketRecord) -> String {
    let bytes = match s.path {
        [0, ref name @ ..] if name[0] != 0 => [b"@", &name[..]].concat(),
        _ => s.path.to_vec(),
    };
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns the peer's address for the user, or the process's own port if the peer asks.
fn address(s: &SocketRecord) -> String {
    if i32::from(s.family) == libc::AF_UNIX {
        let path = path(s);
        return match path.as_str() {
            "" => "unix socket without a name".into(),
            path => format!("unix:{path}"),
        };
    }
    if s.inbound != 0 {
        return format!("port {}", s.local_port);
    }
    SocketAddr::new(ip(s), s.peer_port).to_string()
}

/// Finds the process at the other end of a connection, if it is on this machine.
pub(crate) struct Lookup<'a> {
    /// All sockets of the machine.
    pub sockets: &'a [Socket],
    /// Their processes, by inode.
    pub owners: &'a Owners,
}

impl Lookup<'_> {
    /// Process and name at the other end of a connection.
    pub fn other_end(&self, s: &SocketRecord) -> Option<(u32, String)> {
        let pid = match s.peer_pid {
            0 => self.tcp(s).or_else(|| self.unix(s))?,
            // For a socket pair the kernel knows only its maker; a child may have the other end by now.
            pid if pid == s.pid => self.unix(s).unwrap_or(pid),
            pid => pid,
        };
        let name = kernel_file::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((pid, name.trim_end().to_string()))
    }

    fn tcp(&self, s: &SocketRecord) -> Option<u32> {
        if i32::from(s.family) == libc::AF_UNIX {
            return None;
        }
        let same = |a: IpAddr| a.to_canonical() == ip(s);
        let all = || self.sockets.iter();
        let connected = all().find(|o| match &o.ends {
            Ends::Tcp { local, peer } => {
                (local.port(), peer.port()) == (s.peer_port, s.local_port) && same(local.ip())
            }
            Ends::Unix { .. } => false,
        });
        // For a connection that is gone: the listener at its other end, if that is on this machine.
        let local = ip(s).is_loopback();
        let listener = || {
            all().find(|o| match &o.ends {
                Ends::Tcp { local: at, .. } => {
                    s.inbound == 0 && local && o.listens && at.port() == s.peer_port
                }
                Ends::Unix { .. } => false,
            })
        };
        let of = |o: Option<&Socket>| o.and_then(|o| self.owners.other_than(s.pid, o.inode));
        of(connected).or_else(|| of(listener()))
    }

    fn unix(&self, s: &SocketRecord) -> Option<u32> {
        let own = self.sockets.iter().find(|o| o.cookie == s.cookie)?;
        match own.ends {
            Ends::Unix { peer_inode, .. } => self.owners.other_than(s.pid, peer_inode),
            Ends::Tcp { .. } => None,
        }
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
