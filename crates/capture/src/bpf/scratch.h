/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Room to read a stack in, for all but the timer: for sleepable code, which may be preempted and migrate,
 * and for rare data.
 */
#pragma once
#include "user_unwind.h"

#define SLOTS 16

struct ws_slot {
	u32 busy, pad0;
	struct ws_unwind u;
	struct py_work python;
	struct ws_raw raw;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, u32);
	__type(value, struct ws_slot);
} slots SEC(".maps");

/* Tries the slot of the own CPU first: that CPU has it in its caches. */
static __always_inline struct ws_slot *take_slot(void)
{
	u32 own = bpf_get_smp_processor_id();

	for (u32 i = 0; i < SLOTS; i++) {
		u32 key = (own + i) % SLOTS;
		struct ws_slot *s = bpf_map_lookup_elem(&slots, &key);

		if (s && !__sync_val_compare_and_swap(&s->busy, 0, 1))
			return s;
	}
	lost(WS_L_NO_SLOT);
	return NULL;
}

static __always_inline void give_slot(struct ws_slot *s)
{
	__sync_lock_test_and_set(&s->busy, 0);
}
