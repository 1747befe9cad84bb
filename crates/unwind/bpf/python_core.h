/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Walks a thread's interpreter frames: a state machine that kernel programs and user space share.
 *
 * Like the native unwinder, it reads no memory itself. py_advance() returns PY_NEED when it lacks
 * w->need bytes at w->want; the caller puts them into w->buf and calls again. It returns PY_DONE
 * with w->out.end set at the end. It goes from the runtime to its interpreters, to their threads,
 * to the thread with pointer w->search.match, and along that thread's frames. If the caller passes the
 * thread's state of an earlier walk (w->search.tstate), only that one is checked.
 *
 * With several interpreters, a thread has a state in each one it entered. It may run a state that
 * is marked as another thread's: 3.8 to 3.12 mark a state once, with its creator. From 3.10 to 3.12
 * a running state points into its thread's stack. If w->search.sp is known, this identifies the state, and
 * a thread's states follow in the order of their calls. From 3.13 on a state belongs to its thread,
 * and newer interpreters are taken to be called by older ones. Otherwise the oldest state with
 * frames is taken: where one interpreter calls another, frames of the inner one are missing.
 *
 * CRuby has lists of threads, one for each ractor from 3.0 on. A thread points to the execution
 * context of its current fiber. The end of that context's stack memory holds the frames, innermost
 * first. A frame points to its environment, which gives the kind of frame and the method.
 *
 * PHP has one chain of frames for the process, which starts at a fixed address and includes
 * functions written in C.
 *
 * The target runs while we read it. Every chain is bounded, and no value that was read is trusted.
 * User space reads names and lines from the code objects.
 */
#ifndef WALLSCOPE_PYTHON_CORE_H
#define WALLSCOPE_PYTHON_CORE_H

#include "python_step.h"
#include "ruby_core.h"

/* Performs one step; see the top of this file. */
__attribute__((noinline)) int py_advance(struct py_work *w)
{
	if (!w)
		return PY_DONE;
	struct py_proc *p = &w->proc;

	if (w->stage >= RB_STAGE_KNOWN)
		return rb_advance(w);
	switch (w->stage) {
	case PY_STAGE_START:
		if (p->kind != PY_KIND_RUBY)
			return py_want_runtime(w);
		if (w->search.tstate)
			return py_want_thread(w, RB_STAGE_KNOWN);
		return py_want(w, RB_STAGE_VM, p->runtime, 8);
	case PY_STAGE_RUNTIME:
		w->search.interp = w->frame.at = py_word(w, 0);
		if (!w->search.interp)
			return py_finish(w, w->out.n ? PY_END_ROOT : PY_END_NOT_READY);
		if (p->kind == PY_KIND_PHP)
			return py_want_frame(w);
		return py_want_interp(w, PY_STAGE_HEAD);
	case PY_STAGE_HEAD:
		w->search.interp = py_word(w, p->interp.next - py_interp_base(p));
		w->frame.back = py_word(w, p->interp.threads - py_interp_base(p));
		w->search.several = w->search.interp != 0;
		if (!w->search.several && w->search.walked)
			return py_finish(w, PY_END_ROOT);
		if (!w->search.several && w->search.tstate)
			return py_want_thread(w, PY_STAGE_KNOWN);
		w->search.tstate = w->frame.back;
		break;
	case PY_STAGE_KNOWN:
		if (py_word(w, p->ts.thread) == w->search.match)
			return py_enter_thread(w);
		w->search.tstate = w->frame.back;
		break;
	case PY_STAGE_INTERP:
		w->search.interp = py_word(w, p->interp.next - py_interp_base(p));
		w->search.tstate = py_word(w, p->interp.threads - py_interp_base(p));
		break;
	case PY_STAGE_THREAD:
		if (w->search.several)
			py_compare(w);
		else if (py_word(w, p->ts.thread) == w->search.match)
			return py_enter_thread(w);
		w->search.tstate = py_word(w, p->ts.next);
		break;
	case PY_STAGE_CHOSEN:
		/* The state changed since it was chosen: its thread moved on, or another thread
		 * runs it. */
		if (py_word(w, p->ts.cframe ? p->ts.cframe : p->ts.frame) != w->search.best_at)
			return py_finish(w, PY_END_GARBAGE);
		return py_enter_thread(w);
	case PY_STAGE_CFRAME:
		w->frame.at = py_word(w, p->ts.cframe_frame);
		return py_want_frame(w);
	case PY_STAGE_FRAME:
		return py_take_frame(w);
	case PY_STAGE_CODE:
		return py_take_code(w);
	case PY_STAGE_LINE:
		w->frame.lasti = (s32)py_half(w, 0);
		return py_put_frame(w);
	default:
		return py_finish(w, PY_END_GARBAGE);
	}
	/* Continue with the next thread of this interpreter, or the next interpreter. */
	if (++w->search.hops > PY_MAX_HOPS)
		return py_finish(w, PY_END_NO_THREAD);
	return w->search.tstate ? py_want_thread(w, PY_STAGE_THREAD) : py_want_interp(w, PY_STAGE_INTERP);
}

/* Starts on the thread with pointer `match`. The caller has set w->proc, and w->search.tstate and w->search.sp
 * (0: unknown). */
py_inline void py_begin(struct py_work *w, u32 pid, u64 match)
{
	w->search.match = match;
	w->search.interp = w->search.best = 0;
	w->frame.at = w->frame.back = w->frame.code = w->frame.instr = w->frame.check = 0;
	w->search.best_at = ~0ull;
	w->search.floor = w->search.sp;
	w->search.several = w->search.walked = w->search.passed = 0;
	w->stage = PY_STAGE_START;
	w->search.hops = 0;
	w->out.pid = pid;
	w->out.n = 0;
	w->out.end = PY_END_NONE;
	/* Equal addresses mean other functions in another process. */
	w->out.hash = (pid + 1) * 0x9E3779B97F4A7C15ull;
}

/* Whether a frame of the native unwinder lies in the eval loop. */
py_inline int py_is_eval(const struct py_proc *p, u64 frame)
{
	frame &= ~(1ull << 47); /* UW_FRAME_EXACT */
	return frame - p->eval[0].first < p->eval[0].bytes ||
	       frame - p->eval[1].first < p->eval[1].bytes;
}

#endif
