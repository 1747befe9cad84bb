/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stacks that are easy to get wrong. Each scenario ends in odd_bottom(), so a caller that only
 * looks there sees all of them.
 */
#define _GNU_SOURCE
#include "odd.h"
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP asm volatile("" ::: "memory")

volatile long odd_sink;

NOINLINE long plain(long a, long b, long c, long d, long e, long f)
{
	long r = a * b + c;
	odd_bottom();
	r += d * e + f;
	odd_bottom();
	KEEP;
	return r ^ a ^ b ^ c ^ d ^ e;
}

/* Shrink-wrapped: the prologue comes after the early return. */
NOINLINE long wrapped(long n)
{
	if (n < 3)
		return n;
	long r = plain(n, n + 1, n + 2, n + 3, n + 4, n + 5);
	return r + n;
}

/* A frame aligned beyond the ABI's promise, of variable size. */
NOINLINE long realigned(long n)
{
	char wide[128] __attribute__((aligned(64)));
	char *more = alloca(n + 32);
	memset(wide, n, sizeof(wide));
	memset(more, n, n + 32);
	long r = wrapped(n) + wide[n & 127] + more[3];
	KEEP;
	return r;
}

/* A realigned frame where r10 is taken: a nested function needs it for its static chain. */
NOINLINE long nested(long n)
{
	long seen = n;
	NOINLINE long inner(long m)
	{
		char wide[64] __attribute__((aligned(64)));
		memset(wide, m, sizeof(wide));
		seen += m;
		long r = realigned(m) + wide[m & 63];
		KEEP;
		return r + seen;
	}
	long r = inner(n + 5);
	return r + seen;
}

/* A frame larger than any chunk of one read. */
NOINLINE long large(long n)
{
	volatile char buffer[65536];
	buffer[n] = n;
	buffer[65535 - n] = n;
	long r = wrapped(n) + buffer[n];
	KEEP;
	return r;
}

#ifndef KEEP_RBP
/* %rbp holds a number that is neither a frame nor zero. */
NOINLINE long rbp_as_number(long n)
{
	long r;
	asm volatile("mov $0x1234567, %%rbp\n\tadd %%rbp, %0" : "=r"(r) : "0"(n) : "rbp");
	return wrapped(r & 63) + n;
}
#else
#define rbp_as_number wrapped
#endif

NOINLINE int compare(const void *a, const void *b)
{
	odd_bottom();
	return *(const int *)a - *(const int *)b;
}

NOINLINE long callback(long n)
{
	int list[8] = { 5, 3, 9, n, 1, 0, 7, 2 };
	qsort(list, 8, sizeof(int), compare);
	return list[3];
}

NOINLINE long tail_end(long n)
{
	char text[32];
	snprintf(text, sizeof(text), "%ld %f", n, (double)n);
	return wrapped(n) + text[0];
}
NOINLINE long tail_call(long n)
{
	odd_sink += n;
	return tail_end(n + 1);
}

NOINLINE long deep(long n)
{
	long r = n <= 0 ? plain(1, 2, 3, 4, 5, 6) : deep(n - 1) + 1;
	KEEP;
	return r;
}

static void on_signal(int sig)
{
	(void)sig;
	odd_sink += realigned(7);
}

NOINLINE void signals(int flags)
{
	static char other[65536];
	stack_t alt = { .ss_sp = other, .ss_size = sizeof(other) }, none = { .ss_flags = SS_DISABLE };
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = flags };
	if (flags & SA_ONSTACK)
		sigaltstack(&alt, NULL);
	sigaction(SIGUSR1, &act, NULL);
	syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
	if (flags & SA_ONSTACK)
		sigaltstack(&none, NULL);
}

NOINLINE void vdso(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	odd_sink += t.tv_nsec;
}

static jmp_buf back;
NOINLINE void jumper(int n)
{
	if (n == 0)
		longjmp(back, 1);
	jumper(n - 1);
	KEEP;
}
NOINLINE void jumps(void)
{
	if (!setjmp(back))
		jumper(3);
	odd_bottom();
}

NOINLINE void library(void)
{
	void *p = malloc(100), *q = malloc(70000);
	p = realloc(p, 3000);
	memmove((char *)p + 7, p, 900);
	odd_sink += strlen("the length of this") + (long)strchr("abc", 'c') + atoi("77");
	free(p);
	free(q);
	char text[128];
	snprintf(text, sizeof(text), "%s %d %.3f", "text", 42, 3.25);
	odd_sink += strtol(text + 5, NULL, 10);
}

#ifdef PLUGIN
NOINLINE void plugin(void)
{
	void *lib = dlopen(PLUGIN, RTLD_LAZY);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
	long (*call)(long, void (*)(void)) = (long (*)(long, void (*)(void)))dlsym(lib, "plugin_call");
	odd_mapped();
	odd_sink += call(5, odd_bottom);
	odd_sink += call(6, odd_bottom);
}
#endif

static void *thread(void *arg)
{
	odd_step(1);
	odd_sink += realigned((long)arg);
	odd_step(0);
	return NULL;
}

NOINLINE void threads(void)
{
	pthread_t t;
	odd_step(0);
	pthread_create(&t, NULL, thread, (void *)4);
	pthread_join(t, NULL);
	odd_step(1);
}

void odd_all(void)
{
	odd_sink += wrapped(9);
	odd_sink += realigned(11);
	odd_sink += nested(12);
	odd_sink += rbp_as_number(5);
	odd_sink += callback(6);
	odd_sink += tail_call(4);
	vdso();
	jumps();
	signals(0);
	signals(SA_ONSTACK);
#ifdef PLUGIN
	plugin();
#endif
	library();
	threads();
	odd_sink += large(8);
	odd_sink += deep(60);
}
