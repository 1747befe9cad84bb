/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Waits in read() until standard input ends, below functions that keep frame pointers. First writes
 * n and the n frames of backtrace() to standard output, all of 64 bits.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <execinfo.h>
#include <string.h>
#include <unistd.h>

/* A frame larger than its saved registers, and a path around the wait. */
__attribute__((noinline)) long waits(long n, volatile char *sink)
{
	static long record[65];
	char c[200];
	memset(c, (int)n, sizeof(c));
	record[0] = backtrace((void **)(record + 1), 64);
	if (write(1, record, 8 * (1 + record[0])) < 0)
		_exit(1);
	if (n > 100)
		return n;
	while (read(0, c, 1) > 0)
		n += c[0];
	sink[0] = c[7];
	return n;
}

/* Called with arguments on the stack. */
__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long g,
				    volatile char *sink)
{
	long r = waits(a + b + c + d + e + f + g, sink);
	asm volatile("" ::: "memory");
	return r + g;
}

/* The size of its frame depends on its argument. */
__attribute__((noinline)) long grows(long n)
{
	volatile char *p = alloca(n * 16 + 32);
	long r;

	p[n] = (char)n;
	switch (n) {
	case 1:
		r = many(n, 2, 3, 4, 5, 6, 7, p);
		break;
	case 2:
		r = many(n, 2, 3, 4, 5, 6, 8, p) + 1;
		break;
	case 3:
		r = many(n, 2, 3, 4, 5, 6, 9, p) + 7;
		break;
	case 4:
		r = many(n, 2, 3, 4, 5, 6, 3, p) * 2;
		break;
	default:
		r = many(n, 2, 3, 4, 5, 6, 1, p) - 5;
	}
	asm volatile("" ::: "memory");
	return r + p[0];
}

int main(int argc, char **argv)
{
	return grows(argc + 2) < 0;
}
