/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Unwinds user stacks in kernel programs, without frame pointers.
 *
 * Include after <bpf/bpf_helpers.h> and definitions of u8 … u64, s16, s32, bool, the map types and
 * flags. It defines the maps, which TableStore fills. For a struct uw_work that the caller owns, it
 * offers:
 *
 *   uw_unwind_probe(w, tgid, regs)         current task, in code that may not sleep
 *   uw_unwind_fault(w, tgid, regs)         current task, sleepable: faults pages in
 *   uw_unwind_remote(w, tgid, task, regs)  any task, sleepable
 *   uw_fork, uw_is_free, uw_forget         follow fork, unmapping, exec and exit
 *
 * `regs` is a copy: fill it with uw_copy_regs(&copy, bpf_task_pt_regs(task)). The result is in
 * w->out. 32-bit code is not unwound: its stack is one frame with end UW_END_NO_INFO.
 *
 * It does not name frames, read kernel stacks or keep results.
 */
#ifndef WALLSCOPE_UNWIND_H
#define WALLSCOPE_UNWIND_H

#include "unwind_abi.h"

#ifndef UW_MAX_FILES
#define UW_MAX_FILES 16384
#endif
#ifndef UW_MAX_RULES
#define UW_MAX_RULES 65536
#endif
#ifndef UW_MAX_MAPPINGS
#define UW_MAX_MAPPINGS 65536
#endif
#ifndef UW_MAX_PROCS
#define UW_MAX_PROCS 32768
#endif

/* Values from the kernel's headers, renamed so that they do not clash with the includer's. */
#define UW_F_MMAPABLE (1u << 10)
#define UW_F_INNER_MAP (1u << 12)
#define UW_F_NO_PREALLOC 1u

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UW_MAX_RULES);
	__uint(map_flags, UW_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct uw_rule);
} uw_rules SEC(".maps");

struct uw_inner_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, UW_F_INNER_MAP | UW_F_MMAPABLE);
	__type(key, u32);
	__type(value, u64);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UW_MAX_FILES);
	__type(key, u32);
	__array(values, struct uw_inner_table);
} uw_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UW_MAX_PROCS);
	__uint(map_flags, UW_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct uw_proc);
} uw_procs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UW_MAX_MAPPINGS);
	__uint(map_flags, UW_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct uw_mapping);
} uw_mappings SEC(".maps");

#ifndef HS_MAX_PROCS
#define HS_MAX_PROCS 2048
#endif

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HS_MAX_PROCS);
	__uint(map_flags, UW_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct hs_proc);
} hs_procs SEC(".maps");

/* Number of entries in hs_procs, set by user space. It is usually 0, and the lookup is skipped. */
u32 hs_processes;

typedef void *uw_table;

static __always_inline struct uw_rule *uw_get_rule(u32 id)
{
	return bpf_map_lookup_elem(&uw_rules, &id);
}
static __always_inline struct uw_mapping *uw_get_mapping(u32 index)
{
	return bpf_map_lookup_elem(&uw_mappings, &index);
}
static __always_inline struct uw_proc *uw_get_proc(u32 tgid)
{
	return bpf_map_lookup_elem(&uw_procs, &tgid);
}
static __always_inline struct hs_proc *hs_get_proc(u32 tgid)
{
	if (!hs_processes)
		return NULL;
	return bpf_map_lookup_elem(&hs_procs, &tgid);
}
static __always_inline uw_table uw_open_table(u32 file)
{
	return bpf_map_lookup_elem(&uw_tables, &file);
}
static __always_inline u64 *uw_table_word(uw_table table, u32 index)
{
	return bpf_map_lookup_elem(table, &index);
}

#include "unwind_core.h"

/* Bytes per read. An interrupt reads little, so that a short stack stays cheap. A remote read takes
 * locks each time, so it reads whole pages. */
#ifndef UW_PROBE_BYTES
#define UW_PROBE_BYTES 512
#endif
#define UW_FAULT_BYTES 2048
#define UW_REMOTE_BYTES 4096

struct uw_loop {
	struct uw_work *w;
	struct task_struct *task;
};

/*
 * A page fault may block on another thread: with userfaultfd the program itself serves it. That
 * thread can be the one that reads here, and it would wait for itself forever. So no page is
 * faulted in where a range is registered with userfaultfd, nor beyond the mapping in which a read
 * begins.
 */
