/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The object that a thread waited for: the lock's address, the file, the peer of a socket.
 *
 * It is looked up only when time is charged to a stack. The thread is still in its system call then, so its
 * arguments are as they were. The object behind a descriptor is read from the kernel itself: a descriptor that is
 * closed and used again is no trap. A resource is sent once and then referred to by a hash of its identity.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ws_resource);
} resources SEC(".maps");

/* Names from the file up to its file system's root. */
static __always_inline void name_dentry(struct ws_resource *r, struct dentry *d)
{
	for (u32 i = 0; i < WS_NAMES; i++) {
		struct dentry *parent = BPF_CORE_READ(d, d_parent);

		if (!d || (i && parent == d))
			break;
		bpf_probe_read_kernel_str(r->name[i], WS_NAME, BPF_CORE_READ(d, d_name.name));
		r->names = i + 1;
		if (parent == d)
			break;
		d = parent;
	}
}

static __always_inline void identify_inode(struct ws_resource *r, struct inode *inode)
{
	r->address = BPF_CORE_READ(inode, i_ino);
	r->device = BPF_CORE_READ(inode, i_sb, s_dev);
}

enum { IPPROTO_UDP_NUMBER = 17, BOUND_BY_PROGRAM = 4 | 8 /* SOCK_BINDADDR_LOCK, SOCK_BINDPORT_LOCK */ };

static __always_inline void identify_socket(struct ws_resource *r, struct sock *sk)
{
	r->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (r->family == AF_UNIX) {
		r->kind = WS_W_UNIX;
		r->peer_pid = BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr);
		return;
	}
	r->kind = WS_W_SOCKET;
	r->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	r->peer_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	if (r->family == AF_INET6) {
		BPF_CORE_READ_INTO(&r->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&r->peer, sk, __sk_common.skc_v6_daddr);
	} else {
		BPF_CORE_READ_INTO((u32 *)r->local, sk, __sk_common.skc_rcv_saddr);
		BPF_CORE_READ_INTO((u32 *)r->peer, sk, __sk_common.skc_daddr);
	}
	if (r->local_port && BPF_CORE_READ(sk, sk_protocol) == IPPROTO_UDP_NUMBER)
		r->asks = !(BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & BOUND_BY_PROGRAM);
}

/* The file system of descriptors of processes, of which each process is an inode. */
#define PIDFS_MAGIC 0x50494446

static __always_inline struct dentry *identify_file(struct ws_resource *r, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct sock *sk;

	identify_inode(r, inode);
	if (BPF_CORE_READ(inode, i_sb, s_magic) == PIDFS_MAGIC) {
		struct pid *process = BPF_CORE_READ(inode, i_private);

		r->kind = WS_W_PROCESS;
		r->address = BPF_CORE_READ(process, numbers[0].nr);
		r->fd = r->pid = 0;
		return NULL;
	}
	switch (BPF_CORE_READ(inode, i_mode) & S_IFMT) {
	case S_IFSOCK:
		r->pid = 0;
		sk = sock_of(file);
		if (sk)
			identify_socket(r, sk);
		return NULL;
	case S_IFIFO:
		r->kind = WS_W_PIPE;
		break;
	case 0:
		r->kind = WS_W_ANONYMOUS;
		r->address = r->pid; /* all of them share one inode */
		break;
	default:
		r->kind = WS_W_FILE;
		r->fd = 0; /* the path says more */
	}
	return BPF_CORE_READ(file, f_path.dentry);
}

/* Where the kernel remembers the name of an inode that is mapped. */
static __always_inline struct dentry *dentry_of(struct inode *inode)
{
	struct hlist_node *first = BPF_CORE_READ(inode, i_dentry.first);

	if (!first)
		return NULL;
	if (bpf_core_field_exists(struct dentry___from_7_3, d_alias))
		return (void *)first - bpf_core_field_offset(struct dentry___from_7_3, d_alias);
	return (void *)first - bpf_core_field_offset(struct dentry, d_u.d_alias);
}

/* Kinds of ids that waitid(2) takes. */
enum { WAIT_FOR_PROCESS = 1 /* P_PID */, WAIT_FOR_DESCRIPTOR = 3 /* P_PIDFD */ };

/* The page that a thread waits for. */
static __always_inline struct dentry *identify_page(struct ws_resource *r, struct ws_thread *t)
{
	r->kind = WS_W_FAULT;
	r->call = -1;
	/* Entered in this very stay off the CPU: out, wake-up and in count two each. */
	if (!t->waited.fault.file || t->seq - t->waited.fault.seq > 6)
		return NULL;
	r->pid = 0;
	identify_inode(r, (struct inode *)t->waited.fault.file);
	return dentry_of((struct inode *)t->waited.fault.file);
}

