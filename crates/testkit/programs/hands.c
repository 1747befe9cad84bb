// SPDX-License-Identifier: MIT OR Apache-2.0
// A lock with changing holders: one thread holds it for about 20 ms, three for 2 ms, one computes with it
// for 1.5 ms. A waiter waits for several holders in turn, and only the last one wakes it.
#include "truth.h"

#include <pthread.h>
#include <unistd.h>

enum { LONG, SHORT, BUSY, KINDS, MOST = 400000 };

struct stretch {
    u64 from, to;
    int kind;
};

pthread_mutex_t hands_mutex = PTHREAD_MUTEX_INITIALIZER;
// Written by the holder of the lock.
static struct stretch holds[MOST], waits[MOST];
static int held, waited;

NAMED void hands_compact(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void hands_lookup(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void hands_crunch(u64 units) { SPIN(units); }

NAMED void hands_take(void) { pthread_mutex_lock(&hands_mutex); KEEP_FRAME(); }

static void hands_work(struct worker *self, int kind) {
    u64 from = now_ns();
    hands_take();
    u64 got = now_ns();
    if (waited < MOST) waits[waited++] = (struct stretch){from, got, kind};
    if (kind == LONG) hands_compact(jitter(&self->random, 20000000));
    if (kind == SHORT) hands_lookup(jitter(&self->random, 2000000));
    if (kind == BUSY) hands_crunch(jitter(&self->random, 1500 * units_per_us()));
    if (held < MOST) holds[held++] = (struct stretch){got, now_ns(), kind};
    pthread_mutex_unlock(&hands_mutex);
    self->truth->operations++;
}

static void hands_run(struct worker *self) {
    static const u64 pauses[KINDS] = {30000000, 3000000, 6000000};
    int kind = *(const int *)self->argument;
    while (!stopping()) {
        hands_work(self, kind);
        sleep_ns(jitter(&self->random, pauses[kind]));
    }
}

// Time that threads waited, by kind of the holder.
static void hands_tell(void) {
    static const char *const names[KINDS] = {"long_ns", "short_ns", "busy_ns"};
    double under[KINDS] = {0};
    for (int i = 0, first = 0; i < waited; i++) {
        // Waits are in the order of their ends; skip the holds that ended long before this wait began.
        while (first < held && holds[first].to + 2000000000ull < waits[i].from) first++;
        for (int j = first; j < held && holds[j].from < waits[i].to; j++) {
            u64 from = holds[j].from > waits[i].from ? holds[j].from : waits[i].from;
            u64 to = holds[j].to < waits[i].to ? holds[j].to : waits[i].to;
            if (to > from) under[holds[j].kind] += (double)(to - from);
        }
    }
    for (int kind = 0; kind < KINDS; kind++) extra_truth_set(names[kind], under[kind]);
}

void program_hands(void) {
    static const struct {
        const char *name;
        int kind;
    } all[] = {{"h-long", LONG},   {"h-short", SHORT}, {"h-short", SHORT},
               {"h-short", SHORT}, {"h-busy", BUSY}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        worker_start(all[i].name, hands_run, (void *)&all[i].kind);
    }
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    hands_tell();
}
