/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Walks CRuby's frames: the Ruby part of python_core.h, which describes the steps. */
#ifndef WALLSCOPE_RUBY_CORE_H
#define WALLSCOPE_RUBY_CORE_H

/* Requests the list of threads with its head at w->floor. */
py_inline int rb_want_list(struct py_work *w)
{
	return py_want(w, RB_STAGE_LIST, w->floor, 8);
}

/* The buffer holds the head of the list of ractors, or a ractor's link in it. */
py_inline int rb_take_ractor(struct py_work *w)
{
	struct py_proc *p = &w->proc;

	w->interp = py_word(w, 0);
	if (w->interp == w->best_at || ++w->hops > PY_MOST_HOPS)
		return py_finish(w, PY_END_NO_THREAD);
	/* The list of threads may lie before the link. */
	w->floor = w->interp + (s64)((s32)p->interp_threads - (s32)p->interp_next);
	return rb_want_list(w);
}

/* Requests thread w->tstate, or the next ractor behind the last thread. */
py_inline int rb_want_thread(struct py_work *w)
{
	if (++w->hops > PY_MOST_HOPS)
		return py_finish(w, PY_END_NO_THREAD);
	if (w->tstate == w->floor) {
		w->tstate = 0;
		if (!w->interp)
			return py_finish(w, PY_END_NO_THREAD);
		return py_want(w, RB_STAGE_RACTOR, w->interp, 8);
	}
	return py_want_thread(w, RB_STAGE_THREAD);
}

/* Starts again from the VM, as the remembered thread is out of date. */
py_inline int rb_look_anew(struct py_work *w)
{
	w->tstate = 0;
	return py_want(w, RB_STAGE_VM, w->proc.runtime, 8);
}

/* The thread at w->tstate is not the wanted one: requests the next. */
py_inline int rb_pass_thread(struct py_work *w)
{
	if (!w->several)
		return rb_look_anew(w);
	w->tstate = w->back;
	return rb_want_thread(w);
}

py_inline int rb_enter_thread(struct py_work *w)
{
	/* A thread that has not started or has ended has no context; the next thread may reuse its
	 * pointer. */
	if (!w->frame)
		return w->several ? py_finish(w, PY_END_NOT_READY) : rb_look_anew(w);
	return py_want(w, RB_STAGE_CONTEXT, w->frame, 24);
}

/* The buffer holds a thread. */
py_inline int rb_take_thread(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	u64 thread = py_word(w, p->ts_thread);

	w->back = py_word(w, p->ts_next);
	w->frame = py_word(w, p->ts_frame);
	if (!p->cframe)
		return thread == w->match ? rb_enter_thread(w) : rb_pass_thread(w);
	if (!thread)
		return rb_pass_thread(w);
	return py_want(w, RB_STAGE_NATIVE, thread + p->cframe_frame, 8);
}

/* The buffer holds the stack's address, its length in words and the innermost frame. */
py_inline int rb_take_context(struct py_work *w)
{
	u64 stack = py_word(w, 0), words = py_word(w, 8);

	w->frame = py_word(w, 16);
	/* The fiber or thread has ended. */
	if (!stack || !w->frame)
		return w->several ? py_finish(w, PY_END_ROOT) : rb_look_anew(w);
	if (words > 1u << 27 || w->frame < stack)
		return py_finish(w, PY_END_GARBAGE);
	w->floor = stack + 8 * words;
	return rb_want_frame(w);
}

py_inline int rb_take_frame(struct py_work *w)
{
	struct py_proc *p = &w->proc;
	u64 env = py_word(w, p->frame_mark);

	w->back = w->frame + p->frame_back;
	w->instr = py_word(w, p->frame_instr);
	w->code = py_word(w, p->frame_code);
	if (env < 16)
		return py_finish(w, PY_END_GARBAGE);
	return py_want(w, RB_STAGE_ENV, env - 16, 24);
}

/* Skips a frame that is not shown. */
py_inline int rb_pass_frame(struct py_work *w)
{
	if (++w->hops > PY_MOST_HOPS)
		return py_finish(w, PY_END_GARBAGE);
	w->frame = w->back;
	return rb_want_frame(w);
}

/* Requests the word that identifies an iseq without a method entry. */
py_inline int rb_want_code(struct py_work *w)
{
	if (!w->code)
		return rb_pass_frame(w);
	return py_want(w, RB_STAGE_CODE, w->code + w->proc.code_name, 8);
}

/* The buffer holds a frame's method, its parent environment and its flags. */
py_inline int rb_take_env(struct py_work *w)
{
	u64 method = py_word(w, 0);
	u32 flags = (u32)py_word(w, 16);

	w->mark = (flags & RB_FINISH) != 0;
	w->lasti = (s32)w->instr;
	w->passed = 0;
	switch (flags & RB_KINDS) {
	case RB_CFUNC:
		w->lasti = 0;
		w->code = 0;
		/* fall through */
	case RB_METHOD:
		if (!method)
			return rb_want_code(w);
		w->best = method;
		return py_want(w, RB_STAGE_METHOD, method, w->proc.code_line + 8);
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

	if ((head & RB_TYPES) == RB_IMEMO && kind == RB_SVAR && !w->passed++) {
		u64 method = py_word(w, 8);

		if (!method)
			return rb_want_code(w);
		w->best = method;
		return py_want(w, RB_STAGE_METHOD, method, p->code_line + 8);
	}
	/* Code evaluated in place of a method has no entry. */
	if ((head & RB_TYPES) != RB_IMEMO || kind != RB_MENT)
		return rb_want_code(w);
	w->code = w->best;
	w->check = py_check(py_word(w, p->code_line - 8) ^ py_word(w, p->code_line), 0);
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
		return py_word(w, 0) == w->match ? rb_enter_thread(w) : rb_pass_thread(w);
	case RB_STAGE_VM:
		w->several = 1;
		w->best_at = py_word(w, 0) + w->proc.interp_head;
		if (!py_word(w, 0))
			return py_finish(w, PY_END_NOT_READY);
		if (w->proc.interp_next)
			return py_want(w, RB_STAGE_RACTOR, w->best_at, 8);
		w->floor = w->best_at;
		return rb_want_list(w);
	case RB_STAGE_RACTOR:
		return rb_take_ractor(w);
	case RB_STAGE_LIST:
		w->tstate = py_word(w, 0);
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
		w->check = py_check(py_word(w, 0), 0);
		return py_put_frame(w);
	default:
		return py_finish(w, PY_END_GARBAGE);
	}
}

#endif
