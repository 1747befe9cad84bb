/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The kernel types the programs touch, and nothing more. Field offsets are taken from the running
 * kernel's BTF at load time (CO-RE), so only names and types matter here. Layouts that are part of
 * the ABI (pt_regs) are written out in full.
 */
#pragma once
#define __VMLINUX_H__

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s8 __s8;
typedef s16 __s16;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u64 __be64;
typedef u16 __le16;
typedef u32 __le32;
typedef u64 __le64;
typedef u16 __sum16;
typedef u32 __wsum;
typedef int pid_t;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* Values of the kernel's bpf ABI (include/uapi/linux/bpf.h). */
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_INNER_MAP = 1 << 12,
};
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_F_USER_STACK = 1 << 8 };
#define BPF_F_CURRENT_CPU 0xffffffffull
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };

/* Task states (include/linux/sched.h); stable for many years. */
enum {
	TASK_INTERRUPTIBLE = 0x0001,
	TASK_UNINTERRUPTIBLE = 0x0002,
	TASK_STOPPED_BIT = 0x0004,
	TASK_TRACED_BIT = 0x0008,
	EXIT_DEAD = 0x0010,
	EXIT_ZOMBIE = 0x0020,
	TASK_DEAD = 0x0080,
	TASK_FROZEN = 0x8000,
};
enum { PF_IO_WORKER = 0x00000010, PF_KTHREAD = 0x00200000 };
/* Threads that never run user code: the kernel's own, and io_uring's workers, which are threads of the process
 * that they work for. Neither is in a system call, whatever its registers hold. */
enum { PF_IN_KERNEL_ONLY = PF_KTHREAD | PF_IO_WORKER };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct;

/* A whole type, not a forward declaration: kfunc prototypes are compared with the kernel's. */
struct bpf_map {
	u32 id;
};

struct rq {
	u64 clock, clock_task;
	u64 prev_steal_time_rq;
	u64 prev_irq_time;
};

struct cfs_rq {
	struct rq *rq;
	int throttle_count;
	u64 throttled_clock_self, throttled_clock_self_time;
};

struct sched_entity {
	u64 sum_exec_runtime, exec_start;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long long run_delay, last_arrival, last_queued;
};

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
	struct hlist_head i_dentry;
	void *i_private;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct dentry___from_7_3 {
	struct hlist_node d_alias;
};

struct path {
	struct dentry *dentry;
};

struct address_space {
	struct inode *host;
};

struct upid {
	int nr;
};

struct pid {
	struct upid numbers[1];
};

struct file_operations {
	void *read;
	void *read_iter;
};

struct vm_unmapped_area_info {
	unsigned long flags, length;
};

struct file {
	struct inode *f_inode;
	const struct file_operations *f_op;
	void *private_data;
	struct path f_path;
	struct hlist_head *f_ep;
};

struct eventpoll;

struct epitem {
	struct eventpoll *ep;
	struct hlist_node fllink;
};

struct in6_addr {
	u8 bytes[16];
};

typedef struct {
	s64 counter;
} atomic64_t;

struct sock_common {
	atomic64_t skc_cookie;
	unsigned short skc_family;
	unsigned char skc_state;
	u16 skc_num;
	u16 skc_dport;
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	u16 sk_protocol;
	u16 sk_type;
	unsigned char sk_userlocks : 4;
	struct pid *sk_peer_pid;
};

struct sockaddr_un {
	u16 sun_family;
};

struct unix_address {
	struct sockaddr_un name[0];
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
};

struct socket {
	struct sock *sk;
	struct file *file;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct thread_struct {
	unsigned long fsbase;
};

struct task_struct {
	unsigned int __state;
	int exit_state;
	unsigned int on_cpu; /* without a sign, as it is a byte from Linux 7.3 on: libbpf loads the bytes that exist */
	unsigned int flags;
	pid_t pid;
	pid_t tgid;
	unsigned int in_iowait : 1;
	unsigned int frozen : 1;
	bool throttled;
	u64 utime;
	u64 stime;
	u64 start_time;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct files_struct *files;
	void *io_uring; /* struct io_uring_task, in ring.h */
	void *worker_private;
	char comm[16];
	struct sched_entity se;
	struct sched_info sched_info;
	struct thread_struct thread;
};

struct kernfs_node {
	u64 id;
	struct kernfs_node *__parent;
};

struct kernfs_node___before_6_15 {
	struct kernfs_node___before_6_15 *parent;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct timerqueue_node {
	s64 expires;
};

struct hrtimer {
	struct timerqueue_node node;
};

struct hw_perf_event {
	struct hrtimer hrtimer;
	u64 sample_period;
};

struct perf_event {
	struct hw_perf_event hw;
};

struct bpf_perf_event_data_kern {
	struct perf_event *event;
};

#pragma clang attribute pop

struct seq_file;
struct linux_binprm;

/* Opaque to programs; the size is part of the kfunc's interface. */
struct bpf_task_work {
	u64 __opaque;
};

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
_Static_assert(sizeof(struct pt_regs) == 168, "as the kernel writes it");

struct bpf_perf_event_data {
	struct pt_regs regs;
	u64 sample_period;
	u64 addr;
};
