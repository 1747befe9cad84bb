// SPDX-License-Identifier: MIT OR Apache-2.0
// Code made at run time: one address that is used again and again by functions of other names, which
// are announced in a perf map or a jitdump each time, as runtimes do that drop code and make new one.
#include "truth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// push %rbp; mov %rsp, %rbp; 1: dec %rdi; jne 1b; pop %rbp; ret
static const unsigned char COMPUTE[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf,
                                        0x75, 0xfb, 0x5d, 0xc3};
// push %rbp; mov %rsp, %rbp; call *%rsi; pop %rbp; ret
static const unsigned char CALL[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};

typedef void (*code)(u64 argument, void (*call)(u64));

static const struct {
    const char *name, *reason;
    int percent; // of the time
    bool waits;
} FUNCTIONS[] = {
    {"jit_forty", "", 40, false},
    {"jit_thirty", "", 30, false},
    {"jit_ten", "", 10, false},
    {"jit_wait", "timer", 20, true},
};
#define COUNT (sizeof FUNCTIONS / sizeof *FUNCTIONS)

static char path[64];
static int file;
static bool dump;

static void forget_file(void) { unlink(path); }

static void put(const void *bytes, size_t length) {
    CHECK(write(file, bytes, length) == (ssize_t)length, "cannot write %s", path);
}

static void begin_file(void) {
    dump = !strcmp(option_text("form", "map"), "dump");
    snprintf(path, sizeof path, dump ? "/tmp/jit-%d.dump" : "/tmp/perf-%d.map", getpid());
    // The name of the file leads to another file, which this program may not read.
    const char *link_to = option_text("link-to", "");
    if (*link_to) {
        CHECK(!symlink(link_to, path), "cannot make %s", path);
        file = open("/dev/null", O_RDWR);
    } else {
        file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    }
    CHECK(file >= 0, "cannot make %s", path);
    atexit(forget_file);
    if (!dump) return;
    struct {
        uint32_t magic, version, size, machine, pad, pid;
        u64 time, flags;
    } head = {0x4a695444, 1, sizeof head, 62, 0, (uint32_t)getpid(), now_ns(), 0};
    put(&head, sizeof head);
    // That the file is mapped is how it is found.
    void *mark = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    CHECK(mark != MAP_FAILED, "cannot map %s", path);
}

static void announce(const char *name, const void *at, size_t size) {
    if (!dump) {
        char line[96];
        int length = snprintf(line, sizeof line, "%lx %zx %s\n", (unsigned long)at, size, name);
        put(line, (size_t)length);
        return;
    }
    static u64 index;
    size_t named = strlen(name) + 1;
    struct {
        uint32_t kind, size;
        u64 time;
        uint32_t pid, tid;
        u64 address, code, length, index;
    } load = {0, 0, now_ns(), (uint32_t)getpid(), (uint32_t)syscall(SYS_gettid), (u64)at,
              (u64)at, size, index++};
    load.size = (uint32_t)(sizeof load + named + size);
    put(&load, sizeof load);
    put(name, named);
    put(at, size);
}

static void jit_run(struct worker *self) {
    struct function_truth *truth[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        truth[i] = function_truth_new(FUNCTIONS[i].name, FUNCTIONS[i].reason);
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                    0);
    CHECK(at != MAP_FAILED, "no memory that is writable and executable");
    code run;
    memcpy(&run, &at, sizeof run);
    u64 phase = (u64)option_long("phase-us", 30000);
    while (!stopping()) {
        u64 draw = random_next(&self->random) / 7 % 100;
        size_t which = 0;
        while (draw >= (u64)FUNCTIONS[which].percent) draw -= (u64)FUNCTIONS[which++].percent;
        bool waits = FUNCTIONS[which].waits;
        size_t size = waits ? sizeof CALL : sizeof COMPUTE;
        memcpy(at, waits ? CALL : COMPUTE, size);
        announce(FUNCTIONS[which].name, at, size);
        u64 end = now_ns() + jitter(&self->random, phase * 1000);
        while (now_ns() < end)
            MEASURE(truth[which], run(waits ? 2000000 : 1000 * units_per_us(), sleep_ns));
        self->truth->operations++;
    }
}

void program_jit(void) {
    begin_file();
    worker_start("jit", jit_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}
