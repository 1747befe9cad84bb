/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * What the C and Rust sides exchange about the code of a HotSpot VM. `src/runtime/hotspot/abi.rs`
 * mirrors every structure and value; a test compares the two.
 */
#ifndef WALLSCOPE_HOTSPOT_ABI_H
#define WALLSCOPE_HOTSPOT_ABI_H

/* Most heaps of code: there are one or three; a fourth from JDK 26 on. */
#define HS_HEAPS 4
/* Memory beside the stack that is at hand. Every offset in a blob lies well within it. */
#define HS_SIDE_BYTES 512

/* A heap of code, and the map that tells where in it a piece of code (a blob) begins. */
struct hs_heap {
	u64 low;
	u64 high;
	u64 segmap;
};

/* The VM of one process, HotSpot or V8. */
struct hs_proc {
	u64 low; /* all its code; equal: none */
	u64 high;
	struct hs_heap heap[HS_HEAPS];
	u16 blob_name; /* in a blob */
	u16 blob_begin;
	u16 blob_end;
	u16 blob_frame_size;
	u16 blob_complete;
	u16 method_deopt; /* in the blob of a compiled method */
	u16 method_orig_pc;
	u16 method_id;
	u8 offsets; /* begin, end and deopt are offsets of four bytes from the blob, not pointers */
	u8 segment_shift;
	u8 header; /* bytes of the heap's own before each blob */
	/* Instead of all this, V8: its functions. Offsets in a function; 0: not V8 */
	u8 js_shared;
	u8 js_code;
	u8 js_bytecode; /* how far below a frame's pointer its place in the bytecode is */
	u8 pad0[2];
};

/*
 * Words among the frames of a stack, told by what would be the file of a frame. File ids never come
 * near them.
 *
 *   HS_WORD_PID | process            once, before the first of them: addresses are this process's
 *   frame, HS_WORD_CODE | id         the frame lies in compiled code, of the method compiled as `id`
 *   HS_WORD_METHOD | address, HS_WORD_BCP | address
 *                                    instead of a frame: an interpreted method and its bytecode
 *
 * A frame of the VM's other code has no word with it.
 *
 *   frame, JS_WORD_FUNCTION | address, then JS_WORD_BYTECODE | offset or JS_WORD_CODE | address
 *                                    the frame is of a function of V8's, by what it shares with
 *                                    others of its source: interpreted, or in this code object;
 *                                    both words: one or the other
 */
#define JS_WORD_BYTECODE (0xfff9ull << 48)
#define JS_WORD_CODE (0xfffaull << 48)
#define JS_WORD_FUNCTION (0xfffbull << 48)
#define HS_WORD_PID (0xfffcull << 48)
#define HS_WORD_CODE (0xfffdull << 48)
#define HS_WORD_METHOD (0xfffeull << 48)
#define HS_WORD_BCP (0xffffull << 48)

/* The first letters of a name that a process has at an address. */
struct hs_name {
	u64 at;
	u32 tgid;
	u32 kind;
};
#define HS_NAMES 8

/* Where one walk is in the VM's code. */
struct hs_walk {
	struct hs_proc proc;
	struct hs_name names[HS_NAMES]; /* kept from one walk to the next */
	u64 blob;
	u64 begin; /* of its code */
	u64 deopt;
	u64 name;
	u64 low;    /* of its heap */
	u64 segmap;
	u64 segment;
	u32 frame_size; /* bytes */
	u32 complete;   /* from here on in the code, the frame is */
	u32 orig_pc;
	u32 id;
	u32 kind; /* the first four letters of the blob's name */
	u8 stage;
	u8 told; /* the process has been put out */
	u8 guessed; /* the blob is the one in which the pc was seen before */
	u8 optional; /* the side that was asked for is not needed to go on */
	u32 side_len;
	u32 pad1;
	u64 side_at; /* memory beside the stack */
	u64 side[HS_SIDE_BYTES / 8 + 1];
};

#endif
