/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Runs the unwinder's state machine in user space: the kernel's steps, with tables in ordinary
 * memory and callbacks that read the stack.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#include "unwind_abi.h"

struct uw_host_table {
	const u64 *words;
	u64 count;
};

/* Reads up to len bytes at addr; returns the number read. */
struct uw_reader {
	u64 (*read)(void *context, u64 addr, u8 *to, u64 len);
	void *context;
};

struct uw_host {
	const struct uw_rule *rules;
	u64 rule_count;
	const struct uw_host_table *tables;
	u64 table_count;
	const struct uw_mapping *mappings;
	u64 mapping_count;
	struct uw_proc proc;
	const struct hs_proc *hotspot; /* or NULL */
	struct uw_reader stack;
	struct uw_reader beside; /* for memory outside the stack */
	struct uw_reader code;   /* for instructions, which do not change */
	/* Bit per register, by DWARF number: its value is known. */
	u64 known;
	/* Distance from the stack pointer up to the CFA of the frame at ip, in bytes; 0:
	 * unknown. `frame` is ip's place in its file. Used for frames with a CFA that needs an
	 * unknown rbp. */
	s64 (*cfa_offset)(void *context, u64 ip, u64 frame, u32 exact);
	void *cfa_offset_context;
};

static _Thread_local const struct uw_host *host;

typedef const struct uw_host_table *uw_table;

static inline struct uw_rule *uw_get_rule(u32 id)
{
	return id < host->rule_count ? (struct uw_rule *)&host->rules[id] : NULL;
}
static inline struct uw_mapping *uw_get_mapping(u32 index)
{
	return index < host->mapping_count ? (struct uw_mapping *)&host->mappings[index] : NULL;
}
static inline struct uw_proc *uw_get_proc(u32 tgid)
{
	(void)tgid;
	return (struct uw_proc *)&host->proc;
}
static inline struct hs_proc *hs_get_proc(u32 tgid)
{
	(void)tgid;
	return (struct hs_proc *)host->hotspot;
}
static inline uw_table uw_open_table(u32 file)
{
	if (file >= host->table_count || !host->tables[file].count)
		return NULL;
	return &host->tables[file];
}
static inline u64 *uw_table_word(uw_table table, u32 index)
{
	return index < table->count ? (u64 *)&table->words[index] : NULL;
}

/* Two programs in one process may contain this file, so the global functions get names of their
 * own. */
#define uw_lookup uw_host_lookup
#define uw_leave_go_stack uw_host_leave_go_stack
#define uw_advance uw_host_advance
#define hs_advance hs_host_advance
#define js_put js_host_put
#define js_check_frame js_host_check_frame
#define js_makes_frame js_host_makes_frame
#define js_check_entry js_host_check_entry
int uw_host_lookup(struct uw_work *w);
int uw_host_leave_go_stack(struct uw_work *w);
int uw_host_advance(struct uw_work *w);
int hs_host_advance(struct uw_work *w);
int js_host_put(struct uw_work *w);
int js_host_check_frame(struct uw_work *w);
int js_host_makes_frame(u64 code, u64 more, u32 from);
int js_host_check_entry(struct uw_work *w);
/* A copy of a stack has nothing below the stack pointer. */
#define JS_NOTHING_BELOW
#include "unwind_core.h"

#define UW_R14 14

static int read_word(const struct uw_host *h, u64 addr, u64 *to)
{
	return !(addr & 7) && h->stack.read(h->stack.context, addr, (u8 *)to, 8) == 8;
}

static int is_code(const struct uw_host *h, u64 word)
{
	for (u64 i = 0; i < h->mapping_count; i++) {
		const struct uw_mapping *m = &h->mappings[i];

		if (m->gen == h->proc.gen && word >= m->start && word < m->end)
			return 1;
	}
	return 0;
}

/* Maximum distance between two chained frames, in bytes. */
#define UW_MAX_FRAME_DISTANCE (64ull << 20)

/* Whether `bp` points at a frame: a saved frame pointer above it and a return address in known
 * code. */
