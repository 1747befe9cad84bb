//! Block reasons of waits at rings of io_uring, read from the memory that the program shares with the kernel.
//!
//! `io_uring_enter` names a ring and no request. The ring's queue of completions tells afterwards which request ended
//! the wait: the first one that was completed since ([`RingWait::ended_by`]). A completion has nothing but the
//! user data of its request. The queue of submissions keeps operation and descriptor for that until the entry
//! is written again.
//!
//! While a wait lasts, the request that was submitted last stands for it. A request with the user data of the
//! last completion is passed over, as it is probably the completed one.
//!
//! A ring's file has a number of its own (Linux 5.12 and later), by which its descriptor leads to its mapping.
//! A registered ring is named by an index instead: it is the one that no wait names by a descriptor, if there is one
//! such open ring. A ring may also be waited for by poll and epoll. Where other descriptors are polled beside it, only
//! a completion tells that the wait was for the ring. The kernel tells the layout of a ring when one is made, so one is
//! made here. Not known: several registered rings, rings in the program's own memory, waits for the eventfd of a ring,
//! and the requests of completions beyond the length of the queue.

use std::{fs, os::fd::FromRawFd, os::fd::OwnedFd, os::unix::fs::MetadataExt, sync::OnceLock};

use rustc_hash::FxHashMap;
use wallscope_model::BlockReason::{self, Child, Disk, Lock, Memory, Network, Pipe, Poll, Timer};
use wallscope_procfs::maps;

use super::{
    polled,
    waiting::{Call, DescriptorKind},
};
use crate::{clock, syscalls, target::read_memory};

/// The system call.
pub const ENTER: u32 = 426;
const SETUP: libc::c_long = 425;
/// The first argument is the index of a registered ring (`IORING_ENTER_REGISTERED_RING`).
const REGISTERED: u64 = 1 << 4;
/// The file is one of the ring's own table (`IOSQE_FIXED_FILE`).
const FIXED_FILE: u8 = 1;
/// The name of a ring's file.
const RING: &str = "anon_inode:[io_uring]";
/// Offset at which a ring's submissions are mapped (`IORING_OFF_SQES`).
const SUBMISSIONS: u64 = 0x1000_0000;
/// Bytes of a submission and of a completion, without the extended forms.
const SUBMISSION: u64 = 64;
const COMPLETION: u64 = 16;
/// Most entries of a queue that are read.
const MAX_READ: u32 = 64;
/// Rings are looked up anew beyond this number.
const MAX_KNOWN: usize = 1 << 12;
/// Polled descriptors are read again after this time, ns.
const AGAIN: u64 = 1_000_000_000;
/// Least time after which a ring that was not found is searched again, ns: waits of other threads name rings.
const AGAIN_SOON: u64 = 20_000_000;
/// Each of these readings takes at most one part in this many of the time.
const READ_SHARE: u64 = 200;

/// Offsets in a ring's memory, as the kernel shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    submitted: u64,
    submission_entries: u64,
    completed: u64,
    completion_entries: u64,
    completions: u64,
}

impl Layout {
    /// The layout of this kernel; `None`: no ring can be made.
    fn of_kernel() -> Option<Layout> {
        static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
        *LAYOUT.get_or_init(|| {
            // struct io_uring_params: ten words of four bytes, then offsets in the two queues.
            let mut params = [0u32; 30];
            // SAFETY: the call writes a struct of 120 bytes.
            let fd = unsafe { libc::syscall(SETUP, 1, params.as_mut_ptr()) };
            let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
            // SAFETY: the call has just returned this descriptor to us alone.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            let [submissions, completions] = [&params[10..], &params[20..]];
            // head, tail, mask, entries; then flags and more, or overflow and the completions.
            Some(Layout {
                submitted: submissions[0].into(),
                submission_entries: submissions[3].into(),
                completed: completions[1].into(),
                completion_entries: completions[3].into(),
                completions: completions[5].into(),
            })
        })
    }
}

/// Addresses of a ring in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingAddresses {
    queues: u64,
    submissions: u64,
}

/// A wait at a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingWait {
    pid: u32,
    place: RingAddresses,
    /// Completions before it.
    completed: u32,
}

/// A request in a queue of submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    operation: u8,
    flags: u8,
    fd: i32,
    user_data: u64,
}

