//! Facts about the host, taken at the start, each second, and at the end.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::{Connections, FileLock, HostFacts, HostSample, Listener};
use wallscope_procfs::locks::FileId;
use wallscope_procfs::sockets::{self, Ends, Socket};
use wallscope_procfs::{host::HostReader, process};

use super::host_contention::HostContention;
use crate::clock::now;
use crate::target::Target;

/// Interval between readings, ns.
const READING_INTERVAL_NS: u64 = 1_000_000_000;
/// Time by which a reading may be early, ns. Slices end a little before or after the second, and the end of the next
/// slice is far.
const EARLY_NS: u64 = 50_000_000;
/// Processes of which limits are read.
const MAX_PROCESSES: usize = 16;
/// Readings between two searches for listening sockets of targets that have none, and between two readings of
/// file locks.
const RARE_READING: usize = 5;
/// Rows of connections, and listening sockets, that are kept.
const MAX_CONNECTIONS: usize = 24;
/// Locks on files that are kept of one reading.
const MAX_LOCKS: usize = 64;

/// The facts so far.
pub(crate) struct HostLog {
    reader: HostReader,
    pids: Vec<u32>,
    /// Whether every process is a target.
    is_whole_machine: bool,
    /// Listening sockets that were met, and whether they are the targets'.
    listeners: FxHashMap<u32, bool>,
    facts: Vec<HostSample>,
    /// Facts that were given away before.
    taken: usize,
    neighbours: HostContention,
    next_ns: u64,
}

impl HostLog {
    /// Opens the sources of the readings; `pids` are the targets of kind `target`, as far as they are known.
    pub fn open(pids: &[u32], target: &Target) -> HostLog {
        HostLog {
            reader: HostReader::open(pids.first().copied()),
            pids: pids.iter().take(MAX_PROCESSES).copied().collect(),
            is_whole_machine: matches!(target, Target::All),
            listeners: FxHashMap::default(),
            facts: Vec::new(),
            taken: 0,
            neighbours: HostContention::begin(now()),
            next_ns: 0,
        }
    }

    /// Takes everything, with the limits and connections of the targets, which is more costly.
    pub fn take_all(&mut self) {
        let limits = self
            .pids
            .iter()
            .filter_map(|pid| process::limits(*pid).ok())
            .collect();
        let own = self.own_sockets();
        let facts = HostFacts {
            limits,
            // Where sockets may not be listed, nothing is known of them.
            connections: sockets::list().map_or_else(|_| Vec::new(), |all| connections(&all, &own)),
            listeners: self.listeners(),
            file_locks: self.file_locks(),
            ..self.reader.read()
        };
        self.push(facts);
    }

    /// Takes the facts that change, once a second. Returns whether a reading was due.
    pub fn tick(&mut self, now: u64) -> bool {
        if now + EARLY_NS < self.next_ns {
            return false;
        }
        // Counted from when the reading was due, so that delays do not add up.
        self.next_ns = (self.next_ns + READING_INTERVAL_NS).max(now + READING_INTERVAL_NS / 2);
        let listen = self.listeners.values().any(|own| *own);
        let readings = self.taken + self.facts.len();
        let facts = HostFacts {
            listeners: match listen || readings.is_multiple_of(RARE_READING) {
                true => self.listeners(),
                false => Vec::new(),
            },
            file_locks: match readings % RARE_READING {
                1 => self.file_locks(),
                _ => Vec::new(),
            },
            ..self.reader.follow()
        };
        self.push(facts);
        true
    }

    fn push(&mut self, facts: HostFacts) {
        let time_ns = now();
        if self.taken + self.facts.len() == 0 {
            self.next_ns = time_ns + READING_INTERVAL_NS;
        }
        self.facts.push(HostSample { time_ns, facts });
    }

    /// Facts since the last call, or the start.
    pub fn take(&mut self) -> Vec<HostSample> {
        self.taken += self.facts.len();
        std::mem::take(&mut self.facts)
    }

    /// Takes everything a last time.
    pub fn finish(&mut self) {
        self.take_all();
        if let Some(last) = self.facts.last_mut() {
            last.facts.neighbours = self.neighbours.end(now(), &self.pids);
        }
    }

    /// Sockets of the targets; empty for a recording of the whole machine, where every socket belongs to a target.
    fn own_sockets(&self) -> FxHashSet<u32> {
        if self.is_whole_machine {
            return FxHashSet::default();
        }
        let of = |pid: &u32| sockets::of_process(*pid);
        self.pids.iter().flat_map(of).collect()
    }

    /// Locks on files that targets have open. It leaves out a lock on a file that only the holder has open: no thread
    /// waits for a daemon's lock on its own file. It is not read each second: while the kernel lists file locks,
    /// threads that take one have to wait. For the whole machine it is not read at all: the open files of all
    /// processes are too many to read.
    fn file_locks(&mut self) -> Vec<FileLock> {
        if self.is_whole_machine {
            return Vec::new();
        }
        let held = self.reader.locks();
        // Path of each file, and the processes that have it open.
        let mut open: FxHashMap<FileId, (String, Vec<u32>)> = FxHashMap::default();
        for pid in self.pids.iter().filter(|_| !held.is_empty()) {
            for (file, path) in open_files(*pid) {
                let known = open.entry(file).or_default();
                known.0 = path;
                known.1.push(*pid);
            }
        }
        held.into_iter()
            .filter_map(|l| {
                let (path, openers) = open.get(&l.file)?;
                openers.iter().any(|pid| *pid != l.pid).then(|| FileLock {
                    pid: l.pid,
                    name: process::comm(l.pid, l.pid).unwrap_or_default(),
                    path: path.clone(),
                    exclusive: l.exclusive,
                })
            })
            .take(MAX_LOCKS)
            .collect()
    }

