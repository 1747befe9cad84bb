/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Tasks for following their pointers.
 *
 * Each time the verifier meets a load of a pointer from a task that it trusts, it searches all names of the
 * kernel's types to find out whether it may trust the result. That was half the time that loading the programs
 * took. Nothing here needs a trusted result. A load from an untrusted pointer is the same instruction, without the
 * search.
 */
#pragma once

/* Linux 6.2. No call in the end: the verifier makes a move of it. */
extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __weak __ksym;

/*
 * What `members` of `pointer`, to a `type` of the kernel, lead to: by plain loads where the kernel lets us, which
 * cost a tenth. The arguments after them are the same members for BPF_CORE_READ().
 */
#define FOLLOW(type, pointer, members, ...)                                                        \
	(bpf_ksym_exists(bpf_rdonly_cast) ?                                                        \
		 (u64)((struct type *)bpf_rdonly_cast(pointer,                                     \
						      bpf_core_type_id_kernel(struct type)))       \
			 ->members :                                                               \
		 (u64)BPF_CORE_READ((struct type *)(pointer), __VA_ARGS__))

static __always_inline struct task_struct *walked(struct task_struct *p)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return p;
	return bpf_rdonly_cast(p, bpf_core_type_id_kernel(struct task_struct));
}
