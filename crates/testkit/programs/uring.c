// SPDX-License-Identifier: MIT OR Apache-2.0
// Waits for rings of io_uring, for a disk, the network and a timer: completed by an interrupt, by a worker of the
// kernel and by the ring's own thread; in rings of one kind and in a mixed one; and one wait without an end. In
// io_uring_enter, and by poll and epoll.
#include "uring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAUSE_NS 3000000
#define BLOCK (256u << 10)
#define BLOCKS 64

// ---- a ring ----

// In headers from Linux 5.18 and 6.1 on.
#ifndef IORING_ENTER_REGISTERED_RING
#define IORING_ENTER_REGISTERED_RING (1U << 4)
#define IORING_REGISTER_RING_FDS 20
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

static unsigned *word(struct uring *ring, unsigned offset) { return (unsigned *)(ring->ring + offset); }

bool uring_open(struct uring *ring) {
    ring->params.flags = ring->flags;
    ring->params.sq_thread_idle = 1000;
    ring->fd = (int)syscall(SYS_io_uring_setup, 8, &ring->params);
    if (ring->fd < 0) {
        fprintf(stderr, "wallscope-truth: left out io_uring: %s\n", strerror(errno));
        return false;
    }
    CHECK(ring->params.features & IORING_FEAT_SINGLE_MMAP, "io_uring is older than Linux 5.4");
    size_t completions = ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe);
    size_t requests = ring->params.sq_off.array + ring->params.sq_entries * sizeof(unsigned);
    ring->ring = mmap(NULL, completions > requests ? completions : requests, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
    ring->entries = mmap(NULL, ring->params.sq_entries * sizeof *ring->entries, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
    CHECK(ring->ring != MAP_FAILED && ring->entries != MAP_FAILED, "no rings");
    if (ring->registered) {
        struct io_uring_rsrc_update own = {.offset = -1U, .data = (u64)ring->fd};
        CHECK(syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_RING_FDS, &own, 1) == 1,
              "the ring cannot be registered");
        ring->index = (int)own.offset;
    }
    return true;
}

static long enter(struct uring *ring, unsigned submit, unsigned wait, unsigned flags) {
    if (ring->registered) flags |= IORING_ENTER_REGISTERED_RING;
    return syscall(SYS_io_uring_enter, ring->registered ? ring->index : ring->fd, submit, wait, flags, NULL, 0);
}

