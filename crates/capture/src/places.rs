//! Block reasons by the names of the kernel functions in which threads sleep.
//!
//! The kernel programs compare a sleeper's kernel stack, innermost function first, with the address
//! ranges made here (`bpf/place.h`). Functions that only say *that* a thread sleeps (`schedule`,
//! `io_schedule`, `folio_wait_bit_common`) are left out on purpose: their callers say why.

use rustc_hash::FxHashMap;
use wallscope_binfmt::kallsyms;
use wallscope_model::BlockReason::{
    self, Child, Disk, KernelLock, Lock, Memory, Network, PageFault, Pipe, Poll, Stopped, Timer,
};
use wallscope_observe::InterruptCode;

/// Entries of the kernel programs' table (`WS_PLACES`).
pub const TABLE: usize = 4096;
/// Longest plausible function, bytes: kernel symbols have no sizes.
const MAX_FUNCTION_BYTES: u64 = 256 << 10;

/// Names of functions. A name that ends in `*` is a prefix. The first row that matches counts.
const BY_REASON: &[(BlockReason, &[&str])] = &[
    (
        Stopped,
        &[
            "do_signal_stop",
            "ptrace_stop",
            "ptrace_do_notify",
            "__refrigerator",
            "do_freezer_trap",
        ],
    ),
    // The kernel's locks, by the slow paths that sleep; futexes with priority inheritance use some
    // of them, but sleep interruptibly and are known by their call.
    (
        KernelLock,
        &[
            "__mutex_lock*",
            "mutex_lock*",
            "__ww_mutex_lock*",
            "ww_mutex_lock*",
            "rwsem_down_*",
            "down_read*",
            "down_write*",
            "__down*",
            "percpu_rwsem_wait*",
            "__percpu_down_read*",
            "percpu_down_write",
            "__rt_mutex_slowlock*",
            "rt_mutex_slowlock*",
            "__lock_sock",
            "lock_sock_nested",
            "synchronize_rcu*",
            "__wait_rcu_gp",
            "synchronize_srcu*",
            "__synchronize_srcu",
        ],
    ),
    (
        Memory,
        &[
            "try_to_free_pages",
            "do_try_to_free_pages",
            "try_to_free_mem_cgroup_pages",
            "shrink_node",
            "shrink_lruvec",
            "shrink_folio_list",
            "shrink_inactive_list",
            "shrink_slab",
            "do_shrink_slab",
            "reclaim_throttle",
            "throttle_direct_reclaim",
            "__alloc_pages_direct_*",
            "compact_zone*",
            "try_to_compact_pages",
            "__mem_cgroup_handle_over_high",
            "mem_cgroup_handle_over_high",
            "mem_cgroup_oom_synchronize",
            "try_charge_memcg",
            "out_of_memory",
        ],
    ),
    (
        PageFault,
        &[
            "filemap_fault",
            "shmem_fault",
            "hugetlb_fault",
            "do_swap_page",
            "do_page_mkwrite",
            "do_user_addr_fault",
            "exc_page_fault",
            "asm_exc_page_fault",
            "handle_mm_fault",
            "handle_userfault",
            "faultin_page",
            "migration_entry_wait*",
            "__do_fault",
        ],
    ),
    (
        Child,
        &[
            "do_wait",
            "__do_wait",
            "kernel_wait4",
            "wait_for_vfork_done",
            "kernel_clone", // which it may be a part of
        ],
    ),
    (
        Lock,
        &[
            "futex_wait*",
            "__futex_wait",
            "futex_do_wait",
            "do_semtimedop",
            "__do_semtimedop",
            "locks_lock_inode_wait",
            "fcntl_setlk",
        ],
    ),
    (
        Poll,
        &[
            "do_poll*",
            "do_sys_poll",
            "do_select",
            "ep_poll",
            "do_epoll_wait",
            "io_cqring_wait*",
            "read_events",
        ],
    ),
    (Timer, &["do_nanosleep", "hrtimer_nanosleep"]),
    (
        Pipe,
        &[
            "pipe_read",
            "pipe_write",
            "anon_pipe_*",
            "fifo_*",
            "wait_for_partner",
            "pipe_wait_*",
            "splice_from_pipe*",
            "eventfd_read",
            "n_tty_*",
            "unix_stream_*",
            "unix_dgram_*",
            "unix_seqpacket_*",
            "unix_wait_for_peer",
        ],
    ),
    (
        Network,
        &[
            "sk_wait_data",
            "sk_stream_wait_*",
            "inet_csk_accept",
            "inet_wait_for_connect",
            "__inet_stream_connect",
            "__skb_wait_for_more_packets",
            "tcp_sendmsg*",
            "tcp_recvmsg*",
        ],
    ),
    (
        Disk,
        &[
            "balance_dirty_pages*",
            "submit_bio_wait",
            "blk_mq_get_tag",
            "blk_mq_submit_bio",
            "rq_qos_wait",
            "wbt_wait",
            "blkdev_*",
            "__blkdev_*",
            "iomap_*",
            "__iomap_*",
            "filemap_read",
            "filemap_get_pages",
            "filemap_write_and_wait*",
            "filemap_fdatawait*",
            "__filemap_fdatawait*",
            "file_write_and_wait_range",
            "folio_wait_writeback",
            "generic_file_*",
            "generic_perform_write",
            "truncate_inode_pages*",
            "vfs_fsync*",
            "ksys_sync",
            "sync_filesystem",
            "wb_wait_for_completion",
            "__wait_on_buffer",
            "inode_dio_wait",
            "iterate_dir",
            "path_openat",
            "lookup_slow",
            "__lookup_slow",
            "wait_transaction_locked",
            "jbd2_*",
            "ext4_*",
            "xfs_*",
            "btrfs_*",
            "f2fs_*",
            "fuse_*",
            "request_wait_answer",
            "nfs_*",
            "nfs4_*",
            "rpc_*",
            "ovl_*",
        ],
    ),
];

