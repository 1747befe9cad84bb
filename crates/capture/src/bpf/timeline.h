/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The timeline: every turn of every thread, reported as it ends, in a ring of its own.
 *
 * A ring of its own, so that a flood of switches does not push out stacks. User space is woken only when a
 * quarter of it is full: a wake-up costs more than all else here. Without a timeline the verifier drops all of
 * this, and the ring is next to nothing.
 *
 * One record a turn, not one an interval: the parts of a turn are known when the thread gets the CPU again, and
 * were kept for the histograms (histogram.h) anyway.
 *
 * A flight recorder raises `set_turn_min` where turns are many: user space then sums up the others.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20); /* user space sets it before loading */
} turns SEC(".maps");

static __always_inline u64 turn_flags(void)
{
	u64 full = bpf_ringbuf_query(&turns, BPF_RB_AVAIL_DATA);

	return full > bpf_ringbuf_query(&turns, BPF_RB_RING_SIZE) / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/*
 * Reports the turn that ends with a switch-in at `time`, or with the thread. Called before count_turn(), which
 * forgets the stretch.
 */
static __always_inline void tell_turn(struct ws_thread *t, u64 time, u64 block,
				      struct ws_queued queued)
{
	struct ws_turn *e;

	if (!cfg_timeline)
		return;
	if (t->turn.stretch < set_turn_min && block < set_turn_min && queued.length < set_turn_min)
		return;
	e = bpf_ringbuf_reserve(&turns, sizeof(*e), 0);
	if (!e) {
		lost(WS_L_RING_TURN);
		return;
	}
	e->time = time;
	e->stretch = t->turn.stretch;
	e->block = block;
	e->waited = queued.length;
	e->id = t->id;
	e->waker = block && !t->wakeup.by_interrupt ? t->wakeup.waker : 0;
	e->reason = t->at.block_reason;
	e->part = queued.part;
	e->asking = t->wait.asking != 0;
	bpf_ringbuf_submit(e, turn_flags());
}

/*
 * A wake-up by an interrupt names the interrupted thread as its waker. If interrupts have hooks, such wake-ups are
 * recognised.
 */
static __always_inline void note_waker(struct ws_thread *t)
{
	struct ws_cpu *c;

	if (!cfg_timeline)
		return;
	c = this_cpu();
	t->wakeup.by_interrupt = c && c->irq_depth;
}
