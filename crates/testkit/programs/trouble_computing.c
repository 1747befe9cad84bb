// SPDX-License-Identifier: MIT OR Apache-2.0
// Troubles with CPUs and memory.
#include "trouble.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- a flat profile ----

#define FLAT(n)                                                                                    \
    NAMED void flat_##n(u64 units) { SPIN(units + n); }
FLAT(0) FLAT(1) FLAT(2) FLAT(3) FLAT(4) FLAT(5) FLAT(6) FLAT(7) FLAT(8) FLAT(9) FLAT(10) FLAT(11)

static void flat_victim(void) {
    static void (*const ALL[])(u64) = {flat_0, flat_1, flat_2, flat_3, flat_4,  flat_5,
                                       flat_6, flat_7, flat_8, flat_9, flat_10, flat_11};
    for (u64 random = 1;;) ALL[random_next(&random) % 12](100 * units_per_us());
}

// ---- memory that is far away ----

#define CHASE (64u << 20)

NAMED size_t chase_pointers(const size_t *next, size_t at, int steps) {
    while (steps--) at = next[at];
    return at;
}

static void chase_victim(void) {
    size_t count = CHASE / sizeof(size_t), *next = malloc(CHASE);
    CHECK(next, "no memory");
    // A single cycle through all of it (Sattolo).
    for (size_t i = 0; i < count; i++) next[i] = i;
    u64 random = 7;
    for (size_t i = count - 1; i > 0; i--) {
        size_t j = random_next(&random) % i, t = next[i];
        next[i] = next[j];
        next[j] = t;
    }
    for (size_t at = 0;;) at = chase_pointers(next, at, 100000);
}

// ---- a neighbour on the same CPU ----

NAMED void crowded_work(u64 units) { SPIN(units); }
NAMED void neighbour_work(u64 units) { SPIN(units); }

static void crowded_victim(void) {
    pin_to_cpu(0);
    for (;;) crowded_work(2000 * units_per_us());
}

static void *neighbour_run(void *argument) {
    pin_to_cpu(0);
    while (!stopping()) neighbour_work(2000 * units_per_us());
    return argument;
}

static void neighbour_outside(void) { crew("neighbour", 3, neighbour_run); }

// ---- minor page faults ----

NAMED void storm_touch(volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
}

static void storm_victim(void) {
    for (;;) {
        size_t bytes = 8u << 20;
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED, "no memory");
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        storm_touch(memory, bytes);
        munmap(memory, bytes);
    }
}

// ---- a memory limit ----

static void limit_prepare(void) { memory_limit_make(24l << 20, 0); }

NAMED void squeezed_scan(const volatile char *file, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) (void)file[at];
}

static void squeezed_victim(void) {
    size_t bytes = 96u << 20;
    char path[] = "wallscope-truth-XXXXXX", *block = malloc(1 << 20);
    const char *folder = option_text("dir", ".");
    CHECK(block && !chdir(folder), "no folder %s", folder);
    int fd = mkstemp(path);
    CHECK(fd >= 0, "no file can be made in %s", folder);
    unlink(path);
    memset(block, 3, 1 << 20);
    for (size_t at = 0; at < bytes; at += 1 << 20)
        CHECK(write(fd, block, 1 << 20) == 1 << 20, "the file cannot be filled");
    CHECK(!fsync(fd), "fsync failed");
    const char *file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(file != MAP_FAILED, "the file cannot be mapped");
    for (;;) squeezed_scan(file, bytes);
}

// ---- threads that live a moment ----

static void *churn_life(void *argument) {
    SPIN(5 * units_per_us());
    return argument;
}
NAMED void churn_start_and_join(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, churn_life, NULL), "a thread cannot be started");
    pthread_join(thread, NULL);
}
static void churn_victim(void) {
    for (;;) churn_start_and_join();
}

// ---- a flag that is waited for without sleeping ----

static volatile int flag_up;

NAMED void flag_wait(void) {
    while (!flag_up) sched_yield();
}
static void *flag_raise(void *argument) {
    for (;;) {
        pause_ms(200);
        flag_up = 1;
    }
    return argument;
}
static void flag_victim(void) {
    crew("raiser", 1, flag_raise);
    for (;;) {
        flag_wait();
        flag_up = 0;
    }
}

// ---- one hot function among threads that rest ----

NAMED void hot_encode(u64 units) { SPIN(units); }
static void *hot_idle(void *argument) {
    for (;;) pause_ms(50);
    return argument;
}
static void hot_victim(void) {
    crew("ticker", 8, hot_idle);
    for (;;) hot_encode(500 * units_per_us());
}

const struct trouble TROUBLE_COMPUTING[] = {
    {"hot", NULL, hot_victim, NULL, NULL},
    {"flat", NULL, flat_victim, NULL, NULL},
    {"chase", NULL, chase_victim, NULL, NULL},
    {"neighbour", NULL, crowded_victim, neighbour_outside, NULL},
    {"storm", NULL, storm_victim, NULL, NULL},
    {"squeezed", limit_prepare, squeezed_victim, NULL, memory_limit_place},
    {"churn", NULL, churn_victim, NULL, NULL},
    {"flag", NULL, flag_victim, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
