//! Names of the resources that threads waited for.
//!
//! The kernel programs send a key for each resource. This module names it while its process exists: the symbol or
//! mapping that a futex lies in, the peers behind an epoll set.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};
use wallscope_procfs::kernel_file;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_observe::{ResourceName, SameLock};
use wallscope_procfs::{
    maps::{self, Mapping},
    process,
};

mod interprocess;
mod variables;

use super::{
    descriptors::{by_descriptor, end_of, outer_pid, peers_of_set, polled, process_of},
    heap::{self, Block},
};
use crate::{
    event::{PARKED, ResourceEvent, resource_kind, text},
    syscalls,
    target::read_memory,
};

use self::{interprocess::Shared, variables::Variables};

/// Names of the locks of processes with a runtime.
pub trait Locks {
    /// Whether a lock at an address of a process belongs to its interpreter's own.
    fn is_gil(&self, pid: u32, address: u64) -> bool;
    /// The class of the object that the monitor at an address belongs to.
    fn monitor_class(&self, pid: u32, address: u64) -> Option<String>;
}

/// All resources that threads waited for.
#[derive(Default)]
pub struct Resources {
    /// Length (bytes) of the last name told of each epoll set, by hash.
    told_lengths: FxHashMap<u64, usize>,
    fresh: VecDeque<ResourceEvent>,
    maps: FxHashMap<u32, Vec<Mapping>>,
    variables: Variables,
    mounts: FxHashMap<u32, String>,
    locks: FxHashMap<(u32, u64), Arc<str>>,
    /// Names of locks on files, by inode and system call, as their sums have them.
    file_locks: FxHashMap<(u64, u32), Arc<str>>,
    /// Last names of processes that are or were measured: a wait for the end of a process is named after the
    /// process has gone.
    processes: FxHashMap<u32, String>,
    /// Epoll sets, to be read again at the end.
    sets: Vec<(u64, ResourceEvent)>,
    /// Hash of each shared resource in the first process that waited for it.
    shared: FxHashMap<Shared, u64>,
    /// Findings that the caller has not taken yet.
    news: Vec<News>,
}

/// A finding about a resource.
pub enum News {
    /// Its name.
    Name(ResourceName),
    /// It is a lock that has another hash already.
    Same(SameLock),
}

impl Resources {
    /// Queues a resource event of the kernel programs.
    pub fn take(&mut self, e: ResourceEvent) {
        self.fresh.push_back(e);
    }

    /// Sets the present name of a measured process.
    pub fn set_process_name(&mut self, pid: u32, name: String) {
        self.processes.insert(pid, name);
    }

    /// Forgets ended processes.
    pub fn forget(&mut self, gone: &FxHashSet<u32>) {
        self.processes.retain(|pid, _| !gone.contains(pid));
        self.maps.retain(|pid, _| !gone.contains(pid));
        self.locks.retain(|(pid, _), _| !gone.contains(pid));
        self.sets.retain(|(_, e)| !gone.contains(&e.pid));
        let sets: FxHashSet<u64> = self.sets.iter().map(|(hash, _)| *hash).collect();
        self.told_lengths.retain(|hash, _| sets.contains(hash));
    }

    /// Ends a window: mappings of processes are read again for the next lock that is new.
    pub fn end_window(&mut self) {
        self.maps = FxHashMap::default();
    }

    /// A wait for the end of a process.
    fn end_of(&self, pid: u32) -> String {
        let known = self
            .processes
            .get(&pid)
            .filter(|_| process::comm(pid, pid).is_err());
        known.map_or_else(
            || end_of(pid),
            |name| format!("end of process {name} ({pid})"),
        )
    }

    /// Names the oldest new resource; `false`: there is none. To be called soon after it came, while its
    /// process is alive.
    pub fn settle_one(&mut self, locks: &dyn Locks) -> bool {
        let Some(e) = self.fresh.pop_front() else {
            return false;
        };
        let name = self.name(&e, locks);
        if e.kind == resource_kind::ANONYMOUS && name.contains("eventpoll") {
            self.told_lengths.insert(e.hash, name.len());
            self.sets.push((e.hash, e));
        }
        self.named(e.hash, name);
        if let Some(lock) = Shared::of(&e, self.maps.get(&e.pid)) {
            let first = *self.shared.entry(lock).or_insert(e.hash);
            if first != e.hash {
                let hash = e.hash;
                self.news.push(News::Same(SameLock { hash, first }));
            }
        }
        true
    }

    fn named(&mut self, hash: u64, name: String) {
        let name = name.into();
        self.news.push(News::Name(ResourceName { hash, name }));
    }

    /// Takes the findings since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Names the resources that are known better at the end.
    pub fn finish(&mut self, locks: &dyn Locks) {
        while self.settle_one(locks) {}
        for (hash, e) in std::mem::take(&mut self.sets) {
            let name = self.name(&e, locks);
            if name.len() > self.told_lengths.get(&hash).copied().unwrap_or(0) {
                self.named(hash, name);
            }
        }
    }