struct vm_userfaultfd_ctx___uw {
	void *ctx;
} __attribute__((preserve_access_index));
struct vm_area_struct___uw {
	unsigned long vm_end;
	struct vm_userfaultfd_ctx___uw vm_userfaultfd_ctx;
} __attribute__((preserve_access_index));

struct uw_mapped {
	u64 end;
	u64 user_faults; /* registered with userfaultfd: its owner serves page faults */
};

static long uw_note_mapping(struct task_struct *task, struct vm_area_struct___uw *vma,
			       struct uw_mapped *m)
{
	m->end = vma->vm_end;
	if (__builtin_preserve_field_info(vma->vm_userfaultfd_ctx.ctx, 2 /* it exists */))
		m->user_faults = vma->vm_userfaultfd_ctx.ctx != NULL;
	return 0;
}

/* Whether `bytes` from `from` on may be faulted in. Returns `unsure` while another thread changes
 * the mappings of `task`. */
static __noinline long uw_may_fault(struct task_struct *task, u64 from, u64 bytes, long unsure)
{
	struct uw_mapped m = {};
	long err = bpf_find_vma(task, from, uw_note_mapping, &m, 0);

	if (err)
		return err == -16 /* EBUSY */ ? unsure : 0;
	return !m.user_faults && from + bytes <= m.end;
}

/* Reads the current thread's memory in sleepable code; returns 0 on success. */
static __noinline long uw_read_fault(void *to, u32 bytes, u64 from)
{
	if (!bpf_probe_read_user(to, bytes, (void *)from))
		return 0;
	if (!uw_may_fault(bpf_get_current_task_btf(), from, bytes, 0))
		return -1;
	return bpf_copy_from_user(to, bytes, (void *)from);
}

/* Fetches a chunk from w->want on. If a later page cannot be read, it stops at the page's end. */
#define UW_FETCH(w, BYTES, READ)                                                     \
	({                                                                           \
		u64 from_ = (w)->want & ~7ull;                                       \
		u32 which_ = (w)->chunks.victim & 1, got_ = BYTES;                   \
		u64 *to_ = which_ ? (w)->buf + UW_CHUNK_BYTES / 8 : (w)->buf;        \
		long err_ = READ(to_, BYTES, from_);                                 \
		if (err_) {                                                          \
			got_ = 4096 - (from_ & 4095);                                \
			if (got_ < (BYTES))                                          \
				err_ = READ(to_, got_ & ((BYTES) - 1), from_);       \
		}                                                                    \
		if (!err_) {                                                         \
			(w)->chunks.base[which_] = from_;                            \
			(w)->chunks.len[which_] = got_;                              \
			(w)->chunks.victim = !which_;                                \
		}                                                                    \
		err_;                                                                \
	})

/* Fetches memory outside the stack in the same way. Less than a word counts as nothing. */
#define UW_FETCH_SIDE(w, READ)                                                       \
	({                                                                           \
		u64 from_ = (w)->want;                                               \
		u32 got_ = HS_SIDE_BYTES;                                            \
		long err_ = READ((w)->hs.side.words, HS_SIDE_BYTES, from_);          \
		if (err_) {                                                          \
			got_ = 4096 - (from_ & 4095);                                \
			if (got_ < HS_SIDE_BYTES && got_ >= 8)                       \
				err_ = READ((w)->hs.side.words,                      \
					    got_ & (HS_SIDE_BYTES - 1), from_);      \
		}                                                                    \
		(w)->hs.side.at = from_;                                             \
		(w)->hs.side.len = err_ ? 0 : got_;                                  \
		err_;                                                                \
	})

#define UW_LOOP(NAME, BYTES, READ)                                                   \
	static long NAME(u32 i, struct uw_loop *l)                                   \
	{                                                                            \
		struct uw_work *w = l->w;                                            \
		int e = uw_advance(w);                                               \
		if (e == UW_NEED && UW_FETCH(w, BYTES, READ)) {                      \
			w->out.end = UW_END_UNREADABLE;                              \
			return 1;                                                    \
		}                                                                    \
		if (e == UW_SIDE && UW_FETCH_SIDE(w, READ) && !w->hs.optional) {     \
			w->out.end = UW_END_UNREADABLE;                              \
			return 1;                                                    \
		}                                                                    \
		return e == UW_DONE;                                                 \
	}