/// A ring among the descriptors that a thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PolledRing {
    fd: u32,
    /// Nothing else is polled beside it.
    alone: bool,
}

/// A call that polls: process, number, and the set or the list and its length.
type PollCall = (u32, u32, u64, u64);

/// The rings of processes.
pub struct Rings {
    /// Kind of the argument of each system call.
    arguments: [u8; syscalls::TABLE],
    /// The ring that a call polls, believed until that time, ns.
    polled: FxHashMap<PollCall, (u64, Option<PolledRing>)>,
    /// Rings by process and number of their file; without a number: the one ring that no descriptor names.
    /// `None`: there was none; believed until that time, ns.
    known: FxHashMap<(u32, Option<u64>), (u64, Option<RingAddresses>)>,
    /// Number of waits without a known request.
    pub unknown: u64,
}

impl Default for Rings {
    fn default() -> Rings {
        Rings {
            arguments: syscalls::arguments(),
            polled: FxHashMap::default(),
            known: FxHashMap::default(),
            unknown: 0,
        }
    }
}

impl Rings {
    /// Block reason of a thread of process `pid` in `call` at `now`, and the wait; `None`: it is at no ring, or that is
    /// not known.
    pub fn wait(&mut self, pid: u32, call: Call, now: u64) -> Option<(BlockReason, RingWait)> {
        if call.number != ENTER {
            return self.wait_in_poll(pid, call, now);
        }
        let told = self.read(pid, call, now);
        self.unknown += u64::from(told.is_none());
        told
    }

    /// A wait in a call that polls a ring. If other descriptors are polled beside the ring, the wait is for events.
    fn wait_in_poll(&mut self, pid: u32, call: Call, now: u64) -> Option<(BlockReason, RingWait)> {
        let PolledRing { fd, alone } = self.polled_ring(pid, call, now)?;
        let (reason, wait) = self.at_file(pid, Some(inode_of(pid, fd)?), now)?;
        Some((if alone { reason } else { Poll }, wait))
    }

    fn polled_ring(&mut self, pid: u32, call: Call, now: u64) -> Option<PolledRing> {
        let [first, second, ..] = call.arguments;
        let key = (pid, call.number, first, second);
        if let Some((until, ring)) = self.polled.get(&key)
            && now < *until
        {
            return *ring;
        }
        let began = clock::now();
        let all = polled::all(&self.arguments, pid, call);
        let fd = all.iter().copied().find(|fd| is_ring(pid, *fd));
        let alone = all.len() == 1;
        let ring = fd.map(|fd| PolledRing { fd, alone });
        let took = clock::now().saturating_sub(began);
        if self.polled.len() >= MAX_KNOWN {
            self.polled.clear();
        }
        let until = now + AGAIN.max(took * READ_SHARE);
        self.polled.insert(key, (until, ring));
        ring
    }

    fn read(&mut self, pid: u32, call: Call, now: u64) -> Option<(BlockReason, RingWait)> {
        let [fd, _, _, flags, _] = call.arguments;
        // Descriptors are ints: the upper half of the register means nothing.
        let inode = match flags & REGISTERED {
            0 => Some(inode_of(pid, fd as u32)?),
            _ => None,
        };
        self.at_file(pid, inode, now)
    }

    /// Block reason and wait at the ring with the file of that number, as for [`wait`](Self::wait).
    fn at_file(
        &mut self,
        pid: u32,
        inode: Option<u64>,
        now: u64,
    ) -> Option<(BlockReason, RingWait)> {
        let place = self.place(pid, inode, now)?;
        let Some(ring) = Ring::read(pid, place) else {
            self.known.remove(&(pid, inode));
            return None;
        };
        let wait = RingWait {
            pid,
            place,
            completed: ring.completed,
        };
        Some((ring.awaited()?, wait))
    }

    fn place(&mut self, pid: u32, inode: Option<u64>, now: u64) -> Option<RingAddresses> {
        if let Some((until, place)) = self.known.get(&(pid, inode))
            && (place.is_some() || now < *until)
        {
            return *place;
        }
        let began = clock::now();
        let place = match inode {
            Some(inode) => find(pid, |of| of == inode),
            None => {
                let open = open_files(pid);
                let known = |of| self.known.contains_key(&(pid, Some(of)));
                find(pid, |of| open.contains(&of) && !known(of))
            }
        };
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        let took = clock::now().saturating_sub(began);
        let until = now + AGAIN_SOON.max(took * READ_SHARE);
        self.known.insert((pid, inode), (until, place));
        place
    }
}

