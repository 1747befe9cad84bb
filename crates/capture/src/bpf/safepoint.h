/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Threads that a collector of HotSpot stops or stalls, and the pauses of the VM.
 *
 * To the kernel all such waits are for futexes. User space tells the addresses of the VM's wait barrier, of its
 * lock of operations, of its heap's lock and of its lock of critical regions, and the virtual tables of its
 * operations. At the beginning of a wait the memory is at hand: the VM's pointer to its operation tells whether
 * that is a collection. A wait at the barrier is a pause of the VM; the VM thread ends it. A pause that no thread
 * meets at the barrier is derived from the wait of the thread that asked for the operation. If the VM thread was
 * done before that thread came to wait, the pause is derived from the time that the VM thread had the CPU.
 *
 * Pauses are counted one by one, of other operations too. The waits of these stay waits for a lock.
 */
#pragma once

/*
 * Largest sizes of a VM's objects of a lock, bytes: the whole object, the mutex in front of its condition, the
 * barrier. At the condition of the heap's lock the VM's own threads wait for work.
 */
#define WS_VM_LOCK 128
#define WS_VM_MUTEX 48
#define WS_VM_BARRIER 16

struct ws_vm {
	u64 barrier, operation_lock, heap_lock, critical_lock; /* addresses of the objects, 0: none */
	u64 current, next; /* addresses of pointers to operations */
	u64 bias;          /* of addresses to those in the file */
	u64 causes[2];     /* addresses of texts, 0: none */
	u64 collections[3]; /* addresses of numbers, 0: none */
	u64 set;           /* which file's operations */
	/* The pause under way, or the last one; and when the VM thread got the CPU for it. */
	u64 begin, end, came;
	u64 operation;     /* offset of the virtual table, 0: it is over */
	u64 tag;           /* the VM's number of the pause */
	u64 asked;         /* the collection that was asked for last */
};
_Static_assert(sizeof(struct ws_vm) == 152, "as user space writes it");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct ws_vm);
} vms SEC(".maps");

struct ws_operation {
	u64 table; /* offset in the file */
	u64 set;
};
struct ws_operation_facts {
	u8 name[WS_OPERATION];
	u64 collects;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ws_operation);
	__type(value, struct ws_operation_facts);
} operations SEC(".maps");

/* Number of VMs: with 0 no thread pays for a lookup. User space sets it. */
u32 vms_known;

/*
 * Places of a VM that its threads wait at. The VM thread waits at the lock of operations: WS_EXECUTES, for the lock;
 * WS_IDLES, for an operation.
 */
enum { WS_NO_STOP, WS_AT_BARRIER, WS_ASKED_FOR_IT, WS_WANTS_HEAP, WS_EXECUTES, WS_IDLES };

static __always_inline u32 stop_at(struct ws_vm *vm, u64 futex)
{
	if (futex - vm->barrier < WS_VM_BARRIER)
		return WS_AT_BARRIER;
	if (futex - vm->operation_lock < WS_VM_LOCK)
		return WS_ASKED_FOR_IT;
	if (futex - vm->heap_lock < WS_VM_MUTEX || futex - vm->critical_lock < WS_VM_MUTEX)
		return WS_WANTS_HEAP;
	return WS_NO_STOP;
}

/* Offset of the virtual table of the VM's operation, 0: there is none. */
static __always_inline u64 operation_of(struct ws_vm *vm, u32 stop)
{
	u64 object = 0, table = 0;

	if (stop != WS_AT_BARRIER &&
	    bpf_probe_read_user(&object, sizeof(object), (void *)vm->next))
		return 0;
	if (!object && bpf_probe_read_user(&object, sizeof(object), (void *)vm->current))
		return 0;
	if (!object || bpf_probe_read_user(&table, sizeof(table), (void *)object))
		return 0;
	return table - vm->bias;
}

