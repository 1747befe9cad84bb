//! Counters of the kernel programs: losses, run time, connections, lengths of intervals, waits for locks; and the
//! memory that their maps hold.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use wallscope_procfs::kernel_file;

use libbpf_rs::{MapCore, MapFlags, MapType, libbpf_sys, skel::Skel};
use wallscope_model::{BlockReason, histogram};
use zerocopy::FromBytes;

use super::Programs;
use super::displaced::{DisplacedMeter, HOOKS, Met, Moment};
use crate::{
    clock::now,
    event::{LOSSES, LockSum, PARTS, SocketRecord},
};

/// Header that the kernel keeps in front of each value stored with a task, bytes (`bpf_local_storage_elem`).
const LOCAL_STORAGE_HEAD: u64 = 64;
/// Header that the kernel keeps in front of each key in a hash map, bytes (`htab_elem`).
const HASH_ELEMENT_HEAD: u64 = 48;
/// A bucket of a hash map, bytes.
const HASH_BUCKET: u64 = 16;

/// Counters of `struct ws_cpu` between its losses and `worked`.
const RUN_TIMES: usize = 9;
/// Counters of `struct ws_cpu` that are read.
const COUNTERS: usize = LOSSES.len() + RUN_TIMES + HOOKS;

/// Run time of the programs so far, by purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTime {
    /// Switches and wake-ups, scaled from those that were timed, ns.
    pub hooks_ns: u64,
    /// On-CPU samples, ns.
    pub timer_ns: u64,
    /// Stacks that threads read themselves, ns.
    pub later_ns: u64,
    /// Switches at which time was charged to a stack.
    pub charges: u64,
    /// Time charged at these switches, ns.
    pub charged_ns: u64,
    /// Stacks at events, ns.
    pub hits_ns: u64,
    /// Beginnings and ends of interrupts, scaled from those that were timed, ns.
    pub edges_ns: u64,
    /// Stacks taken at switches and wake-ups, ns: a part of `hooks_ns`.
    pub taken_ns: u64,
    /// Entry into programs and exit from them at hooks that run often, as measured at the start, ns.
    pub entries_ns: u64,
    /// CPU time that other programs lost because ours displaced their cache lines, estimated, ns; not part of the
    /// sum.
    pub displaced_ns: u64,
}

impl RunTime {
    /// Run time of all programs, ns.
    pub fn total_ns(&self) -> u64 {
        self.hooks_ns
            + self.timer_ns
            + self.later_ns
            + self.hits_ns
            + self.edges_ns
            + self.entries_ns
    }
}

impl Programs {
    /// Losses counted in kernel code, by cause, in the order of `event::LOSSES`.
    pub fn losses(&self) -> Vec<u64> {
        summed(&self.counters_by_cpu())[..LOSSES.len()].to_vec()
    }

    /// All connections in the map.
    pub fn sockets(&self) -> Vec<SocketRecord> {
        let map = &self.skel.maps.sockets;
        map.keys()
            .filter_map(|key| map.lookup(&key, MapFlags::ANY).ok().flatten())
            .filter_map(|bytes| SocketRecord::read_from_bytes(&bytes).ok())
            .collect()
    }

    /// Intervals of all threads by length: a fine histogram for each class of `histogram.h` (on the CPU,
    /// parts of runnable time, block reasons), as (longest, counts by bucket).
    pub fn histograms(&self) -> Vec<(u64, Vec<u64>)> {
        let classes = 1 + PARTS + BlockReason::COUNT;
        (0..classes as u32)
            .map(|class| {
                let per_cpu = self
                    .skel
                    .maps
                    .histograms
                    .lookup_percpu(&class.to_ne_bytes(), MapFlags::ANY);
                let mut longest = 0;
                let mut counts = vec![0u64; histogram::BUCKETS];
                for bytes in per_cpu.ok().flatten().unwrap_or_default() {
                    let (max, rest) = bytes.split_at(8);
                    longest = longest.max(u64::from_ne_bytes(max.try_into().expect("eight bytes")));
                    for (sum, n) in counts.iter_mut().zip(rest.chunks_exact(4)) {
                        *sum += u64::from(u32::from_ne_bytes(n.try_into().expect("four bytes")));
                    }
                }
                (longest, counts)
            })
            .collect()
    }