/// Index of meanings by name. A lookup takes a step or two: a kernel has more than a hundred thousand names.
struct Meanings<T> {
    exact: FxHashMap<&'static str, T>,
    /// By first byte.
    prefixes: Vec<Vec<(&'static str, T)>>,
}

impl<T: Copy> Meanings<T> {
    fn new(rows: impl Iterator<Item = (T, &'static [&'static str])>) -> Meanings<T> {
        let mut all = Meanings {
            exact: FxHashMap::default(),
            prefixes: vec![Vec::new(); 256],
        };
        for (meaning, names) in rows {
            for name in names {
                match name.strip_suffix('*') {
                    Some(prefix) => {
                        let first = usize::from(prefix.as_bytes()[0]);
                        all.prefixes[first].push((prefix, meaning));
                    }
                    None => {
                        all.exact.entry(name).or_insert(meaning);
                    }
                }
            }
        }
        all
    }

    /// Meaning of `name`, without the compiler's suffix (`.constprop.0`).
    fn of(&self, name: &str) -> Option<T> {
        let plain = name.split('.').next().unwrap_or(name);
        let first = usize::from(*plain.as_bytes().first()?);
        let exact = self.exact.get(plain).copied();
        exact.or_else(|| {
            let begins = |(prefix, _): &&(&str, T)| plain.starts_with(prefix);
            self.prefixes[first].iter().find(begins).map(|(_, m)| *m)
        })
    }
}

fn reasons() -> Meanings<BlockReason> {
    Meanings::new(BY_REASON.iter().map(|(reason, names)| (*reason, *names)))
}

/// Whether the function `name` does nothing but wait for a lock, or sleep.
pub fn only_sleeps(name: &str) -> bool {
    const SLEEP: &[&str] = &[
        "schedule*",
        "__schedule*",
        "io_schedule*",
        "wait_for_completion*",
        "__wait_for_common",
        "preempt_schedule*",
    ];
    let lock = || BY_REASON.iter().filter(|(r, _)| *r == KernelLock);
    let mut locks = lock().flat_map(|(_, names)| names.iter());
    locks.any(|n| matches(n, name)) || SLEEP.iter().any(|s| matches(s, name))
}

/// Whether `pattern` matches `name`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// A range of kernel code, and its block reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelPlace {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub size: u32,
    /// Block reason of a thread that sleeps in it.
    pub reason: BlockReason,
}

/// Facts about this kernel's code, for the kernel programs.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Ranges by address; neighbours with the same reason are joined.
    pub ranges: Vec<KernelPlace>,
    /// The function that reads a timerfd, 0 where not known.
    pub timerfd_read: u64,
}