    /// The targets' listening sockets. The owner of each is looked up when it is first met.
    fn listeners(&mut self) -> Vec<Listener> {
        if self.is_whole_machine {
            return Vec::new();
        }
        let all = sockets::listening().unwrap_or_default();
        if all.iter().any(|s| !self.listeners.contains_key(&s.inode)) {
            let own = self.own_sockets();
            let owned = all.iter().map(|s| (s.inode, own.contains(&s.inode)));
            self.listeners = owned.collect();
        }
        let mut out: Vec<Listener> = (all.iter())
            .filter(|s| self.listeners.get(&s.inode) == Some(&true))
            .filter_map(|s| {
                let (queued, room) = s.queues?;
                let Ends::Tcp { local, .. } = &s.ends else {
                    return None;
                };
                Some(Listener {
                    address: local.to_string(),
                    queued,
                    room,
                })
            })
            .collect();
        out.sort_by(|a, b| b.queued.cmp(&a.queued).then(a.address.cmp(&b.address)));
        out.truncate(MAX_CONNECTIONS);
        out
    }
}

/// The regular files that a process has open, with their paths.
fn open_files(pid: u32) -> impl Iterator<Item = (FileId, String)> {
    let all = fs::read_dir(format!("/proc/{pid}/fd"));
    let files = all.into_iter().flatten().flatten();
    files.filter_map(|entry| {
        let link = entry.path();
        let path = fs::read_link(&link).ok()?;
        // Neither sockets nor pipes.
        let about = path.is_absolute().then(|| fs::metadata(&link).ok())??;
        let device = about.dev();
        let id = (
            rustix::fs::major(device),
            rustix::fs::minor(device),
            about.ino(),
        );
        Some((id, path.to_string_lossy().into_owned()))
    })
}

/// The TCP connections among `all` that are `own`, by peer and state, most first.
fn connections(all: &[Socket], own: &FxHashSet<u32>) -> Vec<Connections> {
    let listening: FxHashSet<u16> = (all.iter().filter(|s| s.listens))
        .filter_map(|s| match &s.ends {
            Ends::Tcp { local, .. } => Some(local.port()),
            Ends::Unix { .. } => None,
        })
        .collect();
    let mut rows: BTreeMap<(String, &str), Connections> = BTreeMap::new();
    for s in all.iter().filter(|s| !s.listens && own.contains(&s.inode)) {
        let Ends::Tcp { local, peer } = &s.ends else {
            continue;
        };
        let peer = if listening.contains(&local.port()) {
            format!("port {}", local.port())
        } else {
            peer.to_string()
        };
        let row = rows.entry((peer, s.state)).or_default();
        row.count += 1;
        if let Some((sent, received, _)) = s.last_ms {
            row.silent_ms = row.silent_ms.max(u64::from(sent.min(received)));
        }
        let (unread, unsent) = s.queues.unwrap_or_default();
        row.unread_bytes += u64::from(unread);
        row.unsent_bytes += u64::from(unsent);
        row.retransmits += u64::from(s.retransmits);
        row.held_back += u32::from(s.held_back);
    }
    let mut out: Vec<Connections> = (rows.into_iter())
        .map(|((peer, state), row)| Connections {
            peer,
            state: state.to_string(),
            ..row
        })
        .collect();
    out.sort_by_key(|c| std::cmp::Reverse(c.count));
    out.truncate(MAX_CONNECTIONS);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_reading_each_second_whatever_the_slices() {
        for width in [50_000_000, 350_000_000, 500_000_000, 1_000_000_000] {
            let mut log = HostLog::open(&[std::process::id()], &Target::Pids(Vec::new()));
            log.take_all();
            // Readings come a little after the end of each slice, as on a real machine.
            let late = |i: u64| i * width + 300_000 * (i % 3);
            let start = log.facts[0].time_ns - 2_000_000;
            let looks = (1..=10 * READING_INTERVAL_NS / width).map(|i| start + late(i));
            let taken = looks.filter(|now| log.tick(*now)).count();
            assert!(
                (9..=10).contains(&taken),
                "{taken} with slices of {width} ns"
            );
        }
    }

    #[test]
    fn connections_and_listeners_are_the_targets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut first = TcpStream::connect(address).unwrap();
        let second = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        first.write_all(b"not read").unwrap();
        let mut log = HostLog::open(&[std::process::id()], &Target::Pids(Vec::new()));
        log.take_all();
        let facts = &log.facts[0].facts;
        if facts.listeners.is_empty() && sockets::listening().is_err() {
            eprintln!("skipped: no sock_diag here");
            return;
        }
        let own = |l: &&Listener| l.address == address.to_string();
        let found = facts.listeners.iter().find(own).expect("it listens");
        assert!(found.queued == 1 && found.room >= 1, "{found:?}");
        let row = |peer: String| facts.connections.iter().find(move |c| c.peer == peer);
        let made = row(address.to_string()).expect("two were made");
        assert_eq!((made.count, made.state.as_str()), (2, "established"));
        // The connection that is not accepted yet belongs to no process.
        let taken = row(format!("port {}", address.port())).expect("one was accepted");
        assert_eq!((taken.count, taken.unread_bytes), (1, 8));
        drop((accepted, second));
        // The log of another process does not list these sockets.
        let mut other = HostLog::open(&[1], &Target::Pids(Vec::new()));
        other.take_all();
        assert!(!other.facts[0].facts.listeners.iter().any(|l| own(&l)));
    }
}
