/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Structures and values that the C and Rust sides share about interpreter frames of CPython, PHP
 * and Ruby. `src/runtime/python/abi.rs` mirrors each of them; a test compares the two.
 */
#ifndef WALLSCOPE_PYTHON_ABI_H
#define WALLSCOPE_PYTHON_ABI_H

/* Maximum interpreter frames of one stack: above Python's default recursion limit. */
#define PY_MAX_FRAMES 1024
/* Maximum bytes of one read; every offset lies within it. */
#define PY_BYTES 256

/* How an interpreter chains its frames. */
enum py_kind {
	PY_KIND_OBJECTS = 1, /* to 3.10: frame objects, each run by its own call of the eval loop */
	PY_KIND_ENTRY = 2,   /* 3.11: the outermost frame of each eval-loop call is marked */
	PY_KIND_SHIM = 3,    /* from 3.12 on: each eval-loop call begins with a shim frame */
	PY_KIND_PHP = 4,     /* PHP: one chain a process, which includes functions written in C */
	PY_KIND_RUBY = 5,    /* CRuby: the frames of a thread are contiguous and include C functions */
};

/* PY_KIND_SHIM: a frame owner of this value or above marks a shim frame. */
#define PY_OWNER_SHIM 3

/* PHP: ZEND_CALL_TOP, the flag of a frame for which the engine was called. Then the function types:
 * written in C, from a script, evaluated at run time. */
#define PHP_TOP (1u << 17)
#define PHP_INTERNAL 1
#define PHP_USER 2
#define PHP_EVAL 4

/* CRuby: flags in the last word of a frame's environment. They give the kind of frame, and
 * RB_FINISH where the eval loop was called for it. */
#define RB_KINDS 0x7fff0001u
#define RB_METHOD 0x11110001u
#define RB_BLOCK 0x22220001u
#define RB_CLASS 0x33330001u
#define RB_TOP 0x44440001u
#define RB_CFUNC 0x55550001u
#define RB_IFUNC 0x66660001u /* a block written in C */
#define RB_EVAL 0x77770001u
#define RB_RESCUE 0x78880001u
#define RB_DUMMY 0x79990001u /* the first frame of a stack */
#define RB_FINISH 0x20u
/* CRuby: type bits in the first word of an internal object. The kind of an RB_IMEMO object is above
 * RB_IMEMO_SHIFT. */
#define RB_TYPES 0x1f
#define RB_IMEMO 0x1a
#define RB_IMEMO_SHIFT 12
#define RB_IMEMO_KINDS 15
#define RB_SVAR 2 /* special variables of a method; the method entry follows */
#define RB_MENT 6

/* Why a walk ended. */
enum py_end {
	PY_END_NONE = 0,
	PY_END_ROOT = 1,
	PY_END_MAX_FRAMES = 2,
	PY_END_NOT_READY = 3, /* no interpreter yet, or no longer */
	PY_END_NO_THREAD = 4, /* the thread does not belong to the interpreter */
	PY_END_UNREADABLE = 5,
	PY_END_GARBAGE = 6,   /* an impossible value was read */
};

/* A range of instructions of a file: `bytes` of them from frame word `first` on. */
struct py_span {
	u64 first;
	u64 bytes;
};

/* The interpreter of one process: the address of its state, and the offsets of the fields that are
 * read. */
struct py_proc {
	u64 runtime;        /* _PyRuntime; PHP: executor_globals; Ruby: ruby_current_vm_ptr */
	u64 gil;            /* address of the GIL's locks; 0: unknown; Ruby: 8 before its holder */
	struct py_span eval[2]; /* the eval loop and its cold part */
	u32 gil_bytes;
	struct {
		u32 head;    /* in the runtime; PHP: innermost frame; Ruby: list of ractors or threads */
		u32 next;    /* in the interpreter state; Ruby: in a ractor, 0 if there are none */
		u32 threads;
	} interp;
	struct {
		u16 next;
		u16 thread;
		u16 frame;
		u16 cframe_frame; /* in the object at `frame`, if `cframe` is set; Ruby: the thread's
				   * pointer, in the object at `thread` */
		u16 cframe;  /* pointer into the stack of the thread that runs this state; 0: none */
	} ts;                /* in a thread state */
	struct {
		u16 code;
		u16 back;    /* Ruby: the size of a frame */
		u16 instr;
		u16 mark;    /* PY_KIND_ENTRY: is_entry; PY_KIND_SHIM: owner; PHP: call info; Ruby: env */
	} frame;             /* in a frame */
	struct {
		u16 line;    /* Ruby: the method definition, in a method entry */
		u16 name;    /* Ruby: the body, in an iseq */
		u16 start;   /* first instruction; PY_KIND_OBJECTS: unused; PHP: line, in an opcode */
	} code;              /* in a code object */
	struct {
		u16 wait;    /* condition variable on which a thread waits for the GVL and sleeps */
		u16 unblock; /* function that can end the thread's sleep; 0: it does not sleep */
	} gvl;               /* Ruby: in a thread */
	u8 kind;            /* enum py_kind; fields that a kind lacks are 0 */
	u8 cframe;
	u8 lasti_shift;     /* PY_KIND_OBJECTS: f_lasti counts units of 1 << this */
	u8 pad0[1];
};

/*
 * A stack as it is sent: two words a frame, innermost first.
 *
 *   code object | PY_WORD_ENTRY if this is the outermost function of an eval-loop call
 *   check << 32 | offset of the instruction in bytes, signed (negative: not started)
 *
 * `check` tells code objects apart that reuse an address. PHP sends the function in the first word,
 * and the line (0: unknown) in place of the offset.
 */
#define PY_WORD_ENTRY (1ull << 48)
struct py_stack {
	u32 kind; /* kind of the record */
	u32 size;
	u64 hash;
	u32 pid;
	u32 n;
	u32 end; /* enum py_end */
	u32 pad0;
	u64 words[2 * PY_MAX_FRAMES];
};

/* Search for the state of a thread. */
struct py_search {
	u64 match;   /* the thread's pointer, as the interpreter records it */
	u64 tstate;
	u64 interp;  /* the next interpreter */
	u64 sp;      /* the thread's stack pointer; 0: unknown */
	u64 floor;   /* the part of the stack below has been walked */
	u64 best;    /* with several interpreters: the best candidate for the running state */
	u64 best_at;
	u32 several; /* there are several interpreters */
	u32 walked;  /* states of this thread that have been walked, innermost first */
	u32 passed;  /* of those, seen again in this pass */
	u32 hops;
};

/* The frame that is being read. */
struct py_frame {
	u64 at;
	u64 back;
	u64 code;
	u64 check;
	u64 instr; /* PHP: current instruction of the frame */
	u32 mark;
	s32 lasti;
};

/* State of one walk. It needs no clearing between uses. */
struct py_work {
	struct py_proc proc;
	struct py_search search;
	struct py_frame frame;
	u64 want; /* when py_advance returns PY_NEED: address… */
	u32 need; /* …and number of bytes to read, at most PY_BYTES */
	u32 stage;
	u64 buf[PY_BYTES / 8];
	struct py_stack out;
};

#endif
