// SPDX-License-Identifier: MIT OR Apache-2.0
// Waiting for a lock, a disk, a page, a peer, a pipe, and in blocks that no recording's window
// holds whole.
#include "truth.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- convoy ----

extern pthread_mutex_t *convoy_mutex_new(void);
static pthread_mutex_t *convoy_mutex;

NAMED void convoy_think(u64 units) { SPIN(units); }
NAMED void convoy_wait_lock(void) { pthread_mutex_lock(convoy_mutex); KEEP_FRAME(); }
NAMED void convoy_hold_compute(u64 units) { SPIN(units); }
NAMED void convoy_hold_sleep(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

static void convoy_run(struct worker *self) {
    struct function_truth *think = function_truth_new("convoy_think", "");
    struct function_truth *wait = function_truth_new("convoy_wait_lock", "lock");
    struct function_truth *compute = function_truth_new("convoy_hold_compute", "");
    struct function_truth *sleep = function_truth_new("convoy_hold_sleep", "timer");
    u64 hold = (u64)option_long("hold-us", 300) * units_per_us();
    u64 pause = (u64)option_long("sleep-us", 700) * 1000;
    while (!stopping()) {
        MEASURE(think, convoy_think(jitter(&self->random, hold / 3)));
        MEASURE(wait, convoy_wait_lock());
        MEASURE(compute, convoy_hold_compute(jitter(&self->random, hold)));
        MEASURE(sleep, convoy_hold_sleep(jitter(&self->random, pause)));
        pthread_mutex_unlock(convoy_mutex);
        self->truth->operations++;
    }
}

void program_convoy(void) {
    static const char *NAMES[] = {"convoy-0", "convoy-1", "convoy-2", "convoy-3"};
    long threads = option_long("threads", 4);
    convoy_mutex = convoy_mutex_new();
    for (long i = 0; i < threads; i++) worker_start(NAMES[i % 4], convoy_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- files ----

// A file of the given size with no name left, on the disk that holds --dir.
static int scratch_file(int flags, size_t bytes) {
    const char *folder = option_text("dir", ".");
    char path[512];
    snprintf(path, sizeof path, "%s/wallscope-truth-XXXXXX", folder);
    int fd = mkostemp(path, flags);
    CHECK(fd >= 0, "no file can be made in %s; choose another with --dir", folder);
    unlink(path);
    CHECK(!posix_fallocate(fd, 0, (off_t)bytes), "no room for %zu bytes in %s", bytes, folder);
    return fd;
}

#define DISK_FILE (16u << 20)
#define DISK_BLOCK (256u << 10)

NAMED void disk_fdatasync(int fd, const char *block, off_t at) {
    CHECK(pwrite(fd, block, 65536, at) == 65536 && !fdatasync(fd), "the disk cannot be written");
}
NAMED void disk_direct_write(int fd, const char *block, off_t at) {
    CHECK(pwrite(fd, block, DISK_BLOCK, at) == DISK_BLOCK, "O_DIRECT write failed");
}

static void disk_run(struct worker *self) {
    bool direct = self->argument != NULL;
    struct function_truth *truth =
        function_truth_new(direct ? "disk_direct_write" : "disk_fdatasync", "disk");
    char *block = aligned_alloc(4096, DISK_BLOCK);
    CHECK(block, "no memory");
    memset(block, self->index + 1, DISK_BLOCK);
    int fd = scratch_file(direct ? O_DIRECT : 0, DISK_FILE);
    while (!stopping()) {
        off_t at = (off_t)(random_next(&self->random) % (DISK_FILE / DISK_BLOCK)) * DISK_BLOCK;
        if (direct)
            MEASURE(truth, disk_direct_write(fd, block, at));
        else
            MEASURE(truth, disk_fdatasync(fd, block, at));
        self->truth->operations++;
    }
    close(fd);
    free(block);
}

void program_disk(void) {
    int probe = scratch_file(O_DIRECT, DISK_BLOCK);
    close(probe);
    worker_start("disk-sync", disk_run, NULL);
    worker_start("disk-direct", disk_run, "direct");
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

static long faults_minor, faults_major;

NAMED void fault_minor_storm(volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
}
NAMED void fault_major_file(const volatile char *memory, size_t bytes, u64 *random) {
    for (int i = 0; i < 64; i++) (void)memory[random_next(random) % (bytes / 4096) * 4096];
}

static void faults_run(struct worker *self) {
    pin_if_asked();
    struct function_truth *minor = function_truth_new("fault_minor_storm", "");
    struct function_truth *major = function_truth_new("fault_major_file", "page_fault");
    size_t bytes = (size_t)option_long("megabytes", 32) << 20;
    int fd = scratch_file(0, bytes);
    // Written, not only allocated: a hole or an unwritten extent is read without the disk.
    char *block = malloc(1 << 20);
    CHECK(block, "no memory");
    memset(block, 7, 1 << 20);
    for (size_t at = 0; at < bytes; at += 1 << 20)
        CHECK(pwrite(fd, block, 1 << 20, (off_t)at) == 1 << 20, "the file cannot be filled");
    free(block);
    CHECK(!fsync(fd), "fsync failed");
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    while (!stopping()) {
        char *memory = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED, "no memory");
        MEASURE(minor, fault_minor_storm(memory, 8 << 20));
        munmap(memory, 8 << 20);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        const char *file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(file != MAP_FAILED, "the file cannot be mapped");
        madvise((void *)file, bytes, MADV_RANDOM);
        MEASURE(major, fault_major_file(file, bytes, &self->random));
        munmap((void *)file, bytes);
        self->truth->operations++;
    }
    getrusage(RUSAGE_THREAD, &after);
    faults_minor = after.ru_minflt - before.ru_minflt;
    faults_major = after.ru_majflt - before.ru_majflt;
    close(fd);
}

void program_faults(void) {
    worker_start("faults", faults_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    extra_truth_set("minor_faults", (double)faults_minor);
    extra_truth_set("major_faults", (double)faults_major);
}

// ---- rpc ----

NAMED void rpc_server_compute(u64 units) { SPIN(units); }
NAMED void rpc_server_backend(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED bool rpc_server_receive(int fd, char *byte) { return recv(fd, byte, 1, 0) == 1; }
NAMED void rpc_client_call(int fd) {
    char byte = 'q';
    CHECK(send(fd, &byte, 1, 0) == 1 && recv(fd, &byte, 1, 0) == 1, "the server is gone");
}
NAMED void rpc_client_render(u64 units) { SPIN(units); }

static void rpc_server(int fd) {
    struct thread_truth *row = thread_truth_new("rpc-server");
    pthread_setname_np(pthread_self(), "rpc-server");
    struct function_truth *receive = function_truth_new("rpc_server_receive", "network");
    struct function_truth *compute = function_truth_new("rpc_server_compute", "");
    struct function_truth *backend = function_truth_new("rpc_server_backend", "timer");
    u64 pause = (u64)option_long("backend-us", 3000) * 1000, random = 77;
    u64 units = (u64)option_long("compute-us", 400) * units_per_us();
    // The first request's wait began before any recording; it is not told.
    char first;
    if (recv(fd, &first, 1, 0) != 1 || send(fd, &first, 1, MSG_NOSIGNAL) != 1) _exit(0);
    struct mark since = mark_now();
    for (;;) {
        char byte;
        bool open;
        MEASURE(receive, open = rpc_server_receive(fd, &byte));
        if (!open) break;
        MEASURE(compute, rpc_server_compute(jitter(&random, units)));
        MEASURE(backend, rpc_server_backend(jitter(&random, pause)));
        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) break;
        row->operations++;
    }
    thread_truth_end(row, &since);
    _exit(0);
}

static int rpc_fd;

static void rpc_client_run(struct worker *self) {
    struct function_truth *call = function_truth_new("rpc_client_call", "network");
    struct function_truth *render = function_truth_new("rpc_client_render", "");
    u64 units = (u64)option_long("compute-us", 400) * units_per_us();
    char first = 'f';
    CHECK(send(rpc_fd, &first, 1, 0) == 1 && recv(rpc_fd, &first, 1, 0) == 1, "the server is gone");
    while (!stopping()) {
        MEASURE(call, rpc_client_call(rpc_fd));
        MEASURE(render, rpc_client_render(jitter(&self->random, units)));
        self->truth->operations++;
    }
    close(rpc_fd);
}

void program_rpc(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&address, length) &&
              !listen(listener, 4) && !getsockname(listener, (struct sockaddr *)&address, &length),
          "no loopback socket");
    int server = fork();
    CHECK(server >= 0, "fork failed");
    if (!server) {
        int fd = accept(listener, NULL, NULL);
        CHECK(fd >= 0, "accept failed");
        rpc_server(fd);
    }
    rpc_fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(rpc_fd >= 0 && !connect(rpc_fd, (struct sockaddr *)&address, length), "connect failed");
    int on = 1;
    setsockopt(rpc_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    worker_start("rpc-client", rpc_client_run, NULL);
    ready_and_wait(&server, 1);
    wait_for_end(false);
    workers_settle();
    waitpid(server, NULL, 0);
}

// ---- micro, pingpong: a byte through two pipes ----

static int there[2], back[2];

static void pipes_open(void) { CHECK(!pipe(there) && !pipe(back), "no pipes"); }

NAMED void pipe_echo(void) {
    char byte;
    while (read(there[0], &byte, 1) == 1)
        if (write(back[1], &byte, 1) != 1) break;
}

static inline __attribute__((always_inline)) void pipe_round(void) {
    char byte = 1;
    CHECK(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "the pipe is gone");
}

static void echo_run(struct worker *self) {
    (void)self;
    pin_to_cpu((int)option_long("cpu", 0));
    pipe_echo();
}

NAMED void micro_blocks(long count) {
    for (long i = 0; i < count; i++) pipe_round();
}
NAMED void long_block(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

static void micro_run(struct worker *self) {
    pin_to_cpu(0);
    struct function_truth *micro = function_truth_new("micro_blocks", "pipe");
    struct function_truth *lone = function_truth_new("long_block", "timer");
    long count = option_long("count", 1000000);
    MEASURE(micro, micro_blocks(count));
    u64 blocked = micro->wall - micro->on_cpu - micro->run_delay;
    MEASURE(lone, long_block(blocked));
    self->truth->operations = (u64)count;
    close(there[1]);
}

void program_micro(void) {
    pipes_open();
    worker_start("micro", micro_run, NULL);
    worker_start("micro-echo", echo_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(true);
    workers_settle();
}

// ---- brief: waits of a tenth of a millisecond of three kinds, and long ones of one of them ----

NAMED void brief_sync(int fd, const char *block, off_t at) {
    CHECK(pwrite(fd, block, 4096, at) == 4096 && !fdatasync(fd), "the disk cannot be written");
}
NAMED void brief_hand(void) { pipe_round(); KEEP_FRAME(); }
NAMED void brief_nap(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void brief_rest(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

static void brief_echo_run(struct worker *self) {
    (void)self;
    char byte;
    while (read(there[0], &byte, 1) == 1) {
        sleep_ns(60000);
        if (write(back[1], &byte, 1) != 1) break;
    }
}

static void brief_run(struct worker *self) {
    struct function_truth *sync = function_truth_new("brief_sync", "disk");
    struct function_truth *hand = function_truth_new("brief_hand", "pipe");
    struct function_truth *nap = function_truth_new("brief_nap", "timer");
    struct function_truth *rest = function_truth_new("brief_rest", "timer");
    char *block = aligned_alloc(4096, 4096);
    CHECK(block, "no memory");
    memset(block, 3, 4096);
    int fd = scratch_file(0, DISK_FILE);
    while (!stopping()) {
        off_t at = (off_t)(self->truth->operations % 64) * 4096;
        MEASURE(sync, brief_sync(fd, block, at));
        MEASURE(hand, brief_hand());
        MEASURE(nap, brief_nap(jitter(&self->random, 100000)));
        if (self->truth->operations++ % 32 == 0) MEASURE(rest, brief_rest(3000000));
    }
    close(there[1]);
    close(fd);
    free(block);
}

void program_brief(void) {
    int probe = scratch_file(0, DISK_FILE);
    close(probe);
    pipes_open();
    worker_start("brief", brief_run, NULL);
    worker_start("brief-echo", brief_echo_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

#define BATCH 2000
static double round_mean;

NAMED void pipe_rounds(long count) {
    for (long i = 0; i < count; i++) pipe_round();
}

// With --piece N: pieces of N turns; when each ended is told.
static void pingpong_run(struct worker *self) {
    pin_to_cpu((int)option_long("cpu", 0));
    long rounds = option_long("rounds", 0), batch = option_long("piece", BATCH);
    u64 start = now_ns();
    while (rounds ? (long)self->truth->operations < rounds : !stopping()) {
        pipe_rounds(batch);
        self->truth->operations += (u64)batch;
        if (option_flag("piece")) piece_done();
    }
    round_mean = (double)(now_ns() - start) / (double)self->truth->operations;
    close(there[1]);
}

void program_pingpong(void) {
    pipes_open();
    worker_start("pingpong", pingpong_run, NULL);
    worker_start("pingpong-echo", echo_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(option_long("rounds", 0) > 0);
    workers_settle();
    extra_truth_set("ns_per_round", round_mean);
}

// ---- span ----

static int span_release;
static int span_tids[2], span_started;

static void block_on(int fd) {
    u64 value;
    if (read(fd, &value, sizeof value) < 0) fail("eventfd read failed");
}

NAMED void span_forever(int fd) { block_on(fd); KEEP_FRAME(); }
NAMED void span_start_edge(int fd) { block_on(fd); KEEP_FRAME(); }
NAMED void span_end_edge(int fd) { block_on(fd); KEEP_FRAME(); }
NAMED void span_killed_child(int fd) { block_on(fd); KEEP_FRAME(); }
NAMED void span_spin(u64 units) { SPIN(units); }

// Threads beside the workers: they block before READY, or are still blocked at the end.
static void *span_thread(void *argument) {
    const char *name = argument;
    pthread_setname_np(pthread_self(), name);
    struct thread_truth *row = thread_truth_new(name);
    struct mark since = mark_now();
    span_tids[!strcmp(name, "span-edge")] = row->tid;
    __atomic_fetch_add(&span_started, 1, __ATOMIC_RELEASE);
    if (!strcmp(name, "span-forever")) span_forever(eventfd(0, EFD_CLOEXEC));
    span_start_edge(span_release);
    thread_truth_end(row, &since);
    return NULL;
}

static void span_late_run(struct worker *self) {
    struct function_truth *spin = function_truth_new("span_spin", "");
    u64 half = now_ns() + (u64)(option_double("seconds", 3.0) * 5e8), units = 500 * units_per_us();
    while (now_ns() < half && !stopping()) {
        MEASURE(spin, span_spin(units));
        sleep_ns(1000000);
    }
    extra_truth_set("end_block_began_ns", (double)now_ns());
    span_end_edge(eventfd(0, EFD_CLOEXEC));
}

void program_span(void) {
    span_release = eventfd(0, EFD_CLOEXEC);
    CHECK(span_release >= 0, "no eventfd");
    pthread_t forever, edge;
    CHECK(!pthread_create(&forever, NULL, span_thread, "span-forever") &&
              !pthread_create(&edge, NULL, span_thread, "span-edge"),
          "no threads");
    while (__atomic_load_n(&span_started, __ATOMIC_ACQUIRE) < 2) sleep_ns(100000);
    int child = fork();
    CHECK(child >= 0, "fork failed");
    if (!child) {
        pthread_setname_np(pthread_self(), "span-killed");
        thread_truth_new("span-killed");
        span_killed_child(eventfd(0, EFD_CLOEXEC));
        _exit(0);
    }
    wait_until_blocked(getpid(), span_tids[0]);
    wait_until_blocked(getpid(), span_tids[1]);
    wait_until_blocked(child, child);
    worker_start("span-late", span_late_run, NULL);
    ready_and_wait(&child, 1);
    u64 half = (u64)(option_double("seconds", 3.0) * 5e8);
    sleep_ns(half);
    u64 one = 1;
    extra_truth_set("edge_released_ns", (double)now_ns());
    CHECK(write(span_release, &one, sizeof one) == sizeof one, "eventfd write failed");
    extra_truth_set("child_killed_ns", (double)now_ns());
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    pthread_join(edge, NULL);
    wait_for_end(false);
}
