/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What the C and Rust sides of the walk along an interpreter's frames exchange: CPython's, PHP's, and Ruby's.
 * `src/runtime/python/abi.rs` mirrors every structure and value; a test compares the two.
 */
#ifndef WALLSCOPE_PYTHON_ABI_H
#define WALLSCOPE_PYTHON_ABI_H

/* Most Python frames of one stack: more than Python itself allows unless it is told to. */
#define PY_MAX_FRAMES 1024
/* The longest piece of memory that is read at once; every offset lies within it. */
#define PY_BYTES 256

/* How the interpreter chains its frames. */
enum py_kind {
	PY_KIND_OBJECTS = 1, /* to 3.10: frame objects, each run by its own call of the interpreter */
	PY_KIND_ENTRY = 2,   /* 3.11: the outermost frame of each call says so */
	PY_KIND_SHIM = 3,    /* from 3.12: each call begins with a frame that is no function's */
	PY_KIND_PHP = 4,     /* PHP: one chain for the process, also through functions written in C */
	PY_KIND_RUBY = 5,    /* CRuby: each thread's frames lie behind each other; likewise */
};

/* From this value on, the owner of a frame (PY_KIND_SHIM) says that it is no function's. */
#define PY_OWNER_SHIM 3

/* PHP: the mark of a frame for which the engine was called (ZEND_CALL_TOP), and what begins a function:
 * one of C, one of a script, code that was put together at run time. */
#define PHP_TOP (1u << 17)
#define PHP_INTERNAL 1
#define PHP_USER 2
#define PHP_EVAL 4

/* CRuby: what the last word of a frame's environment says: the kind of frame, and RB_FINISH where the loop was
 * called for it. */
#define RB_KINDS 0x7fff0001u
#define RB_METHOD 0x11110001u
#define RB_BLOCK 0x22220001u
#define RB_CLASS 0x33330001u
#define RB_TOP 0x44440001u
#define RB_CFUNC 0x55550001u
#define RB_IFUNC 0x66660001u /* a block written in C */
#define RB_EVAL 0x77770001u
#define RB_RESCUE 0x78880001u
#define RB_DUMMY 0x79990001u /* where a stack begins */
#define RB_FINISH 0x20u
/* CRuby: an internal object, by the first word of it: which one is above RB_IMEMO_SHIFT. */
#define RB_TYPES 0x1f
#define RB_IMEMO 0x1a
#define RB_IMEMO_SHIFT 12
#define RB_IMEMO_KINDS 15
#define RB_SVAR 2 /* what a method keeps of its last match, in front of the method */
#define RB_MENT 6

/* How a walk ended. */
enum py_end {
	PY_END_NONE = 0,
	PY_END_ROOT = 1,
	PY_END_MAX_FRAMES = 2,
	PY_END_NOT_READY = 3, /* no interpreter yet, or none any more */
	PY_END_NO_THREAD = 4, /* the thread is none of the interpreter's */
	PY_END_UNREADABLE = 5,
	PY_END_GARBAGE = 6,   /* what was read cannot be a frame */
};

/* Instructions of a file: unwinder's frame words from first, `bytes` of them. */
struct py_span {
	u64 first;
	u64 bytes;
};

/* The interpreter of one process: where its state begins, and the offsets of what is read. */
struct py_proc {
	u64 runtime;        /* address of _PyRuntime; PHP: of executor_globals; Ruby: of ruby_current_vm_ptr */
	u64 gil;            /* address of the GIL's locks; 0: not known; Ruby: 8 in front of its holder */
	struct py_span eval[2]; /* the interpreter's loop, and its cold part */
	u32 gil_bytes;
	u32 interp_head;    /* in the runtime; PHP: the innermost frame; Ruby: a list of ractors, or of threads */
	u32 interp_next;    /* in the interpreter's state; Ruby: in a ractor, 0: there are none */
	u32 interp_threads;
	u16 ts_next;        /* in a thread's state */
	u16 ts_thread;
	u16 ts_frame;
	u16 cframe_frame;   /* in what ts_frame points to, where `cframe` is set; Ruby: the pointer, in what
			     * ts_thread points to */
	u16 ts_cframe;      /* what lies on the stack of the thread that runs this state; 0: nothing */
	u16 frame_code;     /* in a frame */
	u16 frame_back;     /* Ruby: the length of a frame */
	u16 frame_instr;
	u16 frame_mark;     /* PY_KIND_ENTRY: is_entry; PY_KIND_SHIM: owner; PHP: of the call; Ruby: environment */
	u16 code_line;      /* in a code object; Ruby: what is called, in a method's entry */
	u16 code_name;      /* Ruby: the body, in a piece of code */
	u16 code_start;     /* the first instruction; PY_KIND_OBJECTS: unused; PHP: the line, in an instruction */
	u16 ts_wait;        /* Ruby: what a thread waits at for the lock, and sleeps at, where its pointer is */
	u16 ts_unblock;     /* Ruby: who can end its sleep; 0: nobody, it does not sleep */
	u8 kind;            /* enum py_kind; what it does not have is 0 */
	u8 cframe;
	u8 lasti_shift;     /* PY_KIND_OBJECTS: f_lasti counts units of 1 << this */
	u8 pad0[1];
};

/*
 * A stack, as it is sent. Two words for each frame, innermost first:
 *   code object | PY_WORD_ENTRY where this is the outermost function of a call of the interpreter
 *   check << 32 | offset of the instruction in bytes, signed (negative: not begun)
 * `check` tells apart code objects that were at the same address one after the other. PHP: the function,
 * and in place of the offset the line (0: not known).
 */
#define PY_WORD_ENTRY (1ull << 48)
struct py_stack {
	u32 kind; /* of the record */
	u32 size;
	u64 hash;
	u32 pid;
	u32 n;
	u32 end; /* enum py_end */
	u32 pad0;
	u64 words[2 * PY_MAX_FRAMES];
};

/* Everything one walk needs. Need not be cleared between uses. */
struct py_work {
	struct py_proc proc;
	u64 match; /* the thread's pointer, as the interpreter knows it */
	u64 tstate;
	u64 interp; /* the next one */
	u64 sp;     /* the thread's stack pointer; 0: not known */
	u64 floor;  /* what lies on the stack below has been walked */
	u64 best;   /* of several interpreters: the state that the thread runs, as far as is known */
	u64 best_at;
	u64 frame;
	u64 back;
	u64 code;
	u64 check;
	u64 instr; /* PHP: where the frame is in its function */
	u64 want; /* what is needed next, when py_advance asks: */
	u32 need; /* so many bytes, at most PY_BYTES */
	u32 stage;
	u32 hops;
	u32 mark;
	s32 lasti;
	u32 several; /* interpreters */
	u32 walked;  /* states of this thread, innermost first */
	u32 passed;  /* of those, met again */
	u64 buf[PY_BYTES / 8];
	struct py_stack out;
};

#endif
