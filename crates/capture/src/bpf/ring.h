/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The reason of a wait in io_uring_enter: the kind of the request that ends it.
 *
 * The call itself names no request. The waker does: at the wake-up the kernel still holds the completed
 * request, in one of four places (request_done()). So a ring with requests of several kinds has the right
 * reason for each wait, no request is followed from its submission, and a ring that was set up before the
 * recording is no exception. Each request costs nothing; each wait costs two look-ups in the ring.
 *
 * Until the wake-up the reason is that of a request that the ring holds as not yet ready (ws_ring_waits()).
 * It stands where no request ends the wait: a signal, a time limit, the end of the recording. The ring has no
 * list of block I/O and of workers' requests; such a wait is then one for events (poll).
 *
 * A thread may also wait for a ring by poll, epoll or the ring's eventfd. Such a wait is for events until a
 * request ends it (ring_used_last()).
 * Linux 6.1 to 6.18 have equal names for all that is read here. If one is missing, the reason is poll.
 */
#pragma once
#include "waited_call.h"

enum { CALL_IO_URING_ENTER = 426 };
/* Flags of io_uring_enter and of a ring (include/uapi/linux/io_uring.h). */
enum { ENTER_REGISTERED_RING = 1 << 4, SETUP_IOPOLL = 1 << 0 };
#define WS_REGISTERED_RINGS 16

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct llist_node {
	struct llist_node *next;
};

struct llist_head {
	struct llist_node *first;
};

struct list_head {
	struct list_head *next;
};

struct wait_queue_head {
	struct list_head head;
};

struct io_wq_work_node {
	struct io_wq_work_node *next;
};

struct io_wq_work_list {
	struct io_wq_work_node *first;
};

struct io_wq_work {
	struct io_wq_work_node list;
};

struct io_task_work {
	struct llist_node node;
};

struct io_hash_bucket {
	struct hlist_head list;
};

struct io_hash_table {
	struct io_hash_bucket *hbs;
	unsigned int hash_bits;
};

struct io_submit_state {
	struct io_wq_work_list compl_reqs;
};

struct io_ring_ctx {
	unsigned int flags;
	struct io_submit_state submit_state;
	struct io_hash_table cancel_table, cancel_table_locked;
	struct llist_head work_llist;
	struct list_head timeout_list;
	struct hlist_head waitid_list, futex_list;
	struct wait_queue_head poll_wq;
	struct io_ev_fd *io_ev_fd;
};

struct io_kiocb {
	struct file *file;
	u8 opcode;
	struct io_ring_ctx *ctx;
	struct io_wq_work_node comp_list;
	struct io_task_work io_task_work;
	struct hlist_node hash_node;
	struct io_wq_work work;
};

struct io_worker {
	struct io_wq_work *cur_work;
};

struct io_uring_task {
	const struct io_ring_ctx *last;
	struct file *registered_rings[WS_REGISTERED_RINGS];
	struct llist_head task_list;
};

#pragma clang attribute pop

/* Operations of requests that a thread may wait for (include/uapi/linux/io_uring.h). */
enum {
	OP_READV = 1, OP_WRITEV, OP_FSYNC, OP_READ_FIXED, OP_WRITE_FIXED, OP_POLL_ADD,
	OP_SYNC_FILE_RANGE = 8, OP_SENDMSG, OP_RECVMSG, OP_TIMEOUT,
	OP_ACCEPT = 13,
	OP_CONNECT = 16, OP_FALLOCATE, OP_OPENAT, OP_CLOSE,
	OP_STATX = 21, OP_READ, OP_WRITE, OP_FADVISE, OP_MADVISE, OP_SEND, OP_RECV, OP_OPENAT2,
	OP_SPLICE = 30,
	OP_TEE = 33, OP_SHUTDOWN, OP_RENAMEAT, OP_UNLINKAT, OP_MKDIRAT, OP_SYMLINKAT, OP_LINKAT,
	OP_FSETXATTR = 41, OP_SETXATTR, OP_FGETXATTR, OP_GETXATTR, OP_SOCKET, OP_DEVICE, OP_SEND_ZC,
	OP_SENDMSG_ZC, OP_READ_MULTISHOT, OP_WAITID, OP_FUTEX_WAIT,
	OP_FUTEX_WAITV = 53,
	OP_FTRUNCATE = 55, OP_BIND, OP_LISTEN, OP_RECV_ZC, OP_EPOLL_WAIT,
	OP_READV_FIXED, OP_WRITEV_FIXED,
};