impl Places {
    /// The ranges of a kernel by `text`, its symbols (`/proc/kallsyms`); none if it hides them.
    pub fn parse(text: &str) -> Places {
        let mut places = Places::default();
        if kallsyms::is_hidden(text) {
            return places;
        }
        let meanings = reasons();
        let mut code: Vec<(u64, Option<BlockReason>)> = kallsyms::parse(text)
            .filter(|s| s.is_code() && s.address != 0)
            .inspect(|s| {
                if matches!(s.name, "timerfd_read" | "timerfd_read_iter") {
                    places.timerfd_read = s.address;
                }
            })
            .map(|s| (s.address, meanings.of(s.name)))
            .collect();
        // If an address has several names, the one with a reason must stay.
        code.sort_unstable_by_key(|(address, reason)| (*address, reason.is_none()));
        code.dedup_by_key(|(address, _)| *address);
        for (i, (start, reason)) in code.iter().enumerate() {
            let Some(reason) = *reason else {
                continue;
            };
            let end = code.get(i + 1).map_or(start + 4096, |next| next.0);
            if end - start > MAX_FUNCTION_BYTES {
                continue;
            }
            let size = (end - start) as u32;
            match places.ranges.last_mut() {
                Some(last)
                    if last.reason == reason && last.start + u64::from(last.size) == *start =>
                {
                    last.size += size;
                }
                _ => places.ranges.push(KernelPlace {
                    start: *start,
                    size,
                    reason,
                }),
            }
        }
        if places.ranges.len() > TABLE {
            // File systems have the most functions and the least valuable reasons.
            places.ranges.retain(|p| p.reason != Disk);
            places.ranges.truncate(TABLE);
        }
        places
    }
}

const TIMER: &str = "timer";

/// Functions that serve interrupts, by purpose. An interrupt runs on the stack of the thread that it interrupted.
/// The first function on a stack, innermost first, that has a purpose counts.
const SERVED: &[(&str, &[&str])] = &[
    (
        TIMER,
        &[
            "hrtimer_wakeup",
            "process_timeout",
            "call_timer_fn",
            "__hrtimer_run_queues",
            "hrtimer_interrupt",
            "posix_timer_fn",
            "timerfd_tmrproc",
        ],
    ),
    (
        "network",
        &[
            "net_rx_action",
            "__napi_poll",
            "napi_complete_done",
            "net_tx_action",
        ],
    ),
    (
        "disk",
        &[
            "bio_endio",
            "blk_update_request",
            "blk_mq_end_request*",
            "blk_complete_reqs",
            "blk_done_softirq",
            "blk_mq_complete_request*",
            "nvme_irq",
            "virtblk_done",
            "scsi_io_completion*",
        ],
    ),
];

/// Entries of hardware interrupts. Softirqs count if they run at the end of an interrupt, or in the kernel's
/// own threads. Softirqs that a thread runs after its own work (sending over loopback, say) do not count.
const ENTRIES: &[&str] = &[
    "asm_sysvec_*",
    "sysvec_*",
    "asm_common_interrupt",
    "common_interrupt",
    "irq_exit_rcu",
    "__irq_exit_rcu",
    "handle_irq_event*",
    "asm_exc_nmi",
    "run_ksoftirqd",
    "irq_thread",
    "irq_thread_fn",
];

