/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Which JavaScript function a frame of V8's code runs. Part of the unwinding machine, which leaves
 * such frames by their frame pointer as any other; here it is only looked at what lies below it:
 *
 *   fp - 8    the context, or a small number in frames that are no function's
 *   fp - 16   the function; at fixed places in it, what it shares with others of its source, and
 *             its code
 *
 * An interpreted function keeps there, too, where in its bytecode it is. From V8 13 on a function has no
 * code object, but the number of its place in a table of them. What that all means is read by user space.
 * Functions of V8's own that have made no frame are left by their table, and nothing is looked for below
 * the frame pointer, which is their caller's. Nothing here ends a stack: what cannot be read is left out.
 */
#ifndef WALLSCOPE_V8_CORE_H
#define WALLSCOPE_V8_CORE_H

#define JS_CONTEXT 8
#define JS_FUNCTION 16

/* A pointer to an object of V8's heap is odd. */
uw_inline u32 js_is_object(u64 word)
{
	return (word & 3) == 1 && !(word >> 47);
}

/* Puts out what is known of the function, if the frame at w->cfa is of one. */
__attribute__((noinline)) int js_put(struct uw_work *w)
{
	if (!w)
		return UW_DONE;
	u64 fp = w->cfa - 16, at, context, function, map, shared, code;

	/* The lowest first: a chunk begins there. */
	if (uw_word(w, fp - w->hs.proc.js_bytecode, &at) ||
	    uw_word(w, fp - JS_FUNCTION, &function) || uw_word(w, fp - JS_CONTEXT, &context))
		return UW_NEED;
	if (!js_is_object(context) || !js_is_object(function))
		return UW_MORE;
	function--;
	if (hs_word(w, function, &map) || hs_word(w, function + w->hs.proc.js_shared, &shared) ||
	    hs_word(w, function + w->hs.proc.js_code, &code)) {
		/* Asked once; where it is not at hand then, it cannot be read. All of the function at
		 * once: it may begin in what the last frame's brought along, and end behind that. */
		w->want = function;
		w->hs.optional = !w->hs.optional;
		return w->hs.optional ? UW_SIDE : UW_MORE;
	}
	w->hs.optional = 0;
	if (!js_is_object(map) || !js_is_object(shared))
		return UW_MORE;
	if (hs_tell(w) || uw_put(w, JS_WORD_FUNCTION | shared))
		return UW_DONE;
	/* A small number is in the upper half of its word. Machine code may have one of its own there: in no
	 * file, where it lies, there is the interpreter only if it was copied. User space tells them apart. */
	if (!(at & 0xffffffff)) {
		if (uw_put(w, JS_WORD_BYTECODE | at >> 32))
			return UW_DONE;
		if (w->frame >> 48)
			return UW_MORE;
	}
	return uw_put(w, JS_WORD_CODE | (code & UW_FRAME_OFFSET));
}

#endif
