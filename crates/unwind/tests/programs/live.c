/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs the scenarios. At the bottom of each it runs the kernel programs on descriptors 5 and 6 on
 * itself. Then it writes glibc's backtrace() to the test on descriptor 3 ('S', n, frames[n]; all of
 * 64 bits), and waits for a byte on descriptor 4.
 */
#define _GNU_SOURCE
#include "odd.h"
#include <execinfo.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 1400

static void tell(const void *data, long n)
{
	char ack;
	if (write(3, data, n) != n || read(4, &ack, 1) != 1)
		_exit(4);
}

void odd_mapped(void)
{
	long kind = 'M';
	tell(&kind, sizeof(kind));
}

void odd_step(int on)
{
	(void)on;
}

void odd_bottom(void)
{
	static long record[2 + MOST];
	long n = backtrace((void **)(record + 2), MOST);
	for (int fd = 5; fd <= 6; fd++) {
		union bpf_attr attr;
		memset(&attr, 0, sizeof(attr));
		attr.test.prog_fd = fd;
		/* twice: first with cold pages, then with warm ones */
		for (int i = 0; i < 2; i++)
			if (syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof(attr)))
				_exit(6);
	}
	record[0] = 'S';
	record[1] = n;
	tell(record, 8 * (2 + n));
}

long deep(long n);
long large(long n);

/* Keeps a CPU busy at many depths. */
static __attribute__((noinline)) long spin(long depth, long rounds)
{
	if (depth == 0) {
		volatile long x = 1;
		for (long i = 0; i < rounds; i++)
			x = x * 7 + i;
		return x;
	}
	long r = spin(depth - 1, rounds);
	asm volatile("" ::: "memory");
	return r + 1;
}

int main(int argc, char **argv)
{
	void *warm[4];
	backtrace(warm, 4);
	odd_mapped();
	if (argc > 1 && !strcmp(argv[1], "spin")) {
		for (int i = 0; i < 2000; i++)
			odd_sink += spin(i % 60, 200000);
		return 0;
	}
	odd_all();
	odd_sink += deep(480);
	odd_sink += deep(1200);
	return 0;
}
