/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Structures and values that the C and Rust sides share about HotSpot code.
 * `src/runtime/hotspot/abi.rs` mirrors each of them; a test compares the two.
 */
#ifndef WALLSCOPE_HOTSPOT_ABI_H
#define WALLSCOPE_HOTSPOT_ABI_H

/* Maximum code heaps: a VM has one or three, and up to four from JDK 26 on. */
#define HS_MAX_HEAPS 4
/* Bytes of the buffer for memory outside the stack. It is larger than any offset in a blob. */
#define HS_SIDE_BYTES 512

/* A code heap, and the segment map that tells where each of its blobs begins. */
struct hs_heap {
	u64 low;
	u64 high;
	u64 segmap;
};

/* The HotSpot or V8 runtime of one process. */
struct hs_proc {
	u64 low; /* range of all code heaps; empty if low == high */
	u64 high;
	struct hs_heap heap[HS_MAX_HEAPS];
	struct {
		u16 name, begin, end, frame_size, complete;
	} blob; /* offsets in a blob */
	struct {
		u16 deopt, orig_pc, id;
	} method; /* offsets in the blob of a compiled method */
	u8 offsets; /* begin, end and deopt are 4-byte offsets from the blob, not pointers */
	u8 segment_shift;
	u8 header; /* bytes of the heap block header before each blob */
	struct {
		u8 shared; /* 0: not V8 */
		u8 code;
		u8 bytecode; /* distance below the frame pointer of the bytecode offset */
	} js; /* V8 instead of HotSpot: offsets in a JSFunction */
	u8 pad0[2];
};

/*
 * Words of a stack that are not frames. The top 16 bits, where a frame has its file id, name the
 * kind; no file id reaches these values.
 *
 *   HS_WORD_PID | process            once, before the first word with an address of that process
 *   frame, HS_WORD_CODE | id         the frame is compiled code, of the method compiled as `id`
 *   HS_WORD_METHOD | address, HS_WORD_BCP | address
 *                                    in place of a frame: an interpreted method and its bytecode
 *
 * A frame of other VM code has no extra word.
 *
 *   frame, JS_WORD_FUNCTION | address, then JS_WORD_BYTECODE | offset or JS_WORD_CODE | address
 *                                    the frame runs the V8 function with this SharedFunctionInfo,
 *                                    interpreted or in this code object; with both words, user
 *                                    space decides which one applies
 */
#define JS_WORD_BYTECODE (0xfff9ull << 48)
#define JS_WORD_CODE (0xfffaull << 48)
#define JS_WORD_FUNCTION (0xfffbull << 48)
#define HS_WORD_PID (0xfffcull << 48)
#define HS_WORD_CODE (0xfffdull << 48)
#define HS_WORD_METHOD (0xfffeull << 48)
#define HS_WORD_BCP (0xffffull << 48)

/* The first letters of the name that a process has at an address. */
struct hs_name {
	u64 at;
	u32 tgid;
	u32 kind;
};
#define HS_NAMES 8

/* A blob of code: its header, as far as it has been read. */
struct hs_blob {
	u64 at;
	u64 begin; /* start of the code */
	u64 deopt;
	u64 name;
	u32 frame_size; /* bytes */
	u32 complete;   /* code offset from which the frame is complete */
	u32 orig_pc;
	u32 id;
	u32 kind; /* first four letters of the name */
	u32 pad0;
};

/* Search for the blob of an address, by the segment map of its heap. */
struct hs_search {
	u64 low;    /* start of the heap */
	u64 segmap;
	u64 segment;
};

/* Memory outside the stack. */
struct hs_side {
	u32 len;
	u32 pad0;
	u64 at; /* address of the memory in words[] */
	u64 words[HS_SIDE_BYTES / 8 + 1];
};

/* State of a walk through HotSpot code. */
struct hs_walk {
	struct hs_proc proc;
	struct hs_name names[HS_NAMES]; /* kept from one walk to the next */
	struct hs_blob blob;
	struct hs_search search;
	u8 stage;
	u8 pid_emitted; /* HS_WORD_PID was emitted */
	u8 from_cache; /* the blob comes from the cache of an earlier walk */
	u8 optional; /* the walk can go on without the requested memory */
	struct hs_side side;
};

#endif