#define UW_READ_PROBE(to, bytes, from) bpf_probe_read_user(to, bytes, (void *)(from))
#define UW_READ_FAULT(to, bytes, from) uw_read_fault(to, bytes, (u64)(from))
#define UW_READ_REMOTE(to, bytes, from)                                              \
	(uw_may_fault(l->task, from, bytes, 1)                                       \
		 ? bpf_copy_from_user_task(to, bytes, (void *)(from), l->task, 0)    \
		 : -1)

UW_LOOP(uw_loop_probe, UW_PROBE_BYTES, UW_READ_PROBE)
UW_LOOP(uw_loop_fault, UW_FAULT_BYTES, UW_READ_FAULT)
UW_LOOP(uw_loop_remote, UW_REMOTE_BYTES, UW_READ_REMOTE)

static __always_inline int uw_copy_regs(struct uw_pt_regs *to, const void *pt_regs)
{
	return bpf_probe_read_kernel(to, sizeof(*to), pt_regs);
}

/* A frame needs at most a few fetches, and a fetch serves many frames. */
#define UW_STEPS (4 * UW_MAX_FRAMES)

#define UW_RUN(LOOP, w, tgid, task, regs)                                            \
	do {                                                                         \
		struct uw_loop l_ = { w, task };                                     \
		uw_begin(w, tgid, UW_MAX_FRAMES);                                    \
		uw_set_regs(w, regs);                                                \
		if (((regs)->cs & 0xffff) != 0x33)                                   \
			(w)->proc.count = (w)->proc.gen = 0;                         \
		bpf_loop(UW_STEPS, LOOP, &l_, 0);                                    \
		if (!(w)->out.end)                                                   \
			(w)->out.end = UW_END_MAX_FRAMES;                            \
		if (((regs)->cs & 0xffff) != 0x33)                                   \
			(w)->out.end = UW_END_NO_INFO;                               \
	} while (0)

static __always_inline void uw_unwind_probe(struct uw_work *w, u32 tgid,
					    const struct uw_pt_regs *regs)
{
	UW_RUN(uw_loop_probe, w, tgid, NULL, regs);
}

static __always_inline void uw_unwind_fault(struct uw_work *w, u32 tgid,
					    const struct uw_pt_regs *regs)
{
	UW_RUN(uw_loop_fault, w, tgid, NULL, regs);
}

static __always_inline void uw_unwind_remote(struct uw_work *w, u32 tgid, struct task_struct *task,
					     const struct uw_pt_regs *regs)
{
	UW_RUN(uw_loop_remote, w, tgid, task, regs);
}

/* A zero that the verifier does not know. */
u32 uw_zero;

/* Number of mappings marked pending because their addresses were unmapped. */
u32 uw_outdated;
/* Maximum mappings that one uw_is_free call marks. */
#define UW_MAX_VOIDED 4

/* Gives a new process its parent's mappings until its own are loaded. */
static __always_inline long uw_fork(u32 parent, u32 child)
{
	struct uw_proc *p = uw_get_proc(parent), copy;

	if (!p || parent == child)
		return 0;
	copy = *p;
	return bpf_map_update_elem(&uw_procs, &child, &copy, 0);
}

/* Marks the file mappings in a range that is now unmapped as pending. Until user space reloads the
 * process, stacks through that range end with UW_END_NOT_LOADED. */
static __always_inline void uw_is_free(u32 tgid, u64 start, u64 end)
{
	struct uw_proc *p = uw_get_proc(tgid);
	struct uw_mapping *m;
	u32 below, first, count;

	if (!p || !p->gen)
		return;
	first = p->first;
	count = p->count;
	/* The number of mappings that begin below `end`. */
	below = UW_FRESH(uw_zero);
	for (int k = 16; k >= 0; k--) {
		u32 more = below + (1u << k);

		if (more > count)
			continue;
		m = uw_get_mapping(first + more - 1);
		if (m && m->start < end)
			below = more;
	}
	for (u32 k = 1; k <= UW_MAX_VOIDED && k <= below; k++) {
		m = uw_get_mapping(first + below - k);
		if (!m || m->end <= start)
			break;
		if (!(m->file & 0xffff) || m->file & UW_MAP_PENDING)
			continue;
		m->file |= UW_MAP_PENDING;
		__sync_fetch_and_add(&p->voided, 1);
		__sync_fetch_and_add(&uw_outdated, 1);
	}
}

/* Drops the mappings of a process at exec and exit. */
static __always_inline void uw_forget(u32 tgid)
{
	bpf_map_delete_elem(&uw_procs, &tgid);
	bpf_map_delete_elem(&hs_procs, &tgid);
}

#endif
