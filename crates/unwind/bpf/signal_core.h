/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Unwinds from a signal handler to the interrupted code. Part of the unwinder's state machine. */
#ifndef WALLSCOPE_SIGNAL_CORE_H
#define WALLSCOPE_SIGNAL_CORE_H

/* Offsets of the saved registers in the kernel's signal frame, from rsp after the handler's
 * `ret`. */
#define UW_SC_R8 40
#define UW_SC_RDI 104
#define UW_SC_RSI 112
#define UW_SC_RBP 120
#define UW_SC_RBX 128
#define UW_SC_RDX 136
#define UW_SC_RAX 144
#define UW_SC_RCX 152
#define UW_SC_RSP 160
#define UW_SC_RIP 168

uw_inline int uw_leave_signal(struct uw_work *w)
{
	u64 sp = w->regs[UW_RSP], bp, ip;

	if (uw_word(w, sp + UW_SC_RBP, &bp) || uw_word(w, sp + UW_SC_RIP, &ip))
		return UW_NEED;
	w->regs[0] = sp + UW_SC_RAX;
	w->regs[1] = sp + UW_SC_RDX;
	w->regs[2] = sp + UW_SC_RCX;
	w->regs[3] = sp + UW_SC_RBX;
	w->regs[4] = sp + UW_SC_RSI;
	w->regs[5] = sp + UW_SC_RDI;
	for (int i = 8; i < 16; i++)
		w->regs[i] = sp + UW_SC_R8 + 8 * (i - 8);
	w->regs[UW_RBP] = bp;
	w->regs[UW_RSP] = w->cfa;
	w->ip = ip;
	w->valid = 0xffff;
	w->located = 0xffff & ~(1u << UW_RBP | 1u << UW_RSP);
	w->exact = 1;
	w->by_fp = 0;
	w->stage = UW_STAGE_ENTER;
	return UW_MORE;
}

#endif