void uring_submit(struct uring *ring, struct io_uring_sqe request) {
    unsigned *tail = word(ring, ring->params.sq_off.tail);
    unsigned at = *tail & *word(ring, ring->params.sq_off.ring_mask);
    ring->entries[at] = request;
    word(ring, ring->params.sq_off.array)[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_SEQ_CST);
    if (!(ring->flags & IORING_SETUP_SQPOLL)) {
        CHECK(enter(ring, 1, 0, 0) == 1, "io_uring_enter does not take a request: %s", strerror(errno));
    } else if (__atomic_load_n(word(ring, ring->params.sq_off.flags), __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP) {
        CHECK(enter(ring, 1, 0, IORING_ENTER_SQ_WAKEUP) >= 0, "the ring's thread does not wake");
    }
}

bool uring_is_complete(struct uring *ring) {
    unsigned *head = word(ring, ring->params.cq_off.head), *tail = word(ring, ring->params.cq_off.tail);
    return __atomic_load_n(tail, __ATOMIC_ACQUIRE) != *head;
}

u64 uring_wait(struct uring *ring, int *result) {
    while (!uring_is_complete(ring)) {
        long done = enter(ring, 0, 1, IORING_ENTER_GETEVENTS);
        CHECK(done >= 0 || errno == EINTR, "io_uring_enter does not wait: %s", strerror(errno));
    }
    unsigned *head = word(ring, ring->params.cq_off.head);
    struct io_uring_cqe *all = (struct io_uring_cqe *)(ring->ring + ring->params.cq_off.cqes);
    struct io_uring_cqe *done = &all[*head & *word(ring, ring->params.cq_off.ring_mask)];
    u64 of = done->user_data;
    *result = done->res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return of;
}

// ---- a disk ----

static int file_of(const char *kind, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/wallscope-%s-%d", option_text("dir", "."), kind, getpid());
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
    unlink(path);
    CHECK(fd >= 0, "no file can be made in %s; choose another with --dir", option_text("dir", "."));
    return fd;
}

static char *block_new(void) {
    char *block = aligned_alloc(4096, BLOCK);
    CHECK(block, "no memory");
    return memset(block, 7, BLOCK);
}

NAMED void uring_direct_write(struct uring *ring, int fd, char *block, u64 at) {
    struct io_uring_sqe write = {.opcode = IORING_OP_WRITE, .fd = fd, .addr = (u64)block, .len = BLOCK, .off = at};
    CHECK(uring_complete(ring, write) == (int)BLOCK, "the disk cannot be written");
}

// A worker of the kernel makes the call.
NAMED void uring_fsync(struct uring *ring, int fd) {
    CHECK(uring_complete(ring, (struct io_uring_sqe){.opcode = IORING_OP_FSYNC, .fd = fd}) == 0, "fsync failed");
}

static void write_run(struct worker *self) {
    struct uring ring = {0};
    if (!uring_open(&ring)) return;
    struct function_truth *write = function_truth_new("uring_direct_write", "disk");
    struct function_truth *sync = function_truth_new("uring_fsync", "disk");
    int fd = file_of("uring-write", O_DIRECT);
    char *block = block_new();
    while (!stopping()) {
        u64 at = self->truth->operations % BLOCKS * BLOCK;
        MEASURE(write, uring_direct_write(&ring, fd, block, at));
        MEASURE(sync, uring_fsync(&ring, fd));
        self->truth->operations++;
    }
}

// A buffered read, always by a worker of the kernel.
NAMED void uring_worker_read(struct uring *ring, int fd, char *block, u64 at) {
    struct io_uring_sqe read = {.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = fd,
                                .addr = (u64)block, .len = BLOCK, .off = at};
    CHECK(uring_complete(ring, read) == (int)BLOCK, "the disk cannot be read");
}

static void read_run(struct worker *self) {
    struct uring ring = {.registered = true};
    if (!uring_open(&ring)) return;
    struct function_truth *truth = function_truth_new("uring_worker_read", "disk");
    int fd = file_of("uring-read", 0);
    char *block = block_new();
    for (int i = 0; i < BLOCKS; i++)
        CHECK(pwrite(fd, block, BLOCK, (off_t)i * BLOCK) == (ssize_t)BLOCK, "no room on the disk");
    CHECK(!fsync(fd), "fsync failed");
    while (!stopping()) {
        u64 at = self->truth->operations % BLOCKS * BLOCK;
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        MEASURE(truth, uring_worker_read(&ring, fd, block, at));
        self->truth->operations++;
    }
}

// ---- the network ----

static void connect_pair(int pair[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(listener, (struct sockaddr *)&at, size) && !listen(listener, 1) &&
              !getsockname(listener, (struct sockaddr *)&at, &size) &&
              !connect(pair[0], (struct sockaddr *)&at, size),
          "no connection over loopback");
    pair[1] = accept(listener, NULL, NULL);
    CHECK(pair[1] >= 0, "no connection over loopback");
    close(listener);
}

// Each connection has a peer, which answers a byte by another one after a while.
enum { RECV, MIXED, OWN_THREAD, EPOLL, CONNECTIONS };
static int connection[CONNECTIONS][2], silent[2];

static void peer_run(struct worker *self) {
    int fd = *(int *)self->argument;
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) {
        sleep_ns(jitter(&self->random, PAUSE_NS));
        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) break;
    }
}

static void ask(int fd) { CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == 1, "the connection is gone"); }

static struct io_uring_sqe receive(int fd, char *into) {
    return (struct io_uring_sqe){.opcode = IORING_OP_RECV, .fd = fd, .addr = (u64)into, .len = 1, .user_data = 1};
}

NAMED void uring_receive(struct uring *ring, int fd, char *into) {
    CHECK(uring_complete(ring, receive(fd, into)) == 1, "the connection is gone");
}

static void receive_run(struct worker *self) {
    struct uring ring = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    if (!uring_open(&ring)) return;
    struct function_truth *truth = function_truth_new("uring_receive", "network");
    int fd = connection[RECV][0];
    char byte;
    while (!stopping()) {
        ask(fd);
        MEASURE(truth, uring_receive(&ring, fd, &byte));
        self->truth->operations++;
    }
    shutdown(fd, SHUT_RDWR);
}

// Nothing ever comes: the recording begins and ends in the wait.
NAMED void uring_silence(struct uring *ring, char *into) {
    uring_complete(ring, receive(silent[0], into));
    KEEP_FRAME();
}

static void *silence_run(void *argument) {
    struct uring ring = {0};
    char byte;
    (void)argument;
    pthread_setname_np(pthread_self(), "u-silence");
    if (!uring_open(&ring)) return NULL;
    function_truth_new("uring_silence", "network");
    uring_silence(&ring, &byte);
    return NULL;
}

// ---- a timer ----

static struct io_uring_sqe timeout(struct __kernel_timespec *after) {
    return (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .addr = (u64)after, .len = 1, .user_data = 2};
}

NAMED void uring_timer(struct uring *ring, u64 ns) {
    struct __kernel_timespec after = {.tv_nsec = (long long)ns};
    uring_complete(ring, timeout(&after));
    KEEP_FRAME();
}

static void timer_run(struct worker *self) {
    struct uring ring = {0};
    if (!uring_open(&ring)) return;
    struct function_truth *truth = function_truth_new("uring_timer", "timer");
    while (!stopping()) {
        MEASURE(truth, uring_timer(&ring, jitter(&self->random, PAUSE_NS)));
        self->truth->operations++;
    }
}