/// Recognises interrupts by their code.
#[derive(Clone, Debug, Default)]
pub struct Interrupts {
    /// Start, end, and purpose; empty: an interrupt of unknown purpose.
    ranges: Vec<(u64, u64, &'static str)>,
}

impl Interrupts {
    /// The interrupt code of a kernel by `text`, its symbols (`/proc/kallsyms`); none if it hides them.
    pub fn parse(text: &str) -> Interrupts {
        let served = SERVED.iter().map(|(what, names)| (*what, *names));
        let meanings = Meanings::new(served.chain([("", ENTRIES)]));
        let mut code: Vec<(u64, Option<&'static str>)> = kallsyms::parse(text)
            .filter(|s| s.is_code() && s.address != 0)
            .map(|s| (s.address, meanings.of(s.name)))
            .collect();
        code.sort_unstable_by_key(|(address, what)| (*address, what.is_none(), *what));
        code.dedup_by_key(|c| c.0);
        let ends = code.iter().skip(1).map(|c| c.0).chain([u64::MAX]);
        Interrupts {
            ranges: code
                .iter()
                .zip(ends)
                .filter_map(|(c, end)| Some((c.0, end.min(c.0 + MAX_FUNCTION_BYTES), c.1?)))
                .collect(),
        }
    }

    /// The ranges of interrupt code, ascending.
    pub fn codes(&self) -> Vec<InterruptCode> {
        let code = |(start, end, serves): &(u64, u64, &'static str)| InterruptCode {
            start: *start,
            end: *end,
            serves: (*serves).into(),
        };
        self.ranges.iter().map(code).collect()
    }

    /// Interrupts with this code. A purpose that this version does not know counts as unknown purpose.
    pub fn from_codes(codes: &[InterruptCode]) -> Interrupts {
        let known = |serves: &str| {
            let mut all = SERVED.iter().map(|(what, _)| *what);
            all.find(|what| *what == serves).unwrap_or_default()
        };
        let mut ranges: Vec<_> = (codes.iter())
            .map(|c| (c.start, c.end, known(&c.serves)))
            .collect();
        ranges.sort_unstable();
        Interrupts { ranges }
    }

    /// Purpose of the interrupt in which `stack` (innermost first) was taken; `None`: no interrupt.
    pub fn served(&self, stack: &[u64]) -> Option<&'static str> {
        let mut told = "";
        for pc in stack {
            let i = self.ranges.partition_point(|r| r.0 <= *pc);
            let Some((_, _, what)) = i
                .checked_sub(1)
                .map(|i| self.ranges[i])
                .filter(|r| *pc < r.1)
            else {
                continue;
            };
            if what.is_empty() {
                return Some(told);
            }
            if told.is_empty() {
                told = what;
            }
        }
        // A thread that runs timers after its own work has not made them expire.
        (told == TIMER).then_some(TIMER)
    }
}

/// The names of the functions at `wanted` by this text of `/proc/kallsyms`; `None`: the kernel does not show it.
pub fn names(text: &str, wanted: &[u64]) -> Vec<Option<String>> {
    let mut code: Vec<(u64, &str)> = kallsyms::parse(text)
        .filter(|s| s.is_code() && s.address != 0)
        .map(|s| (s.address, s.name))
        .collect();
    code.sort_unstable();
    wanted
        .iter()
        .map(|pc| {
            let i = code.partition_point(|c| c.0 <= *pc).checked_sub(1)?;
            let (start, name) = code[i];
            (pc - start < MAX_FUNCTION_BYTES)
                .then(|| name.split('.').next().unwrap_or(name).to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_reasons_whatever_their_suffix() {
        let all = reasons();
        assert_eq!(all.of("__mutex_lock.constprop.0"), Some(KernelLock));
        assert_eq!(all.of("rwsem_down_read_slowpath"), Some(KernelLock));
        assert_eq!(all.of("filemap_fault"), Some(PageFault));
        assert_eq!(all.of("ext4_sync_file"), Some(Disk));
        assert_eq!(all.of("schedule"), None);
        assert_eq!(all.of("folio_wait_bit_common"), None);
    }

    #[test]
    fn ranges_end_where_the_next_symbol_begins_and_neighbours_join() {
        let text = "ffffffff81000000 t ext4_read\nffffffff81000100 t ext4_write\n\
                    ffffffff81000180 T schedule\nffffffff81000200 t timerfd_read_iter\n\
                    ffffffff81000300 T do_wait\nffffffff81000340 T other\n";
        let places = Places::parse(text);
        let place = |start, size, reason| KernelPlace {
            start,
            size,
            reason,
        };
        assert_eq!(
            places.ranges,
            [
                place(0xffff_ffff_8100_0000, 0x180, Disk),
                place(0xffff_ffff_8100_0300, 0x40, Child),
            ]
        );
        assert_eq!(places.timerfd_read, 0xffff_ffff_8100_0200);
    }

    #[test]
    fn hidden_symbols_tell_nothing() {
        let text = "0000000000000000 T do_wait\n0000000000000000 t ext4_read\n";
        assert!(Places::parse(text).ranges.is_empty());
    }

    #[test]
    fn softirqs_that_a_thread_runs_itself_are_no_interrupts() {
        let text = "ffffffff81000000 t net_rx_action\nffffffff81000100 T do_softirq\n\
                    ffffffff81000200 t __irq_exit_rcu\nffffffff81000300 T tcp_sendmsg\n\
                    ffffffff81000400 t asm_sysvec_apic_timer_interrupt\n\
                    ffffffff81000500 t hrtimer_wakeup\nffffffff81000600 T other\n\
                    ffffffff81000700 t run_ksoftirqd\nffffffff81000800 T smpboot_thread_fn\n";
        let all = Interrupts::parse(text);
        let at = |page: u64| 0xffff_ffff_8100_0008 + page * 0x100;
        assert_eq!(all.served(&[at(0), at(1), at(3)]), None);
        assert_eq!(all.served(&[at(0), at(1), at(2)]), Some("network"));
        assert_eq!(all.served(&[at(5), at(4)]), Some("timer"));
        assert_eq!(all.served(&[at(4)]), Some(""));
        assert_eq!(all.served(&[at(6)]), None);
        // A thread does not make a timer expire by running it.
        assert_eq!(all.served(&[at(5), at(1), at(3)]), Some("timer"));
        assert_eq!(all.served(&[at(0), at(7), at(8)]), Some("network"));
    }

    #[test]
    fn this_kernel_fits_the_table() {
        let places = Places::parse(&kallsyms::read().unwrap_or_default());
        if places.ranges.is_empty() {
            println!("skipped: the kernel hides its symbols");
            return;
        }
        assert!(places.ranges.len() < TABLE, "{}", places.ranges.len());
        let sorted = places
            .ranges
            .windows(2)
            .all(|w| w[0].start + u64::from(w[0].size) <= w[1].start);
        assert!(sorted);
    }
}
