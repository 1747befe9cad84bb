// SPDX-License-Identifier: MIT OR Apache-2.0
// wallscope-plain [--seconds S]: ten thousand short calls a second, and the CPU time that they took. A
// program of its own, in C and without any library but libc: through its frames no exception can pass.
// It speaks as the truth programs do when they are held and linger.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;

enum { EVERY_NS = 100000, UNITS = 2000 };

static u64 clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

__attribute__((noipa)) u64 calls_paced(u64 units) {
    // Its entry is a push, which the kernel emulates.
    __asm__ volatile("" ::: "rbx");
    u64 x = 88172645463325252ull;
    for (; units; units--) {
        x ^= x << 13;
        x ^= x >> 7;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

static void line_from_stdin(void) {
    char byte;
    while (read(0, &byte, 1) == 1 && byte != '\n') {
    }
}

int main(int argc, char **argv) {
    double seconds = argc > 2 && !strcmp(argv[1], "--seconds") ? atof(argv[2]) : 1;
    prctl(PR_SET_TIMERSLACK, 1L);
    printf("READY %d\n", getpid());
    fflush(stdout);
    line_from_stdin();

    u64 begin = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), calls = 0;
    u64 end = begin + (u64)(seconds * 1e9);
    for (u64 due = begin; due < end; due += EVERY_NS, calls++) {
        calls_paced(UNITS);
        struct timespec at = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;

    printf("{\"program\":\"plain\",\"executable\":\"wallscope-plain\",\"pid\":%d,\"released_ns\":%llu,"
           "\"ended_ns\":%llu,\"threads\":[],\"functions\":[],\"chains\":[],"
           "\"extra\":{\"paced_calls\":%llu,\"paced_cpu_ns\":%llu}}\n",
           getpid(), (unsigned long long)begin, (unsigned long long)clock_ns(CLOCK_MONOTONIC),
           (unsigned long long)calls, (unsigned long long)cpu);
    fflush(stdout);
    line_from_stdin();
    return 0;
}
