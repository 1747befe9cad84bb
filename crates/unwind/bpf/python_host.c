/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Runs the interpreter walk in user space: the kernel's steps, with a callback that reads
 * memory. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

/* Two programs in one process may contain this file, so the global functions get names of their
 * own. */
#define py_advance py_host_advance
struct py_work;
int py_host_advance(struct py_work *w);
#include "python_core.h"

/* Reads memory: `read` fills the whole buffer or returns 0. */
struct py_reader {
	int (*read)(void *context, u64 addr, u8 *to, u64 len);
	void *context;
};

/* Walks the frames of the thread with pointer `match`. */
void py_host_walk(struct py_work *w, u32 pid, u64 match, const struct py_reader *reader)
{
	py_begin(w, pid, match);
	for (u32 i = 0; i < PY_STEPS; i++) {
		if (py_advance(w) == PY_DONE)
			return;
		if (!reader->read(reader->context, w->want, (u8 *)w->buf, w->need) && py_unread(w))
			return;
	}
	w->out.end = PY_END_GARBAGE;
}

/* Returns sizes and values for the test that compares them with the Rust mirror. */
void py_host_layout(u64 *out)
{
	out[0] = sizeof(struct py_proc);
	out[1] = sizeof(struct py_stack);
	out[2] = sizeof(struct py_work);
	out[3] = offsetof(struct py_proc, ts.next);
	out[4] = offsetof(struct py_proc, kind);
	out[5] = offsetof(struct py_stack, words);
	out[6] = offsetof(struct py_work, search.tstate);
	out[7] = offsetof(struct py_work, out);
	out[8] = PY_MAX_FRAMES;
	out[9] = PY_WORD_ENTRY;
	out[10] = PY_END_GARBAGE;
	out[11] = PY_KIND_SHIM;
	out[12] = offsetof(struct py_work, search.sp);
	out[13] = PY_KIND_PHP;
	out[14] = PY_KIND_RUBY;
}
