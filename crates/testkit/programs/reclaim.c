// SPDX-License-Identifier: MIT OR Apache-2.0
// A memory limit: the cgroup that has it, and a thread that is held up until memory has been freed.
#include "truth.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char limit_folder[200];

static bool put(const char *name, long value) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", limit_folder, name);
    FILE *file = fopen(path, "w");
    if (!file) return false;
    fprintf(file, "%ld", value);
    return fclose(file) == 0;
}

static void limit_leave(void) {
    for (int i = 0; i < 100 && rmdir(limit_folder); i++) sleep_ns(10000000);
}

void memory_limit_make(long limit, long high) {
    static const char *const PARENTS[] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"};
    for (int i = 0; i < 2; i++) {
        snprintf(limit_folder, sizeof limit_folder, "%s/wallscope-truth-%d", PARENTS[i], getpid());
        if (mkdir(limit_folder, 0755)) continue;
        atexit(limit_leave);
        if (i && high) put("memory.high", high);
        if (put(i ? "memory.max" : "memory.limit_in_bytes", limit)) return;
        break;
    }
    refuse("no cgroup with a memory limit can be made (needs root and a writable memory controller)");
}

void memory_limit_place(int pid) { CHECK(put("cgroup.procs", pid), "the cgroup cannot be entered"); }

// ---- memory for new pages is in pages that the disk has not got yet ----

#define LIMIT (24l << 20)
#define WRITTEN (20u << 20)
#define WANTED (16u << 20)

NAMED void reclaim_touch(volatile char *memory) {
    for (size_t at = 0; at < WANTED; at += 4096) memory[at] = 1;
}

static bool *enough; // seen by both processes

static bool not_yet(void) { return !__atomic_load_n(enough, __ATOMIC_ACQUIRE); }

static void reclaim_process(int gate) {
    char byte, path[512], *block = malloc(1 << 20);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memory_limit_place(getpid());
    pthread_setname_np(pthread_self(), "r-reclaim");
    snprintf(path, sizeof path, "%s/wallscope-truth-XXXXXX", option_text("dir", "."));
    int fd = mkstemp(path);
    CHECK(fd >= 0, "no file can be made at %s; choose another folder with --dir", path);
    unlink(path);
    char *memory = mmap(NULL, WANTED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block && memory != MAP_FAILED, "no memory");
    madvise(memory, WANTED, MADV_NOHUGEPAGE);
    struct thread_truth *row = thread_truth_new("r-reclaim");
    struct function_truth *truth = function_truth_new("reclaim_touch", "memory");
    if (read(gate, &byte, 1) != 1) _exit(0);
    struct mark since = mark_now();
    while (not_yet()) {
        for (off_t at = 0; at < WRITTEN; at += 1 << 20)
            CHECK(pwrite(fd, block, 1 << 20, at) == 1 << 20, "%s cannot be written", path);
        MEASURE(truth, reclaim_touch(memory));
        madvise(memory, WANTED, MADV_DONTNEED);
        row->operations++;
    }
    thread_truth_end(row, &since);
    _exit(0);
}

void program_reclaim(void) {
    int gate[2];
    enough = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(enough != MAP_FAILED && !pipe(gate), "no memory or no pipe");
    memory_limit_make(LIMIT, LIMIT / 4 * 3);
    int child = fork();
    CHECK(child >= 0, "fork failed");
    if (!child) {
        close(gate[1]);
        reclaim_process(gate[0]);
    }
    ready_and_wait(&child, 1);
    CHECK(write(gate[1], "g", 1) == 1, "the child is gone");
    wait_for_end(false);
    __atomic_store_n(enough, true, __ATOMIC_RELEASE);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status),
          "the child did not end by itself");
}
