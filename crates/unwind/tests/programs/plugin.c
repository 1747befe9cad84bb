/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opened while the program runs; calls through its own, lazily bound PLT. */
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) long plugin_inner(long n, void (*bottom)(void))
{
	char text[40];
	memset(text, 'x', sizeof(text));
	bottom();
	return labs(n) + text[n];
}

long plugin_call(long n, void (*bottom)(void))
{
	long r = plugin_inner(n, bottom);
	asm volatile("" ::: "memory");
	return r + n;
}
