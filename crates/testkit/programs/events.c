// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions that cause events in known numbers: page faults, and writes.
#include "truth.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 64, MUCH = 30, LITTLE = 10, PAGE = 4096 };

NAMED void events_touch(char *at, int pages) {
    for (int i = 0; i < pages; i++) ((volatile char *)at)[(size_t)i * PAGE] = 1;
    KEEP_FRAME();
}

NAMED void events_write_much(int fd) {
    CHECK(write(fd, "", 1) == 1, "a write failed");
    KEEP_FRAME();
}

NAMED void events_write_little(int fd) {
    CHECK(write(fd, "", 1) == 1, "a write failed");
    KEEP_FRAME();
}

static void events_run(struct worker *self) {
    int fd = *(int *)self->argument;
    while (!stopping()) {
        char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
        CHECK(at != MAP_FAILED, "no memory");
        madvise(at, PAGES * PAGE, MADV_NOHUGEPAGE); // refused: there are no huge pages
        events_touch(at, PAGES);
        munmap(at, PAGES * PAGE);
        for (int i = 0; i < MUCH; i++) events_write_much(fd);
        for (int i = 0; i < LITTLE; i++) events_write_little(fd);
        self->truth->operations++;
        sleep_ns(2000000);
    }
}

void program_events(void) {
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0, "/dev/null cannot be opened");
    struct worker *worker = worker_start("events", events_run, &fd);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    double rounds = (double)worker->truth->operations;
    extra_truth_set("events_touch", rounds * PAGES);
    extra_truth_set("events_write_much", rounds * MUCH);
    extra_truth_set("events_write_little", rounds * LITTLE);
}
