// SPDX-License-Identifier: MIT OR Apache-2.0
// Troubles with a root elsewhere: a thread holds a lock while it is kept from running, or a process waits for another
// one that waits for a third.
#include "trouble.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- a page that is not in memory ----

#define INDEX_BYTES (64u << 20)
#define INDEX_PAGES 48

static char *index_memory;
static int index_file;
static volatile char index_sum;

static void index_prepare(void) {
    char path[512], block[4096];
    snprintf(path, sizeof path, "%s/wallscope-index-XXXXXX", option_text("dir", "."));
    index_file = mkstemp(path);
    CHECK(index_file >= 0, "no file can be made at %s; choose another folder with --dir", path);
    unlink(path);
    memset(block, 7, sizeof block);
    for (size_t at = 0; at < INDEX_BYTES; at += sizeof block)
        CHECK(write(index_file, block, sizeof block) == sizeof block, "no room on the disk");
    CHECK(!fsync(index_file), "fsync failed");
    index_memory = mmap(NULL, INDEX_BYTES, PROT_READ, MAP_SHARED, index_file, 0);
    CHECK(index_memory != MAP_FAILED, "the file cannot be mapped");
    madvise(index_memory, INDEX_BYTES, MADV_RANDOM);
}

NAMED void index_load(u64 *random) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < INDEX_PAGES; i++) {
        *random = *random * 6364136223846793005ull + 1442695040888963407ull;
        index_sum += index_memory[(*random >> 33) % INDEX_BYTES];
    }
    pthread_mutex_unlock(&lock);
    KEEP_FRAME();
}

NAMED void index_get(void) {
    pthread_mutex_lock(&lock);
    SPIN(5 * units_per_us());
    pthread_mutex_unlock(&lock);
    KEEP_FRAME();
}

static void *index_reader(void *argument) {
    for (;;) {
        index_get();
        pause_ms(1);
    }
    return argument;
}

static void *index_loader(void *argument) {
    for (u64 random = 3;;) {
        // Other programs took the pages meanwhile.
        madvise(index_memory, INDEX_BYTES, MADV_DONTNEED);
        posix_fadvise(index_file, 0, 0, POSIX_FADV_DONTNEED);
        index_load(&random);
    }
    return argument;
}

static void index_victim(void) {
    crew("reader", 4, index_reader);
    crew("loader", 1, index_loader);
    for (;;) pause();
}

// ---- a CPU that others have ----

NAMED void stock_count(void) {
    pthread_mutex_lock(&lock);
    SPIN(4000 * units_per_us());
    pthread_mutex_unlock(&lock);
    KEEP_FRAME();
}

NAMED void stock_take(void) {
    pthread_mutex_lock(&lock);
    SPIN(5 * units_per_us());
    pthread_mutex_unlock(&lock);
    KEEP_FRAME();
}

static void *stock_taker(void *argument) {
    for (;;) {
        stock_take();
        pause_ms(1);
    }
    return argument;
}

static void *stock_counter(void *argument) {
    for (;;) {
        stock_count();
        pause_ms(2);
    }
    return argument;
}

static void stock_crew(void) {
    crew("taker", 3, stock_taker);
    crew("counter", 1, stock_counter);
    for (;;) pause();
}

static void preempted_victim(void) {
    pin_to_cpu(0);
    stock_crew();
}

NAMED void rival_work(u64 units) { SPIN(units); }

static void *rival_run(void *argument) {
    pin_to_cpu(0);
    while (!stopping()) rival_work(2000 * units_per_us());
    return argument;
}

static void rivals_outside(void) { crew("rival", 4, rival_run); }

// ---- a quota ----

static void quota_prepare(void) { cpu_quota_make(20000, 100000); }

// ---- three processes, each of which asks the next one ----

NAMED void relay_store(void) {
    pause_ms(8);
    KEEP_FRAME();
}
NAMED bool relay_forward(int fd) { return trouble_ask(fd); }
NAMED bool relay_call(int fd) { return trouble_ask(fd); }

// Answers each byte that comes over `own`, after it has asked over `next`; the last process stores instead.
static void relay_process(const char *name, int own, int next) {
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, name);
    while (recv(own, &byte, 1, 0) == 1) {
        if (next >= 0) {
            if (!relay_forward(next)) break;
        } else {
            relay_store();
        }
        SPIN(50 * units_per_us());
        if (send(own, &byte, 1, MSG_NOSIGNAL) != 1) break;
    }
    _exit(0);
}

static void relay_victim(void) {
    int front[2], back[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, front) && !socketpair(AF_UNIX, SOCK_STREAM, 0, back), "no sockets");
    if (!fork()) {
        close(front[0]), close(front[1]), close(back[0]);
        relay_process("relay-store", back[1], -1);
    }
    if (!fork()) {
        close(front[0]), close(back[1]);
        relay_process("relay-middle", front[1], back[0]);
    }
    close(front[1]), close(back[0]), close(back[1]);
    for (;;) {
        CHECK(relay_call(front[0]), "the next process is gone");
        SPIN(50 * units_per_us());
    }
}

const struct trouble TROUBLE_HOLDING[] = {
    {"relay", NULL, relay_victim, NULL, NULL},
    {"fault-held", index_prepare, index_victim, NULL, NULL},
    {"preempted-holder", NULL, preempted_victim, rivals_outside, NULL},
    {"throttled-holder", quota_prepare, stock_crew, NULL, cpu_quota_place},
    {NULL, NULL, NULL, NULL, NULL},
};
