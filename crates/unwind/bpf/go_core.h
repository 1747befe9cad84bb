/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Switches from a Go thread's own stack back to its goroutine's stack. Part of the unwinder's state
 * machine, which enters at the runtime functions that leave a goroutine's stack.
 */
#ifndef WALLSCOPE_GO_CORE_H
#define WALLSCOPE_GO_CORE_H

/* Follows g → m → current goroutine → saved stack pointer. It reads one word a step, as each may
 * lie elsewhere. */
__attribute__((noinline)) int uw_leave_go_stack(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	struct uw_rule *r = uw_get_rule(UW_FRESH(w->search.rule));
	u64 v = 0, ip;

	if (!r || (!w->tls && w->stage == UW_STAGE_CFA))
		return uw_finish(w, UW_END_BAD_RULE);
	switch (w->stage) {
	case UW_STAGE_CFA:
		if (uw_word(w, (w->tls + (s64)r->cfa_off) & ~7ull, &v))
			return UW_NEED;
		w->frame.word = v;
		w->stage = UW_STAGE_GO_G;
		break;
	case UW_STAGE_GO_G:
		if (uw_word(w, w->frame.cfa + r->slot[0], &v))
			return UW_NEED;
		w->stage = UW_STAGE_GO_M;
		break;
	case UW_STAGE_GO_M:
		if (uw_word(w, w->frame.cfa + r->slot[1], &v))
			return UW_NEED;
		/* The scheduler serves no goroutine: its stack ends here. */
		if (!v)
			return uw_finish(w, UW_END_ROOT);
		/* Already on the goroutine's own stack: there is no other to switch to. */
		if (v == w->frame.word)
			return uw_finish(w, UW_END_NO_PROGRESS);
		w->stage = UW_STAGE_GO_CURRENT;
		break;
	case UW_STAGE_GO_CURRENT:
		if (uw_word(w, w->frame.cfa + r->slot[2], &v))
			return UW_NEED;
		if (!r->slot[3]) {
			if (uw_word(w, w->frame.cfa + r->slot[2] + 8, &ip))
				return UW_NEED;
			w->regs.ip = ip;
			goto crossed;
		}
		w->stage = UW_STAGE_GO_STACK;
		break;
	default:
		if (uw_word(w, w->frame.cfa + r->slot[3] - 8, &ip))
			return UW_NEED;
		w->regs.ip = ip;
		v = w->frame.cfa + r->slot[3];
		goto crossed;
	}
	if (!v || v & 7)
		return uw_finish(w, UW_END_NO_PROGRESS);
	w->frame.cfa = v;
	return UW_MORE;
crossed:
	if (!v || v & 7)
		return uw_finish(w, UW_END_NO_PROGRESS);
	w->regs.value[UW_RSP] = v;
	w->regs.valid = 1u << UW_RSP;
	w->regs.located = 0;
	w->frame.exact = 0;
	w->frame.by_fp = 0;
	w->stage = UW_STAGE_ENTER;
	return UW_MORE;
}

#endif
