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
	u64 sp = w->regs.value[UW_RSP], bp, ip;

	if (uw_word(w, sp + UW_SC_RBP, &bp) || uw_word(w, sp + UW_SC_RIP, &ip))
		return UW_NEED;
	w->regs.value[0] = sp + UW_SC_RAX;
	w->regs.value[1] = sp + UW_SC_RDX;
	w->regs.value[2] = sp + UW_SC_RCX;
	w->regs.value[3] = sp + UW_SC_RBX;
	w->regs.value[4] = sp + UW_SC_RSI;
	w->regs.value[5] = sp + UW_SC_RDI;
	for (int i = 8; i < 16; i++)
		w->regs.value[i] = sp + UW_SC_R8 + 8 * (i - 8);
	w->regs.value[UW_RBP] = bp;
	w->regs.value[UW_RSP] = w->frame.cfa;
	w->regs.ip = ip;
	w->regs.valid = 0xffff;
	w->regs.located = 0xffff & ~(1u << UW_RBP | 1u << UW_RSP);
	w->frame.exact = 1;
	w->frame.by_fp = 0;
	w->stage = UW_STAGE_ENTER;
	return UW_MORE;
}

#endif