/// The number of the file behind a descriptor.
fn inode_of(pid: u32, fd: u32) -> Option<u64> {
    let file = fs::metadata(format!("/proc/{pid}/fd/{fd}"));
    file.ok().map(|file| file.ino())
}

fn is_ring(pid: u32, fd: u32) -> bool {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    link.is_ok_and(|link| link.as_os_str() == RING)
}

/// The numbers of all files that a process has open: the memory of a closed ring may still be mapped.
fn open_files(pid: u32) -> Vec<u64> {
    let all = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let number = |entry: fs::DirEntry| fs::metadata(entry.path()).ok().map(|file| file.ino());
    all.flatten().filter_map(number).collect()
}

/// Addresses of the only ring of a process that `is_wanted` accepts by the number of its file.
fn find(pid: u32, is_wanted: impl Fn(u64) -> bool) -> Option<RingAddresses> {
    let maps = maps::read(pid).ok()?;
    let rings = |m: &&maps::Mapping| m.path == RING && is_wanted(m.inode);
    let only = |offset: u64| {
        let mut all = maps.iter().filter(rings).filter(|m| m.offset == offset);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    };
    let (queues, submissions) = (only(0)?, only(SUBMISSIONS)?);
    (queues.inode == submissions.inode).then_some(RingAddresses {
        queues: queues.start,
        submissions: submissions.start,
    })
}

/// A ring's memory at one moment.
struct Ring {
    pid: u32,
    completed: u32,
    /// The last requests, newest first.
    requests: Vec<Request>,
    completions: u64,
    mask: u32,
}

impl Ring {
    fn read(pid: u32, place: RingAddresses) -> Option<Ring> {
        let layout = Layout::of_kernel()?;
        let word = |at: u64| {
            let mut bytes = [0u8; 4];
            let n = read_memory(pid, place.queues + at, &mut bytes);
            (n == 4).then_some(u32::from_ne_bytes(bytes))
        };
        let entries = |at: u64| word(at).filter(|n| n.is_power_of_two());
        let (all, submitted) = (entries(layout.submission_entries)?, word(layout.submitted)?);
        let completed = word(layout.completed)?;
        // Up to two pieces, as the queue goes on at its beginning.
        let count = all.min(MAX_READ);
        let first = submitted.wrapping_sub(count) & (all - 1);
        let mut bytes = vec![0u8; (u64::from(count) * SUBMISSION) as usize];
        let (upper, lower) =
            bytes.split_at_mut((u64::from(count.min(all - first)) * SUBMISSION) as usize);
        let at = place.submissions + u64::from(first) * SUBMISSION;
        if read_memory(pid, at, upper) != upper.len()
            || read_memory(pid, place.submissions, lower) != lower.len()
        {
            return None;
        }
        let newest_first = bytes.chunks_exact(SUBMISSION as usize).rev();
        Some(Ring {
            pid,
            completed,
            requests: newest_first.filter_map(Request::parse).collect(),
            completions: place.queues + layout.completions,
            mask: entries(layout.completion_entries)? - 1,
        })
    }

    /// User data of completion number `n`.
    fn completion(&self, n: u32) -> Option<u64> {
        let mut bytes = [0u8; 8];
        let at = self.completions + u64::from(n & self.mask) * COMPLETION;
        (read_memory(self.pid, at, &mut bytes) == 8).then_some(u64::from_ne_bytes(bytes))
    }

    /// The reason of a wait that lasts.
    fn awaited(&self) -> Option<BlockReason> {
        let last = self.completion(self.completed.wrapping_sub(1));
        let last = last.filter(|_| self.completed > 0);
        let is_other = |r: &&Request| Some(r.user_data) != last;
        let request = (self.requests.iter().find(is_other)).or(self.requests.first())?;
        request.reason(|fd| DescriptorKind::of(self.pid, fd))
    }
}