/*
 * The running thread, of process `tgid`, leaves the CPU to wait for `futex` while it holds `tag`. Returns the place of
 * the VM that it waits at, with WS_COLLECTS if a collector stops or stalls it, and with WS_AT_CONDITION if that is the
 * condition of the lock of operations.
 */
#define WS_COLLECTS 0x100
#define WS_AT_CONDITION 0x200
__noinline u32 ws_stopped(u32 tgid, u64 futex, u32 tag)
{
	struct ws_vm *vm = bpf_map_lookup_elem(&vms, &tgid);
	struct ws_operation_facts *facts;
	struct ws_operation key = {};
	u32 stop;

	if (!vm)
		return WS_NO_STOP;
	stop = stop_at(vm, futex);
	if (stop == WS_NO_STOP)
		return WS_NO_STOP;
	key.table = operation_of(vm, stop);
	key.set = vm->set;
	facts = key.table ? bpf_map_lookup_elem(&operations, &key) : NULL;
	if (stop == WS_ASKED_FOR_IT && futex - vm->operation_lock >= WS_VM_MUTEX)
		stop |= WS_AT_CONDITION;
	if (!facts)
		return stop;
	if (stop == WS_AT_BARRIER && (!vm->operation || vm->tag != tag)) {
		vm->begin = bpf_ktime_get_ns();
		vm->operation = key.table;
		vm->tag = tag;
		/* The VM has waited since it got the CPU until the first thread stood still. */
		if (vm->came > vm->end && vm->came < vm->begin)
			vm->begin = vm->came;
	}
	if ((stop & 0xff) == WS_ASKED_FOR_IT && facts->collects)
		vm->asked = key.table;
	return stop | (facts->collects ? WS_COLLECTS : 0);
}

/* The running thread, of process `tgid`, wakes the thread of the VM that waits for an operation. */
__noinline int ws_asked(u32 tgid)
{
	struct ws_vm *vm = bpf_map_lookup_elem(&vms, &tgid);
	struct ws_operation_facts *facts;
	struct ws_operation key = {};

	if (!vm || bpf_get_current_pid_tgid() >> 32 != tgid)
		return 0;
	key.table = operation_of(vm, WS_ASKED_FOR_IT);
	key.set = vm->set;
	facts = key.table ? bpf_map_lookup_elem(&operations, &key) : NULL;
	if (facts && facts->collects)
		vm->asked = key.table;
	return 0;
}

/* Whether `p` is the thread of a VM that executes its operations. */
static __always_inline bool is_vm_thread(struct task_struct *p)
{
	u64 comm[2] = {};

	bpf_probe_read_kernel(comm, sizeof(comm), p->comm);
	/* "VM Threa", "d" */
	return comm[0] == 0x6165726854204d56 && (comm[1] & 0xffff) == 'd';
}

/* `t` leaves the CPU to wait for a lock, in its own address space: whether a collector stops or stalls it. */
static __always_inline bool collector_stops(struct ws_thread *t, struct task_struct *p)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	u32 stopped;

	if (p->flags & PF_IN_KERNEL_ONLY)
		return false;
	stopped = ws_stopped(p->tgid, regs->di, regs->dx);
	if (!stopped)
		return false;
	if (is_vm_thread(p)) {
		t->wait.stop = stopped & WS_AT_CONDITION ? WS_IDLES : WS_EXECUTES;
		return false;
	}
	t->wait.stop = stopped;
	return stopped & WS_COLLECTS;
}

/* The VM thread `t`, which waited for an operation, gets the CPU. */
static __always_inline void vm_thread_comes(struct ws_thread *t, u64 now)
{
	u32 tgid = t->pid;
	struct ws_vm *vm = bpf_map_lookup_elem(&vms, &tgid);

	t->wait.stop = WS_NO_STOP;
	if (vm)
		vm->came = now;
}

/* Process `tgid` ends, or runs something else. */
static __always_inline void vm_forget(u32 tgid)
{
	if (vms_known)
		bpf_map_delete_elem(&vms, &tgid);
}