static int is_frame(const struct uw_host *h, u64 bp)
{
	u64 next, to;

	if (!read_word(h, bp, &next) || !read_word(h, bp + 8, &to) || !is_code(h, to))
		return 0;
	return !next || (!(next & 7) && next > bp && next - bp < UW_MAX_FRAME_DISTANCE);
}

/* Recovers an unknown rbp from the stack pointer and the CFA offset that the code gives. In code
 * without unwind information the result must also point at a frame. Returns whether it
 * succeeded. */
static int find_rbp(const struct uw_host *h, struct uw_work *w)
{
	struct uw_rule *r = w->search.rule < UW_RULE_FIRST ? NULL : uw_get_rule(w->search.rule);
	int described = w->search.rule != UW_RULE_FP;

	if (w->out.end != UW_END_BAD_RULE || w->stage != UW_STAGE_CFA || !r ||
	    (described && r->kind != UW_KIND_REG) || r->reg != UW_RBP || w->regs.valid & 1u << UW_RBP)
		return 0;
	s64 cfa_offset = h->cfa_offset(h->cfa_offset_context, w->regs.ip, w->frame.word, w->frame.exact);
	if (cfa_offset <= 0)
		return 0;
	u64 bp = w->regs.value[UW_RSP] + cfa_offset - r->cfa_off;
	if (!described && !is_frame(h, bp))
		return 0;
	w->regs.value[UW_RBP] = bp;
	w->regs.valid |= 1u << UW_RBP;
	w->regs.located &= ~(1u << UW_RBP);
	w->out.end = UW_END_NONE;
	return 1;
}

/* Words below a frame that identify its last call. */
#define UW_CALL_WORDS 8

/* Whether the thread still stands where its copied stack shows it: the frame at the stack pointer
 * has made the same last call. This always holds for a thread that is stopped. `start`: lowest
 * address of the copy. */
static int is_same_call(const struct uw_host *h, const struct uw_work *w, u64 start)
{
	u64 sp = w->regs.value[UW_RSP], from = sp - 8 * UW_CALL_WORDS, bytes;
	u64 copied[UW_CALL_WORDS], now[UW_CALL_WORDS];

	if (from < start)
		from = (start + 7) & ~7ull;
	bytes = sp - from;
	if (sp < from || !bytes || bytes > sizeof(copied) || bytes & 7)
		return 0;
	if (h->stack.read(h->stack.context, from, (u8 *)copied, bytes) != bytes ||
	    h->beside.read(h->beside.context, from, (u8 *)now, bytes) != bytes)
		return 0;
	/* Words that are not return addresses may change at any time. */
	for (u64 i = 0; i < bytes / 8; i++) {
		if (copied[i] != now[i] && is_code(h, copied[i]))
			return 0;
	}
	return copied[bytes / 8 - 1] == now[bytes / 8 - 1];
}

/* Switches from a thread's own stack to its goroutine's when the TLS base is unknown. The frame
 * that calls C keeps the goroutine; otherwise r14, Go's register for the current goroutine, may
 * still hold g0. Either value must match the thread's own fields. Returns whether it succeeded. */
static int find_goroutine(const struct uw_host *h, struct uw_work *w, u64 start)
{
	struct uw_rule *r = w->search.rule < UW_RULE_FIRST ? NULL : uw_get_rule(w->search.rule);
	u64 g, m, back;

	if (w->out.end != UW_END_BAD_RULE || w->stage != UW_STAGE_CFA || !r ||
	    r->kind != UW_KIND_GO || w->tls || !is_same_call(h, w, start))
		return 0;
	if (r->slot[4]) {
		if (!read_word(h, w->regs.value[UW_RSP] + r->slot[4], &g) ||
		    !read_word(h, g + r->slot[0], &m) || !read_word(h, m + r->slot[1], &back) ||
		    back != g)
			return 0;
		w->stage = UW_STAGE_GO_CURRENT;
	} else {
		g = w->regs.value[UW_R14];
		if (!(w->regs.valid & 1u << UW_R14) ||
		    (w->regs.located & 1u << UW_R14 && !read_word(h, g, &g)))
			return 0;
		/* An m begins with its g0. */
		if (!read_word(h, g + r->slot[0], &m) || !read_word(h, m, &back) || back != g)
			return 0;
		w->frame.word = g;
		w->stage = UW_STAGE_GO_G;
	}
	w->frame.cfa = g;
	w->out.end = UW_END_NONE;
	return 1;
}