/*
 * The reason of a wait for a request, WS_OTHER where it does not tell. A poll through a ring waits for events, as
 * poll(2) does. A linked time limit tells nothing: the thread waits for the request that it limits.
 */
static __always_inline u32 reason_by_request(struct io_kiocb *request)
{
	struct file *file = BPF_CORE_READ(request, file);
	u32 reason = file ? reason_by_file(file) : WS_OTHER;

	switch (BPF_CORE_READ(request, opcode)) {
	case OP_READV: case OP_WRITEV: case OP_READ_FIXED: case OP_WRITE_FIXED: case OP_READ: case OP_WRITE:
	case OP_READ_MULTISHOT: case OP_READV_FIXED: case OP_WRITEV_FIXED: case OP_SPLICE: case OP_TEE:
		return reason == WS_FILE ? WS_DISK : reason;
	case OP_SENDMSG: case OP_RECVMSG: case OP_SEND: case OP_RECV: case OP_SEND_ZC: case OP_SENDMSG_ZC:
	case OP_RECV_ZC: case OP_ACCEPT: case OP_CONNECT: case OP_BIND: case OP_LISTEN: case OP_SOCKET:
	case OP_SHUTDOWN:
		return reason == WS_PIPE ? WS_PIPE : WS_NETWORK;
	case OP_FSYNC: case OP_SYNC_FILE_RANGE: case OP_FALLOCATE: case OP_FTRUNCATE: case OP_FADVISE:
	case OP_OPENAT: case OP_OPENAT2: case OP_CLOSE: case OP_STATX: case OP_RENAMEAT: case OP_UNLINKAT:
	case OP_MKDIRAT: case OP_SYMLINKAT: case OP_LINKAT: case OP_FSETXATTR: case OP_SETXATTR:
	case OP_FGETXATTR: case OP_GETXATTR:
		return WS_DISK;
	case OP_DEVICE: /* a command to a disk (NVMe, ublk), or to a socket */
		return reason == WS_NETWORK ? WS_NETWORK : WS_DISK;
	case OP_POLL_ADD: case OP_EPOLL_WAIT:
		return WS_POLL;
	case OP_TIMEOUT:
		return WS_TIMER;
	case OP_MADVISE:
		return WS_MEMORY;
	case OP_WAITID:
		return WS_CHILD;
	case OP_FUTEX_WAIT: case OP_FUTEX_WAITV:
		return WS_LOCK;
	}
	return WS_OTHER;
}

/* What io_uring keeps of a thread; NULL: it has used no ring, or the kernel was built without them. */
static __always_inline struct io_uring_task *rings_of(struct task_struct *p)
{
	return bpf_core_field_exists(p->io_uring) ? BPF_CORE_READ(p, io_uring) : NULL;
}

/* Whether a call on a descriptor has one as its first argument: a registered ring is named by an index. */
static __always_inline bool has_descriptor(u64 call, struct pt_regs *regs)
{
	return call != CALL_IO_URING_ENTER || !(regs->r10 & ENTER_REGISTERED_RING);
}

/* The ring that `p` waits at in io_uring_enter; 0: not known. */
static __always_inline u64 ring_of(struct task_struct *p, struct pt_regs *regs)
{
	struct file *file = NULL;
	u64 at = regs->di;

	if (has_descriptor(CALL_IO_URING_ENTER, regs)) {
		file = file_of(p, at);
	} else if (bpf_core_field_exists(struct io_uring_task, registered_rings) && at < WS_REGISTERED_RINGS) {
		at = (u64)rings_of(p) + bpf_core_field_offset(struct io_uring_task, registered_rings) +
		     at * sizeof(file);
		bpf_probe_read_kernel(&file, sizeof(file), (void *)at);
	}
	/* A number, which a global function takes, and not a pointer. */
	return file ? (u64)BPF_CORE_READ(file, private_data) : 0;
}

/* A search for a request that waits to become ready. */
struct ws_armed {
	u64 bucket; /* the next one */
	u64 request; /* 0: none yet */
};

static long find_armed(u32 i, struct ws_armed *a)
{
	struct io_hash_bucket *bucket = (void *)a->bucket;

	a->request = (u64)BPF_CORE_READ(bucket, list.first);
	a->bucket += bpf_core_type_size(struct io_hash_bucket);
	return a->request != 0;
}

