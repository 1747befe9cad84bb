/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * From one stack of a Go program to another. Part of the unwinding machine, which comes here at the
 * functions by which the runtime leaves a goroutine's stack for the thread's own.
 */
#ifndef WALLSCOPE_GO_CORE_H
#define WALLSCOPE_GO_CORE_H

/* From the thread's own stack back to that of the goroutine it serves. One word at a time: they may
 * all lie in different places. */
__attribute__((noinline)) int uw_cross(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	struct uw_rule *r = uw_get_rule(UW_FRESH(w->rule));
	u64 v = 0, ip;

	if (!r || (!w->tls && w->stage == UW_STAGE_CFA))
		return uw_finish(w, UW_END_BAD_RULE);
	switch (w->stage) {
	case UW_STAGE_CFA:
		if (uw_word(w, (w->tls + (s64)r->cfa_off) & ~7ull, &v))
			return UW_NEED;
		w->frame = v;
		w->stage = UW_STAGE_GO_G;
		break;
	case UW_STAGE_GO_G:
		if (uw_word(w, w->cfa + r->slot[0], &v))
			return UW_NEED;
		w->stage = UW_STAGE_GO_M;
		break;
	case UW_STAGE_GO_M:
		if (uw_word(w, w->cfa + r->slot[1], &v))
			return UW_NEED;
		/* The scheduler's own work, after a goroutine was put aside, is above nothing. */
		if (!v)
			return uw_finish(w, UW_END_ROOT);
		/* On the goroutine's own stack there is nothing to come back to. */
		if (v == w->frame)
			return uw_finish(w, UW_END_NO_PROGRESS);
		w->stage = UW_STAGE_GO_CURRENT;
		break;
	case UW_STAGE_GO_CURRENT:
		if (uw_word(w, w->cfa + r->slot[2], &v))
			return UW_NEED;
		if (!r->slot[3]) {
			if (uw_word(w, w->cfa + r->slot[2] + 8, &ip))
				return UW_NEED;
			w->ip = ip;
			goto crossed;
		}
		w->stage = UW_STAGE_GO_STACK;
		break;
	default:
		if (uw_word(w, w->cfa + r->slot[3] - 8, &ip))
			return UW_NEED;
		w->ip = ip;
		v = w->cfa + r->slot[3];
		goto crossed;
	}
	if (!v || v & 7)
		return uw_finish(w, UW_END_NO_PROGRESS);
	w->cfa = v;
	return UW_MORE;
crossed:
	if (!v || v & 7)
		return uw_finish(w, UW_END_NO_PROGRESS);
	w->regs[UW_RSP] = v;
	w->valid = 1u << UW_RSP;
	w->located = 0;
	w->exact = 0;
	w->by_fp = 0;
	w->stage = UW_STAGE_ENTER;
	return UW_MORE;
}

#endif