/* The path of a call, where it was kept as the wait began. */
static __always_inline void identify_path(struct ws_resource *r, struct ws_thread *t)
{
	u64 id = t->id;
	struct ws_noted *kept = bpf_map_lookup_elem(&noted, &id);

	if (!kept || kept->begin != t->turn.block_begin)
		return;
	r->kind = WS_W_PATH;
	__builtin_memcpy(r->name[0], kept->path, WS_NAME);
	r->names = 1;
	for (int i = 0; i < WS_NAME / 8; i++)
		r->address = mix(r->address, r->name[0][i]);
}

/* Fills the fields that identify the object of the call of `p`. */
static __always_inline struct dentry *identify(struct ws_resource *r, struct ws_thread *t,
					       struct task_struct *p, u8 reason)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	u64 call = call_of(regs);
	struct dentry *named;
	struct file *file;
	struct ws_call *entry;
	u32 key;

	r->pid = t->pid;
	r->call = call;
	if (reason == WS_PAGE_FAULT)
		return identify_page(r, t);
	if (call >= WS_SYSCALLS)
		return NULL;
	key = call;
	entry = bpf_map_lookup_elem(&syscall_reason, &key);
	r->kind = WS_W_CALL;
	switch (entry ? entry->argument : WS_NO_ARGUMENT) {
	case WS_FIRST_IS_LOCK:
		r->kind = t->waited.monitor.address ? WS_W_MONITOR : WS_W_LOCK;
		r->address = t->waited.monitor.address ? t->waited.monitor.address :
			     reason == WS_GIL ? py_own_lock(p->tgid, regs->di) : regs->di;
		return NULL;
	case WS_FIRST_IS_PATH:
	case WS_SECOND_IS_PATH:
		identify_path(r, t);
		return NULL;
	case WS_FIRST_IS_FD:
		if (!has_descriptor(call, regs))
			return NULL;
		r->fd = regs->di;
		break;
	case WS_FIRST_IS_PROCESS:
		if ((s32)regs->di > 0) {
			r->kind = WS_W_OWN_CHILD;
			r->address = (u32)regs->di;
		}
		return NULL;
	case WS_SECOND_IS_PROCESS:
		if ((u32)regs->di == WAIT_FOR_PROCESS) {
			r->kind = WS_W_OWN_CHILD;
			r->address = (u32)regs->si;
			return NULL;
		}
		if ((u32)regs->di != WAIT_FOR_DESCRIPTOR)
			return NULL;
		r->fd = regs->si;
		break;
	case WS_POLL_LIST:
		r->address = regs->si;
		if ((u32)regs->si != 1)
			return NULL;
		if (t->wait.polled < 0) {
			/* It waited before we came: user space reads the list, which stays while it waits. */
			__builtin_memcpy(r->local, &regs->di, sizeof(regs->di));
			return NULL;
		}
		r->fd = t->wait.polled;
		break;
	default:
		return NULL;
	}
	file = file_of(p, r->fd);
	if (!file)
		return NULL;
	named = identify_file(r, file);
	/* A pair made before a fork: the kernel names the process that made it as the peer of both ends. */
	if (r->kind == WS_W_UNIX && r->peer_pid == t->pid)
		r->peer_pid = 0;
	return named;
}

/* A hash of the object that `p`, which just came back, waited for; 0: nothing known. */
static __always_inline u64 waited_for(struct ws_thread *t, struct task_struct *p, u8 reason)
{
	u64 hash = 0x9e3779b97f4a7c15ull, *word;
	struct ws_resource *r;
	struct dentry *d;
	u32 key = 0;

	if ((p->flags & PF_IN_KERNEL_ONLY) || reason == WS_STOPPED || reason == WS_TIMER)
		return 0;
	r = bpf_map_lookup_elem(&resources, &key);
	if (!r)
		return 0;
	__builtin_memset(r, 0, sizeof(*r));
	d = identify(r, t, p, reason);
	if (!r->kind)
		return 0;
	word = (u64 *)&r->address;
	for (int i = 0; i < WS_IDENTITY / 8; i++)
		hash = mix(hash, word[i]);
	if (bpf_map_lookup_elem(&seen, &hash))
		return hash;
	r->head.kind = WS_EV_RESOURCE;
	r->head.size = sizeof(*r);
	r->hash = hash;
	if (d)
		name_dentry(r, d);
	publish(hash, r, sizeof(*r), 0);
	return hash;
}