impl Request {
    fn parse(entry: &[u8]) -> Option<Request> {
        // Operation 0: the entry was never written, or does nothing.
        (entry[0] != 0).then_some(Request {
            operation: entry[0],
            flags: entry[1],
            fd: i32::from_ne_bytes(entry[4..8].try_into().ok()?),
            user_data: u64::from_ne_bytes(entry[32..40].try_into().ok()?),
        })
    }

    /// Block reason of a thread that waits for this request (include/uapi/linux/io_uring.h). A linked time limit has
    /// none.
    fn reason(self, kind: impl Fn(u64) -> Option<DescriptorKind>) -> Option<BlockReason> {
        let kind = || match u64::try_from(self.fd) {
            Ok(fd) if self.flags & FIXED_FILE == 0 => kind(fd),
            _ => None,
        };
        Some(match self.operation {
            // read and write in their forms, splice, tee
            1 | 2 | 4 | 5 | 22 | 23 | 30 | 33 | 49 | 60 | 61 => match kind()? {
                DescriptorKind::Socket => Network,
                DescriptorKind::File => Disk,
                DescriptorKind::Timer => Timer,
                DescriptorKind::Pipe => Pipe,
            },
            // send, recv and their kin, accept, connect, socket, shutdown, bind, listen
            9 | 10 | 13 | 16 | 26 | 27 | 34 | 45 | 47 | 48 | 56 | 57 | 58 => match kind() {
                Some(DescriptorKind::Pipe) => Pipe,
                _ => Network,
            },
            // fsync, fallocate, open, close, stat, advice, names and attributes of files, truncate
            3 | 8 | 17 | 18 | 19 | 21 | 24 | 28 | 35..=39 | 41..=44 | 55 => Disk,
            // a command to a device, or to a socket
            46 => match kind() {
                Some(DescriptorKind::Socket) => Network,
                _ => Disk,
            },
            6 | 59 => Poll,
            11 => Timer,
            25 => Memory,
            50 => Child,
            51 | 53 => Lock,
            _ => return None,
        })
    }
}

impl RingWait {
    /// Block reason by the request that ended the wait, once it is over.
    pub fn ended_by(&self) -> Option<BlockReason> {
        let ring = Ring::read(self.pid, self.place)?;
        let since = ring.completed.wrapping_sub(self.completed);
        if since == 0 || since > ring.mask + 1 {
            return None;
        }
        let user_data = ring.completion(self.completed)?;
        let of = ring.requests.iter().find(|r| r.user_data == user_data)?;
        of.reason(|fd| DescriptorKind::of(self.pid, fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: u8, flags: u8, fd: i32) -> Request {
        Request {
            operation,
            flags,
            fd,
            user_data: 7,
        }
    }

    #[test]
    fn an_operation_and_its_descriptor_tell_the_reason() {
        let kind = |fd: u64| {
            [
                DescriptorKind::File,
                DescriptorKind::Socket,
                DescriptorKind::Pipe,
            ]
            .get(fd as usize)
            .copied()
        };
        let reason = |operation, flags, fd| request(operation, flags, fd).reason(kind);
        assert_eq!(reason(22, 0, 0), Some(Disk));
        assert_eq!(reason(22, 0, 1), Some(Network));
        assert_eq!(reason(22, FIXED_FILE, 1), None, "of the ring's own table");
        assert_eq!(
            [0, 1, 2].map(|fd| reason(27, 0, fd)),
            [Network, Network, Pipe].map(Some)
        );
        assert_eq!(reason(11, 0, -1), Some(Timer));
        assert_eq!(reason(15, 0, -1), None, "a linked time limit");
        assert_eq!(reason(255, 0, 0), None);
    }

    #[test]
    fn a_submission_is_read_where_it_lies() {
        let mut entry = [0u8; SUBMISSION as usize];
        assert_eq!(Request::parse(&entry), None, "never written");
        entry[0] = 27;
        entry[4..8].copy_from_slice(&5i32.to_ne_bytes());
        entry[32..40].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(Request::parse(&entry), Some(request(27, 0, 5)));
    }

    #[test]
    fn the_kernel_tells_the_layout() {
        match Layout::of_kernel() {
            Some(layout) => assert!(layout.completions > layout.completed),
            None => println!("skipped: no ring of io_uring can be made"),
        }
    }
}
