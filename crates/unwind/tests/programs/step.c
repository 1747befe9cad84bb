/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs the scenarios one instruction at a time. After each it writes the interrupted registers and
 * glibc's backtrace() to the test on descriptor 3. It waits for a byte on descriptor 4 while the
 * test reads its memory:
 *
 *   'M'                                        mappings are new: read them
 *   'S' registers[17] (DWARF order, then rip), n, frames[n]; all of 64 bits
 */
#define _GNU_SOURCE
#include "odd.h"
#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST 1024
/* Every instruction up to here, then one in SPARSE (loops over large buffers). */
#define DENSE 12000
#define SPARSE 7
#define LAST 120000

static const int order[17] = { REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
			       REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
			       REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP };
static long steps;
static volatile int off;

static void tell(const void *data, long n)
{
	char ack;
	for (long done = 0; done < n;) {
		long w = write(3, (const char *)data + done, n - done);
		if (w <= 0)
			_exit(4);
		done += w;
	}
	if (read(4, &ack, 1) != 1)
		_exit(5);
}

void odd_mapped(void)
{
	long kind = 'M';
	tell(&kind, sizeof(kind));
}

/* The flag is set here, but the handler clears it: between pushfq and popfq the unwind information
 * would be wrong. */
void odd_step(int on)
{
	off = !on;
	if (on)
		asm volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	static __thread unsigned long record[19 + MOST];
	static __thread void *pcs[MOST];
	static __thread long n, at, seen;
	greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	const unsigned char *code = (const unsigned char *)g[REG_RIP];
	static const unsigned char end[5] = { 0x49, 0x8d, 0x62, 0xf8, 0xc3 };

	(void)sig;
	(void)info;
	if (off) {
		g[REG_EFL] &= ~0x100;
		return;
	}
	if (++steps > DENSE && (steps % SPARSE || steps > LAST))
		return;
	if (!memcmp(code, end, 5) || !memcmp(code - 4, end, 5)) {
		/* `lea -8(%r10), %rsp; ret`, the end of a function that realigned its stack: gcc's
		 * rule for rbp no longer holds, and glibc follows it astray. The callers are those
		 * of the previous instruction. */
		if (seen != steps - 1)
			return;
		pcs[at] = (void *)code;
	} else {
		n = backtrace(pcs, MOST);
		for (at = 1; at < n && (greg_t)pcs[at] != g[REG_RIP]; at++)
			;
		/* backtrace() could not leave this handler: there is nothing to compare */
		if (at == n)
			return;
	}
	seen = steps;
	record[0] = 'S';
	for (int i = 0; i < 17; i++)
		record[1 + i] = g[order[i]];
	record[18] = n - at;
	memcpy(record + 19, pcs + at, 8 * (n - at));
	tell(record, 8 * (19 + n - at));
}

void odd_bottom(void)
{
	odd_sink++;
}

int main(void)
{
	void *warm[4];
	struct sigaction act = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };

	backtrace(warm, 4);
	odd_mapped();
	sigaction(SIGTRAP, &act, NULL);
	odd_step(1);
	odd_all();
	odd_step(0);
	return 0;
}
