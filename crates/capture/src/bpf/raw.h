/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Stacks that met code whose table was not loaded yet: sent as they are, with registers and memory, to
 * be unwound by user space (session/late.rs). Rationed.
 */
#pragma once

/* Raw stacks on their way out; apart, as values of one CPU may not exceed 32 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, struct ws_raw);
} raws SEC(".maps");

/*
 * Whether a stack of process `tgid` that ended so might be whole once the tables have caught up. Not
 * where it has come by the interpreter: what Python runs can be read now only, and the stack of a
 * greenlet ends in what others have left behind.
 */
static __always_inline bool too_early(struct ws_unwind *u, u32 tgid)
{
	u32 end = u->work.out.end;

	return (end == UW_END_NO_MAPPING || end == UW_END_NOT_LOADED) && raw_budget &&
	       !py_called(&u->work.out, tgid);
}

/* Sends the stack as it is. READ is the helper that this context may use. */
#define SEND_RAW(u, raw, of_id, of_ticket, of_pid, READ)                                \
	({                                                                              \
		struct ws_raw *raw_ = (raw);                                            \
		u64 sp_ = (u)->regs.sp;                                                 \
		u64 len_ = 4096 - (sp_ & 4095);                                         \
		raw_->head.kind = WS_EV_RAW;                                            \
		raw_->head.size = sizeof(*raw_);                                        \
		raw_->id = (of_id);                                                     \
		raw_->time = bpf_ktime_get_ns();                                        \
		raw_->ticket = (of_ticket);                                             \
		raw_->pid = (of_pid);                                                   \
		bpf_probe_read_kernel(raw_->regs, sizeof(raw_->regs), &(u)->regs);      \
		/* Page by page, as a read that crosses the end of the stack fails whole. */ \
		if (READ(raw_->bytes, (u32)len_, (void *)sp_))                          \
			len_ = 0;                                                       \
		for (int page_ = 0; len_ && page_ < WS_RAW_BYTES / 4096 - 1; page_++) { \
			if (len_ > WS_RAW_BYTES - 4096 ||                               \
			    READ(raw_->bytes + len_, 4096, (void *)(sp_ + len_)))       \
				break;                                                  \
			len_ += 4096;                                                   \
		}                                                                       \
		raw_->len = len_;                                                       \
		__sync_fetch_and_sub(&raw_budget, 1);                                   \
		lost(bpf_ringbuf_output(&events, raw_,                                  \
					offsetof(struct ws_raw, bytes) + (len_ & 32767), \
					BPF_RB_FORCE_WAKEUP)                            \
			     ? WS_L_RING_STACK                                          \
			     : WS_L_RAW);                                               \
	})
