/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Basics of the interpreter walk: stages, requests for memory, the search for a thread's frames, and the
 * emission of a frame. ruby_core.h and python_core.h build on it. */
#ifndef WALLSCOPE_PYTHON_STEP_H
#define WALLSCOPE_PYTHON_STEP_H

#include "python_abi.h"

enum { PY_DONE = 0, PY_NEED = 1 };
enum {
	PY_STAGE_START = 0,
	PY_STAGE_KNOWN,
	PY_STAGE_RUNTIME,
	PY_STAGE_HEAD,
	PY_STAGE_INTERP,
	PY_STAGE_THREAD,
	PY_STAGE_CFRAME,
	PY_STAGE_FRAME,
	PY_STAGE_CODE,
	PY_STAGE_LINE,
	PY_STAGE_CHOSEN,
	RB_STAGE_KNOWN,
	RB_STAGE_VM,
	RB_STAGE_RACTOR,
	RB_STAGE_LIST,
	RB_STAGE_THREAD,
	RB_STAGE_NATIVE,
	RB_STAGE_CONTEXT,
	RB_STAGE_FRAME,
	RB_STAGE_ENV,
	RB_STAGE_METHOD,
	RB_STAGE_CODE,
};

/* Maximum threads and interpreters that one walk visits. */
#define PY_MAX_HOPS 2048
/* Maximum reads of one walk: four for each Ruby frame, three for PHP, two for Python (one for a
 * shim), and those before the first frame. */
#define PY_STEPS (4 * PY_MAX_FRAMES + PY_MAX_HOPS + 8)

#define py_inline static inline __attribute__((always_inline))

py_inline u64 py_word(struct py_work *w, u32 at)
{
	return *(u64 *)((u8 *)w->buf + (at & (PY_BYTES - 8)));
}

py_inline u32 py_half(struct py_work *w, u32 at)
{
	return *(u32 *)((u8 *)w->buf + (at & (PY_BYTES - 4)));
}

py_inline u8 py_byte(struct py_work *w, u32 at)
{
	return *((u8 *)w->buf + (at & (PY_BYTES - 1)));
}

py_inline u32 py_max(u32 a, u32 b)
{
	return a > b ? a : b;
}

py_inline int py_finish(struct py_work *w, u32 end)
{
	w->out.end = end;
	return PY_DONE;
}

py_inline int py_want(struct py_work *w, u32 stage, u64 at, u32 bytes)
{
	/* Objects are aligned, and a user address has at most 47 bits. */
	if (at & 7 || !at || at >> 47 || bytes > PY_BYTES)
		return py_finish(w, PY_END_GARBAGE);
	w->stage = stage;
	w->want = at;
	w->need = bytes;
	return PY_NEED;
}

py_inline int py_want_thread(struct py_work *w, u32 stage)
{
	struct py_proc *p = &w->proc;
	u32 last = py_max(py_max(p->ts.next, p->ts.thread), py_max(p->ts.frame, p->ts.cframe));

	return py_want(w, stage, w->search.tstate, last + 8);
}

py_inline u32 py_interp_base(struct py_proc *p)
{
	return p->interp.next < p->interp.threads ? p->interp.next : p->interp.threads;
}

/* Whether states are told apart by the pointer into their thread's stack. */
py_inline int py_states_by_stack(struct py_work *w)
{
	return w->proc.ts.cframe && w->search.sp;
}

/* Whether each state with frames belongs to its thread. */
py_inline int py_states_by_age(struct py_work *w)
{
	return !w->proc.ts.cframe && w->proc.kind == PY_KIND_SHIM;
}

/* Chooses the best candidate after all states have been seen. */
py_inline int py_choose(struct py_work *w)
{
	if (w->search.best) {
		w->search.tstate = w->search.best;
		return py_want_thread(w, PY_STAGE_CHOSEN);
	}
	return py_finish(w, w->out.n ? PY_END_ROOT : PY_END_NO_THREAD);
}