/* The most buckets that a ring has. */
#define WS_RING_BUCKETS 256

static __always_inline u64 armed_in(struct io_hash_bucket *first, u32 bits)
{
	struct ws_armed a = { .bucket = (u64)first };

	if (first && bits <= 8)
		bpf_loop(1u << (bits & 15), find_armed, &a, 0);
	return a.request ? a.request - bpf_core_field_offset(struct io_kiocb, hash_node) : 0;
}

/*
 * The reason of a wait for a request that the ring at `address` holds as not yet ready. Polled sockets and pipes
 * come first: a time limit beside them is mostly theirs. Global: verified once.
 */
__noinline u32 ws_ring_waits(u64 address)
{
	struct io_ring_ctx *ring = (void *)address;
	u64 request = 0;
	u32 reason;

	if (!ring || !bpf_core_field_exists(ring->timeout_list) || !bpf_core_field_exists(ring->flags))
		return WS_POLL;
	if (BPF_CORE_READ(ring, flags) & SETUP_IOPOLL)
		return WS_DISK;
	if (bpf_core_field_exists(ring->cancel_table) && bpf_core_type_exists(struct io_hash_bucket))
		request = armed_in(BPF_CORE_READ(ring, cancel_table.hbs),
				   BPF_CORE_READ(ring, cancel_table.hash_bits));
	if (!request && bpf_core_field_exists(ring->cancel_table_locked))
		request = armed_in(BPF_CORE_READ(ring, cancel_table_locked.hbs),
				   BPF_CORE_READ(ring, cancel_table_locked.hash_bits));
	if (request) {
		reason = reason_by_request((void *)request);
		return reason == WS_OTHER ? WS_POLL : reason;
	}
	if (bpf_core_field_exists(ring->waitid_list) && BPF_CORE_READ(ring, waitid_list.first))
		return WS_CHILD;
	if (bpf_core_field_exists(ring->futex_list) && BPF_CORE_READ(ring, futex_list.first))
		return WS_LOCK;
	if ((u64)BPF_CORE_READ(ring, timeout_list.next) !=
	    address + bpf_core_field_offset(struct io_ring_ctx, timeout_list))
		return WS_TIMER;
	return WS_POLL;
}

/* The request that `node` is the member `member` of, if it is one of `ring`; else NULL. */
#define REQUEST_OF(ring, node, member)                                                               \
	({                                                                                           \
		u64 node_ = (u64)(node);                                                             \
		struct io_kiocb *request_ = NULL;                                                    \
		if (node_ && bpf_core_field_exists(struct io_kiocb, member)) {                       \
			request_ = (void *)(node_ - bpf_core_field_offset(struct io_kiocb, member)); \
			if (BPF_CORE_READ(request_, ctx) != (ring))                                  \
				request_ = NULL;                                                     \
		}                                                                                    \
		request_;                                                                            \
	})

/*
 * Whether completions at `ring` notify threads that wait elsewhere: by poll, epoll or an eventfd. Before Linux 6.3
 * polls have no list of their own; then the answer is yes.
 */
static __always_inline bool is_watched(struct io_ring_ctx *ring)
{
	u64 list = (u64)ring + bpf_core_field_offset(struct io_ring_ctx, poll_wq.head);

	if (!bpf_core_field_exists(ring->poll_wq) || !bpf_core_field_exists(ring->io_ev_fd))
		return true;
	return (u64)BPF_CORE_READ(ring, poll_wq.head.next) != list || BPF_CORE_READ(ring, io_ev_fd);
}

/* The request of `ring` that `waker` is completing: a worker that has just made it, or the first of a batch. */
static __always_inline struct io_kiocb *request_of_waker(struct io_ring_ctx *ring, struct task_struct *waker)
{
	struct io_kiocb *request = NULL;

	if (waker->flags & PF_IO_WORKER && bpf_core_field_exists(struct io_worker, cur_work)) {
		struct io_worker *worker = (void *)BPF_CORE_READ(waker, worker_private);

		if (worker)
			request = REQUEST_OF(ring, BPF_CORE_READ(worker, cur_work), work);
	}
	if (!request && bpf_core_field_exists(ring->submit_state.compl_reqs.first))
		request = REQUEST_OF(ring, BPF_CORE_READ(ring, submit_state.compl_reqs.first), comp_list);
	return request;
}

