// SPDX-License-Identifier: MIT OR Apache-2.0
// Waits of known lengths: fifty short ones are not one long one.
#include "truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define MOST_LENGTHS 65536
static u64 lengths[MOST_LENGTHS];
static int length_count; // by both threads, so taken atomically

NAMED void lengths_many(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void lengths_once(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

static int compare(const void *a, const void *b) {
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return (x > y) - (x < y);
}

static u64 quantile(double q) {
    int rank = (int)(q * length_count);
    return lengths[rank < length_count ? rank : length_count - 1];
}

// One sleep, and how long of it was blocked by the program's own clocks.
static void slept(void (*sleeps)(u64), u64 ns, struct function_truth *truth) {
    struct mark before = mark_now();
    sleeps(ns);
    struct mark after = mark_now();
    mark_add(truth, &before);
    u64 wall = after.wall - before.wall;
    u64 busy = after.cpu - before.cpu + (after.delay - before.delay);
    int row = __atomic_fetch_add(&length_count, 1, __ATOMIC_RELAXED);
    CHECK(row < MOST_LENGTHS, "more than %d waits", MOST_LENGTHS);
    lengths[row] = wall > busy ? wall - busy : 0;
}

static void lengths_run(struct worker *self) {
    bool once = self->argument != NULL;
    struct function_truth *truth =
        function_truth_new(once ? "lengths_once" : "lengths_many", "timer");
    prctl(PR_SET_TIMERSLACK, 1L);
    while (!stopping()) {
        // Three in four 2 ms, the others 6 ms; against one of 100 ms.
        u64 ns = once ? 100000000 : self->truth->operations % 4 ? 2000000 : 6000000;
        slept(once ? lengths_once : lengths_many, ns, truth);
        self->truth->operations++;
    }
}

void program_lengths(void) {
    worker_start("lengths-many", lengths_run, NULL);
    worker_start("lengths-once", lengths_run, "once");
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    qsort(lengths, (size_t)length_count, sizeof *lengths, compare);
    extra_truth_set("waits", length_count);
    extra_truth_set("p50_ns", (double)quantile(0.5));
    extra_truth_set("p90_ns", (double)quantile(0.9));
    extra_truth_set("p99_ns", (double)quantile(0.99));
    extra_truth_set("max_ns", (double)lengths[length_count ? length_count - 1 : 0]);
}
