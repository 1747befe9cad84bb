// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions that are entered and left in every way there is, each with its own records.
#include "truth.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// calls_throw.cc
int calls_thrown(int round, struct function_truth *inner, struct function_truth *outer);

enum { MOST_CALLS = 65536, DEPTH = 8, TAIL_NS = 5000000 };
static u64 lengths[MOST_CALLS];
static int length_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Has no code of its own.
static inline __attribute__((always_inline)) u64 calls_inlined(u64 ns) { return ns / 1000; }

// One call of a millisecond or more: asleep, computing, or waiting for the lock.
NAMED void calls_timed(int kind, u64 ns) {
    switch (kind) {
    case 0:
        sleep_ns(ns);
        break;
    case 1:
        SPIN(units_per_us() * calls_inlined(ns));
        break;
    default:
        sleep_ns(1000000);
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
    KEEP_FRAME();
}

NAMED int calls_recursive(int depth) {
    if (depth == 0) return 1;
    int below = calls_recursive(depth - 1);
    KEEP_FRAME();
    return below + 1;
}

NAMED int calls_tail_target(u64 ns) {
    sleep_ns(ns);
    KEEP_FRAME();
    return 1;
}

// Leaves by a jump, and returns early where there is nothing to do.
NAMED int calls_tail(u64 ns) {
    if (ns == 0) return 0;
    return calls_tail_target(ns);
}

static jmp_buf back;
NAMED void calls_jumping(int round) {
    if (round % 4 == 0) longjmp(back, 1);
    KEEP_FRAME();
}

NAMED int calls_counted(int x) {
    __asm__ volatile("" : "+r"(x));
    return x;
}

// A static probe as <sys/sdt.h> makes it, which need not be there: a nop, and a note that tells of it.
#define STATIC_PROBE(name)                                                                         \
    __asm__ volatile("990: nop\n"                                                                  \
                     ".ifndef _.stapsdt.base\n"                                                    \
                     ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"       \
                     ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"                              \
                     "_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n"                         \
                     ".popsection\n.endif\n"                                                       \
                     ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                 \
                     ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"                                 \
                     "991: .asciz \"stapsdt\"\n992: .balign 4\n"                                   \
                     "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte 0\n"                         \
                     ".asciz \"wallscope_truth\"\n.asciz \"" name "\"\n.asciz \"\"\n"              \
                     "994: .balign 4\n.popsection\n" ::: "memory")

NAMED void calls_probed(u64 ns) {
    STATIC_PROBE("begins");
    sleep_ns(ns);
    STATIC_PROBE("ends");
}

static void timed_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("calls_timed", "");
    prctl(PR_SET_TIMERSLACK, 1L);
    while (!stopping()) {
        u64 pick = random_next(&self->random) % 100;
        int kind = pick < 70 ? 0 : pick < 90 ? 1 : 2;
        u64 ns = jitter(&self->random, kind ? 2400000 : 3000000);
        u64 before = now_ns();
        calls_timed(kind, ns);
        u64 after = now_ns();
        int row = length_count++;
        CHECK(row < MOST_CALLS, "more than %d calls", MOST_CALLS);
        lengths[row] = after - before;
        truth->calls++;
        truth->wall += after - before;
        self->truth->operations++;
    }
}

static void holder_run(struct worker *self) {
    (void)self;
    while (!stopping()) {
        pthread_mutex_lock(&lock);
        sleep_ns(25000000);
        pthread_mutex_unlock(&lock);
        sleep_ns(25000000);
    }
}

static void ways_run(struct worker *self) {
    struct function_truth *recursive = function_truth_new("calls_recursive", "");
    struct function_truth *tail = function_truth_new("calls_tail", "");
    struct function_truth *jumping = function_truth_new("calls_jumping", "");
    struct function_truth *counted = function_truth_new("calls_counted", "");
    struct function_truth *probed = function_truth_new("calls_probed", "timer");
    struct function_truth *inner = function_truth_new("calls_throwing", "");
    struct function_truth *outer = function_truth_new("calls_catching", "");
    int jumped = 0, thrown = 0, early = 0;
    volatile int round = 0;
    while (!stopping()) {
        recursive->calls += (u64)calls_recursive(DEPTH);
        if (calls_tail(round % 3 ? TAIL_NS : 0) == 0) early++;
        tail->calls++;
        jumping->calls++;
        if (setjmp(back) == 0)
            calls_jumping(round);
        else
            jumped++;
        MEASURE(probed, calls_probed(1000000));
        for (int i = 0; i < 10; i++) counted->calls += (u64)calls_counted(1);
        thrown += calls_thrown(round, inner, outer);
        round = round + 1;
        self->truth->operations++;
    }
    extra_truth_set("jumped", jumped);
    extra_truth_set("thrown", thrown);
    extra_truth_set("early", early);
    extra_truth_set("tail_ns", TAIL_NS);
}

// Calls of its own, and of children that it forks meanwhile.
static void forking_run(struct worker *self) {
    struct function_truth *counted = function_truth_new("calls_counted", "");
    while (!stopping()) {
        pid_t child = fork();
        CHECK(child >= 0, "cannot fork");
        if (child == 0) {
            for (int i = 0; i < 100; i++) calls_counted(i);
            _exit(0);
        }
        for (int i = 0; i < 50; i++) calls_counted(i);
        CHECK(waitpid(child, NULL, 0) == child, "cannot wait for a child");
        counted->calls += 150;
        self->truth->operations++;
        sleep_ns(5000000);
    }
}

// More often than any probe could stand.
static void hot_run(struct worker *self) {
    (void)self;
    while (!stopping())
        for (int i = 0; i < 100000; i++) calls_counted(i);
}

static int compare(const void *a, const void *b) {
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

// The length that a share q of the calls does not exceed.
static double quantile(double q) {
    int rank = (int)(q * length_count + 0.999999);
    if (rank < 1) rank = 1;
    return length_count ? (double)lengths[rank - 1] : 0;
}

void program_calls(void) {
    if (option_flag("hot")) {
        worker_start("calls-hot", hot_run, NULL);
    } else if (option_flag("forking")) {
        worker_start("calls-forking", forking_run, NULL);
    } else {
        worker_start("calls-timed", timed_run, NULL);
        worker_start("calls-holder", holder_run, NULL);
        worker_start("calls-ways", ways_run, NULL);
    }
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    qsort(lengths, (size_t)length_count, sizeof *lengths, compare);
    extra_truth_set("p50_ns", quantile(0.5));
    extra_truth_set("p90_ns", quantile(0.9));
    extra_truth_set("p99_ns", quantile(0.99));
    extra_truth_set("max_ns", quantile(1.0));
}