/* Options of a query at a ring. */
enum {
	RING_WAKER = 1 << 0, /* the current task is the waker */
	RING_ENTERED = 1 << 1, /* the sleeper waits in io_uring_enter */
};

/*
 * The request of `ring` that lies in a queue for a thread with the io_uring state `own` to complete: its own queue
 * or the ring's. NULL where there is none. `how`: RING_ENTERED or 0.
 */
static __always_inline struct io_kiocb *request_queued(struct io_ring_ctx *ring, struct io_uring_task *own,
						       u32 how)
{
	struct io_kiocb *request = NULL;

	if (own && bpf_core_field_exists(own->task_list.first))
		request = REQUEST_OF(ring, BPF_CORE_READ(own, task_list.first), io_task_work.node);
	if (!request && bpf_core_field_exists(ring->work_llist.first) && (how & RING_ENTERED || is_watched(ring)))
		request = REQUEST_OF(ring, BPF_CORE_READ(ring, work_llist.first), io_task_work.node);
	return request;
}

/*
 * The reason by the request that ends the wait of a thread with the io_uring state `own` at `ring`, WS_OTHER where
 * none is at hand. Global: verified once.
 */
__noinline u32 ws_ring_wakes(u64 ring, u64 own, u32 how)
{
	struct io_ring_ctx *at = (void *)ring;
	struct io_kiocb *request;

	if (!ring)
		return WS_OTHER;
	request = request_queued(at, (void *)own, how);
	if (!request && how & RING_WAKER)
		request = request_of_waker(at, bpf_get_current_task_btf());
	return request ? reason_by_request(request) : WS_OTHER;
}

/* The ring that a thread with the io_uring state `own` handed requests to last, NULL where none is known. */
static __always_inline struct io_ring_ctx *ring_used_last(struct io_uring_task *own)
{
	if (!own || !bpf_core_field_exists(own->last))
		return NULL;
	return (void *)BPF_CORE_READ(own, last);
}

/*
 * The reason by the request that ends a wait in another call, of a thread with the io_uring state `own`; WS_OTHER
 * where no request does. It is one of the sleeper's last ring, or one that the waker completes in its own. Global.
 */
__noinline u32 ws_ring_tells(u64 own, u32 how)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct io_ring_ctx *ring = ring_used_last((void *)own);
	u32 told = ws_ring_wakes((u64)ring, own, how);

	if (told != WS_OTHER || !(how & RING_WAKER))
		return told;
	ring = ring_used_last(rings_of(waker));
	if (ring && is_watched(ring)) {
		struct io_kiocb *request = request_of_waker(ring, waker);

		if (request)
			told = reason_by_request(request);
	}
	return told;
}

/* Whether any thread has waited at a ring: before that no wake-up asks. */
u32 rings_known;

/* `p` begins to wait in io_uring_enter. */
static __always_inline u8 reason_at_ring(struct task_struct *p, struct pt_regs *regs)
{
	rings_known = 1;
	return ws_ring_waits(ring_of(p, regs));
}

/* `p`, which begins to wait for `reason` in another call, may wait for a ring. */
static __always_inline void may_watch_ring(struct task_struct *p, u8 reason)
{
	if ((reason == WS_POLL || reason == WS_PIPE) && !rings_known &&
	    bpf_core_field_exists(p->io_uring) && p->io_uring)
		rings_known = 1;
}

/*
 * The reason of the wait of `p`, which ends, by the request that ends it; else `reason`. A sleep on the way to the
 * wait (a lock of the kernel, memory) keeps its own reason. `how`: RING_WAKER, or 0 where the wake-up is over.
 */
static __always_inline u32 told_by_request(struct task_struct *p, u32 reason, u32 how)
{
	struct pt_regs *regs;
	u64 own;
	u32 told;

	if (!rings_known || !call_says_all(reason) || p->flags & PF_IN_KERNEL_ONLY)
		return reason;
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
	own = (u64)rings_of(p);
	if (call_of(regs) == CALL_IO_URING_ENTER)
		told = ws_ring_wakes(ring_of(p, regs), own, how | RING_ENTERED);
	else if (reason == WS_POLL || reason == WS_PIPE)
		told = ws_ring_tells(own, how);
	else
		return reason;
	return told == WS_OTHER ? reason : told;
}