py_inline int py_want_interp(struct py_work *w, u32 stage)
{
	struct py_proc *p = &w->proc;
	u32 base = py_interp_base(p);

	if (!w->search.interp)
		return py_choose(w);
	return py_want(w, stage, w->search.interp + base,
		       py_max(p->interp.next, p->interp.threads) - base + 8);
}

py_inline int py_want_runtime(struct py_work *w)
{
	return py_want(w, PY_STAGE_RUNTIME, w->proc.runtime + w->proc.interp.head, 8);
}

/* Marks the last emitted frame as the outermost one of its eval-loop call. */
py_inline void py_close_call(struct py_work *w)
{
	u32 n = w->out.n;

	if (n && n <= PY_MAX_FRAMES)
		w->out.words[(2 * n - 2) & (2 * PY_MAX_FRAMES - 1)] |= PY_WORD_ENTRY;
}

/* Ruby: requests the next frame, if there is one. */
py_inline int rb_want_frame(struct py_work *w)
{
	if (w->frame.at >= w->search.floor)
		return py_finish(w, PY_END_ROOT);
	return py_want(w, RB_STAGE_FRAME, w->frame.at, w->proc.frame.mark + 8);
}

py_inline int py_want_frame(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	if (p->kind == PY_KIND_RUBY)
		return rb_want_frame(w);
	u32 last = py_max(py_max(p->frame.code, p->frame.back), p->frame.instr) + 8;

	if (!w->frame.at) {
		if (!w->search.several || !(py_states_by_stack(w) || py_states_by_age(w)))
			return py_finish(w, PY_END_ROOT);
		/* Continue with the interpreter that called this one, further up the stack. */
		py_close_call(w);
		w->search.floor = w->search.best_at + 1;
		w->search.walked++;
		w->search.passed = 0;
		w->search.best = 0;
		w->search.best_at = ~0ull;
		return py_want_runtime(w);
	}
	return py_want(w, PY_STAGE_FRAME, w->frame.at, py_max(last, (p->frame.mark & ~7u) + 8));
}

/* Compares the thread state in the buffer with the best candidate so far. */
py_inline void py_compare(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	u64 at = py_word(w, p->ts.cframe ? p->ts.cframe : p->ts.frame);

	if (py_states_by_stack(w)) {
		/* A thread's pointer lies above its stack; the first thread's lies below it. */
		if (at < w->search.floor || at >= w->search.best_at ||
		    (w->search.sp < w->search.match && at >= w->search.match))
			return;
	} else {
		/* An idle state has no frame, or a frame pointer into the state itself. */
		if (py_word(w, p->ts.thread) != w->search.match || at - w->search.tstate < 1024 || !at)
			return;
		if (py_states_by_age(w) && (w->search.best || w->search.passed++ < w->search.walked))
			return;
	}
	w->search.best = w->search.tstate;
	w->search.best_at = at;
}

/* The thread's state is in the buffer: requests its innermost frame. */
py_inline int py_enter_thread(struct py_work *w)
{
	w->frame.at = py_word(w, w->proc.ts.frame);
	if (w->proc.cframe)
		return py_want(w, PY_STAGE_CFRAME, w->frame.at, w->proc.ts.cframe_frame + 8);
	return py_want_frame(w);
}

/* Skips a frame without a function. */
py_inline int py_pass_frame(struct py_work *w)
{
	if (++w->search.hops > PY_MAX_HOPS)
		return py_finish(w, PY_END_GARBAGE);
	w->frame.at = w->frame.back;
	return py_want_frame(w);
}