    fn name(&mut self, e: &ResourceEvent, locks: &dyn Locks) -> String {
        let call = syscalls::name(e.call);
        let fd = if e.fd > 0 {
            format!(" (fd {})", e.fd)
        } else {
            String::new()
        };
        match e.kind {
            resource_kind::LOCK => {
                let lock = self.lock(e.pid, e.address, u64::from(e.call), locks);
                lock.to_string()
            }
            resource_kind::MONITOR => self.monitor(e.pid, e.address, locks).to_string(),
            resource_kind::FILE => {
                let name = format!("{call} {}", self.path(e));
                if syscalls::locks_file(e.call) {
                    (self.file_locks).insert((e.address, e.call), name.as_str().into());
                }
                name
            }
            resource_kind::PATH => format!("{call} {}", text(&e.name[0])),
            resource_kind::FAULT if e.names == 0 => "page of a file or of memory".into(),
            resource_kind::FAULT => format!("page of {}", self.path(e)),
            resource_kind::SOCKET => format!("{}{fd}", socket(e)),
            resource_kind::UNIX if e.peer_pid == 0 => format!("unix socket{fd}"),
            resource_kind::UNIX => {
                let peer = process::comm(e.peer_pid, e.peer_pid).unwrap_or_default();
                format!("unix socket of {peer} ({}){fd}", e.peer_pid)
            }
            resource_kind::PROCESS => self.end_of(e.address as u32),
            resource_kind::OWN_CHILD => match outer_pid(e.pid, e.address as u32) {
                Some(pid) => self.end_of(pid),
                None => format!("{call} of process {} of its own namespace", e.address),
            },
            resource_kind::PIPE => {
                let name = text(&e.name[0]);
                if name.is_empty() || name.starts_with('/') {
                    format!("pipe:[{}]{fd}", e.address)
                } else {
                    format!("fifo {}{fd}", self.path(e))
                }
            }
            resource_kind::ANONYMOUS => {
                let name = text(&e.name[0]);
                let peers = if name.contains("eventpoll") {
                    peers_of_set(e.pid, e.fd)
                } else if let Some(pid) = process_of(e.pid, e.fd) {
                    return self.end_of(pid);
                } else {
                    String::new()
                };
                format!("{}{fd}{peers}", name.trim_matches(['[', ']']))
            }
            _ if e.address == 1 => {
                let fd = polled(e.pid, &e.local);
                let named = fd.and_then(|fd| by_descriptor(e.pid, fd));
                named.unwrap_or_else(|| format!("{call} of a descriptor"))
            }
            _ if e.address > 0 => format!("{call} of {} descriptors", e.address),
            _ => call.into(),
        }
    }

    /// The name of a lock: its symbol, or where in the process it lies.
    pub fn lock(&mut self, pid: u32, address: u64, call: u64, locks: &dyn Locks) -> Arc<str> {
        if let Some(name) = self.locks.get(&(pid, address)) {
            return name.clone();
        }
        let name: Arc<str> = if syscalls::is_futex(call) && locks.is_gil(pid, address) {
            let process = process::comm(pid, pid).unwrap_or_default();
            format!("the GIL of {process} ({pid})").into()
        } else if syscalls::is_futex(call) {
            format!("futex {}", self.place(pid, address)).into()
        } else if syscalls::locks_file(call as u32) {
            // The first wait that was charged to a stack told the path; without one, it is not known.
            return match self.file_locks.get(&(address, call as u32)) {
                Some(name) => name.clone(),
                None => format!("{} of inode {address}", syscalls::name(call as u32)).into(),
            };
        } else if syscalls::is_semaphore(call as u32) {
            format!("System V semaphores {address}").into()
        } else {
            // A call for several locks at a time: samples name it by the call, too.
            syscalls::name(call as u32).into()
        };
        self.locks.insert((pid, address), name.clone());
        name
    }

    /// The name of a lock as far as it is known without reading its process.
    pub fn known_lock(&self, pid: u32, address: u64, call: u64) -> Arc<str> {
        let known = self.locks.get(&(pid, address)).cloned();
        let of_file = || self.file_locks.get(&(address, call as u32)).cloned();
        known.or_else(of_file).unwrap_or_else(|| {
            let kind = match syscalls::is_futex(call) {
                true => "futex",
                false => syscalls::name(call as u32),
            };
            format!("{kind} {address:#x} of process {pid}").into()
        })
    }

    /// The name of a Java monitor. Its sums, which know it by its address, have the name too.
    fn monitor(&mut self, pid: u32, address: u64, locks: &dyn Locks) -> Arc<str> {
        let name = self.locks.entry((pid, address)).or_insert_with(|| {
            let class = locks.monitor_class(pid, address);
            let class = class.unwrap_or_else(|| "an unknown class".into());
            match address & PARKED {
                0 => format!("monitor {address:#x} of {class} (process {pid})").into(),
                // Objects move, so all objects of a class count as one.
                _ => format!("a {class} (process {pid})").into(),
            }
        });
        name.clone()
    }

