/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* One program for each way to read memory; each leaves its stack and duration in `results`. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
#define bool _Bool
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6,
       BPF_MAP_TYPE_ARRAY_OF_MAPS = 12 };
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));
struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

#include <bpf/bpf_helpers.h>
#include "unwind.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The process to unwind. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} target_map SEC(".maps");
static __always_inline u32 target_tgid(void)
{
	u32 key = 0, *t = bpf_map_lookup_elem(&target_map, &key);
	return t ? *t : 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct uw_work);
} works SEC(".maps");

struct result {
	u64 ns;
	struct uw_stack stack;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct result);
} results SEC(".maps");

#define MODE(KEY, TASK, UNWIND)                                                      \
	struct task_struct *task = TASK;                                             \
	u32 key = KEY, target = target_tgid();                                                          \
	struct uw_work *w = bpf_map_lookup_elem(&works, &key);                       \
	struct result *r = bpf_map_lookup_elem(&results, &key);                      \
	struct uw_pt_regs regs;                                                      \
	if (!w || !r || !task || task->tgid != target)                               \
		return 0;                                                            \
	if (uw_copy_regs(&regs, (void *)bpf_task_pt_regs(task)))                     \
		return 0;                                                            \
	u64 start = bpf_ktime_get_ns();                                              \
	UNWIND;                                                                      \
	r->ns = bpf_ktime_get_ns() - start;                                          \
	bpf_probe_read_kernel(&r->stack, sizeof(r->stack), &w->out);                 \
	return 0

SEC("syscall") int probe(void *ctx)
{
	MODE(0, bpf_get_current_task_btf(), uw_unwind_probe(w, target, &regs));
}

SEC("syscall") int fault(void *ctx)
{
	MODE(1, bpf_get_current_task_btf(), uw_unwind_fault(w, target, &regs));
}

SEC("iter.s/task") int remote(struct bpf_iter__task *ctx)
{
	MODE(2, ctx->task, {
		if (task->pid != target)
			return 0;
		uw_unwind_remote(w, target, task, &regs);
	});
}

/* Runs in a clock interrupt; counts the stacks by their end. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 18);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

static void count(u32 key, u64 n)
{
	u64 *c = bpf_map_lookup_elem(&counts, &key);
	if (c)
		__sync_fetch_and_add(c, n);
}

SEC("perf_event") int sampled(void *ctx)
{
	MODE(3, bpf_get_current_task_btf(), {
		uw_unwind_probe(w, target, &regs);
		count(w->out.end & 15, 1);
		count(16, w->out.n);
		count(17, bpf_ktime_get_ns() - start);
	});
}

/* Copies the parent's mappings to the number of a future process. */
SEC("syscall") int forked(void *ctx)
{
	return uw_fork(target_tgid(), 0x7ffffff0);
}
SEC("syscall") int forgotten(void *ctx)
{
	uw_forget(0x7ffffff0);
	return 0;
}