py_inline int py_take_frame(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	u8 mark = py_byte(w, p->frame.mark);

	w->frame.back = py_word(w, p->frame.back);
	if (w->frame.back == w->frame.at)
		return py_finish(w, PY_END_GARBAGE);
	bool shim = p->kind == PY_KIND_SHIM && mark >= PY_OWNER_SHIM;
	/* Between a generator and its caller lies a frame without a function. */
	bool between = p->kind == PY_KIND_PHP && !py_word(w, p->frame.code);
	if (shim)
		py_close_call(w);
	if (shim || between)
		return py_pass_frame(w);
	/* From 3.14 on references carry tag bits. */
	w->frame.code = py_word(w, p->frame.code) & ~7ull;
	w->frame.mark = p->kind == PY_KIND_OBJECTS || (p->kind == PY_KIND_ENTRY && mark);
	if (p->kind == PY_KIND_PHP) {
		w->frame.mark = (py_half(w, p->frame.mark) & PHP_TOP) != 0;
		w->frame.instr = py_word(w, p->frame.instr);
		w->frame.lasti = 0;
	} else if (p->kind == PY_KIND_OBJECTS)
		w->frame.lasti = (s32)(py_half(w, p->frame.instr) << p->lasti_shift);
	else
		w->frame.lasti = (s32)(py_word(w, p->frame.instr) - (w->frame.code + p->code.start));
	return py_want(w, PY_STAGE_CODE, w->frame.code, py_max(p->code.line, p->code.name) + 8);
}

/* Emits the frame and requests its caller. */
py_inline int py_put_frame(struct py_work *w)
{
	u64 first = w->frame.code | (w->frame.mark ? PY_WORD_ENTRY : 0);
	u64 second = w->frame.check << 32 | (u32)w->frame.lasti;
	u32 n = w->out.n;

	if (n >= PY_MAX_FRAMES)
		return py_finish(w, PY_END_MAX_FRAMES);
	w->out.words[(2 * n) & (2 * PY_MAX_FRAMES - 1)] = first;
	w->out.words[(2 * n + 1) & (2 * PY_MAX_FRAMES - 1)] = second;
	w->out.n = n + 1;
	u64 h = (w->out.hash ^ first) * 0xff51afd7ed558ccdull;
	h = ((h ^ h >> 32) ^ second) * 0xff51afd7ed558ccdull;
	w->out.hash = h ^ h >> 32;
	w->frame.at = w->frame.back;
	return py_want_frame(w);
}

/* Distinguishes code objects that reuse an address; `check` in code.rs computes the same value. */
py_inline u64 py_check(u64 name, u64 line)
{
	return (name ^ line << 40) * 0x9E3779B97F4A7C15ull >> 32;
}

py_inline int py_take_code(struct py_work *w)
{
	struct py_proc *p = &w->proc;

	w->frame.check = py_check(py_word(w, p->code.name), py_half(w, p->code.line));
	if (p->kind == PY_KIND_PHP) {
		u8 type = py_byte(w, p->code.line);

		if (type == PHP_USER || type == PHP_EVAL) {
			/* At its start a function has no current instruction. */
			if (w->frame.instr && !(w->frame.instr & 7))
				return py_want(w, PY_STAGE_LINE, w->frame.instr + p->code.start, 8);
		} else if (type != PHP_INTERNAL) {
			return py_finish(w, PY_END_GARBAGE);
		} else if (!py_word(w, p->code.name)) {
			/* The first frame of a fiber. */
			return py_pass_frame(w);
		}
	}
	return py_put_frame(w);
}

/* Handles a failed read; returns whether the walk ends. */
py_inline int py_unread(struct py_work *w)
{
	/* PHP's JIT code leaves a stale instruction pointer behind. */
	if (w->stage == PY_STAGE_LINE) {
		w->buf[0] = 0;
		return 0;
	}
	/* Ruby: the remembered thread has ended. */
	if (w->stage == RB_STAGE_KNOWN || (w->stage == RB_STAGE_NATIVE && !w->search.several)) {
		w->search.tstate = 0;
		w->stage = PY_STAGE_START;
		return 0;
	}
	w->out.end = PY_END_UNREADABLE;
	return 1;
}

#endif
