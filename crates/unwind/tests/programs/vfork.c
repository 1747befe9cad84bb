/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Waits in vfork(), while a register holds its return address, until standard input ends. First
 * writes n and the n frames of backtrace() to standard output, all of 64 bits.
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <unistd.h>

__attribute__((noinline)) long waits(void)
{
	static long record[65];
	char c;
	record[0] = backtrace((void **)(record + 1), 64);
	if (write(1, record, 8 * (1 + record[0])) < 0)
		_exit(1);
	if (vfork() == 0) {
		while (read(0, &c, 1) > 0)
			;
		_exit(0);
	}
	return record[0];
}

__attribute__((noinline)) long calls(long n)
{
	long r = waits();
	asm volatile("" ::: "memory");
	return r + n;
}

int main(void)
{
	return calls(3) < 0;
}
