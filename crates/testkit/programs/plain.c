// SPDX-License-Identifier: MIT OR Apache-2.0
// wallscope-plain [--seconds S]: ten thousand short calls a second, of one function and of its twin in
// turn, and the CPU time that a call of each took: what probes on the one cost shows beside the other.
// Between two processes, one probed and one not, ten times as much lies on a virtual machine. A program of
// its own, in C and without any library but libc: through its frames no exception can pass. It speaks as
// the truth programs do when they are held and linger.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;

enum { EVERY_NS = 100000, UNITS = 2000, BLOCK_CALLS = 100, MOST_BLOCKS = 1 << 14 };

static u64 clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

// Its entry is a push, which the kernel emulates.
#define WORK(name)                                                                                  \
    __attribute__((noipa)) u64 name(u64 units) {                                                    \
        __asm__ volatile("" ::: "rbx");                                                             \
        u64 x = 88172645463325252ull;                                                               \
        for (; units; units--) {                                                                    \
            x ^= x << 13;                                                                           \
            x ^= x >> 7;                                                                            \
            __asm__ volatile("" : "+r"(x));                                                         \
        }                                                                                           \
        return x;                                                                                   \
    }
WORK(calls_paced)
WORK(calls_twin)

static void line_from_stdin(void) {
    char byte;
    while (read(0, &byte, 1) == 1 && byte != '\n') {
    }
}

static int ascending(const void *a, const void *b) {
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

// CPU time of each block of calls, ns.
static u64 blocks[2][MOST_BLOCKS];

static double median_of_a_call(u64 *of, u64 count) {
    qsort(of, count, sizeof *of, ascending);
    return count ? (double)of[count / 2] / BLOCK_CALLS : 0;
}

int main(int argc, char **argv) {
    double seconds = argc > 2 && !strcmp(argv[1], "--seconds") ? atof(argv[2]) : 1;
    prctl(PR_SET_TIMERSLACK, 1L);
    printf("READY %d\n", getpid());
    fflush(stdout);
    line_from_stdin();

    u64 begin = clock_ns(CLOCK_MONOTONIC), due = begin, pairs = 0;
    u64 end = begin + (u64)(seconds * 1e9);
    for (; due < end && pairs < MOST_BLOCKS; pairs++) {
        for (int twin = 0; twin < 2; twin++) {
            u64 cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
            for (int i = 0; i < BLOCK_CALLS; i++, due += EVERY_NS) {
                (twin ? calls_twin : calls_paced)(UNITS);
                struct timespec at = {(time_t)(due / 1000000000), (long)(due % 1000000000)};
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
            }
            blocks[twin][pairs] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
        }
    }

    printf("{\"program\":\"plain\",\"executable\":\"wallscope-plain\",\"pid\":%d,\"released_ns\":%llu,"
           "\"ended_ns\":%llu,\"threads\":[],\"functions\":[],\"chains\":[],"
           "\"extra\":{\"paced_calls\":%llu,\"paced_ns\":%f,\"twin_ns\":%f}}\n",
           getpid(), (unsigned long long)begin, (unsigned long long)clock_ns(CLOCK_MONOTONIC),
           (unsigned long long)(pairs * BLOCK_CALLS), median_of_a_call(blocks[0], pairs),
           median_of_a_call(blocks[1], pairs));
    fflush(stdout);
    line_from_stdin();
    return 0;
}