/* Whether the word at `at` is an instruction near w->regs.ip. */
static int is_instructions(const struct uw_work *w, u64 at)
{
	return at - ((w->regs.ip - 8) & ~7ull) < 24 + JS_ENTRY_BYTES;
}

/* Unwinds from w->regs with the tables of `h`. */
void uw_host_unwind(const struct uw_host *h, struct uw_work *w, u32 tgid, u32 max_frames)
{
	u64 start = w->regs.value[UW_RSP];

	host = h;
	uw_begin(w, tgid, max_frames);
	w->regs.valid &= h->known;
	for (;;) {
		int e = uw_advance(w);
		if (e == UW_DONE) {
			if (find_rbp(h, w) || find_goroutine(h, w, start))
				continue;
			break;
		}
		if (e == UW_SIDE) {
			w->hs.side.at = w->want;
			w->hs.side.len = h->beside.read(h->beside.context, w->want,
							(u8 *)w->hs.side.words, HS_SIDE_BYTES);
			if (w->hs.side.len < 8 || w->hs.side.len > HS_SIDE_BYTES)
				w->hs.side.len = 0;
			if (!w->hs.side.len && !w->hs.optional) {
				w->out.end = UW_END_UNREADABLE;
				break;
			}
			continue;
		}
		if (e != UW_NEED)
			continue;
		u32 which = w->chunks.victim & 1;
		u64 from = w->want & ~7ull;
		u8 *to = (u8 *)(w->buf + (which ? UW_CHUNK_BYTES / 8 : 0));
		int code = is_instructions(w, from);
		u64 got = code ? h->code.read(h->code.context, from, to, UW_CHUNK_BYTES) :
				 h->stack.read(h->stack.context, from, to, UW_CHUNK_BYTES);
		got &= ~7ull;
		if (code && !got && !w->no_code) {
			/* Continue without code. */
			w->no_code = 1;
			continue;
		}
		if (!got || got > UW_CHUNK_BYTES) {
			w->out.end = UW_END_UNREADABLE;
			break;
		}
		w->chunks.base[which] = from;
		w->chunks.len[which] = got;
		w->chunks.victim = !which;
	}
	host = NULL;
}

/* Returns sizes and values for the test that compares them with the Rust mirror. */
void uw_host_layout(u64 *out)
{
	out[0] = sizeof(struct uw_rule);
	out[1] = sizeof(struct uw_mapping);
	out[2] = sizeof(struct uw_proc);
	out[3] = sizeof(struct uw_stack);
	out[4] = sizeof(struct uw_work);
	out[5] = sizeof(struct uw_pt_regs);
	out[6] = sizeof(struct uw_host);
	out[7] = offsetof(struct uw_rule, slot);
	out[8] = offsetof(struct uw_stack, frames);
	out[9] = offsetof(struct uw_work, regs.ip);
	out[10] = offsetof(struct uw_work, buf);
	out[11] = offsetof(struct uw_work, out);
	out[12] = UW_MAX_FRAMES;
	out[13] = UW_RULE_USER;
	out[14] = UW_FRAME_EXACT;
	out[15] = UW_END_NO_PROGRESS;
	out[16] = UW_MAP_PENDING;
	out[17] = UW_KIND_SIGNAL;
	out[18] = UW_KIND_SPAWN;
	out[19] = offsetof(struct uw_mapping, gen);
	out[20] = offsetof(struct uw_rule, saved);
	out[21] = sizeof(struct hs_proc);
	out[22] = offsetof(struct hs_proc, blob.name);
	out[23] = offsetof(struct hs_proc, offsets);
	out[24] = sizeof(struct hs_walk);
	out[25] = HS_WORD_PID;
	out[26] = HS_WORD_BCP;
	out[27] = UW_FILES;
	out[28] = UW_KIND_GO;
	out[29] = offsetof(struct uw_work, tls);
	out[30] = UW_KIND_OTHER;
	out[31] = UW_MAP_NOTHING;
}