    /// Run time of the programs so far.
    pub fn run_time(&self) -> RunTime {
        let by_cpu = self.counters_by_cpu();
        let counters = summed(&by_cpu);
        let [
            hooks_ns,
            timer_ns,
            later_ns,
            charges,
            charged_ns,
            hits_ns,
            edges_ns,
            taken_ns,
            runs,
        ] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| counters[LOSSES.len() + i]);
        let now = self.moment(&by_cpu);
        let displaced_ns = (self.displaced.borrow_mut()).displaced_ns(now, self.entry_ns);
        RunTime {
            displaced_ns,
            hooks_ns,
            timer_ns,
            later_ns,
            charges,
            charged_ns,
            hits_ns,
            edges_ns,
            taken_ns,
            entries_ns: (runs as f64 * self.entry_ns) as u64,
        }
    }

    /// Cost of the entry into a program and the exit from it, ns.
    pub fn entry_ns(&self) -> f64 {
        self.entry_ns
    }

    /// The counters of `struct ws_cpu`, by CPU: losses, then run times.
    fn counters_by_cpu(&self) -> Vec<Vec<u64>> {
        let cpus = &self.skel.maps.cpus;
        let per_cpu = cpus.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        // The 24 bytes before the losses are irq_ns, irq_begin, depth and measured.
        (per_cpu.ok().flatten().unwrap_or_default().iter())
            .map(|bytes| {
                bytes[24..]
                    .chunks_exact(8)
                    .take(COUNTERS)
                    .map(number)
                    .collect()
            })
            .collect()
    }

    /// Begins to add up displaced time.
    pub(super) fn begin_displaced(&self) {
        let first = self.moment(&self.counters_by_cpu());
        self.displaced.replace(DisplacedMeter::new(first));
    }

    /// The hooks met by each CPU, and the time for which it was busy, up to now.
    fn moment(&self, by_cpu: &[Vec<u64>]) -> Moment {
        let met = |counters: &Vec<u64>| Met {
            worked: std::array::from_fn(|i| counters[LOSSES.len() + RUN_TIMES + i]),
            runs: counters[LOSSES.len() + RUN_TIMES - 1],
            run_ns: counters[LOSSES.len()],
        };
        Moment {
            time: now(),
            met: by_cpu.iter().map(met).collect(),
            busy_ns: self.cpu_busy.borrow_mut().read(),
        }
    }

    /// Exact waits by thread and lock.
    pub fn lock_waits(&self) -> Vec<LockSum> {
        let map = &self.skel.maps.lock_waits;
        map.keys()
            .filter_map(|key| {
                let value = map.lookup(&key, MapFlags::ANY).ok()??;
                LockSum::read_from_bytes(&[key, value].concat()).ok()
            })
            .collect()
    }

    /// Bytes of kernel memory held by our maps while `threads` are measured. The kernel's figure for a map omits
    /// values that are stored with tasks, so they are added here.
    pub fn map_bytes(&self, threads: usize) -> u64 {
        // Linux 6.4 and later report the memory that a map holds. Older kernels report the memory that it could
        // hold, and for a ring, which has neither keys nor values, nothing.
        let told = told_bytes(self.skel.maps.events.as_fd()) > 0;
        let unused = |m: &libbpf_rs::Map<'_>| !self.by_thread && m.name() == "own_histograms";
        let maps = self.skel.object().maps().filter(|m| !unused(m));
        maps.map(|m| {
            let kernels = told_bytes(m.as_fd());
            match m.map_type() {
                MapType::TaskStorage => {
                    let record = u64::from(m.value_size()) + LOCAL_STORAGE_HEAD;
                    kernels + record.next_power_of_two() * threads as u64
                }
                MapType::Hash if !told => hash_bytes(&m),
                MapType::RingBuf if !told => u64::from(m.max_entries()),
                _ => kernels,
            }
        })
        .sum()
    }
}

/// Counters added up over the CPUs.
fn summed(by_cpu: &[Vec<u64>]) -> Vec<u64> {
    let mut sums = vec![0u64; COUNTERS];
    for of_cpu in by_cpu {
        sums.iter_mut().zip(of_cpu).for_each(|(sum, n)| *sum += n);
    }
    sums
}

/// Memory that a hash map holds, bytes: its buckets and its elements. Elements that the kernel makes on demand
/// count only once they are made.
fn hash_bytes(map: &impl MapCore) -> u64 {
    let flags = map.info().map_or(0, |m| m.info.map_flags);
    let most = u64::from(map.max_entries());
    let made = match flags & libbpf_sys::BPF_F_NO_PREALLOC {
        0 => most,
        _ => map.keys().count() as u64,
    };
    let words = |bytes: u32| u64::from(bytes).next_multiple_of(8);
    let element = HASH_ELEMENT_HEAD + words(map.key_size()) + words(map.value_size());
    HASH_BUCKET * most.next_power_of_two() + made * element
}

/// The kernel's own figure for a map, bytes.
fn told_bytes(map: BorrowedFd<'_>) -> u64 {
    let fdinfo = format!("/proc/self/fdinfo/{}", map.as_raw_fd());
    let text = kernel_file::read_to_string(fdinfo).unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix("memlock:"))
        .and_then(|v| v.trim().parse().ok())
        .unwrap_or(0)
}
