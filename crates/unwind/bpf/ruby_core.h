/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Walks CRuby's frames: the Ruby part of python_core.h, which describes the steps. */
#ifndef WALLSCOPE_RUBY_CORE_H
#define WALLSCOPE_RUBY_CORE_H

/* Requests the list of threads with its head at w->search.floor. */
py_inline int rb_want_list(struct py_work *w)
{
	return py_want(w, RB_STAGE_LIST, w->search.floor, 8);
}

/* The buffer holds the head of the list of ractors, or a ractor's link in it. */
py_inline int rb_take_ractor(struct py_work *w)
{
	struct py_proc *p = &w->proc;

	w->search.interp = py_word(w, 0);
	if (w->search.interp == w->search.best_at || ++w->search.hops > PY_MAX_HOPS)
		return py_finish(w, PY_END_NO_THREAD);
	/* The list of threads may lie before the link. */
	w->search.floor = w->search.interp + (s64)((s32)p->interp.threads - (s32)p->interp.next);
	return rb_want_list(w);
}

/* Requests thread w->search.tstate, or the next ractor behind the last thread. */
py_inline int rb_want_thread(struct py_work *w)
{
	if (++w->search.hops > PY_MAX_HOPS)
		return py_finish(w, PY_END_NO_THREAD);
	if (w->search.tstate == w->search.floor) {
		w->search.tstate = 0;
		if (!w->search.interp)
			return py_finish(w, PY_END_NO_THREAD);
		return py_want(w, RB_STAGE_RACTOR, w->search.interp, 8);
	}
	return py_want_thread(w, RB_STAGE_THREAD);
}

/* Starts again from the VM, as the remembered thread is out of date. */
py_inline int rb_restart(struct py_work *w)
{
	w->search.tstate = 0;
	return py_want(w, RB_STAGE_VM, w->proc.runtime, 8);
}

/* The thread at w->search.tstate is not the wanted one: requests the next. */
py_inline int rb_pass_thread(struct py_work *w)
{
	if (!w->search.several)
		return rb_restart(w);
	w->search.tstate = w->frame.back;
	return rb_want_thread(w);
}

py_inline int rb_enter_thread(struct py_work *w)
{
	/* A thread that has not started or has ended has no context; the next thread may reuse its
	 * pointer. */
	if (!w->frame.at)
		return w->search.several ? py_finish(w, PY_END_NOT_READY) : rb_restart(w);
	return py_want(w, RB_STAGE_CONTEXT, w->frame.at, 24);
}

/* The buffer holds a thread. */
py_inline int rb_take_thread(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	u64 thread = py_word(w, p->ts.thread);

	w->frame.back = py_word(w, p->ts.next);
	w->frame.at = py_word(w, p->ts.frame);
	if (!p->cframe)
		return thread == w->search.match ? rb_enter_thread(w) : rb_pass_thread(w);
	if (!thread)
		return rb_pass_thread(w);
	return py_want(w, RB_STAGE_NATIVE, thread + p->ts.cframe_frame, 8);
}

/* The buffer holds the stack's address, its length in words and the innermost frame. */
py_inline int rb_take_context(struct py_work *w)
{
	u64 stack = py_word(w, 0), words = py_word(w, 8);

	w->frame.at = py_word(w, 16);
	/* The fiber or thread has ended. */
	if (!stack || !w->frame.at)
		return w->search.several ? py_finish(w, PY_END_ROOT) : rb_restart(w);
	if (words > 1u << 27 || w->frame.at < stack)
		return py_finish(w, PY_END_GARBAGE);
	w->search.floor = stack + 8 * words;
	return rb_want_frame(w);
}

py_inline int rb_take_frame(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	u64 env = py_word(w, p->frame.mark);

	w->frame.back = w->frame.at + p->frame.back;
	w->frame.instr = py_word(w, p->frame.instr);
	w->frame.code = py_word(w, p->frame.code);
	if (env < 16)
		return py_finish(w, PY_END_GARBAGE);
	return py_want(w, RB_STAGE_ENV, env - 16, 24);
}