// ---- both, in one ring, which the program's thread or the ring's own one serves ----

// A receipt and a timer of ten minutes are in flight.
NAMED void uring_mixed_receive(struct uring *ring) {
    int result;
    CHECK(uring_wait(ring, &result) == 1 && result == 1, "no byte has come");
}

// The receipt of the next byte, which has not been asked for, and a short timer too.
NAMED void uring_mixed_timer(struct uring *ring) {
    int result;
    CHECK(uring_wait(ring, &result) == 2, "a byte has come");
}

static void mixed_run(struct worker *self) {
    bool own_thread = self->argument != NULL;
    struct uring ring = {.flags = own_thread ? IORING_SETUP_SQPOLL : 0};
    if (!uring_open(&ring)) return;
    struct function_truth *network = function_truth_new("uring_mixed_receive", "network");
    struct function_truth *timer = function_truth_new("uring_mixed_timer", "timer");
    struct __kernel_timespec soon = {.tv_nsec = PAUSE_NS}, late = {.tv_sec = 600};
    int fd = connection[own_thread ? OWN_THREAD : MIXED][0];
    char byte;
    uring_submit(&ring, timeout(&late));
    uring_submit(&ring, receive(fd, &byte));
    while (!stopping()) {
        ask(fd);
        MEASURE(network, uring_mixed_receive(&ring));
        uring_submit(&ring, receive(fd, &byte));
        uring_submit(&ring, timeout(&soon));
        MEASURE(timer, uring_mixed_timer(&ring));
        self->truth->operations++;
    }
    shutdown(fd, SHUT_RDWR);
}

// ---- waited for by other calls ----

NAMED void uring_poll_fsync(struct uring *ring, int fd) {
    int result;
    uring_submit(ring, (struct io_uring_sqe){.opcode = IORING_OP_FSYNC, .fd = fd});
    while (!uring_is_complete(ring)) poll(&(struct pollfd){.fd = ring->fd, .events = POLLIN}, 1, -1);
    uring_wait(ring, &result);
    CHECK(result == 0, "fsync failed");
}

static void poll_run(struct worker *self) {
    struct uring ring = {0};
    if (!uring_open(&ring)) return;
    struct function_truth *truth = function_truth_new("uring_poll_fsync", "disk");
    int fd = file_of("uring-poll", 0);
    char *block = block_new();
    while (!stopping()) {
        CHECK(pwrite(fd, block, BLOCK, 0) == (ssize_t)BLOCK, "no room on the disk");
        MEASURE(truth, uring_poll_fsync(&ring, fd));
        self->truth->operations++;
    }
}

// Beside the ring a pipe is in the set, to which nobody writes.
NAMED void uring_epoll_receive(struct uring *ring, int set, int fd) {
    struct epoll_event event;
    char byte;
    int result;
    uring_submit(ring, receive(fd, &byte));
    while (!uring_is_complete(ring)) epoll_wait(set, &event, 1, -1);
    uring_wait(ring, &result);
    CHECK(result == 1, "the connection is gone");
}

static void epoll_run(struct worker *self) {
    struct uring ring = {0};
    if (!uring_open(&ring)) return;
    struct function_truth *truth = function_truth_new("uring_epoll_receive", "network");
    int fd = connection[EPOLL][0], set = epoll_create1(EPOLL_CLOEXEC), quiet[2];
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(!pipe(quiet) && !epoll_ctl(set, EPOLL_CTL_ADD, quiet[0], &event) &&
              !epoll_ctl(set, EPOLL_CTL_ADD, ring.fd, &event),
          "no set to poll");
    while (!stopping()) {
        ask(fd);
        MEASURE(truth, uring_epoll_receive(&ring, set, fd));
        self->truth->operations++;
    }
    shutdown(fd, SHUT_RDWR);
}

void program_uring(void) {
    struct uring trial = {0};
    if (!uring_open(&trial)) refuse("no ring of io_uring can be made");
    close(trial.fd);
    for (int i = 0; i < CONNECTIONS; i++) connect_pair(connection[i]);
    connect_pair(silent);
    pthread_t silence;
    CHECK(!pthread_create(&silence, NULL, silence_run, NULL), "no thread");
    worker_start("u-write", write_run, NULL);
    worker_start("u-read", read_run, NULL);
    worker_start("u-receive", receive_run, NULL);
    worker_start("u-timer", timer_run, NULL);
    worker_start("u-mixed", mixed_run, NULL);
    worker_start("u-ownthread", mixed_run, "own");
    worker_start("u-poll", poll_run, NULL);
    worker_start("u-epoll", epoll_run, NULL);
    for (int i = 0; i < CONNECTIONS; i++) worker_start("u-peer", peer_run, &connection[i][1]);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}
