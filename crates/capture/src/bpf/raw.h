/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Stacks with code that has no unwind table loaded yet. They are sent with registers and memory, for user
 * space to unwind later (session/deferred_unwind.rs). Their number is limited.
 */
#pragma once
#include "user_unwind.h"

/* Bytes below the stack pointer that functions may use without moving it (the psABI's red zone). */
enum { WS_BELOW = 128 };

/*
 * Whether a stack of process `tgid` ended for want of a mapping or a table, and may be complete once its tables are
 * loaded. No, if no raw stack may be sent any more. No, if the stack passes an interpreter: Python's frames can be
 * read only now, and the stack of a greenlet ends in remains of other greenlets.
 */
static __always_inline bool lacks_tables(struct ws_unwind *u, u32 tgid)
{
	u32 end = u->work.out.end;

	return (end == UW_END_NO_MAPPING || end == UW_END_NOT_LOADED) && raw_budget &&
	       !py_called(&u->work.out, tgid);
}

/*
 * Sends the stack as it is. READ is the helper that this context may use; FAULTS: it faults pages in. It
 * reads page by page, because a read that crosses the end of the stack fails as a whole. If READ does not
 * fault pages in, a page in the middle may be missing (a large array that was never written to), and the
 * pages above still count. If it does, the first page that cannot be read ends the stack.
 */
#define SEND_RAW(u, raw, of_id, of_ticket, of_pid, READ, FAULTS)                        \
	({                                                                              \
		struct ws_raw *raw_ = (raw);                                            \
		u64 below_ = (u)->regs.sp & 4088;                                       \
		u64 sp_ = (u)->regs.sp - (below_ < WS_BELOW ? below_ : WS_BELOW);       \
		u64 at_ = 4096 - (sp_ & 4095);                                          \
		raw_->head.kind = WS_EV_RAW;                                            \
		raw_->head.size = sizeof(*raw_);                                        \
		raw_->id = (of_id);                                                     \
		raw_->time = bpf_ktime_get_ns();                                        \
		raw_->ticket = (of_ticket);                                             \
		raw_->pid = (of_pid);                                                   \
		raw_->start = sp_;                                                      \
		raw_->holes = 0;                                                        \
		bpf_probe_read_kernel(raw_->regs, sizeof(raw_->regs), &(u)->regs);      \
		u64 pc_ = (u)->regs.ip & ~7ull;                                         \
		if (READ(&raw_->code[0], 8, (void *)pc_))                               \
			raw_->code[0] = 0;                                              \
		if (READ(&raw_->code[1], 8, (void *)(pc_ + 8)))                         \
			raw_->code[1] = 0;                                              \
		raw_->len = READ(raw_->bytes, (u32)at_, (void *)sp_) ? 0 : at_;         \
		for (u32 page_ = 1; raw_->len && page_ < WS_RAW_BYTES / 4096; page_++) { \
			u64 to_ = UW_FRESH(at_);                                        \
			if (to_ > WS_RAW_BYTES - 4096)                                  \
				break;                                                  \
			if (!READ(raw_->bytes + to_, 4096, (void *)(sp_ + to_)))        \
				raw_->len = to_ + 4096;                                 \
			else if (FAULTS)                                                \
				break;                                                  \
			else                                                            \
				raw_->holes |= 1ull << page_;                           \
			at_ = to_ + 4096;                                               \
		}                                                                       \
		u32 len_ = UW_FRESH(raw_->len);                                         \
		if (len_ > WS_RAW_BYTES)                                                \
			len_ = WS_RAW_BYTES;                                            \
		__sync_fetch_and_sub(&raw_budget, 1);                                   \
		lost(bpf_ringbuf_output(&events, raw_,                                  \
					offsetof(struct ws_raw, bytes) + len_,          \
					BPF_RB_FORCE_WAKEUP)                            \
			     ? WS_L_RING_STACK                                          \
			     : WS_L_RAW);                                               \
	})