/* Skips a frame that is not shown. */
py_inline int rb_pass_frame(struct py_work *w)
{
	if (++w->search.hops > PY_MAX_HOPS)
		return py_finish(w, PY_END_GARBAGE);
	w->frame.at = w->frame.back;
	return rb_want_frame(w);
}

/* Requests the word that identifies an iseq without a method entry. */
py_inline int rb_want_code(struct py_work *w)
{
	if (!w->frame.code)
		return rb_pass_frame(w);
	return py_want(w, RB_STAGE_CODE, w->frame.code + w->proc.code.name, 8);
}

/* The buffer holds a frame's method, its parent environment and its flags. */
py_inline int rb_take_env(struct py_work *w)
{
	u64 method = py_word(w, 0);
	u32 flags = (u32)py_word(w, 16);

	w->frame.mark = (flags & RB_FINISH) != 0;
	w->frame.lasti = (s32)w->frame.instr;
	w->search.passed = 0;
	switch (flags & RB_KINDS) {
	case RB_CFUNC:
		w->frame.lasti = 0;
		w->frame.code = 0;
		/* fall through */
	case RB_METHOD:
		if (!method)
			return rb_want_code(w);
		w->search.best = method;
		return py_want(w, RB_STAGE_METHOD, method, w->proc.code.line + 8);
	case RB_BLOCK:
	case RB_CLASS:
	case RB_TOP:
	case RB_EVAL:
	case RB_RESCUE:
		return rb_want_code(w);
	case RB_IFUNC:
	case RB_DUMMY:
		return rb_pass_frame(w);
	default:
		return py_finish(w, PY_END_GARBAGE);
	}
}

py_inline int rb_take_method(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	u32 head = py_half(w, 0), kind = head >> RB_IMEMO_SHIFT & RB_IMEMO_KINDS;

	if ((head & RB_TYPES) == RB_IMEMO && kind == RB_SVAR && !w->search.passed++) {
		u64 method = py_word(w, 8);

		if (!method)
			return rb_want_code(w);
		w->search.best = method;
		return py_want(w, RB_STAGE_METHOD, method, p->code.line + 8);
	}
	/* Code evaluated in place of a method has no entry. */
	if ((head & RB_TYPES) != RB_IMEMO || kind != RB_MENT)
		return rb_want_code(w);
	w->frame.code = w->search.best;
	w->frame.check = py_check(py_word(w, p->code.line - 8) ^ py_word(w, p->code.line), 0);
	return py_put_frame(w);
}

/* Performs one step of the walk. */
py_inline int rb_advance(struct py_work *w)
{
	switch (w->stage) {
	case RB_STAGE_KNOWN:
	case RB_STAGE_THREAD:
		return rb_take_thread(w);
	case RB_STAGE_NATIVE:
		return py_word(w, 0) == w->search.match ? rb_enter_thread(w) : rb_pass_thread(w);
	case RB_STAGE_VM:
		w->search.several = 1;
		w->search.best_at = py_word(w, 0) + w->proc.interp.head;
		if (!py_word(w, 0))
			return py_finish(w, PY_END_NOT_READY);
		if (w->proc.interp.next)
			return py_want(w, RB_STAGE_RACTOR, w->search.best_at, 8);
		w->search.floor = w->search.best_at;
		return rb_want_list(w);
	case RB_STAGE_RACTOR:
		return rb_take_ractor(w);
	case RB_STAGE_LIST:
		w->search.tstate = py_word(w, 0);
		return rb_want_thread(w);
	case RB_STAGE_CONTEXT:
		return rb_take_context(w);
	case RB_STAGE_FRAME:
		return rb_take_frame(w);
	case RB_STAGE_ENV:
		return rb_take_env(w);
	case RB_STAGE_METHOD:
		return rb_take_method(w);
	case RB_STAGE_CODE:
		w->frame.check = py_check(py_word(w, 0), 0);
		return py_put_frame(w);
	default:
		return py_finish(w, PY_END_GARBAGE);
	}
}

#endif