    fn place(&mut self, pid: u32, address: u64) -> String {
        let inside = |m: &&Mapping| (m.start..m.end).contains(&address);
        let known = self.maps.get(&pid).and_then(|m| m.iter().find(inside));
        if known.is_none()
            && let Ok(new) = maps::read(pid)
        {
            self.maps.insert(pid, new);
        }
        let Some(all) = self.maps.get(&pid) else {
            return format!("{address:#x} of process {pid}");
        };
        let Some(at) = all.iter().position(|m| (m.start..m.end).contains(&address)) else {
            return format!("{address:#x} of process {pid}");
        };
        let m = &all[at];
        if m.shared {
            // The offset in the file is equal for all processes that map it.
            let offset = address - m.start + m.offset;
            // Memory that is shared without a file, or by a System V key, has a file in the kernel only. Its
            // inode number tells it from others.
            let path = match m.path.as_str() {
                "/dev/zero" => format!("shared memory {}", m.inode),
                path if path.starts_with("/SYSV") => format!("shared memory {}", m.inode),
                path => path.to_owned(),
            };
            return format!("{path}+{offset:#x}");
        }
        // The memory after a file's last page is its zeroed data.
        let file = if m.is_file() {
            Some(m)
        } else if m.path.is_empty() {
            all[..at]
                .iter()
                .rev()
                .find(|f| f.is_file())
                .filter(|f| f.end == m.start)
        } else {
            None
        };
        let Some(file) = file else {
            return place_in_memory(pid, address, m, all);
        };
        let path = file.path.clone();
        let short = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let first = all.iter().find(|f| f.path == path && f.offset == 0);
        let Some(base) = first.map(|f| f.start) else {
            return format!("{short}+{:#x}", address - file.start + file.offset);
        };
        // Position-independent files begin at 0, others where they say.
        match self.variables.at(pid, file, [address - base, address]) {
            Some((name, 0)) => format!("{name} ({short})"),
            Some((name, offset)) => format!("{name}+{offset:#x} ({short})"),
            None => format!("{short}+{:#x}", address - base),
        }
    }

    /// The path of a file: where its file system is mounted, then its names from the root on.
    fn path(&mut self, e: &ResourceEvent) -> String {
        let mount = self
            .mounts
            .entry(e.device)
            .or_insert_with(|| mount_point(e.device))
            .clone();
        let names = &e.name[..(e.names as usize).min(e.name.len())];
        let mut path = mount.trim_end_matches('/').to_owned();
        if names.len() == e.name.len() {
            path.push_str("/…");
        }
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(text(name).trim_matches('/'));
        }
        path
    }
}

/// Mount point of the file system with this device number (as the kernel keeps it).
fn mount_point(device: u32) -> String {
    let wanted = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let text = kernel_file::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        .map(|l| l.split(' ').collect::<Vec<_>>())
        .find(|f| f.len() > 4 && f[2] == wanted && f[3] == "/")
        .map_or(String::new(), |f| f[4].to_owned())
}

fn socket(e: &ResourceEvent) -> String {
    let address = |bytes: &[u8; 16]| -> String {
        if i32::from(e.family) == libc::AF_INET6 {
            let v6 = Ipv6Addr::from(*bytes);
            match v6.to_ipv4_mapped() {
                Some(v4) => v4.to_string(),
                None => format!("[{v6}]"),
            }
        } else {
            Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).to_string()
        }
    };
    if ![libc::AF_INET, libc::AF_INET6].contains(&i32::from(e.family)) {
        return match i32::from(e.family) {
            libc::AF_NETLINK => "netlink socket".into(),
            libc::AF_PACKET => "packet socket".into(),
            libc::AF_VSOCK => "socket to another virtual machine or its host (vsock)".into(),
            libc::AF_CAN => "CAN socket".into(),
            libc::AF_BLUETOOTH => "Bluetooth socket".into(),
            libc::AF_TIPC => "TIPC socket".into(),
            family => format!("socket of family {family}"),
        };
    }
    match u16::from_be(e.peer_port) {
        0 if e.asks != 0 => format!("answers to UDP port {}", e.local_port),
        0 => format!("socket at {}:{}", address(&e.local), e.local_port),
        port => format!("peer {}:{port}", address(&e.peer)),
    }
}

/// Names an address in memory without a file: `mapping`, one of `all`.
fn place_in_memory(pid: u32, address: u64, mapping: &Mapping, all: &[Mapping]) -> String {
    let region = match mapping.path.as_str() {
        "" => "anonymous memory",
        other => other.trim_matches(['[', ']']),
    };
    let memory = |at: u64, to: &mut [u8]| read_memory(pid, at, to);
    let in_file = |at| {
        all.iter()
            .any(|m| m.is_file() && (m.start..m.end).contains(&at))
    };
    let block = heap::block(&memory, address, mapping.start..mapping.end, &in_file);
    match block.map(|b| (address - b.start, b)) {
        Some((at, Block { class: Some(c), .. })) => {
            format!("{address:#x} ({c}+{at:#x}, heap of process {pid})")
        }
        Some((at, Block { size, .. })) => {
            format!("{address:#x} (+{at:#x} of a block of {size} bytes, heap of process {pid})")
        }
        None => format!("{address:#x} ({region} of process {pid})"),
    }
}

#[cfg(test)]
#[path = "resources_tests.rs"]
mod tests;
